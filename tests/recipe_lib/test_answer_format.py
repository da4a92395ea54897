"""The format contract: every style's prompt, examples, extractor and well-formedness agree with each other."""

import json
import time

import pytest

from recipe_lib.answer_format import (
    STYLES,
    completion_text,
    extract_answer,
    format_fault,
    is_well_formed,
    last_box,
    system_prompt,
)
from recipe_lib.rewards import accuracy_reward, format_reward


@pytest.fixture(params=list(STYLES))
def style(request):
    return request.param


def test_a_prompts_own_example_scores_full_marks(style):
    prompt, named = system_prompt(style), STYLES[style]
    assert prompt.endswith(named.example)
    assert format_reward([named.example], style=style) == [1.0]
    assert accuracy_reward([named.example], [named.example_answer], style=style) == [1.0]
    assert accuracy_reward([named.example], ["7"], style=style) == [0.0]
    assert len(prompt.split()) <= 45  # tiny models read it at every step


def test_a_prompt_shows_each_tag_once(style):
    """A reader who cuts the example out by its first and last tag gets the example."""
    assert all(system_prompt(style).count(tag) <= 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))


def test_canonical_texts(style):
    for text in STYLES[style].good:
        assert is_well_formed(text, style), text
        assert extract_answer(text, style), text
    for text in STYLES[style].bad:
        assert not is_well_formed(text, style), text


def test_format_cases(root):
    for line in (root / "tests/cases/formats.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        assert format_reward([case["completion"]]) == [case["expect"]], case


def test_a_text_without_the_opening_tag_counts_where_the_template_printed_it():
    text = " reasoning </think><answer>3</answer>"
    assert not is_well_formed(text)
    assert is_well_formed(text, think_prefilled=True)
    assert is_well_formed("a</think>3", "think", think_prefilled=True)
    assert is_well_formed("<think>" + text, think_prefilled=True)
    assert not is_well_formed("<think><think>" + text, think_prefilled=True)
    assert extract_answer(text, think_prefilled=True) == "3"
    assert extract_answer("so <answer>3</answer>", think_prefilled=True) is None  # still reasoning
    assert accuracy_reward([text], ["3"], think_prefilled=True) == [1.0]


def test_only_text_after_the_reasoning_is_read(style):
    for text in (
        "<think>5, <answer>5</answer> \\boxed{5}",
        "<think>5</think><think>\\boxed{5}",
        "<answer>5</answer></think>",
    ):
        assert extract_answer(text, style) is None, text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>1</answer><answer>2</answer>", "2"),
        ("<answer>1<answer>2</answer>", "2"),
        ("<answer>1</answer><answer>2", "1"),
        ("<answer>2</answer></answer>", "2"),
        ("</answer><answer>2", None),
        ("</answer> \\boxed{2}", "2"),
        ("<answer>\\boxed{1} \\boxed{2}", None),
        ("\\boxed{1} and \\boxed{2", "1"),
        ("\\boxed{\\boxed{2}}", "2"),
        ("\\boxed{1} so \\boxed{2}", "2"),
        ("\\boxed{\\boxed{1} or \\boxed{2}}", "2"),
        ("\\boxed {\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\{1\\}}", "\\{1\\}"),
        ("\\boxed{a\\}}", "a\\}"),
        ("\\boxed{} 5", None),
        ("\\boxed 5", None),
        ("nothing", None),
        ("", None),
    ],
)
def test_extraction(text, answer):
    assert extract_answer(text) == answer


def test_the_text_after_a_box_is_kept():
    assert last_box("so $\\boxed{12}$ cm") == ("12", "$ cm")
    assert last_box("no \\boxed") is None


@pytest.mark.parametrize(
    "completion",
    [
        "<answer>3</answer>",
        [{"role": "assistant", "content": "<answer>3</answer>"}],
        [{"role": "assistant", "content": [{"type": "text", "text": "<answer>3</answer>"}]}],
        [
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "<answer>"}, {"type": "text", "text": "3</answer>"}],
            }
        ],
        [{"role": "assistant", "content": [{"type": "image"}, {"type": "text", "text": "<answer>3</answer>"}]}],
        [{"content": "<answer>3</answer>"}],
        [
            {"role": "assistant", "content": "<answer>4</answer>"},
            {"role": "tool", "content": "<answer>5</answer>"},
            {"role": "assistant", "content": "<answer>3</answer>"},
        ],
        [{"role": "assistant", "content": "<answer>3</answer>"}, {"role": "user", "content": "<answer>5</answer>"}],
        "<answer>3</answer><|im_end|>\n<|endoftext|>",
        "<answer>3</answer></s></s>",
        "<answer>3</answer><end_of_utterance>",
        "<answer>3</answer><｜end▁of▁sentence｜>",
    ],
)
def test_every_shape_of_completion_is_the_same_text(completion):
    assert completion_text(completion) == "<answer>3</answer>"


@pytest.mark.parametrize(
    "completion", [None, "", [], {}, 5, [None], [[]], [{"role": "assistant"}], [{"content": None}], b"x"]
)
def test_odd_completions_are_texts_without_an_answer(completion):
    assert extract_answer(completion_text(completion)) is None


def test_what_is_wrong_is_said_in_words():
    assert format_fault("<think>a</think><answer>3") == "</answer> stands 0 times"
    assert format_fault("Sure! <think>a</think><answer>3</answer>") == "text before <think>"
    assert format_fault("<think>\u200b</think><answer>3</answer>") == "an empty block"
    assert format_fault("<think>a</think><answer>3</answer>") is None


def test_an_unknown_style_lists_the_known_ones():
    for call in (system_prompt, lambda s: is_well_formed("a", s), lambda s: extract_answer("a", s)):
        with pytest.raises(ValueError, match=r"'xml' is unknown.*think_answer, think, boxed, direct"):
            call("xml")


def test_time_grows_with_the_text_and_not_with_its_square(style):
    pieces = ["\\boxed{", "<answer>", "</answer>", "<think>", "</think>", "{", "}", "<|im_end|>", " ", "\\", "<"]
    started = time.perf_counter()
    for piece in pieces:
        for text in (piece * 50_000, f"<think>a</think>{piece * 50_000}<answer>"):
            extract_answer(text, style)
            is_well_formed(text, style)
    assert time.perf_counter() - started < 20
