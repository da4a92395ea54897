"""Units of measure as dimension and factor, so that 1.3 m equals 130 cm and 12 cm contradicts 12 cm^2.

English and Chinese names, SI prefixes, powers, quotients. A word that is no unit is a noun ("5 cubes").
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction
from typing import NamedTuple


class Unit(NamedTuple):
    """`dimension` is sorted (base, power) pairs; a value times `factor` is in those bases."""

    dimension: tuple[tuple[str, int], ...]
    factor: Fraction


PERCENT = Unit((("%", 1),), Fraction(1))
DEGREE = Unit((("deg", 1),), Fraction(1))
RADIAN = Unit((("rad", 1),), Fraction(1))
_TEMPERATURES = ("°C", "°F", "K")

# name -> (base, factor, whether SI prefixes apply)
_BASES: dict[str, tuple[str, str, bool]] = {}
for _names, _base, _factor, _prefixed in [
    ("m meter metre 米", "m", "1", True),
    ("公里", "m", "1000", False),
    ("in inch inche 英寸", "m", "0.0254", False),
    ("ft foot feet 英尺", "m", "0.3048", False),
    ("yd yard", "m", "0.9144", False),
    ("mi mile 英里", "m", "1609.344", False),
    ("g gram gramme 克", "g", "1", True),
    ("公斤", "g", "1000", False),
    ("t ton tonne 吨", "g", "1000000", False),
    ("lb pound", "lb", "1", False),
    ("oz ounce", "lb", "1/16", False),
    ("s sec second 秒", "s", "1", True),
    ("min minute 分钟", "s", "60", False),
    ("h hr hour 小时", "s", "3600", False),
    ("day 天", "s", "86400", False),
    ("week 周", "s", "604800", False),
    ("month 个月", "month", "1", False),
    ("year yr 年", "month", "12", False),
    ("° deg degree 度", "deg", "1", False),
    ("'", "deg", "1/60", False),
    ('"', "deg", "1/3600", False),
    ("rad radian", "rad", "1", False),
    ("°C ℃ celsius 摄氏度", "°C", "1", False),
    ("°F fahrenheit", "°F", "1", False),
    ("kelvin", "K", "1", False),
    ("% percent 百分比", "%", "1", False),
    ("¤ dollar usd", "USD", "1", False),
    ("¢ cent", "USD", "1/100", False),
    ("¥ 元 yuan rmb", "CNY", "1", False),
    ("€ euro", "EUR", "1", False),
    ("£", "GBP", "1", False),
    ("N newton", "N", "1", True),
    ("J joule", "J", "1", True),
    ("W watt", "W", "1", True),
    ("V volt", "V", "1", True),
    ("A amp ampere", "A", "1", True),
    ("Hz hertz", "Hz", "1", True),
    ("Pa pascal", "Pa", "1", True),
    ("Ω ohm", "Ω", "1", True),
    ("mol mole", "mol", "1", True),
]:
    for _name in _names.split():
        _BASES[_name] = (_base, _factor, _prefixed)
_LITRES = ("l", "L", "liter", "litre", "升")
_PREFIXES = {
    **{"k": "1000", "kilo": "1000", "千": "1000", "c": "1/100", "centi": "1/100", "厘": "1/100", "d": "1/10"},
    **{"deci": "1/10", "分": "1/10", "m": "1/1000", "milli": "1/1000", "毫": "1/1000", "M": "1000000"},
    **{"mega": "1000000", "G": "1000000000", "μ": "1/1000000", "micro": "1/1000000", "n": "1/1000000000"},
}
_GENERIC = {"unit", "units", "square unit", "square units", "sq units", "cubic units", "单位", "平方单位"}
_POWER_WORDS = (("square ", 2), ("sq. ", 2), ("sq ", 2), ("平方", 2), ("cubic ", 3), ("立方", 3), ("cu ", 3))
_PART = re.compile(r"([^\s\d^*/()-]+?)\s*(?:\^\s*\{?\s*(-?\d)\s*\}?|([23]))?$")
_JOIN = re.compile(r"\s*(\\cdot|\*|/|(?<![A-Za-z])per(?![A-Za-z])|每)\s*")
_KELVIN_PER = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h", "fps": "ft/s", "degrees celsius": "°C", "° c": "°C"}
_ALIASES = {**_KELVIN_PER, "degrees fahrenheit": "°F", "° f": "°F", "degree celsius": "°C", "per cent": "%"}


@functools.lru_cache(maxsize=4096)
def parse_unit(text: str) -> Unit | None:
    """The unit that `text` names ("cm", "km/h", "平方米", "square inches", "m^2"), or None."""
    text = text.strip(" .,;")
    text = _ALIASES.get(text.lower(), text)
    if not text or len(text) > 40:
        return None
    powers: dict[str, int] = {}
    factor, sign = Fraction(1), 1
    for piece in _JOIN.split(text):
        if piece in ("/", "per", "每"):
            sign = -1
        elif piece not in ("\\cdot", "*"):
            part = _part(piece)
            if part is None:
                return None
            base, power, scale = part
            powers[base] = powers.get(base, 0) + sign * power
            factor *= scale**sign
    return Unit(tuple(sorted((base, power) for base, power in powers.items() if power)), factor)


def is_generic(text: str) -> bool:
    """Whether `text` is the word "units" itself, which says nothing."""
    return re.sub(r"\s*\^\s*\{?[23]\}?$", "", text.strip(" .").lower()) in _GENERIC


def agree(left: Unit, right: Unit) -> bool:
    """Whether two units measure the same kind of thing; a bare degree sign goes with every temperature."""
    if left.dimension == right.dimension:
        return True
    kinds = {left.dimension, right.dimension}
    return DEGREE.dimension in kinds and any(((name, 1),) in kinds for name in _TEMPERATURES)


def _part(text: str) -> tuple[str, int, Fraction] | None:
    """Base, power and factor of one piece such as `cm^2`, `平方厘米` or `square inches`."""
    power = 1
    for word, value in _POWER_WORDS:
        if text.lower().startswith(word):
            text, power = text[len(word) :], value
            break
    match = _PART.fullmatch(text.strip())
    if match is None:
        return None
    power *= int(match[2] or match[3] or 1)
    found = _named(match[1])
    if found is None:
        return None
    base, base_power, factor = found
    return base, base_power * power, factor**power


def _named(name: str) -> tuple[str, int, Fraction] | None:
    for spelling in dict.fromkeys((name, name.lower(), name.lower().removesuffix("s"))):
        found = _base(spelling)
        if found:
            return *found, Fraction(_BASES[spelling][1]) if spelling in _BASES else Fraction(1, 1000)
        for prefix, scale in _PREFIXES.items():
            rest = spelling[len(prefix) :]
            if spelling.startswith(prefix) and (rest in _LITRES or _BASES.get(rest, ("", "", False))[2]):
                base, power = _base(rest)
                inner = Fraction(_BASES[rest][1]) if rest in _BASES else Fraction(1, 1000)
                return base, power, inner * Fraction(scale)
    return None


def _base(name: str) -> tuple[str, int] | None:
    if name in _LITRES:
        return "m", 3
    return (_BASES[name][0], 1) if name in _BASES else None
