"""Multiple choice: which option a text picks, by letter, by letter and value, or by value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_ANY_LETTER = re.compile(
    r"(?:the\s+)?(?:(?:answer|option|choice|选项?|答案)\s*(?:is|[:：是为])?\s*)?[(\[（]?\s*([A-Za-z])\s*[)\]）]?\s*[.:]?",
    re.I,
)
_WITH_VALUE = re.compile(
    r"(?:(?:option|choice)\s+)?[(\[]?([A-Z])(?:[)\]]\s*[.:]?|[.:]|,(?=\s*[-\d\\]))\s*(\S.*)", re.DOTALL
)
_SEVERAL = re.compile(r"\(?[A-Z]\)?(?:(?:\s*(?:,\s*and|[,;&/]|and|和)\s*|\s*)\(?[A-Z]\)?)+")
_ALONE = re.compile(r"(?<![A-Za-z0-9_\\^'])([A-Z])(?![A-Za-z0-9_'^=])")
# "A triangle", "I think": an article or a pronoun, unless the letter is what the sentence is about.
_ABOUT = r"(?!\s+(?:is|was|because|since|as|has|shows?|matches|fits|would|must|and|or|but|than|are|seems|looks)\b)"
_ARTICLE = re.compile(rf"[AI]{_ABOUT}\s+(?:[a-z]|\S+\s+[a-z])")
_BECAUSE = re.compile(r"[(\[]?([A-Z])[)\]]?\s*,?\s+(?:because|since|as)\b")
_SETTLED = re.compile(r"\b(?:answer|choice|option)(?:\s+is|\s*:)\s*[(\[*]*([A-Z])[)\]*]*\s*(?:[.;\n]|$)", re.I)
_CONCLUDED = re.compile(
    r"(?:\b(?:so|thus|hence|therefore|choose|pick|option|choice|answer)\b|[→⇒])[\s:,(\[*]*([A-Z])[)\]*.\s]*$",
    re.IGNORECASE,
)
_UNIT_OR_POINT = re.compile(r"(?:[\d°]|\\(?:angle|triangle))\s*$")  # 20 °C, 7 A, the angle A
_JOINED = re.compile(r"(?:\b(?:or|and|nor)|[,/&+]|或|和)\s*$", re.IGNORECASE)
_WRONG = re.compile(
    r"[)\]*]*\s*(?:(?:is|was|would be)\s+(?:not|wrong|incorrect|false)\b|(?:isn't|cannot)\b|是?错|是?不)", re.IGNORECASE
)
_OTHER_LETTER = re.compile(r"(?:or\b|and\b|nor\b|[,/&+、或和])\s*[(\[*]*[A-Z](?![A-Za-z]).*", re.DOTALL)
_DENIED = re.compile(
    r"(?:\bnot|\bcannot|n't|\bneither|\bnor|\bexcept|\bexclude|不是|不选)(?:\s+(?:be|option|choice|answer))?$", re.I
)


def label_of(key: object) -> str:
    """An option's key as it is compared: "(a)" and "A." are "A", 1 is "1"."""
    return str(key).strip().strip("()[].:").strip().upper()


def option_texts(options: Mapping | None) -> dict[str, str]:
    """Options with plain labels; those without a text (tables fill missing ones with None) are left out."""
    return {label_of(key): str(value) for key, value in (options or {}).items() if value is not None}


def gold_letter(gold: str) -> tuple[str, str | None] | None:
    """Letter and value of a gold such as "B", "(B)", "C. 154°"; None where it is no letter."""
    match = re.fullmatch(r"(?:(?:[Oo]ption|[Cc]hoice)\s+)?[(\[]?([A-Z])[)\]]?\s*[.:]?", gold.strip())
    if match:
        return match[1], None
    match = _WITH_VALUE.fullmatch(gold.strip())
    return (match[1], match[2]) if match else None


def letters_of(text: str) -> tuple[str, ...] | None:
    """The letters, sorted, of a text that is nothing but several of them: "AC", "A, C", "A and C"."""
    found = re.findall(r"[A-Z]", text) if _SEVERAL.fullmatch(text) else []
    return tuple(sorted(found)) if len(set(found)) == len(found) > 1 else None


def same_letters(gold: str, answer: str) -> bool:
    """Whether both are the same several letters, at least one of them as a list: "ABD" and "A, B, D".

    Two texts without a separator are names, where the order counts: the angle ABC is not CAB.
    """
    wanted = letters_of(gold)
    return bool(wanted) and letters_of(answer.removeprefix("选")) == wanted and not (gold + answer).isalpha()


def split_letter(text: str) -> tuple[str, str | None] | None:
    """Letter and value of an answer that is a letter, or a letter with a value behind it ("C. 154°", "(C) 154°")."""
    match = _ANY_LETTER.fullmatch(text)
    if match:
        return match[1].upper(), None
    match = _WITH_VALUE.fullmatch(text)
    if match and _OTHER_LETTER.fullmatch(match[2]):
        return None  # "(A) or (C)"
    return (match[1], match[2]) if match else None


def around(text: str, letter: str) -> Iterator[str]:
    """What stands before and behind a letter in a text, without punctuation: 77° in "C (77°)" and in "77° (C)"."""
    for match in _ALONE.finditer(text):
        if match[1] == letter:
            for part in (text[: match.start()], text[match.end() :]):
                if part := part.strip(" ()[],.;:=*-"):
                    yield part


def concluded(text: str) -> str | None:
    """The letter with which a text concludes ("18, so B"), or None."""
    found = _CONCLUDED.search(text)
    return found[1] if found and found[1].isupper() else None


def letter_in_prose(text: str) -> str | None:
    """The one letter that a sentence settles on; None where it names none, or several without deciding."""
    first = _BECAUSE.match(text)
    if first:
        return first[1]
    settled = _SETTLED.findall(text)
    if settled:
        return settled[-1].upper()
    found = []
    for match in _ALONE.finditer(text):
        before, after = (
            text[max(0, match.start() - 40) : match.start()].rstrip(" ([*"),
            text[match.start() : match.end() + 40],
        )
        named = _UNIT_OR_POINT.search(text[: match.start()])
        if not (named or _WRONG.match(text, match.end()) or _ARTICLE.match(after) or _DENIED.search(before)):
            found.append((match[1], before, text[match.end() :]))
    if not found:
        return None
    if len({letter for letter, _, _ in found}) == 1:
        return found[0][0]
    letter, before, after = found[-1]
    return letter if not after.strip(" .!)*\n") and not _JOINED.search(before) else None
