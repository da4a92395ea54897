"""Weighted sums whose parts stay visible, and the checks before training."""

import functools

import pytest

from recipe_lib.rewards import accuracy_reward, check_rewards, combine, format_reward

GOOD, BARE, WRONG = "<think>a</think><answer>3</answer>", "\\boxed{3}", "<think>a</think><answer>4</answer>"


def never(completions, **columns):
    return [None] * len(completions)


async def slow(completions, price, **columns):
    return [1.0] * len(completions)


def test_weights_and_logs():
    metrics, table = {}, {}
    reward = combine({"accuracy": (accuracy_reward, 1.0), "format": (format_reward, 0.5)}, name="both")
    scores = reward(
        [GOOD, BARE, WRONG], solution=["3"] * 3, log_metric=metrics.__setitem__, log_extra=table.__setitem__
    )
    assert scores == [1.5, 1.0, 0.5]
    assert metrics["parts/accuracy"] == metrics["parts/format"] == pytest.approx(2 / 3)
    assert metrics["accuracy/abstained"] == 0.0  # what a part logs itself arrives too
    assert table == {"accuracy": [1.0, 1.0, 0.0], "format": [1.0, 0.0, 1.0]}
    assert reward.__name__ == "both"
    assert reward([GOOD], solution=["3"]) == [1.5]  # outside of a trainer


def test_abstentions():
    some = combine({"accuracy": (accuracy_reward, 1.0), "format": (format_reward, 0.5)})
    assert some([GOOD, GOOD], solution=["", "3"]) == [0.5, 1.5]
    assert combine({"never": (never, 1.0)})([GOOD], log_metric=lambda *_: pytest.fail("nothing to log")) == [None]


def test_what_cannot_be_combined_is_refused():
    with pytest.raises(ValueError, match="at least one part"):
        combine({})
    with pytest.raises(ValueError, match="cannot await judge"):
        combine({"judge": (slow, 1.0)})
    with pytest.raises(ValueError, match="reward short returned 1 rewards for 2 completions"):
        combine({"short": (lambda completions, **_: [1.0], 1.0)})([GOOD, GOOD])


ROWS = [{"prompt": "p", "images": [], "answer": "3"}, {"prompt": "p", "images": [], "answer": "4"}]


@pytest.mark.parametrize(
    "reward",
    [accuracy_reward, functools.partial(accuracy_reward, style="boxed"), combine({"a": (accuracy_reward, 1.0)})],
)
def test_a_column_that_the_data_lacks_is_named_with_those_that_there_are(reward):
    with pytest.raises(
        ValueError, match=r"accuracy_reward asks for the column 'solution', .*prompt, images, answer.*rename"
    ):
        check_rewards([format_reward, reward], ROWS)
    renamed = [{"solution": row["answer"], **row} for row in ROWS]
    check_rewards([format_reward, reward], renamed)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1.0], "returned 1 rewards for 2 completions"),
        (1.0, "returned float for 2 completions"),
        ([1.0, "high"], "returned 'high' for completion 1"),
    ],
)
def test_a_reward_that_returns_something_else_is_refused_before_training(result, message):
    def odd(completions, **columns):
        return result

    with pytest.raises(ValueError, match="reward odd " + message):
        check_rewards([odd], ROWS)


def test_async_rewards_are_checked_by_their_columns_alone():
    with pytest.raises(ValueError, match="slow asks for the column 'price'"):
        check_rewards([slow], ROWS)
    check_rewards([slow], [{"price": 1}])
    with pytest.raises(ValueError, match="no rows"):
        check_rewards([slow], [])


def test_a_column_that_would_be_taken_for_a_setting_is_refused():
    rows = [{**row, "style": "easy"} for row in ROWS]
    with pytest.raises(ValueError, match=r"column 'style' would reach reward format_reward as its setting 'style'"):
        check_rewards([format_reward], rows)
