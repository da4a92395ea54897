"""Numeric closeness: what is inside a tolerance, and in which unit."""

import numpy as np
import pytest

from recipe_lib.rewards import closeness_reward


def close(answer, gold, **settings):
    return closeness_reward([f"<think>a</think><answer>{answer}</answer>"], [gold], **settings)[0]


@pytest.mark.parametrize(
    ("answer", "gold", "settings", "score"),
    [
        ("130", "130°", {}, 1.0),
        ("131", "130°", {}, 0.0),
        ("132°", "130°", {"tolerance": 2}, 1.0),
        ("The angle is 128 degrees.", "130°", {"tolerance": 2}, 1.0),
        ("132.1", "130°", {"tolerance": 2}, 0.0),
        ("0.3", "0.2", {"tolerance": 0.1}, 1.0),  # the end is inside, in spite of binary floats
        ("105", "100", {"relative": 0.05}, 1.0),
        ("-105", "-100", {"relative": 0.05}, 1.0),
        ("106", "100", {"relative": 0.05}, 0.0),
        ("359°", "1°", {"tolerance": 2, "period": 360}, 1.0),
        ("359°", "1°", {"tolerance": 2}, 0.0),
        ("181", "1", {"tolerance": 179, "period": 360}, 0.0),
        ("1.414", "\\sqrt{2}", {"tolerance": 0.001}, 1.0),
        ("3.14", "π", {"tolerance": 0.01}, 1.0),
        ("131 cm", "1.3 m", {"tolerance": 0.01}, 1.0),
        ("133 cm", "1.3 m", {"tolerance": 0.01}, 0.0),
        ("1.3 kg", "1.3 m", {"tolerance": 1}, 0.0),
        ("five", "4", {"tolerance": 1}, 1.0),
        ("3 or 4", "4", {"tolerance": 1}, 0.0),
        ("x", "4", {"tolerance": 1}, 0.0),
        ("a red cube", "4", {"tolerance": 1}, 0.0),
        ("9" * 5000, "4", {"tolerance": 1}, 0.0),
        ("4", "B", {"tolerance": 1}, None),
        ("4", "red", {"tolerance": 1}, None),
        ("4", "", {"tolerance": 1}, None),
        ("4", None, {"tolerance": 1}, None),
        ("4", 5, {"tolerance": 1}, 1.0),
        ("4", ["5"], {"tolerance": 1}, 1.0),
        ("4", np.int64(5), {"tolerance": 1}, 1.0),
        ("0.5", "50%", {}, 1.0),
        ("50", "50%", {}, 1.0),
        ("0.6", "50%", {"tolerance": 5}, 0.0),
        ("3.14159 rad", "180°", {"tolerance": 1}, 1.0),
        ("3 rad", "180°", {"tolerance": 1}, 0.0),
        ("So it goes. " * 50 + "The answer is 5", "5", {}, 1.0),
    ],
)
def test_closeness(answer, gold, settings, score):
    assert close(answer, gold, **settings) == score


def test_wrong_settings_and_columns_are_refused():
    with pytest.raises(ValueError, match="tolerance=-1"):
        close("4", "4", tolerance=-1)
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"tolerance={number}"):
            close("4", "4", tolerance=number)
    with pytest.raises(ValueError, match="period=0"):
        close("4", "4", period=0)
    with pytest.raises(ValueError, match="2 entries for 1 completions"):
        closeness_reward(["4"], ["4", "5"])
