r"""Typed values of golds and answers, and how they compare.

A text is a quantity, a group (pair, set, interval, list), a named value ("x = 5"), words, or a formula. The first four
compare here, exactly and in microseconds; formulas go to math-verify. A text that is none of these is unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .exact import spell_out
from .quantities import Quantity, parse_quantity, same_quantity


@dataclass(frozen=True)
class Words:
    text: str


@dataclass(frozen=True)
class Formula:
    latex: str
    relation: bool = False


@dataclass(frozen=True)
class Named:
    name: str
    value: Quantity | Formula
    latex: str


@dataclass(frozen=True)
class Group:
    """`brackets` is "()", "[)", ..., "{}" for a set and "" for a bare list."""

    brackets: str
    items: tuple
    latex: str


Typed = Quantity | Words | Formula | Named | Group
Judge = Callable[[str, str], bool]
"""math-verify's answer on two LaTeX texts, gold first."""

_NAME = re.compile(
    r"[A-Za-z]'*(?:_\{?\w{1,4}\}?)?(?:\([A-Za-z0-9, ]{1,8}\))?|m?\s*\\angle\s*\w{1,4}|[A-Z]{2,5}|\\[a-z]{2,7}\s*"
)
_SPLIT = re.compile(r"\s*(?:;|,\s+(?:and|or)\s|\s(?:and|or)\s|,\s+|\s*[和或]\s*|\\(?:text)?\s*(?:and|or)\s)\s*")
_RANGE = re.compile(r"(?:from\s+)?(\d+(?:\.\d+)?)\s*(?:-|to|~|至|到)\s*(\d+(?:\.\d+)?)\s*([A-Za-z°%]{0,12})")  # 5-7 cm
_PLUS_MINUS = re.compile(r"\\pm\s*|\+/-\s*|\+-")
_WORDS = re.compile(r"(?=.*(?:[^\W\d_]{2}|[\u4e00-\u9fff])|\d+[-/]\d+[-/]\d+$)[\w\s'\".,:;!?()&/%°-]+", re.DOTALL)
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_KNOWN_COMMANDS = frozenset(
    """
    frac sqrt pi times cdot div pm mp le ge ne lt gt cup cap in infty emptyset alpha beta gamma theta lambda phi omega
    sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp lim max min gcd det overline vec hat bar
    angle triangle perp parallel sim cong approx begin end mathbb sum int prod binom partial to ldots cdots dots
    langle rangle lfloor rfloor lceil rceil delta epsilon eta kappa mu nu rho sigma tau psi chi Delta Sigma Omega
    mathcal setminus mid vert Vert lvert rvert widehat prime subset subseteq forall exists equiv pmod bmod mod
    neg lnot land lor wedge vee implies iff Rightarrow rightarrow
    """.split()  # noqa: SIM905
)
_FUNCTIONS = re.compile(
    r"(?<![A-Za-z\\])(sin|cos|tan|cot|sec|csc|log|ln|exp|max|min|gcd|arcsin|arccos|arctan|lim)(?![A-Za-z])"
)
# Words, signs that no formula has, and operators with nothing behind them.
_PROSE = re.compile(
    r"(?<![A-Za-z])(?:[a-z]{3,}|[A-Za-z]{4,}|(?:is|of|to|or|so|we|it|by|as|at|be|if|an)(?![A-Za-z]))"
    r"|[^\x00-\x7f°Ωμ]|[\"?;#@]|[-+*/^_=<>]\s*$|^\s*[*/=]"
)
_ENVIRONMENT = re.compile(r"\\begin\s*\{\s*(?![pbvBV]?matrix|smallmatrix|cases)")
_ARTICLES = re.compile(r"^(?:the|an?)\s+", re.IGNORECASE)
_SPELLINGS = {"gray": "grey", "colour": "color", "centre": "center", "metre": "meter", "metres": "meters"}


def read(text: str) -> Typed | None:
    """The typed value of a cleaned text; None where it has none."""
    if not text:
        return None
    if span := _read_range(text):
        return span
    return parse_quantity(text) or read_group(text) or _read_named(text) or _read_words(text) or read_formula(text)


def read_group(text: str) -> Group | None:
    """Pairs, intervals, sets and lists of at least two values, or a set of any number."""
    text = re.sub(r"^[A-Z](?=\([^()]*,)", "", text)  # the point A(4, 3)
    body = text.replace("\\{", "{").replace("\\}", "}").replace("\\langle", "(").replace("\\rangle", ")")
    brackets, pieces = "", None
    if len(body) > 2 and body[0] in "([{" and body[-1] in ")]}" and _encloses(body):
        brackets = body[0] + body[-1]
        pieces = _top_level(body[1:-1], re.compile(r"[,;]\s*"))
        if len(pieces) < 2 and brackets != "{}":
            return None
    if not brackets:
        pieces = _top_level(body, _SPLIT)
        if len(pieces) < 2 and "," in body:
            pieces = _top_level(body, re.compile(r",\s*"))
        if len(pieces) < 2 and len(_PLUS_MINUS.findall(body)) != 1:
            return None
    items = []
    for piece in pieces:
        for signed in [_PLUS_MINUS.sub(sign, piece) for sign in ("+", "-")] if _PLUS_MINUS.search(piece) else [piece]:
            item = _read_item(signed.strip())
            if item is None:
                return None
            items.append(item)
    return Group(brackets, tuple(items), text) if 0 < len(items) <= 50 else None


def _read_range(text: str) -> Group | None:
    """From a smaller to a larger number, as a closed interval: "5-7 cm" is no difference."""
    ends = _RANGE.fullmatch(text)
    if ends is None or float(ends[1]) >= float(ends[2]):
        return None
    items = tuple(_read_item(f"{end} {ends[3]}".strip()) for end in ends.groups()[:2])
    return Group("[]", items, text) if all(items) else None


def read_formula(text: str) -> Formula | None:
    """A text that math-verify may be asked about: known commands, no prose, no foreign environment."""
    if len(text) > 400 or _ENVIRONMENT.search(text) or not set(_COMMAND.findall(text)) <= _KNOWN_COMMANDS:
        return None
    bare = _FUNCTIONS.sub("", _COMMAND.sub(" ", re.sub(r"\\(?:begin|end)\s*\{[a-zA-Z]+\}", "", text)))
    if _PROSE.search(bare) or not re.search(r"[A-Za-z0-9\\]", text) or not _balanced(bare):
        return None
    latex = re.sub(r"(\d+(?:\.\d+)?)\s*°", r"\\frac{\1\\pi}{180}", _FUNCTIONS.sub(r"\\\1", spell_out(text)))
    latex = re.sub(r"\^\s*(-?\d+|\d+\.\d+)", r"^{\1}", latex)
    return Formula(latex, bool(re.search(r"[=<>]|\\(?:le|ge|ne|in)(?![A-Za-z])", latex)))


def same(gold: Typed, answer: Typed, judge: Judge) -> bool:
    """Whether two typed values are the same answer."""
    if isinstance(gold, Named) or isinstance(answer, Named):
        return _same_named(gold, answer, judge)
    if isinstance(gold, Group) or isinstance(answer, Group):
        return _same_group(gold, answer, judge)
    if isinstance(gold, Words) or isinstance(answer, Words):
        return (
            isinstance(gold, Words) and isinstance(answer, Words) and plain_words(gold.text) == plain_words(answer.text)
        )
    if isinstance(gold, Quantity) and isinstance(answer, Quantity):
        return same_quantity(gold, answer)
    if isinstance(answer, Quantity) and gold.relation and re.search(r"[A-Za-z]", gold.latex.partition("=")[0]):
        return False  # math-verify would compare the right-hand side alone: 1 is not x + y = 1
    return _same_formula(gold, answer, judge)


def plain_words(text: str) -> str:
    """Words without case, articles, punctuation and spelling variants; numbers keep their points and signs."""
    text = re.sub(r"\b([ap])\.\s?m\b\.?", r"\1m", text.casefold())
    text = re.sub(r"(?<!\d)[.,:;!?]+|[.,:;!?]+(?!\d)|[\"'()*]+", " ", text)
    words = _ARTICLES.sub("", re.sub(r"(?<=\w)-(?=[^\W\d])", " ", text).strip()).split()
    return " ".join(_SPELLINGS.get(word, word) for word in words)


def latex_of(value: Typed) -> str | None:
    """What math-verify is shown for a value."""
    if isinstance(value, (Formula, Named, Group)):
        return value.latex
    return spell_out(value.source) or None if isinstance(value, Quantity) else None


def _same_named(gold: Typed, answer: Typed, judge: Judge) -> bool:
    if isinstance(gold, Named) and isinstance(answer, Named):
        one_letter = len(gold.name) == 1 == len(answer.name)
        return not (one_letter and gold.name != answer.name) and same(gold.value, answer.value, judge)
    named, other = (gold, answer) if isinstance(gold, Named) else (answer, gold)
    if isinstance(other, Formula) and other.relation:
        return _same_formula(gold, answer, judge)
    if isinstance(other, Group):
        return False
    return same(named.value, other, judge) if named is gold else same(other, named.value, judge)


def _same_group(gold: Typed, answer: Typed, judge: Judge) -> bool:
    if isinstance(gold, Group) and isinstance(answer, Group):
        named = _by_names(gold.items, answer), _by_names(answer.items, gold)
        if any(named):  # "x = 5, y = 3" and "(5, 3)" or "5, 3"
            left, right = named[0] or gold.items, named[1] or answer.items
            return len(left) == len(right) and all(same(a, b, judge) for a, b in zip(left, right))
        left, right = gold.items, answer.items
        ordered = {gold.brackets, answer.brackets} - {"", "{}"}
        if ordered:
            if "{}" in (gold.brackets, answer.brackets) or len(ordered) > 1 or len(left) != len(right):
                return False
            return all(same(a, b, judge) for a, b in zip(left, right, strict=True))
        return all(any(same(a, b, judge) for b in right) for a in left) and all(
            any(same(a, b, judge) for a in left) for b in right
        )
    group, other = (gold, answer) if isinstance(gold, Group) else (answer, gold)
    if group is answer and not group.brackets and not isinstance(gold, Formula):  # "1/2 or 0.5" is one value
        return all(same(gold, item, judge) for item in group.items)
    if len(group.items) == 1:
        return same(group.items[0], other, judge) if group is gold else same(other, group.items[0], judge)
    return isinstance(other, Formula) and _same_formula(gold, answer, judge)


def _by_names(items: tuple, other: Group) -> list | None:
    """Items of unlike names in the order of `other`, which names none: by name beside a pair, else as written."""
    names = {item.name.strip() for item in items if isinstance(item, Named)}
    if not 1 < len(names) == len(items) or any(isinstance(item, Named) for item in other.items):
        return None
    return list(items) if other.brackets in ("", "{}") else sorted(items, key=lambda item: item.name)


def _same_formula(gold: Typed, answer: Typed, judge: Judge) -> bool:
    left, right = latex_of(gold), latex_of(answer)
    if left is None or right is None:
        return False
    return left == right or judge(left, right)


def _read_named(text: str) -> Named | None:
    name, equals, rest = text.partition("=")
    name = name.strip()
    if re.fullmatch(r"[A-Za-z]", rest.strip()) and not _NAME.fullmatch(name):
        name, rest = rest.strip(), name  # 5 = x
    if not equals or "=" in rest or name[-1:] in "<>!" or not _NAME.fullmatch(name):
        return None
    value = parse_quantity(rest.strip()) or read_formula(rest.strip())
    formula = read_formula(text)
    return Named(name, value, formula.latex if formula else text) if value else None


def _read_words(text: str) -> Words | None:
    if len(text) > 400 or _COMMAND.search(text) or not _WORDS.fullmatch(text):
        return None
    bare = _FUNCTIONS.sub("", text)
    is_formula = bare != text and re.search(r"[\d(]", bare) and not re.search(r"[A-Za-z]{3}", bare)
    return None if is_formula else Words(text)


def _read_item(text: str) -> Typed | None:
    if not text or len(text) > 120:
        return None
    value = parse_quantity(text) or (read_group(text) if text[0] in "([{" else None) or _read_named(text)
    if value is None and _WORDS.fullmatch(text):
        return Words(text) if len(text.split()) <= 4 else None
    return value or read_formula(text)


def _balanced(text: str) -> bool:
    """Whether braces pair, and brackets of any kind do (intervals pair unlike ones)."""
    return text.count("{") == text.count("}") and sum(map(text.count, "([")) == sum(map(text.count, ")]"))


def _encloses(text: str) -> bool:
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            return position == len(text) - 1
    return False


def _top_level(text: str, separator: re.Pattern) -> list[str]:
    """`text` split at separators that stand outside of brackets."""
    pieces, start, depth, scanned = [], 0, 0, 0
    for match in separator.finditer(text):
        inside = text[scanned : match.start()]
        depth += sum(inside.count(c) for c in "([{") - sum(inside.count(c) for c in ")]}")
        scanned = match.start()
        if depth == 0:
            pieces.append(text[start : match.start()])
            start = match.end()
    return [*pieces, text[start:]]
