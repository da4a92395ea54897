"""Numbers with units, read from short texts: "130 cm", "$12,000", "2 h 30 min", "five cubes", "x = 3\\sqrt{2}"."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from . import units
from .exact import Unfit, Value, constant, evaluate, multiply, rational

_WORDS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_ENGLISH = {word: number for number, word in enumerate(f"{_WORDS} seventeen eighteen nineteen".split())}
_ENGLISH |= {
    word: 10 * tens
    for tens, word in enumerate(["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], start=2)
}
_FRACTIONS = {"half": 2, "halves": 2, "quarter": 4, "quarters": 4}
for _number, _word in enumerate(
    ["third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"], start=3
):
    _FRACTIONS |= {_word: _number, f"{_word}s": _number}
_FRACTIONS |= {"hundredth": 100, "hundredths": 100, "thousandth": 1000, "thousandths": 1000}
_THOUSANDS = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_CHINESE = {sign: number for number, sign in enumerate("零一二三四五六七八九")} | {"两": 2, "十": 10, "百": 100}
_NUMERAL = f"[{''.join(_CHINESE)}]+"
_CHINESE_NUMBER = re.compile(rf"({_NUMERAL})(?:分之({_NUMERAL}))?")
_WORD = re.compile(r"[ -]*([A-Za-z]+)")
_MINUS_WORD = re.compile(r"(?:negative|minus|负)\s*(?=\S)", re.IGNORECASE)
_CURRENCY = re.compile(r"^(-?)\s*([¤¥€£])\s*")
_APPROXIMATE = re.compile(r"^(?:\\approx|about|approximately|roughly|around|=)\s*", re.IGNORECASE)
# "cat" and "no" are words, not products of letters; 2019-05-03 is a date, not a difference.
_WORDY = re.compile(
    r"(?<![A-Za-z\\])[A-Za-z]{3,}|^[A-Za-z\s]{2,}$|^\d{1,4}([-/])\d{1,2}\1\d{1,4}$|(?<![A-Za-z\\])or(?![A-Za-z])"
)
_SCALE = re.compile(r"(?<=\d)\s*(hundred|thousand|million|billion|[百千万亿])(?![a-z克米升])")
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "百": 2, "千": 3, "万": 4, "亿": 8}
_UNIT_START = re.compile(r"[°%'\"¤¢¥€£Ω\u4e00-\u9fff]|(?<![A-Za-z\\])[A-Za-zμ]")
_ASIDE = re.compile(r"\(\s*[A-Za-z ]*\)")
_COMPOUND = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([°'\"]|[A-Za-z\u4e00-\u9fff]+)[\s,]*(?:and\s)?")
_NOUN = re.compile(r"(?:[A-Za-z][A-Za-z'-]*|[\u4e00-\u9fff]+)(?:\s+(?:[A-Za-z][A-Za-z'-]*|[\u4e00-\u9fff]+)){0,7}")
_CONFUSABLE = {"in", "a", "m", "s", "h", "t", "g", "l", "A", "N", "J", "W", "V"}  # units only at the very end
# Words behind a number that change it, or take it back: "5 and a half", "5 squared", "5 is not the answer".
_CHANGES = {"not", "never", "or", "nor", "more", "less", "fewer", "than", "dozen"}
_CHANGES |= set(_FRACTIONS) | {"dozens", "squared", "cubed", "factorial", "minus", "plus"}
_EMPTY_NOUNS = set("is the answer in total altogether of are there long wide high only".split())  # noqa: SIM905
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)(?:\s*[ap]\.?\s?m\.?)?", re.IGNORECASE)
_RATIO = re.compile(r"([^:]+):([^:]+?)(?:\s*([ap])\.?\s?m\.?)?", re.IGNORECASE)  # 2:3, and 10:30 AM
_BRACKETED_UNIT = re.compile(r"(?<=[\d}])\s*\(([A-Za-z]{2}[A-Za-z ]*|m|[\u4e00-\u9fff]+)\)$")  # 10(cm)


@dataclass(frozen=True)
class Quantity:
    """An exact value with the unit and the noun that stood behind it, where there were any."""

    value: Value
    unit: units.Unit | None = None
    noun: frozenset[str] = frozenset()
    source: str = field(default="", compare=False)
    """The value's own text, without the unit."""

    def number(self) -> Fraction | None:
        """The value as a Fraction in the unit that was written, or None where it holds roots or symbols."""
        return rational(self.value)


def parse_quantity(text: str) -> Quantity | None:
    """The quantity that the whole of a cleaned `text` states, or None."""
    unit, text = None, _BRACKETED_UNIT.sub(r" \1", text)
    if not text[:1].isdigit():
        text = _spoken(_APPROXIMATE.sub("", text).strip())
        currency = _CURRENCY.match(text)
        if currency:
            unit, text = units.parse_unit(currency[2]), currency[1] + text[currency.end() :]
    if not _UNIT_START.search(text):
        value = _exact(text)
        if value is not None:
            return Quantity(value, unit, source=text)
    ratio = _RATIO.fullmatch(text)
    parts = [_exact(part) for part in ratio.groups()[:2]] if ratio else []
    if parts and all(part is not None and rational(part) is not None for part in parts):
        noun = frozenset({ratio[3].lower() + "m"} if ratio[3] else ())
        first, second = map(rational, parts)
        if second or _clock(text):
            return Quantity(constant(first / second if second else first), unit, noun, text)
    text = _SCALE.sub(lambda scale: f"*1{'0' * _SCALES[scale[1]]}", text)
    found = _with_unit(text, unit) or _compound(text)
    if found:
        return found
    value = _exact(text)
    return None if value is None else Quantity(value, unit, source=text)


def _spoken(text: str) -> str:
    """`text` with the number word at its start in digits: "minus five", "twenty-five cubes", "四分之三"."""
    minus = _MINUS_WORD.match(text)
    if minus:
        spoken = _spoken(text[minus.end() :])
        return f"-{spoken}" if spoken[:1].isdigit() else text
    word = _CHINESE_NUMBER.match(text)
    if word:
        number = f"{_numeral(word[2])}/{_numeral(word[1])}" if word[2] else _numeral(word[1])
        return f"{number} {text[word.end() :]}".strip()
    number, end = _whole_number(text)
    part, part_end = _fraction(text, number, end)
    if part is not None:
        return f"{part} {text[part_end:]}".strip()
    return text if number is None else f"{number} {text[end:].lstrip('-')}".strip()


def _words_at(text: str, start: int) -> Iterator[tuple[str, int]]:
    """Words from `start` on, in lower case, each with its end; the hyphen of "twenty-five" is a space."""
    while match := _WORD.match(text, start):
        start = match.end()
        yield match[1].lower(), start


def _whole_number(text: str, start: int = 0) -> tuple[int | None, int]:
    """The whole number that the words at `start` spell, and where they end: "one hundred and five" is 105."""
    total, current, end, largest = 0, None, start, 10**12
    for word, word_end in _words_at(text, start):
        value = _ENGLISH.get(word)
        if word == "and" and (total or (current or 0) >= 100):
            continue
        if word == "a" and current is None and not total:
            value = 1
        if value is not None and (current is None or _extends(current, value)):
            current = (current or 0) + value
        elif word == "hundred" and current is not None and current < 100:
            current *= 100
        elif word in _THOUSANDS and current is not None and _THOUSANDS[word] < largest:
            largest = _THOUSANDS[word]
            total, current = total + current * largest, None
        else:
            break
        if word != "a":  # "a hundred", but not "a cube"
            end = word_end
    number = None if end == start else total + (current or 0)
    return number, end


def _extends(number: int, value: int) -> bool:
    """Whether `value` may be said behind `number`: 100 and 5, 20 and 5, but not 5 and 6."""
    return (number % 100 == 0 and number > 0) or (number % 10 == 0 and number % 100 >= 20 and value < 10)


def _fraction(text: str, number: int | None, end: int) -> tuple[Fraction | None, int]:
    """A fraction of English words behind `number` words or in their place, and its end: "two thirds", "a half"."""
    words = list(itertools.islice(_words_at(text, end), 3))
    if not words:
        return None, end
    (first, first_end), rest = words[0], words[1:]
    if number is None:
        if first == "a" and rest and rest[0][0] in _FRACTIONS:
            return Fraction(1, _FRACTIONS[rest[0][0]]), rest[0][1]
        return (Fraction(1, 2), first_end) if first == "half" and not rest else (None, end)
    if first in _FRACTIONS:
        return Fraction(number, _FRACTIONS[first]), first_end
    if first == "and" and rest:  # "three and a half"
        over, over_end = _fraction(text, *_whole_number(text, first_end))
        if over is not None and over < 1:
            return number + over, over_end
    return None, end


def _numeral(signs: str) -> int:
    """三十五 is 35: a digit multiplies the ten or hundred behind it."""
    total, digit = 0, 0
    for sign in signs:
        number = _CHINESE[sign]
        total, digit = (total + (digit or 1) * number, 0) if number >= 10 else (total, number)
    return total + digit


def same_quantity(gold: Quantity, answer: Quantity) -> bool:
    """Equal values in agreeing units; a unit or noun on one side only is no contradiction."""
    if gold.noun and answer.noun and not (gold.noun <= answer.noun or answer.noun <= gold.noun):
        return False
    if clock := _clock(gold.source):
        return not clock.isdisjoint(_clock(answer.source))
    if gold.unit and answer.unit:
        gold, answer = in_degrees(gold), in_degrees(answer)
        if not units.agree(gold.unit, answer.unit):
            return False
        return _scaled(gold.value, gold.unit.factor) == _scaled(answer.value, answer.unit.factor)
    if gold.value == answer.value:
        return True
    # 50% is 50 and is 0.5: the sign may be left out on either side, or be worked into the number.
    if gold.unit == units.PERCENT:
        return _scaled(gold.value, Fraction(1, 100)) == answer.value
    return answer.unit == units.PERCENT and gold.value == _scaled(answer.value, Fraction(1, 100))


def _clock(text: str) -> set[tuple[int, int]]:
    """Hour and minute of a text that is a time of day rather than a ratio, which would be in lowest terms.

    Empty for a ratio; "7:00 PM" is both (7, 0) and (19, 0).
    """
    match = _CLOCK.fullmatch(text)
    if match is None:
        return set()
    hour, minute = int(match[1]), int(match[2])
    is_time = match[2][0] == "0" or math.gcd(hour, minute) > 1 or match[0][-1:] in "mM."
    if not is_time or hour > 24:
        return set()
    afternoon = "p" in text.lower()
    return {(hour, minute), (hour % 12 + 12, minute)} if afternoon else {(hour, minute)}


def in_degrees(quantity: Quantity) -> Quantity:
    """Radians as degrees; anything else as it is."""
    if quantity.unit != units.RADIAN:
        return quantity
    return Quantity(multiply(quantity.value, {(1, (("pi", -1),)): Fraction(180)}), units.DEGREE)


def _scaled(value: Value, factor: Fraction) -> Value:
    return {key: coefficient * factor for key, coefficient in value.items()}


def _exact(text: str) -> Value | None:
    if _WORDY.search(text):
        return None
    try:
        return evaluate(text)
    except (Unfit, RecursionError):
        return None


def _with_unit(text: str, unit: units.Unit | None) -> Quantity | None:
    """A value, then a unit or a noun, which may begin at any letter or unit sign."""
    for start in [match.start() for match in _UNIT_START.finditer(text, 1)][:12]:
        value = _exact(text[:start].strip())
        if value is None or text[:start].lower() == "a ":
            continue
        rest = _ASIDE.sub("", text[start:]).strip(" .,;-")
        found = _attach(value, rest, unit, spaced=text[start - 1].isspace())
        if found:
            return replace(found, source=text[:start].strip())
    return None


def _attach(value: Value, rest: str, unit: units.Unit | None, spaced: bool) -> Quantity | None:
    if not rest or units.is_generic(rest):
        return Quantity(value, unit)
    found = units.parse_unit(rest)
    if found:
        return Quantity(value, found)
    words = rest.split()
    for count in range(min(3, len(words) - 1), 0, -1):  # "5 cm long", "5 square metres in all"
        found = units.parse_unit(" ".join(words[:count]))
        tail = " ".join(words[count:])
        if found and words[count - 1] not in _CONFUSABLE and _NOUN.fullmatch(tail):
            return Quantity(value, found)
    # "2ab" and "2 x" are algebra, not two of something.
    if not _NOUN.fullmatch(rest) or not (rest[0] > "z" or (spaced and (len(words[0]) > 2 or rest[:2] in _EMPTY_NOUNS))):
        return None
    if not _CHANGES.isdisjoint(map(str.lower, words)):
        return None
    noun = {word.lower().removesuffix("s") for word in words} - _EMPTY_NOUNS - {"i"}
    return Quantity(value, unit, frozenset(noun))


def _compound(text: str) -> Quantity | None:
    """ "2 h 30 min", "30°15'": at least two parts of one dimension."""
    position, total, first, last = 0, Fraction(0), None, None
    parts = 0
    while position < len(text):
        match = _COMPOUND.match(text, position)
        unit = units.parse_unit(match[2]) if match else None
        if (
            unit is None
            or len(match[1]) > 50
            or (last and (unit.dimension != last.dimension or unit.factor >= last.factor))
        ):
            return None
        first, last = first or unit, unit
        total += Fraction(match[1]) * unit.factor
        position, parts = match.end(), parts + 1
    if parts < 2:
        return None
    return Quantity(constant(total / first.factor), first)
