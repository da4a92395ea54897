"""Figures show the numbers that they were given."""

import numpy as np
import pytest

from recipe_lib import datasets, reports
from recipe_lib.evaluation import Evaluation

BEFORE = Evaluation(["a", "b", "c", "d"], np.array([0.0, 1.0, 0.0, 0.0]), ["read", "read", "sum", "sum"])
AFTER = Evaluation(["e", "f", "g", "h"], np.array([1.0, 1.0, 0.0, 1.0]), ["read", "read", "sum", "sum"])


def test_reward_curves_hold_every_step():
    logs = [
        {
            "step": i,
            "reward": i / 10,
            "reward_std": 0.5,
            "frac_reward_zero_std": 0.1,
            "rewards/accuracy_reward/mean": i / 10,
        }
        for i in range(1, 11)
    ]
    figure = reports.plot_rewards([*logs, {"train_loss": 0.0, "step": 10}])
    smooth, raw = figure.axes[0].lines
    assert raw.get_ydata() == pytest.approx([i / 10 for i in range(1, 11)])
    assert smooth.get_ydata()[-1] == pytest.approx(0.8)  # mean of the last five
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == "accuracy reward"


def test_reward_curves_of_nothing_say_why():
    with pytest.raises(ValueError, match="logging_steps is above max_steps"):
        reports.plot_rewards([{"train_loss": 0.0}])


def test_accuracy_bars():
    figure = reports.plot_accuracy(BEFORE, AFTER)
    heights = [patch.get_height() for patch in figure.axes[0].patches]
    assert heights == [25, 50, 0, 75, 100, 50]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["all", "read", "sum"]


def test_answers_are_shown_beside_their_pictures():
    figure = reports.show_answers(datasets.load("digits", "test", limit=4), BEFORE, AFTER, n=2)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["before ✗\na", "after ✓\ne"]
    assert len(figure.axes) == 2
