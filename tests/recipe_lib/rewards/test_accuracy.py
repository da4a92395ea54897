"""The accuracy reward on every handed case, on more kinds of the same faults, and on the labelled pairs."""

import functools
import json
import threading

import numpy as np
import pytest
import torch

from recipe_lib import rewards
from recipe_lib.rewards import math_worker, reading

# Verdicts are what is tested here, on machines that may be busy: the deadline has tests of its own.
judge = functools.partial(rewards.judge, deadline=20.0)
accuracy_reward = functools.partial(rewards.accuracy_reward, deadline=20.0)


def rows(root, name):
    return [json.loads(line) for line in (root / "tests/cases" / name).read_text(encoding="utf-8").splitlines()]


def tagged(answer):
    return f"<think>\nLooking at the figure.\n</think>\n<answer>{answer}</answer>"


def test_handed_cases(root):
    cases = rows(root, "answers.jsonl")
    assert len(cases) >= 57
    wrong = [(case["id"], judge(case["completion"], case["gold"], case["options"])) for case in cases]
    wrong = [(name, verdict) for (name, verdict), case in zip(wrong, cases) if verdict.score != case["expect"]]
    assert not wrong


def test_more_kinds_of_the_same_faults(root):
    cases = rows(root, "answer_kinds.jsonl")
    assert len(cases) >= 200
    for case in cases:
        verdict = judge(tagged(case["answer"]), case["gold"], case["options"])
        assert verdict.score == case["expect"], (case, verdict)


@pytest.mark.parametrize("name", ["labelled_answers.jsonl", "held_out_answers.jsonl"])
def test_precision_and_recall_on_labelled_pairs(root, name):
    cases = rows(root, name)
    assert len(cases) >= 500
    given = [judge(case["completion"], case["gold"], case["options"]).score == 1.0 for case in cases]
    right = sum(one and case["expect"] for one, case in zip(given, cases))
    assert right / sum(given) >= 0.99
    assert right / sum(case["expect"] for case in cases) >= 0.99


@pytest.mark.parametrize(("answer", "score"), [("130°", 1.0), ("120°", 0.0)])
def test_every_shape_of_completion_scores_the_same(answer, score):
    text = tagged(answer)
    shapes = [
        text,
        [{"role": "assistant", "content": text}],
        [{"role": "assistant", "content": [{"type": "text", "text": text}]}],
    ]
    assert accuracy_reward(shapes, ["130"] * 3) == [score] * 3


@pytest.mark.parametrize(
    ("gold", "answer", "score"),
    [
        (5, "5", 1.0),
        (5.0, "5", 1.0),
        (0.25, "1/4", 1.0),
        (True, "yes", 1.0),
        (["5"], "5", 1.0),
        (None, "5", None),
        (float("nan"), "5", None),
        ([], "5", None),
        ({"a": 1}, "5", None),
        (["5", "6"], "5", None),
    ],
)
def test_golds_that_are_no_strings(gold, answer, score):
    assert accuracy_reward([tagged(answer)], [gold]) == [score]


def test_an_unreadable_gold_abstains_whatever_the_answer():
    for answer in ("", "3", "\\begin{array}{c}a\\end{array}"):
        assert accuracy_reward([tagged(answer)], ["\\begin{array}{c}a\\end{array}"]) == [None]
    assert accuracy_reward(["no tags at all"], ["\\foo{3}{"]) == [None]
    assert accuracy_reward([tagged("E")], ["E"], [{"A": "1", "B": "2"}]) == [None]  # a letter that no option has


def test_options_without_a_text_are_no_options():
    """A table gives every row the same letters, and None where a row has no choice."""
    empty = {"A": None, "B": None}
    assert accuracy_reward([tagged("7"), tagged("8")], ["7", "7"], [empty, empty]) == [1.0, 0.0]


def test_styles():
    assert accuracy_reward(["<think>\\boxed{4}</think> So the answer is 5."], ["5"], style="think") == [1.0]
    assert accuracy_reward(["First 4 and 1, so \\boxed{5}"], ["5"], style="boxed") == [1.0]
    assert accuracy_reward(["5", "4"], ["5", "5"], style="direct") == [1.0, 0.0]
    assert accuracy_reward(["The answer is 5"], ["5"], style="boxed") == [0.0]


def test_long_answers_are_read_at_their_end():
    assert (
        judge("<think>a</think>" + "We add the sides. " * 500 + "The answer is 12 cm.", "12", style="think").score
        == 1.0
    )
    assert judge(tagged("9" * 5_000), "9").score == 0.0
    assert judge(tagged("1" + "0" * 5_000 + "5"), "5").score == 0.0


def test_long_answers_are_cut_at_a_word():
    assert reading.shorten("9" * 900 + " five") == "five"
    assert reading.shorten("word " * 200).split() == ["word"] * (reading.MAX_ANSWER // 5 - 1)


def test_the_comparisons_of_one_verdict_share_its_deadline(monkeypatch):
    asked = []
    monkeypatch.setattr(math_worker, "compare", lambda *_: "equal")  # the gold can be read
    monkeypatch.setattr(math_worker, "timed_compare", lambda *job: asked.append(job) or ("timeout", 0.4))
    answer = tagged("$\\{\\sin a, \\sin b, \\sin c, \\sin d\\}$")
    assert rewards.judge(answer, "\\{\\cos a, \\cos b, \\cos c, \\cos d\\}", deadline=1.0).score == 0.0
    assert [round(seconds, 3) for _, _, seconds in asked] == [1.0, 0.6, 0.2]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"solution": ["5"]}, r"solution has 1 entries for 2 completions"),
        ({"solution": "55"}, r"solution must be a list.*not one str: '55'"),
        ({"solution": ["5", "5"], "options": [{"A": "5"}]}, r"options has 1 entries for 2 completions"),
        ({"solution": ["5", "5"], "options": [None, ["5", "6"]]}, r"options\[1\] must be None or a Mapping, not list"),
        ({"solution": ["5", "5"], "options": {"A": "5", "B": "6"}}, r"options must be a list.*not one dict"),
        ({"solution": ["5", "5"], "style": "xml"}, r"'xml' is unknown"),
    ],
)
def test_wrong_columns_are_refused_with_both_sides_named(columns, message):
    with pytest.raises(ValueError, match=message):
        accuracy_reward([tagged("5"), tagged("5")], **columns)


def test_other_columns_are_welcome_and_nothing_is_fine():
    assert accuracy_reward([], []) == []
    assert accuracy_reward([tagged("5")], ["5"], prompts=["p"], images=[[None]], trainer_state=None) == [1.0]


def test_it_works_outside_the_main_thread():
    """Where math-verify's own deadline, a signal, raises."""
    given = []
    jobs = [("x^2+\\sin x", "\\sin x + x^2"), ("5", "5"), ("\\log_2 8", "4")]
    threads = [
        threading.Thread(target=lambda job=job: given.append((job, accuracy_reward([tagged(job[1])], [job[0]]))))
        for job in jobs * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(score[0] for _, score in given) == [0.0] * 4 + [1.0] * 8


def test_a_verdict_past_the_deadline_scores_0_and_is_counted():
    logged = {}
    tower = tagged("9^{9^{9^{9^{9}}}} + \\sin 1")
    assert accuracy_reward([tower, tagged("7")], ["7", "7"], deadline=0.3, log_metric=logged.__setitem__) == [0.0, 1.0]
    assert logged == {"accuracy/abstained": 0.0, "accuracy/past_deadline": 0.5}


def test_the_reason_is_told():
    assert judge(tagged("130°"), "130").path == "number"
    assert judge(tagged("C"), "C").path == "letter"
    assert judge(tagged("C. 77°"), "C", {"B": "77°", "C": "154°"}).path == "letter and value contradict"
    assert judge("The answer is 3", "3").path == "no answer"
    assert judge(tagged("3"), "").path == "gold unreadable"
    assert judge(tagged("x+\\sin x"), "\\sin x+x").path == "formula, math-verify: equal"


def test_the_start_of_math_verify_is_no_part_of_a_deadline(monkeypatch):
    """The first verdict of a session compares several formulas, and must have time left for the last."""
    worker = math_worker.MathWorker()
    monkeypatch.setattr(math_worker, "timed_compare", worker.timed_compare)
    options = {"A": "\\{\\sin x, \\cos x\\}", "B": "0"}
    assert judge(tagged("$\\{\\cos x+0, 0+\\sin x\\}$"), "A", options).score == 1.0
    worker.close()


def test_golds_of_other_kinds():
    answer = tagged("5")
    for gold in (5, 5.0, np.int64(5), np.array(5), np.array([5]), torch.tensor(5), ["5"]):
        assert judge(answer, gold).score == 1.0, gold
    for gold in (b"5", None, float("nan"), object(), np.array([5, 6])):
        assert judge(answer, gold).score is None, gold
    assert rewards.accuracy_reward([answer, answer], np.array([5, 6])) == [1.0, 0.0]
    assert judge(tagged("Yes"), True).score == judge(tagged("true"), True).score == 1.0
    assert judge(tagged("true"), False).score == 0.0
