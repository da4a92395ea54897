"""The digits question set: real handwriting apart from the warm start, and no picture on both sides of the split."""

import hashlib

import numpy as np
import pytest

from data_scripts import digits


def hashes(split: str) -> set[str]:
    pictures = digits.handwritten()[0]
    return {hashlib.sha256(pictures[i].tobytes()).hexdigest() for i in digits.handwritten_indices(split)}


def test_train_and_test_share_no_handwritten_picture():
    train, test = hashes("train"), hashes("test")
    assert not train & test
    assert len(train) + len(test) == 1797


@pytest.fixture(scope="module")
def test_set():
    return digits.build("test")


def test_rows_show_only_pictures_of_their_split(test_set):
    allowed = set(digits.handwritten_indices("test").tolist())
    assert {source for sources in test_set["sources"] for source in sources} == allowed


def test_held_out_set_is_large_enough_for_every_kind(test_set):
    kinds = list(test_set["kind"])
    assert {kind: kinds.count(kind) for kind in digits.KINDS} == dict.fromkeys(digits.KINDS, 602)


def test_answers_follow_from_the_labels(test_set):
    labels = digits.handwritten()[1]
    for row in test_set.select(range(400)).remove_columns("images"):
        shown = [int(labels[i]) for i in row["sources"]]
        assert shown == row["digits"]
        right = {"read": shown[0], "larger": max(shown), "sum": sum(shown)}.get(row["kind"])
        if row["kind"] == "choice":
            low, high = map(int, row["options"][row["solution"]].split(" to "))
            assert low <= shown[0] <= high
        else:
            assert row["solution"] == str(right) and row["options"] is None


def test_ranges_of_choice_hold_each_digit_once():
    assert [d for low, high in digits.RANGES.values() for d in range(low, high + 1)] == list(range(10))


def test_pictures_hold_the_handwriting_where_it_was_pasted(test_set):
    row = next(row for row in test_set if len(row["sources"]) == 2)
    page = 255 - np.asarray(row["images"][0].convert("L"), dtype=float)
    halves = page[:, :42].sum(), page[:, 42:].sum()
    ink = [digits.handwritten()[0][i].sum() for i in row["sources"]]
    assert (halves[0] > halves[1]) == (ink[0] > ink[1])
    assert row["images"][0].size == (84, 84) and row["images"][0].mode == "RGB"


def test_pages_are_coloured_and_legible_and_drawn_ones_are_black_on_white(test_set):
    for row in test_set.select(range(50)):
        page = np.asarray(row["images"][0]).reshape(-1, 3)
        paper, ink = page[0].astype(int), page[page.sum(1).argmin()].astype(int)
        assert (paper >= digits.PAPER[0]).all() and paper.sum() - ink.sum() > 200
    pages = np.array([test_set[i]["images"][0].getpixel((0, 0)) for i in range(50)])
    assert len(np.unique(pages, axis=0)) > 45
    drawn = np.asarray(digits.drawn_rows(4, seed=0)[0]["image"])
    assert (drawn[..., 0] == drawn[..., 1]).all() and drawn.max() == 255 and drawn.min() < 40


def test_same_seed_same_questions():
    first, second = digits.build("train", kinds=("sum",), seed=3), digits.build("train", kinds=("sum",), seed=3)
    assert first["images"][0] == second["images"][0] and list(first["solution"]) == list(second["solution"])
    assert list(digits.build("train", kinds=("sum",), seed=4)["solution"]) != list(first["solution"])


def test_drawn_digits_fill_the_same_grid_and_bend():
    rng = np.random.default_rng(0)
    straight = digits.draw_digits(np.full(50, 3), rng, bend=0.0)
    bent = digits.draw_digits(np.full(50, 3), rng, bend=2.0)
    assert straight.shape == (50, 8, 8) and straight.dtype == np.uint8
    assert straight.max() <= 16 and (straight.max((1, 2)) >= 6).all()
    assert bent.astype(float).std(0).mean() > straight.astype(float).std(0).mean()


def test_unknown_split_and_kind_list_the_known_ones():
    with pytest.raises(ValueError, match="'train' and 'test'"):
        digits.build("validation")
    with pytest.raises(ValueError, match="read, choice, larger, sum"):
        digits.ask("count", [1])
