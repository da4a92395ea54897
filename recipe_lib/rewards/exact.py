r"""Exact values without computer algebra: sums of fractions times square roots times powers of symbols.

`evaluate(r"\frac{6}{\sqrt{2}}") == evaluate("√18")`. A value is a dict from (square-free radicand, monomial) to a
Fraction. Square roots of different square-free integers are linearly independent over the rationals, and \pi and
letters are kept as symbols, so two values are equal exactly when their dicts are: no rounding, no search.
What does not fit (functions, other roots, sums under a root, huge powers) raises `Unfit` and is math-verify's work.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

# (square-free radicand, ((symbol, exponent), ...) sorted) -> coefficient, never 0. Zero is the empty dict.
Value = dict[tuple[int, tuple[tuple[str, int], ...]], Fraction]

MAX_CHARS = 300
MAX_BITS = 20_000
MAX_TERMS = 40
MAX_RADICAND = 10**9
_GREEK = "alpha|beta|gamma|theta|lambda|phi|omega|pi"
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d*)?(?!\d)|\d+\.?\d*|\.\d+)(?:[eE](?P<exponent>[+-]?\d{1,4})(?![\d.]))?"
    rf"|\\(?P<command>frac|sqrt|times|cdot|div|{_GREEK})(?![A-Za-z])|(?P<symbol>[A-Za-z])|(?P<mark>[-+*/^(){{}}]))"
)
_MIXED = re.compile(r"(?<![\d.,}\w^/])(\d+)(?:\s*\\frac\{(\d+)\}\{(\d+)\}|\s+(\d+)\s*/\s*(\d+))(?![\d.])")
_SPACED_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d/]|\s*/|,\d)")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|dot|bar)\{(\d+)\}")
_INTEGER = re.compile(r"-?\d{1,300}")


class Unfit(ValueError):
    """The text is no exact value of this module's kind."""


def evaluate(text: str) -> Value:
    """The exact value of a cleaned text of at most 300 characters; `Unfit` where it has none."""
    if _INTEGER.fullmatch(text):
        return constant(Fraction(int(text)))
    if len(text) > MAX_CHARS:
        raise Unfit("too long")
    parser = _Parser(_tokens(spell_out(text)))
    value = parser.sum()
    if parser.position != len(parser.tokens):
        raise Unfit("text is left over")
    return value


def spell_out(text: str) -> str:
    """Mixed numbers as sums, spaced thousands joined, repeating decimals as fractions: plain for every parser."""
    if "\\" in text or "/" in text:
        text = _MIXED.sub(_mixed_sum, text)
        text = _REPEATING.sub(_repeating_fraction, text)
    return _SPACED_THOUSANDS.sub(lambda number: number.group().replace(" ", ""), text)


def constant(number: Fraction) -> Value:
    return {(1, ()): number} if number else {}


def rational(value: Value) -> Fraction | None:
    """The value as a Fraction, or None where roots or symbols are left in it."""
    if not value:
        return Fraction(0)
    return value.get((1, ())) if len(value) == 1 else None


def _mixed_sum(match: re.Match) -> str:
    whole, top, bottom = match.group(1), match.group(2) or match.group(4), match.group(3) or match.group(5)
    if len(top) > len(bottom) or (len(top) == len(bottom) and top >= bottom):
        return match.group()  # 2 3/2 is no mixed number
    return f"({whole}+\\frac{{{top}}}{{{bottom}}})"


def _repeating_fraction(match: re.Match) -> str:
    whole, fixed, repeated = match.groups()
    bottom = "9" * len(repeated) + "0" * len(fixed)
    return f"(\\frac{{{int(whole + fixed + repeated) - int((whole + fixed) or 0)}}}{{{bottom}}})"


def _tokens(text: str) -> list[tuple[str, object]]:
    tokens, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unfit(f"{text[position]!r} is no part of an exact value")
        if match["number"]:
            tokens.append(("number", _number(match["number"].replace(",", ""), match["exponent"])))
        else:
            kind = match.lastgroup
            tokens.append((kind, match[kind]))
        position = match.end()
    return tokens


def _number(digits: str, exponent: str | None) -> Fraction:
    number = Fraction(int(digits)) if digits.isdigit() else Fraction(digits)
    if exponent is None:
        return number
    if abs(int(exponent)) > 400:
        raise Unfit("exponent too large")
    return number * Fraction(10) ** int(exponent)


class _Parser:
    """Recursive descent over sums, products (implicit ones too), powers and groups."""

    def __init__(self, tokens: list[tuple[str, object]]) -> None:
        self.tokens, self.position, self.depth = tokens, 0, 0

    def peek(self) -> tuple[str, object]:
        return self.tokens[self.position] if self.position < len(self.tokens) else ("end", None)

    def take(self) -> tuple[str, object]:
        token = self.peek()
        self.position += 1
        return token

    def sum(self) -> Value:
        value = self.product()
        while self.peek() in (("mark", "+"), ("mark", "-")):
            sign = 1 if self.take()[1] == "+" else -1
            value = _add(value, self.product(), sign)
        return value

    def product(self) -> Value:
        sign = 1
        while self.peek() in (("mark", "+"), ("mark", "-")):
            sign *= 1 if self.take()[1] == "+" else -1
        value = self.power()
        while True:
            kind, token = self.peek()
            if token in ("*", "times", "cdot"):
                self.take()
                value = multiply(value, self.signed_power())
            elif token in ("/", "div"):
                self.take()
                value = multiply(value, _inverse(self.signed_power()))
            elif kind in ("command", "symbol") or token == "(":
                value = multiply(value, self.power())
            else:
                return value if sign == 1 else multiply(value, constant(Fraction(-1)))

    def signed_power(self) -> Value:
        if self.peek() == ("mark", "-"):
            self.take()
            return multiply(self.power(), constant(Fraction(-1)))
        return self.power()

    def power(self) -> Value:
        base = self.atom()
        if self.peek() == ("mark", "^"):
            self.take()
            return _raise(base, self.signed_power())
        return base

    def atom(self) -> Value:
        kind, token = self.take()
        if kind == "number":
            return constant(token)
        if token == "frac":
            top = self.group()
            return multiply(top, _inverse(self.group()))
        if token == "sqrt":
            return _root(self.group() if self.peek() == ("mark", "{") else self.atom())
        if kind in ("symbol", "command"):
            return {(1, ((str(token), 1),)): Fraction(1)}
        if token in ("(", "{"):
            self.position -= 1
            return self.group("(" if token == "(" else "{")
        raise Unfit(f"unexpected {token!r}")

    def group(self, opening: str = "{") -> Value:
        self.depth += 1
        if self.take() != ("mark", opening) or self.depth > 30:
            raise Unfit("no group here, or groups nested too deeply")
        value = self.sum()
        if self.take() != ("mark", {"(": ")", "{": "}"}[opening]):
            raise Unfit("a group is not closed")
        self.depth -= 1
        return value


def _add(left: Value, right: Value, sign: int = 1) -> Value:
    total = dict(left)
    for key, coefficient in right.items():
        new = total.get(key, 0) + sign * coefficient
        if new:
            total[key] = new
        else:
            total.pop(key, None)
    return total


def multiply(left: Value, right: Value) -> Value:
    if len(left) * len(right) > MAX_TERMS**2:
        raise Unfit("too many terms")
    product: Value = {}
    for (root_a, symbols_a), a in left.items():
        for (root_b, symbols_b), b in right.items():
            shared = math.gcd(root_a, root_b)
            radicand = root_a * root_b // shared**2
            if radicand > MAX_RADICAND or a.numerator.bit_length() + b.numerator.bit_length() > MAX_BITS:
                raise Unfit("too large")
            key = (radicand, _join(symbols_a, symbols_b))
            term = {key: a * b * shared if shared > 1 else a * b}
            product = _add(product, term) if product else term
    return product


def _join(left: tuple, right: tuple) -> tuple:
    if not left or not right:
        return left or right
    powers = dict(left)
    for symbol, exponent in right:
        powers[symbol] = powers.get(symbol, 0) + exponent
    return tuple(sorted((symbol, exponent) for symbol, exponent in powers.items() if exponent))


def _inverse(value: Value) -> Value:
    """1 / value, for one term, or for two terms without symbols (by the conjugate)."""
    if len(value) == 1:
        ((radicand, symbols), coefficient) = next(iter(value.items()))
        return {(radicand, tuple((s, -e) for s, e in symbols)): 1 / (coefficient * radicand)}
    if len(value) == 2 and not any(symbols for _, symbols in value):
        first, second = value.items()
        conjugate = {first[0]: first[1], second[0]: -second[1]}
        return multiply(conjugate, _inverse(multiply(value, conjugate)))
    raise Unfit("no exact inverse")


def _raise(base: Value, exponent: Value) -> Value:
    power = rational(exponent)
    if power is not None and power == Fraction(1, 2):
        return _root(base)
    if power is None or power.denominator != 1 or (not base and power <= 0):
        raise Unfit("no whole exponent")
    count = abs(power.numerator)
    bits = max((max(c.numerator.bit_length(), c.denominator.bit_length()) for c in base.values()), default=1)
    if count * bits > MAX_BITS or count > (2_000 if len(base) <= 1 else 8):
        raise Unfit("power too large")
    result = constant(Fraction(1))
    for bit in bin(count)[2:]:
        result = multiply(result, result)
        if bit == "1":
            result = multiply(result, base)
    return result if power >= 0 else _inverse(result)


def _root(value: Value) -> Value:
    number = rational(value)
    if number is None or number < 0:
        raise Unfit("no exact root")
    radicand, outside = number.numerator * number.denominator, Fraction(1, number.denominator)
    if radicand == 0:
        return {}
    whole = math.isqrt(radicand)
    if whole * whole == radicand:
        return constant(outside * whole)
    if radicand > MAX_RADICAND:
        raise Unfit("radicand too large")
    factor = 2
    while factor * factor <= radicand:
        while radicand % (factor * factor) == 0:
            radicand //= factor * factor
            outside *= factor
        factor += 1
    return {(radicand, ()): outside}
