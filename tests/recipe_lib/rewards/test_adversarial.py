"""Ten thousand random and hostile texts: no exception, nothing past the deadline, memory flat."""

import random
import resource
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recipe_lib.answer_format import STYLES
from recipe_lib.rewards import accuracy, accuracy_reward, closeness_reward, format_reward, graded_format_reward

GOLDS = [
    "5",
    "B",
    "1/2",
    "3\\sqrt{2}",
    "yes",
    "(4,3)",
    "\\{1,2\\}",
    "x=5",
    "3x-y+13=0",
    "12 cm",
    "50%",
    "the red cube",
    "x>3",
    "",
]
OPTIONS = {"A": "5", "B": "x^2", "C": "a red cube"}
LATEX = r"""
\boxed{ } { \frac \frac{1}{2} \sqrt ^ ^{ ( ) [ ] 9 99999999 1.5e e5 x A B <answer> </answer> <think> </think> %
$ \ \text{ = < > and or , ; ! \infty \cup 10^ ** __ - + / * \left \right & \\ is the not I cm . # ~ \pm \log
\sin \int \sum_{i=1}^{ \lim _ <|im_end|> \overline{ {,} \begin{pmatrix} \end{pmatrix}
"""
PIECES = [*LATEX.split(), *"½√π∞，的±−°'\" \n\t\u200b\x00\N{GRINNING FACE}", "厘米"]
HOSTILE = [
    "9^{9^{9^{9^{9}}}}",
    "2^{2^{2^{2^{2^{2^{2}}}}}}",
    "(10^{9})!",
    "100000000!",
    "((((9!)!)!)!)!",
    "1" * 5_000,
    "1/" + "9" * 5_000,
    "0." + "3" * 5_000,
    "1e999999999",
    "10^{10^{10}}",
    "\\sqrt{" * 500 + "2" + "}" * 500,
    "(" * 5_000,
    "\\frac{" * 2_000,
    "{" * 10_000 + "}" * 10_000,
    "\\boxed{" * 5_000 + "7" + "}" * 5_000,
    "x" * 100_000,
    " " * 100_000,
    "the " * 30_000,
    "5, " * 20_000,
    "A or B or " * 5_000,
    "is " * 20_000 + "5",
    "(a+b)^{99999}",
    "(a+b+c)^{40}(d+e+f)^{40}",
    "\\sum_{i=1}^{10^{12}} i^{-3}",
    "\\int_0^1 \\sin(\\sin(\\sin(x^x))) dx",
    "\\prod_{i=1}^{99999} (x+i)",
    "x^5-x-1=0",
    "\\sin(x)^{50}+\\cos(x)^{50}=\\tan(x)",
    "\x00\x01\x02",
    "\ud800",
    "‮5",
    "́" * 1_000,
    "１" * 4_301,
    "½" * 400,
    "²" * 400,
    "{}\\{}\\}\\",
    "%s %d {0} {x} \\1 \\g<1>",
]


def every_reward(text, gold, deadline=1.0):
    """Score a text in every place where it could stand; the longest a single accuracy verdict took."""
    slowest = 0.0
    for completion in (text, f"<think>{text}</think><answer>{text}</answer>", f"\\boxed{{{text}}}"):
        for style in ("think_answer", "direct"):
            started = time.perf_counter()
            (score,) = accuracy_reward(
                [completion], [gold], [OPTIONS if gold == "B" else None], style, deadline=deadline
            )
            slowest = max(slowest, time.perf_counter() - started)
            assert score in (1.0, 0.0, None)
        assert all(0 <= grade <= 1 for grade in graded_format_reward([completion]))
        assert all(format_reward([completion], style)[0] in (0.0, 1.0) for style in STYLES)
        assert closeness_reward([completion], ["5"], tolerance=1.0)[0] in (0.0, 1.0)
    return slowest


@pytest.fixture(scope="module", autouse=True)
def started():
    accuracy_reward(["\\boxed{\\sin x}"], ["\\sin x+x"])  # the start of math-verify's process is no part of a deadline


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:24])
def test_hostile_texts(text):
    assert every_reward(text, "5", deadline=0.2) < 2.0
    assert every_reward(text, "\\sin x+x", deadline=0.2) < 2.0
    assert accuracy_reward(["\\boxed{5}"], [text], deadline=0.2)[0] in (0.0, None)  # as a gold


@given(st.text(max_size=300), st.sampled_from(GOLDS))
@settings(max_examples=1_500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_text_at_all(text, gold):
    every_reward(text, gold)


@pytest.mark.slow
def test_ten_thousand_random_texts():
    rng = random.Random(0)
    texts = ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 40))) for _ in range(10_000)]
    memory, slowest = [], 0.0
    for start in range(0, len(texts), 2_500):
        for text in texts[start : start + 2_500]:
            completion = rng.choice([text, f"<think>a</think><answer>{text}</answer>", f"\\boxed{{{text}}}"])
            started = time.perf_counter()
            assert accuracy_reward([completion], [rng.choice(GOLDS)])[0] in (1.0, 0.0, None)
            slowest = max(slowest, time.perf_counter() - started)
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    assert slowest < 2.5  # the deadline of 1 s, and a busy machine
    assert memory[-1] - memory[0] < 40, memory  # MB; the caches are bounded


def test_caches_are_bounded():
    for cached in (accuracy._judge, accuracy.read_gold):
        assert 0 < cached.cache_info().maxsize <= 100_000
