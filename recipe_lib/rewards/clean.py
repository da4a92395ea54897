r"""One plain spelling for what models and data sets write in many: unicode, full-width forms, LaTeX, markdown.

`clean` keeps the meaning and drops the dress: `$130^\circ$`, `130\degree` and `130º` all become `130°`. What is
left of LaTeX is what carries meaning (`\frac{1}{2}`, `\sqrt{3}`, `\pi`).
"""

from __future__ import annotations

import re
import unicodedata

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_VULGAR_FRACTION = re.compile("(?=[¼-¾⅐-⅞])")
# One character for one: applied before Unicode's own compatibility forms, which would turn ² into 2 and º into o.
_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("º˚∘", "°"),
        **dict.fromkeys("−–—﹣‐‑‒", "-"),
        **dict.fromkeys("\u00a0\u2009\u202f\u200a\u3000", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
        **dict.fromkeys("“”„«»", '"'),
        **dict.fromkeys("‘’", "'"),
        **dict.fromkeys("′", "'"),
        **dict.fromkeys("″", '"'),
        **{"⁄": "/", "÷": "/", "∕": "/", "、": ", ", "。": ". ", "；": "; ", "∶": ":", "﹪": "%", "⩽": "≤", "⩾": "≥"},
        **{"·": r"\cdot ", "⋅": r"\cdot ", "×": r"\times ", "✕": r"\times ", "∙": r"\cdot ", "＊": "*"},
        **{"π": r"\pi ", "∞": r"\infty ", "±": r"\pm ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup "},
        **{"∩": r"\cap ", "∅": r"\emptyset ", "≈": r"\approx ", "∠": r"\angle ", "△": r"\triangle "},
        **{"α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "θ": r"\theta ", "λ": r"\lambda ", "φ": r"\phi "},
        **{"μ": "μ", "µ": "μ", "ω": r"\omega ", "Ω": "Ω", "∈": r"\in ", "⊥": r"\perp ", "‖": r"\parallel "},
    }
)
_CIRCLED = re.compile(r"[①-⑳](?:[\s,，、和]*[①-⑳])+")  # ①③, as sets of right statements are named
_UNICODE_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|[A-Za-z]|(?=[({\\]))")
_TEXT_COMMAND = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|mathrm|mathbf|mathit|mathsf|mathtt|mbox|hbox|operatorname|bm|boldsymbol"
    r"|underline|emph)\s*\{([^{}]*)\}"
)
# What must be in the text, the pattern, its replacement; in this order.
_REWRITES = [
    (trigger, re.compile(pattern), replacement)
    for trigger, pattern, replacement in [
        ("<", r"<sup>(.{1,20}?)</sup>", r"^{\1}"),
        ("<", r"</?(?:b|i|strong|em|sub|p|br|span|div|u)\s*/?>", " "),
        ("\\", r"\\(?:left|right|[bB]igg?|displaystyle|textstyle|limits)(?![A-Za-z])\s*", ""),
        ("\\", r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        ("\\", r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
        ("\\", r"\\frac\s*(\{[^{}]*\})\s*(\d)", r"\\frac\1{\2}"),
        ("\\", r"\\frac\s*(\d)\s*\{", r"\\frac{\1}{"),
        ("^", r"\^\s*(?:\\(?:circ|degree)(?![A-Za-z])|°|\{\s*(?:\\circ|\\degree|°)\s*\})", "°"),
        ("\\", r"\\degree(?![A-Za-z])", "°"),
        ("^", r"(?<=\d)\s*\^\s*(?:o|\{\s*o\s*\})(?![A-Za-z])", "°"),
        ("\\", r"\\Omega(?![A-Za-z])", "Ω"),
        ("\\", r"(?<=\d)\s*\\mu\s*(?=[A-Za-zΩ])", " μ"),
        ("^", r"\^\s*\{?\s*\\prime\s*\}?", "'"),
        ("\\", r"\\leq(?:slant)?(?![A-Za-z])", r"\\le "),
        ("\\", r"\\geq(?:slant)?(?![A-Za-z])", r"\\ge "),
        ("\\", r"\\neq?(?![A-Za-z])", r"\\ne "),
        ("\\", r"\\varnothing(?![A-Za-z])", r"\\emptyset "),
        (",", r"\{,\}|(?<=\d)\\,(?=\d{3})", ","),
        ("\\", r"\\(?:[,;:!> ]|q?quad(?![A-Za-z]))", " "),
        ("~", r"~", " "),
        ("\\", r"\\([()\[\]])", " "),
        ("\\", r"\\([%#&_])", r"\1"),
        ("^", r"(?<=\d)\s*(?:[x*]|\\times|\\cdot)\s*(?=10\s*\^)", "*"),
        ("**", r"(?<=[\w)])\*\*(?=[\d(-])", "^"),
        ("**", r"\*\*", ""),
        ("__", r"__", ""),
        ("`", r"`", ""),
        ("<=", r"<=", r"\\le "),
        (">=", r">=", r"\\ge "),
        (" ", r"[ \t\f\v]+", " "),
    ]
]
_CURRENCY = re.compile(r"(?:US)?\\\$|(?:US)\$|^\$(?=\s*-?[\d.,]+(?:[^$]*)$)")
_PLAIN = re.compile(r"[A-Za-z0-9 .-]*")
_WORD_ROOT = re.compile(r"(?<![\\A-Za-z])sqrt\s*(?:\(([^()]*)\)|\{([^{}]*)\}|(\d+))")
_WORD_PI = re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])")
_ENDS = " \t\r\n.,;:!?\"'"


def clean(text: str) -> str:
    """`text` in plain spelling; linear in its length."""
    if not _PLAIN.fullmatch(text):
        text = _rewrite(text)
    if "sqrt" in text:
        text = _WORD_ROOT.sub(lambda root: f"\\sqrt{{{root[root.lastindex]}}}", text)
    if "pi" in text:
        text = _WORD_PI.sub(r"\\pi ", text)
    return strip_ends(text)


def strip_ends(text: str) -> str:
    """Without white space, quotes and full stops around it; decimal points, minute marks and factorials stay."""
    text = text.strip()
    while text and text[-1] in _ENDS:
        if text[-1] in "'\"" and text[-2:-1].isdigit() and text[0] != text[-1]:
            break
        if text[-1] == "!" and (text[-2:-1].isdigit() or text[-2:-1] in ")}"):
            break  # a factorial
        text = text[:-1]
    start = 0
    while start < len(text) and text[start] in _ENDS and not re.match(r"\.\d", text[start : start + 2]):
        start += 1
    return text[start:]


def _rewrite(text: str) -> str:
    if not text.isascii():
        text = _SUPERSCRIPT_RUN.sub(lambda run: "^{" + run.group().translate(_SUPERSCRIPTS) + "}", text)
        text = _CIRCLED.sub(lambda run: ", ".join(re.findall("[①-⑳]", run.group())), text)
        text = _VULGAR_FRACTION.sub(" ", text).translate(_CHARACTERS)
        text = unicodedata.normalize("NFKC", text).translate(_CHARACTERS)
    if "$" in text:
        text = _CURRENCY.sub("¤", text.strip()).replace("$", " ")
    if "√" in text:
        text = _UNICODE_ROOT.sub(lambda root: "\\sqrt" + ("{" + root.group(1) + "}" if root.group(1) else ""), text)
        text = re.sub(r"\\sqrt\(([^()]*)\)", r"\\sqrt{\1}", text)
    if "\\" in text or "^" in text:
        for _ in range(3):  # \text{\textbf{...}}
            text, changed = _TEXT_COMMAND.subn(r" \1 ", text)
            if not changed:
                break
    for trigger, pattern, replacement in _REWRITES:
        if trigger in text:
            text = pattern.sub(replacement, text)
    return text
