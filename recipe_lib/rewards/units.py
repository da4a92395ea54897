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

# Names of one base a line, with the value in that base; * where SI prefixes apply.
_TABLE = """
m     m*=1 meter*=1 metre*=1 米*=1 公里=1000 in=0.0254 inch=0.0254 inche=0.0254 英寸=0.0254 ft=0.3048 foot=0.3048
m     feet=0.3048 英尺=0.3048 yd=0.9144 yard=0.9144 mi=1609.344 mile=1609.344 英里=1609.344
m^3   l*=1/1000 L*=1/1000 liter*=1/1000 litre*=1/1000 升*=1/1000
g     g*=1 gram*=1 gramme*=1 克*=1 公斤=1000 t=1000000 ton=1000000 tonne=1000000 吨=1000000
lb    lb=1 pound=1 oz=1/16 ounce=1/16
s     s*=1 sec*=1 second*=1 秒*=1 min=60 minute=60 分钟=60 h=3600 hr=3600 hour=3600 小时=3600 day=86400 天=86400
s     week=604800 周=604800
month month=1 个月=1 year=12 yr=12 年=12
deg   °=1 deg=1 degree=1 度=1 '=1/60 "=1/3600
rad   rad=1 radian=1
°C    °C=1 ℃=1 C=1 celsius=1 摄氏度=1
°F    °F=1 F=1 fahrenheit=1
K     kelvin=1
m^3   gallon=0.003785411784 gal=0.003785411784 quart=0.000946352946 pint=0.000473176473
m^2   ha=10000 hectare=10000 acre=4046.8564224 公顷=10000
%     %=1 percent=1 百分比=1
USD   ¤=1 dollar=1 usd=1 ¢=1/100 cent=1/100
CNY   ¥=1 元=1 角=1/10 yuan=1 rmb=1
EUR   €=1 euro=1
GBP   £=1
N     N*=1 newton*=1
J     J*=1 joule*=1 cal*=4.184 calorie*=4.184
W     W*=1 watt*=1
V     V*=1 volt*=1
A     A*=1 amp*=1 ampere*=1
Hz    Hz*=1 hertz*=1
Pa    Pa*=1 pascal*=1
Ω     Ω*=1 ohm*=1
mol   mol*=1 mole*=1
"""
_PREFIXES = {
    **{"": "1", "k": "1000", "kilo": "1000", "千": "1000", "c": "1/100", "centi": "1/100", "厘": "1/100", "d": "1/10"},
    **{"deci": "1/10", "分": "1/10", "m": "1/1000", "milli": "1/1000", "毫": "1/1000", "M": "1000000"},
    **{"mega": "1000000", "G": "1000000000", "μ": "1/1000000", "micro": "1/1000000", "n": "1/1000000000"},
}
_NAMES: dict[str, tuple[str, int, Fraction]] = {}  # every spelling -> base, power, factor
for _line in _TABLE.split("\n")[1:-1]:
    _dimension, *_entries = _line.split()
    _base, _, _power = _dimension.partition("^")
    for _name, _factor in (entry.rsplit("=", 1) for entry in _entries):
        for _prefix, _scale in _PREFIXES.items() if _name[-1] == "*" else [("", "1")]:
            _unit = (_base, int(_power or 1), Fraction(_factor) * Fraction(_scale))
            _NAMES.setdefault(_prefix + _name.removesuffix("*"), _unit)
_GENERIC = {"unit", "units", "square unit", "square units", "sq units", "cubic units", "单位", "平方单位"}
_POWER_WORDS = (("square ", 2), ("sq. ", 2), ("sq ", 2), ("平方", 2), ("cubic ", 3), ("立方", 3), ("cu ", 3))
_PART = re.compile(r"([^\s\d^*/()-]+?)\s*(?:\^\s*\{?\s*(-?\d)\s*\}?|([23]))?$")
_JOIN = re.compile(r"\s*(\\cdot|\*|/|(?<![A-Za-z])per(?![A-Za-z])|每)\s*")
_ALIASES = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h", "fps": "ft/s", "per cent": "%"}
_ALIASES |= {"degrees celsius": "°C", "degree celsius": "°C", "° c": "°C", "degrees fahrenheit": "°F", "° f": "°F"}


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
    name = match[1]
    for spelling in (name, name.lower(), name.lower().removesuffix("s")):
        if spelling in _NAMES:
            base, base_power, factor = _NAMES[spelling]
            return base, base_power * power, factor**power
    return None
