"""Intervals against published values, and comparisons that pair what belongs together."""

import json

import numpy as np
import pytest

from recipe_lib import datasets, evaluation, models
from recipe_lib.evaluation import Evaluation, compare, wilson_interval


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    # Newcombe 1998, Statistics in Medicine 17, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_as_published(successes, n, low, high):
    assert wilson_interval(successes, n) == pytest.approx([low, high], abs=1e-4)


def test_wilson_interval_refuses_impossible_counts():
    with pytest.raises(ValueError, match="5 successes of 4"):
        wilson_interval(5, 4)


def test_pairing_makes_the_interval_narrower():
    rng = np.random.default_rng(0)
    before = (rng.random(500) < 0.5).astype(float)
    after = before.copy()
    after[np.flatnonzero(before == 0)[:50]] = 1  # 50 more right, none lost
    paired, unpaired = compare(before, after), compare(before, rng.permutation(after))
    assert paired["gain"] == unpaired["gain"] == pytest.approx(0.1)
    widths = [r["gain_ci95"][1] - r["gain_ci95"][0] for r in (paired, unpaired)]
    assert widths[0] < 0.6 * widths[1]
    # Exact spread of the paired gain: sqrt(p (1 - p) / n) with p = 0.1.
    assert widths[0] == pytest.approx(2 * 1.96 * np.sqrt(0.09 / 500), rel=0.1)


def test_seeds_that_disagree_widen_the_interval():
    before = np.zeros(400)
    same = np.tile((np.arange(400) < 200).astype(float), (3, 1))
    apart = np.stack([(np.arange(400) < right).astype(float) for right in (100, 200, 300)])
    narrow, wide = compare(before, same), compare(before, apart)
    assert narrow["gain"] == wide["gain"] == 0.5 and narrow["seeds"] == 3
    assert np.diff(wide["gain_ci95"]) > 2 * np.diff(narrow["gain_ci95"])


def test_other_questions_cannot_be_compared():
    with pytest.raises(ValueError, match=r"\(3,\).*\(1, 4\)"):
        compare(np.zeros(3), np.zeros(4))


def test_accuracy_by_kind():
    run = Evaluation(["", "", ""], np.array([1.0, 0.0, 1.0]), ["read", "sum", "read"])
    assert run.by_kind() == {"read": 1.0, "sum": 0.0} and run.accuracy == pytest.approx(2 / 3)


def test_record_fields_are_the_comparison_s():
    before = Evaluation([""] * 4, np.array([1.0, 0.0, 0.0, 0.0]))
    after = Evaluation([""] * 4, np.array([1.0, 1.0, 1.0, 0.0]))
    fields = evaluation.record_fields(before, after)
    assert (fields["n_eval"], fields["accuracy_before"], fields["accuracy_after"], fields["gain"]) == (
        4,
        0.25,
        0.75,
        0.5,
    )
    assert fields["gain_ci95"] == compare(before.correct, after.correct)["gain_ci95"]
    assert fields["accuracy_before_ci95"] == wilson_interval(1, 4)
    assert fields["accuracy_after_ci95"] == wilson_interval(3, 4)


@pytest.fixture(scope="module")
def tiny():
    return models.load("tiny-qwen2.5-vl")


def test_answers_do_not_depend_on_the_batch(tiny):
    rows = datasets.load("digits", "test", limit=12)
    together, alone = (evaluation.generate(*tiny, rows, batch_size=size) for size in (12, 1))
    assert together == alone
    assert not any("<|im_end|>" in text for text in together)


def test_evaluation_leaves_the_model_in_its_mode(tiny):
    model, processor = tiny
    model.train()
    evaluation.generate(model, processor, datasets.load("digits", "test", limit=2))
    assert model.training


def test_unreadable_golds_are_named(tiny):
    rows = datasets.load("digits", "test", limit=3)
    with pytest.raises(ValueError, match=r"rows \[1\] \(1 in all\)"):
        evaluation.evaluate(*tiny, rows, reward=lambda completions, **_: [1.0, None, 0.0])


def test_answers_are_written_with_their_questions(tmp_path):
    rows = datasets.load("digits", "test", limit=2)
    before, after = (Evaluation([f"{name} a", f"{name} b"], np.array([0.0, 1.0])) for name in ("before", "after"))
    path = evaluation.write_answers(tmp_path, rows, before, after)
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["before"] == "before a" and second["after"] == "after b" and second["right_after"] == 1.0
    assert [first["solution"], second["solution"]] == list(rows.with_format(None)["solution"])
