"""The format reward and its graded form."""

import json

import pytest

from recipe_lib.rewards import format_reward, graded_format_reward


def test_shapes_and_settings():
    text = "<think>a</think><answer>3</answer>"
    shapes = [
        text,
        [{"role": "assistant", "content": text}],
        [{"role": "assistant", "content": [{"type": "text", "text": text}]}],
    ]
    assert format_reward(shapes, solution=["3"] * 3, prompts=[None] * 3) == [1.0] * 3
    assert format_reward([text[7:]]) == [0.0]
    assert format_reward([text[7:]], think_prefilled=True) == [1.0]
    assert format_reward([]) == []
    with pytest.raises(ValueError, match="known styles"):
        format_reward([], style="xml")


def test_grades_rise_on_the_way_to_the_whole_format():
    steps = ["3", "<think>a", "<think>a</think>", "<think>a</think><answer>3", "<think>a</think> So <answer>3</answer>"]
    grades = graded_format_reward([*steps, "<think>a</think><answer>3</answer>"])
    assert grades == sorted(set(grades)) and grades[0] == 0.0 and grades[-1] == 1.0 and grades[-2] == pytest.approx(0.8)


def test_tags_said_many_times_earn_nothing():
    """The usual way to game a graded format: say every tag, often."""
    assert graded_format_reward(["<think></think><answer></answer>" * 5]) == [0.0]


def test_the_full_grade_is_the_format_reward(root):
    for line in (root / "tests/cases/formats.jsonl").read_text(encoding="utf-8").splitlines():
        text = json.loads(line)["completion"]
        assert (graded_format_reward([text]) == [1.0]) == (format_reward([text]) == [1.0])


def test_other_styles_have_grades_too():
    assert graded_format_reward(["5"], style="boxed") == [0.0]
    assert graded_format_reward(["<think>a \\boxed{5}"], style="boxed") == [0.0]
    assert graded_format_reward(["\\boxed{5}"], style="boxed") == [1.0]
    assert graded_format_reward(["a</think>5"], style="think", think_prefilled=True) == [1.0]
