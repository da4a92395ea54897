"""Preference pairs: pairing rules, both of the paper's ways, resuming, and both samplers' inputs."""

import json
import random
import sys
import types
from collections import Counter

import pytest
import torch

from data_scripts import make_preferences, samplers, tiny_families
from data_scripts.make_preferences import PairArguments, in_turn, make, pair_up
from recipe_lib import datasets, models
from recipe_lib.answer_format import completion_text

RIGHT, WRONG = "<think>a</think><answer>{}</answer>", "<think>a</think><answer>1{}</answer>"


def how(folder, **options) -> PairArguments:
    return PairArguments(pairs=str(folder), **{"max_answer_tokens": 32, "questions_per_batch": 4, **options})


# --- pairing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("right", "wrong", "most"), [(3, 2, 6), (4, 2, 8), (4, 2, 5), (1, 5, 3), (3, 3, 9), (2, 2, 1)])
def test_pairs_of_a_question_are_distinct_and_balanced(right, wrong, most):
    sides = [f"r{i}" for i in range(right)], [f"w{i}" for i in range(wrong)]
    pairs = pair_up(*sides, most, random.Random(0))
    assert len(pairs) == len(set(pairs)) == min(most, right * wrong)
    for place, side in enumerate(sides):
        uses = Counter(pair[place] for pair in pairs)
        assert max(uses.values()) - min(uses[answer] for answer in side) <= 1
    assert pair_up([], ["w"], 4, random.Random(0)) == []


def test_a_limit_on_all_pairs_takes_kinds_in_turn():
    kinds = ["sum"] * 5 + ["read"] * 2
    pairs = [(place, 0, "r", "w") for place in range(7)]
    assert Counter(kinds[place] for place, *_ in in_turn(pairs, kinds, 4)) == {"sum": 2, "read": 2}
    assert Counter(kinds[place] for place, *_ in in_turn(pairs, kinds, 6)) == {"sum": 4, "read": 2}
    assert in_turn(pairs, kinds, None) == pairs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pair_method": "guess"}, "pair_method='guess'; known: correctness, drop_and_continue"),
        ({"sampling_backend": "jax"}, "sampling_backend='jax'; known: transformers, vllm"),
        ({"samples": 1}, "samples=1; correctness needs at least 2"),
    ],
)
def test_arguments_that_cannot_work_are_refused(tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        how(tmp_path, **options)


# --- the whole, with answers from a table ---------------------------------------------------------


@pytest.fixture(scope="module")
def questions():
    return datasets.load("digits", "train", limit=10)


@pytest.fixture(scope="module")
def processor():
    return tiny_families.processor("qwen2.5-vl")


@pytest.fixture
def scripted(monkeypatch, questions):
    """The transformers sampler, replaced: each question's answers by its number of calls; returns the calls."""
    calls = []

    def sampler(model, processor, **options):
        def sample(texts, images, n, seed):
            calls.append((texts, [len(found) for found in images], n, seed))
            start = sum(len(texts) for texts, *_ in calls[:-1]) % len(questions)
            return [answers_to(questions[start + i]["solution"], n) for i in range(len(texts))]

        return sample

    monkeypatch.setattr(make_preferences, "transformers_sampler", sampler)
    return calls


def answers_to(gold, n):
    """Right twice, right without its form, right but cut off, wrong twice, wrong and cut off, nothing."""
    right, wrong = RIGHT.format(gold), WRONG.format(gold)
    found = [(right, True), (right, True), (f"<answer>{gold}</answer>", True), (right + " ", False), (wrong, True)]
    return [*found, (wrong, True), ("<think>I am", False), ("", True)][:n]


def test_right_is_paired_with_wrong(scripted, questions, processor, tmp_path):
    pairs = make("tiny", None, processor, questions, how(tmp_path), dataset="digits", seed=3)
    assert len(pairs) == 20 and make_preferences.are_made(tmp_path)
    for place, row in enumerate(pairs):
        question = questions[place // 2]
        assert set(row) == {"id", "prompt", "images", "chosen", "rejected", "kind", "origin"}
        assert completion_text(row["chosen"]) == RIGHT.format(question["solution"])
        assert completion_text(row["rejected"]) in (WRONG.format(question["solution"]), "<think>I am")
        assert row["prompt"] == question["prompt"] and row["kind"] == question["kind"]
        assert row["images"][0].tobytes() == question["images"][0].tobytes()
        origin = {"method": "correctness", "model": "tiny", "dataset": "digits", "split": "train"}
        assert row["origin"] == {**origin, "row": question["id"], "solution": question["solution"]}
    assert len({row["id"] for row in pairs}) == 20


def test_a_stopped_run_goes_on_and_ends_like_the_unbroken_one(scripted, questions, processor, tmp_path):
    whole = make("tiny", None, processor, questions, how(tmp_path / "whole"), dataset="digits")
    seeds = [seed for *_, seed in scripted]
    scripted.clear()
    make("tiny", None, processor, questions.select(range(8)), how(tmp_path / "cut"), dataset="digits")
    lines = (tmp_path / "cut/answers.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut/answers.jsonl").write_text("".join(lines[:6]) + lines[6][:9])  # killed within the second batch
    for part in (tmp_path / "cut").glob("train-*"):
        part.unlink()
    assert not make_preferences.are_made(tmp_path / "cut")
    scripted[:] = scripted[:1]
    again = make("tiny", None, processor, questions, how(tmp_path / "cut"), dataset="digits")
    assert [seed for *_, seed in scripted] == seeds and len(set(seeds)) == 3
    assert (tmp_path / "cut/answers.jsonl").read_text() == (tmp_path / "whole/answers.jsonl").read_text()
    assert [row["rejected"] for row in again] == [row["rejected"] for row in whole]

    make("tiny", None, processor, questions, how(tmp_path / "cut", pairs_per_question=1), dataset="digits")
    assert len(scripted) == 3, "pairing anew samples nothing"
    with pytest.raises(ValueError, match=r"sampled with \{'samples': 8\}; remove it, or name another folder"):
        make("tiny", None, processor, questions, how(tmp_path / "cut", samples=9), dataset="digits")


def test_no_pair_at_all_says_why(scripted, questions, processor, tmp_path):
    with pytest.raises(ValueError, match=r"no pairs: of 10 questions 10 got an answer to choose, 0 one to reject"):
        make("tiny", None, processor, questions, how(tmp_path, samples=2), dataset="digits")


def test_a_repeated_question_gives_no_second_pair(questions, tmp_path):
    pairs = make_preferences.paired([{"chosen": ["a"], "rejected": ["b"]}] * 3, how(tmp_path), seed=0)
    origin = dict.fromkeys(("method", "model", "dataset", "split"), "x")
    assert len(pairs) == 3
    assert make_preferences._write(tmp_path, questions.select([0, 0, 1]), pairs, origin) == 2


# --- with a model ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_tiny_model_makes_pairs_from_the_command_line(tmp_path):
    folder = tmp_path / "pairs"
    options = "--n_questions 8 --samples 6 --sampling_temperature 2.0 --top_k 0 --max_answer_tokens 32"
    arguments = ["--model", "tiny-qwen2.5-vl", "--dataset", "digits", "--pairs", str(folder), *options.split()]
    pairs = make_preferences.main(arguments)
    assert len(pairs) > 0 and pairs[0]["origin"]["model"] == "tiny-qwen2.5-vl"
    first = (folder / "answers.jsonl").read_bytes()
    (folder / "answers.jsonl").unlink()
    make_preferences.main(arguments)
    assert (folder / "answers.jsonl").read_bytes() == first, "a seed means the same answers"


@pytest.mark.slow
def test_drop_and_continue_keeps_the_first_half_and_never_shows_the_picture(questions, tmp_path, monkeypatch):
    model, processor = models.load("tiny-qwen2.5-vl")
    plain, calls = (
        make_preferences.transformers_sampler(model, processor, max_new_tokens=32, temperature=2.0, top_k=0),
        [],
    )

    def watched(texts, images, n, seed):
        calls.append((texts, images))
        return plain(texts, images, n, seed)

    monkeypatch.setattr(make_preferences, "transformers_sampler", lambda *args, **options: watched)
    state = torch.random.get_rng_state()
    settings = how(tmp_path, pair_method="drop_and_continue", samples=4, questions_per_batch=10)
    pairs = make("tiny-qwen2.5-vl", model, processor, questions, settings, dataset="digits")
    assert torch.equal(torch.random.get_rng_state(), state), "sampling leaves the training's random numbers alone"
    (_, shown), (blind, hidden) = calls
    assert all(shown) and not any(hidden) and not any("image_pad" in text for text in blind)
    for row in pairs:
        chosen, rejected = completion_text(row["chosen"]), completion_text(row["rejected"])
        half = make_preferences.first_half(processor, chosen)
        assert (
            chosen.startswith(half) and rejected.startswith(half) and chosen != rejected and 0 < len(half) < len(chosen)
        )
        assert row["origin"]["method"] == "drop_and_continue"


@pytest.mark.parametrize("family", ["qwen2.5-vl", "smolvlm"])
def test_rows_of_any_count_of_images_are_sampled(family, questions):
    processor = tiny_families.processor(family)
    model = tiny_families.model(family, processor)
    sample = samplers.transformers_sampler(model, processor, max_new_tokens=3)
    image = questions[0]["images"][0]
    for counts in ([1, 1], [0, 2, 1], [0, 0]):
        parts = [[{"type": "image"}] * n + [{"type": "text", "text": "q"}] for n in counts]
        texts = [samplers.chat_text(processor, [{"role": "user", "content": content}]) for content in parts]
        first, again, other = (sample(texts, [[image] * n for n in counts], 2, seed) for seed in (0, 0, 1))
        assert [len(found) for found in first] == [2] * len(counts)
        assert first == again != other


def test_vllm_gets_one_place_for_each_image_and_the_budget(monkeypatch, questions, processor):
    """Against a stand-in for vLLM: the arguments of its two calls, and how its answers are read."""
    seen = {}

    class LLM:
        def __init__(self, **options):
            seen.update(options)

        def generate(self, requests, sampling, use_tqdm):
            seen.update(requests=requests, sampling=sampling)
            one = (
                types.SimpleNamespace(text="a", finish_reason="stop"),
                types.SimpleNamespace(text="b", finish_reason="length"),
            )
            return [types.SimpleNamespace(outputs=one) for _ in requests]

    stand_in = types.SimpleNamespace(LLM=LLM, SamplingParams=lambda **options: options)
    monkeypatch.setitem(sys.modules, "vllm", stand_in)
    sample = samplers.vllm_sampler("tiny-qwen2.5-vl", processor, max_new_tokens=7, temperature=1.3, max_model_len=512)
    text = samplers.chat_text(processor, questions[0]["prompt"])
    assert sample([text, "blind"], [questions[0]["images"], []], 2, 5) == [[("a", True), ("b", False)]] * 2
    assert seen["requests"][0]["prompt"].count("<|image_pad|>") == 1
    assert seen["requests"][0]["multi_modal_data"] == {"image": questions[0]["images"]}
    assert seen["requests"][1] == {"prompt": "blind"}
    assert seen["sampling"] == {"n": 2, "seed": 5, "temperature": 1.3, "top_k": 50, "max_tokens": 7}
    assert seen["dtype"] == "float32" and seen["max_model_len"] == 512
    assert json.loads(json.dumps(seen["mm_processor_kwargs"]))["size"]["shortest_edge"] == 28 * 28
