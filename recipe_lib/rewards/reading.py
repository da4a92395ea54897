r"""From what a model wrote to the one value that it states, and whether that is the gold's.

The readings of a text are tried from the most to the least literal: all of it, its last line, what follows "the answer
is", what follows the last "=" or "is", and a sentence with a single number in it. The first that has a value counts.
A text that names several values without deciding ("5 or 6") has none: hedging must not pay.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from ..answer_format import STYLES, answer_region, extract_answer, last_box
from .clean import clean, strip_ends
from .quantities import Quantity, parse_quantity
from .units import parse_unit
from .values import Formula, Group, Judge, Named, Typed, Words, plain_words, read, same

MAX_ANSWER = 800  # characters: of longer answers the end is read
_STATED = re.compile(
    r"(?:\b(?:answer|result|solutions?)\b(?:\s+(?:is|are|would be|must be))?|答案)\s*[:=是为]?\s*", re.I
)
_COPULA = re.compile(
    r"(?:\b(?:is|are|was|were|equals?|be|measures?|gets?|made of|leaves|leaving)\b|'s\b|\\approx|(?<!\d):|:(?!\s*\d)"
    r"|[是为有])\s*",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[.。!?;]\s|\n|,?\s+(?:because|since|so|as|which|when|where|but)\b|\s*\\approx")
_DENIAL = re.compile(
    r"\b(?:not|cannot|never|neither|nor|unless|than|at least|at most|up to|between(?!.*\b(?:is|are)\b))\b|n't\b|[不没]",
    re.IGNORECASE,
)
_BUT_NOT = re.compile(r"(?<=\w),?\s+(?:and |but )?not\s+\S+$")  # "3, not 4"
_VALUE_START = re.compile(r"[-+]?[\d.\\¤¥€£(]")
_ONLY_WORDS = re.compile(r"[A-Za-z\u4e00-\u9fff',:\s-]*")
_LEFT = re.compile(r"([\w.]+(?:\s+[a-z]+){0,2}?)\s+(?:(?:are|is|were)\s+)?(?:left|remain(?:s|ing)?)\W*$", re.IGNORECASE)
_NOTHING = re.compile(
    r"(?:there (?:are|is|were) )?(?:none|nothing|no (?!idea|answer|clue|way|one)[a-z ]+)(?: of them)?", re.IGNORECASE
)
_JSON = re.compile(
    r"""[\s`]*(?:json\s*)?\{\s*["']?\w*answer["']?\s*:\s*["']?([^{}]*?)["']?\s*\}[\s`]*""", re.IGNORECASE
)
_LABEL = re.compile(r"^\(?[A-Z][.):]\)?\s+(?=\S)")
_CHINESE_YES_NO = ({"是", "是的", "对", "正确"}, {"否", "不是", "错", "错误", "不对", "不正确"})
_YES_NO = re.compile(
    r"(yes|no|true|false)\b(?!\s+(?:idea|clue|answer)\b)(?!\s*(?:,|or|and|/)\s*(?:yes|no|true|false)\b)", re.IGNORECASE
)


def answer_text(text: str, style: str, think_prefilled: bool) -> str | None:
    """The answer that the format holds; a unit that stands behind its box is part of it."""
    region = answer_region(text, style, think_prefilled)
    return None if region is None else _unbox(region)


def gold_string(gold: object) -> str | None:
    """A gold as a text, from a text, a number, a truth value, or a list of one of these; None for anything else."""
    if isinstance(gold, Sequence) and not isinstance(gold, (str, bytes)) and len(gold) == 1:
        gold = gold[0]
    if not isinstance(gold, (str, Sequence)) and getattr(gold, "shape", None) in ((), (1,)):
        gold = gold.item()  # NumPy's and torch's numbers
    if isinstance(gold, bool):
        return "yes" if gold else "no"
    if isinstance(gold, float) and not math.isfinite(gold):
        return None
    return str(gold) if isinstance(gold, (str, int, float)) else None


def shorten(answer: str) -> str:
    """The end of a long answer, from a word's start on: nothing is read out of the middle of a number."""
    if len(answer) <= MAX_ANSWER:
        return answer
    return answer[-MAX_ANSWER:].partition(" ")[2]


def gold_text(gold: str) -> str:
    """The answer inside a gold: its answer block, last box, what follows "####" or "the answer is", or all of it."""
    if "<answer>" in gold:
        gold = extract_answer(gold, next(iter(STYLES))) or ""
    elif last_box(gold):
        gold = _unbox(gold)
    elif "####" in gold:
        gold = gold.rpartition("####")[2]
    stated = list(_STATED.finditer(gold))
    if stated and stated[-1].group().rstrip().lower() not in ("answer", "result", "solution", "solutions"):
        return gold[stated[-1].end() :]
    return gold


def states(gold: Typed, text: str, judge: Judge) -> tuple[bool, str]:
    """Whether a cleaned answer states the gold's value, and by which path that was found."""
    if isinstance(gold, Words):
        return _states_words(gold, text), "words"
    if isinstance(gold, Quantity) and not gold.value and _NOTHING.fullmatch(text):
        return True, "number"
    if isinstance(gold, Quantity) and ":" in gold.source:
        text = re.sub(r"(?<=\d) to (?=\d)", ":", text)  # a ratio
    for reading in readings(text):
        value = read(reading)
        if value is None or isinstance(value, Words) or _worked_out(value, gold):
            continue
        if isinstance(value, Group) and _has_words(value) and not (isinstance(gold, Group) and _has_words(gold)):
            continue
        return same(gold, value, judge), _path(gold, value)
    return False, "no value found"


def quantity_in(text: str) -> Quantity | None:
    """The one number that a cleaned text states, with its unit."""
    for reading in readings(text):
        value = read(reading)
        value = value.value if isinstance(value, Named) else value
        if isinstance(value, Quantity):
            return value
        if isinstance(value, (Formula, Group)) and not (isinstance(value, Group) and _has_words(value)):
            return None
    return None


def readings(text: str) -> Iterator[str]:
    """Cleaned parts of `text` that may be the answer, the most literal first."""
    yield text
    text = _LABEL.sub("", text)
    if "\n" in text:
        first, _, rest = text.partition("\n")
        yield strip_ends(text.rpartition("\n")[2])
        if not re.search(r"\d", rest):
            yield strip_ends(first)
        text = " ".join(text.split())
    yield from stated(text)
    left = _LEFT.search(text)
    if left:
        yield left[1]
    text = _BUT_NOT.sub("", text)
    if _DENIAL.search(text):
        return
    before, equals, after = text.rpartition("=")
    if equals and not (after.strip() == "0" and re.search(r"(?<![A-Za-z\\])[a-z](?![A-Za-z])", before)):
        yield strip_ends(_CLAUSE_END.split(after, maxsplit=1)[0])
    yield from _tail(text, _COPULA)
    start = _VALUE_START.search(text)
    if start and _ONLY_WORDS.fullmatch(text, 0, start.start()):
        first, *others = _CLAUSE_END.split(text[start.start() :], maxsplit=1)
        if not any(re.search(r"\d", other) for other in others):
            yield strip_ends(first)
    yield strip_ends(text.partition(":")[0])  # "four objects: a red cube, ..."


def stated(text: str) -> Iterator[str]:
    """What follows the last "the answer is", if anything does."""
    return _tail(text, _STATED)


def _tail(text: str, pattern: re.Pattern) -> Iterator[str]:
    found = list(pattern.finditer(text))
    if found and found[-1].end() < len(text):
        tail = text[found[-1].end() :]
        yield strip_ends(tail)
        yield strip_ends(_CLAUSE_END.split(tail, maxsplit=1)[0])


def _unbox(region: str) -> str:
    region = _JSON.sub(r"\1", region) if "{" in region and "nswer" in region else region
    box = last_box(region)
    if box is None:
        return region
    content, after = box[0], re.split(r"[\n.。]", clean(box[1][:60]), maxsplit=1)[0]
    unit = after.split(" ")[0] if parse_unit(after) is None else after
    quantity = parse_quantity(clean(content)) if unit and parse_unit(unit) else None
    return f"{content} {unit}" if quantity and quantity.unit is None else content


def _states_words(gold: Words, text: str) -> bool:
    wanted = plain_words(gold.text)
    for spellings in _CHINESE_YES_NO:
        if wanted in spellings:
            return plain_words(text) in spellings
    if wanted in ("yes", "no", "true", "false"):
        start = _YES_NO.match(text)
        if start:
            return (start[1].lower() in ("yes", "true")) == (wanted in ("yes", "true"))
    return any(plain_words(reading) == wanted for reading in readings(text))


def _worked_out(value: Typed, gold: Typed) -> bool:
    """Whether `value` is a calculation, whose result stands last: "180 - 50 = 130", "x = 2 + 3 = 5"."""
    if getattr(gold, "relation", False) or not getattr(value, "relation", False):
        return False
    before, equals, _ = value.latex.rpartition("=")
    return bool(equals) and ("=" in before or not re.search(r"(?<!\\)\b[A-Za-z]", before))


def _has_words(group: Group) -> bool:
    return any(isinstance(item, Words) for item in group.items)


def _path(gold: Typed, answer: Typed) -> str:
    kinds = {type(gold), type(answer)}
    if Formula in kinds:
        return "formula"
    if Group in kinds:
        return "group"
    return "named value" if Named in kinds else "number" if kinds == {Quantity} else "mixed"
