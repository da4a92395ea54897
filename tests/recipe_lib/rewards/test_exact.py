"""Exact values: equal texts, unequal texts, bounds, and agreement with math-verify where both can judge."""

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe_lib.rewards import math_worker
from recipe_lib.rewards.clean import clean
from recipe_lib.rewards.exact import Unfit, evaluate, rational


def value(text):
    return evaluate(clean(text))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("\\frac{6}{\\sqrt{2}}", "√18"),
        ("2 2/3", "8/3"),
        ("-2\\frac{2}{3}", "-8/3"),
        ("2½", "2.5"),
        ("1.2×10⁵", "120,000"),
        ("1.2E+5", "120000"),
        ("10^{-3}", ".001"),
        ("12 000", "12{,}000"),
        ("0.1\\overline{6}", "1/6"),
        ("1/(1+√2)", "√2-1"),
        ("(x+1)^2", "1+2x+x^2"),
        ("x^2/x", "x"),
        ("√\\frac{1}{2}", "\\frac{\\sqrt2}{2}"),
        ("-3^2", "-9"),
        ("(-3)^2", "9"),
        ("2^3^2", "512"),
        ("4^{1/2}", "2"),
        ("2--3", "5"),
        ("6/2*3", "9"),
        ("2\\pi r", "2 r\\pi "),
        ("0\\sqrt{5}", "0"),
    ],
)
def test_equal(left, right):
    assert value(left) == value(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("2 2/3", "2"),
        ("2√3", "2"),
        ("√2+√3", "√5"),
        ("π", "3.14159265358979"),
        ("x", "X"),
        ("2^10", "20"),
        ("1/3", "0.333"),
    ],
)
def test_unequal(left, right):
    assert value(left) != value(right)


UNFIT = [
    "",
    "5!",
    "\\sin 2",
    "√(1+√2)",
    "1/0",
    "0^0",
    "0^{-1}",
    "√(-1)",
    "2 3",
    "2 3/2",
    "(1",
    "1)",
    "^2",
    "+",
    "x^y",
    "1e999",
]
UNFIT += [
    "9^9^9",
    "10^{999999}",
    "(" * 200 + "1" + ")" * 200,
    "(a+b+c+d+e)^{50}",
    "1/(1+√2+√3)",
    "9" * 301,
    "\\sqrt[3]{8}",
]


@pytest.mark.parametrize("text", UNFIT)
def test_what_does_not_fit_is_refused(text):
    with pytest.raises(Unfit):
        value(text)


fractions = st.fractions(min_value=-1000, max_value=1000, max_denominator=99)


@given(fractions, fractions, st.sampled_from(["+", "-", "*", "/"]))
@settings(max_examples=300, deadline=None)
def test_arithmetic_is_that_of_fractions(a, b, sign):
    if sign == "/" and b == 0:
        return
    expected = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else None}[sign]
    assert rational(value(f"({a}){sign}({b})")) == expected


@given(st.integers(0, 9), st.integers(0, 99), st.integers(1, 99))
def test_mixed_numbers(whole, top, bottom):
    if 0 < top < bottom:
        assert rational(value(f"{whole} {top}/{bottom}")) == whole + Fraction(top, bottom)
        assert rational(value(f"-{whole}\\frac{{{top}}}{{{bottom}}}")) == -(whole + Fraction(top, bottom))


def expressions(rng):
    """Two LaTeX texts of one value, or of two values that differ a little."""
    a, b, c, d = (rng.randint(1, 60) for _ in range(4))
    wrong = rng.random() < 0.3  # unlike pairs take math-verify longer
    e = a + wrong
    return rng.choice(
        [
            (f"{a}", f"{e}.0"),
            (f"\\frac{{{a}}}{{{b}}}", f"\\frac{{{e * c}}}{{{b * c}}}"),
            (f"{a / 4}", f"\\frac{{{e}}}{{4}}"),
            (f"{a}\\sqrt{{{b}}}", f"\\sqrt{{{e * e * b}}}"),
            (f"\\frac{{{a}}}{{\\sqrt{{{b}}}}}", f"\\frac{{{e}\\sqrt{{{b}}}}}{{{b}}}"),
            (f"{a}+{b}\\sqrt{{{c}}}", f"{b}\\sqrt{{{c}}}+{e}"),
            (f"{a}\\pi", f"\\pi\\cdot {e}"),
            (f"{a}x+{b}", f"{b}+{e}x"),
            (f"(x+{a})^{{2}}", f"x^{{2}}+{2 * a}x+{a * e}"),
            (f"{a}\\cdot 10^{{{b % 6}}}", str(e * 10 ** (b % 6))),
            (f"-{a}", f"{-e}"),
            (f"\\frac{{{a}x}}{{{b}}}", f"\\frac{{{e * d}x}}{{{b * d}}}"),
        ]
    )


@pytest.mark.slow
def test_math_verify_agrees_where_both_can_judge():
    rng = random.Random(0)
    pairs = {expressions(rng) for _ in range(3_200)}
    assert len(pairs) > 2_000
    judged = [(a, b, value(a) == value(b), math_worker.compare(a, b, 5.0)) for a, b in pairs]
    assert {verdict for *_, verdict in judged} == {"equal", "different"}
    assert [pair for pair in judged if pair[2] != (pair[3] == "equal")] == []
    assert 0.5 < sum(same for _, _, same, _ in judged) / len(judged) < 0.8
