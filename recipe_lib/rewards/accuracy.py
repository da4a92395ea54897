"""The accuracy reward: 1.0 for the gold's answer, 0.0 for another or none, None where the gold cannot be read."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..answer_format import completion_text, system_prompt
from . import letters, math_worker
from .clean import clean
from .contract import check_column
from .quantities import Quantity
from .reading import answer_text, gold_string, gold_text, shorten, stated, states
from .values import Formula, Group, Named, Typed, Words, plain_words, read, same

DEADLINE = 1.0  # seconds of math-verify for one verdict


@dataclass(frozen=True)
class Verdict:
    """A score, the answer that was read (None: none was found), and the path that led to the score."""

    score: float | None
    answer: str | None
    path: str


def accuracy_reward(
    completions: Sequence,
    solution: Sequence,
    options: Sequence[Mapping | None] | None = None,
    style: str = "think_answer",
    think_prefilled: bool = False,
    deadline: float = DEADLINE,
    log_metric: Callable[[str, float], None] | None = None,
    **columns: object,
) -> list[float | None]:
    """Whether each completion's answer is its row's `solution`.

    Args:
        completions: strings, lists of messages, or messages whose content is a list of parts.
        solution: golds, one for each completion: letters, numbers with or without units, words, expressions, or a
            worked solution that ends in a box.
        options: for each completion a mapping from letter to option text, or None.
        style, think_prefilled: how answers are written, see `answer_format`.
        deadline: seconds that math-verify gets for a verdict; past it the answer scores 0 and is counted.
        log_metric: given by TRL's trainer; receives the share of abstentions and of verdicts past the deadline.

    Returns:
        As long as `completions`: 1.0, 0.0, or None where the gold cannot be read.

    Raises:
        ValueError: a column's length or kind is wrong, or the style is unknown. Never because of a model's text.
    """
    count = len(completions)
    system_prompt(style)
    check_column("solution", solution, count)
    check_column("options", options if options is not None else [None] * count, count, Mapping)
    late = math_worker.late()
    verdicts = [
        judge(completion, gold, options[row] if options is not None else None, style, think_prefilled, deadline)
        for row, (completion, gold) in enumerate(zip(completions, solution, strict=True))
    ]
    if log_metric is not None and count:
        log_metric("accuracy/abstained", sum(verdict.score is None for verdict in verdicts) / count)
        log_metric("accuracy/past_deadline", (math_worker.late() - late) / count)
    return [verdict.score for verdict in verdicts]


def judge(
    completion: object,
    gold: object,
    options: Mapping | None = None,
    style: str = "think_answer",
    think_prefilled: bool = False,
    deadline: float = DEADLINE,
) -> Verdict:
    """The verdict on one completion, with its reason; verdicts are cached."""
    answer = answer_text(completion_text(completion), style, think_prefilled)
    answer = None if answer is None else shorten(answer.strip())
    table = tuple(letters.option_texts(options).items()) if options else ()
    return _judge(answer or None, gold_string(gold), table, deadline)


@functools.lru_cache(maxsize=16_384)
def _judge(answer: str | None, gold: str | None, options: tuple[tuple[str, str], ...], deadline: float) -> Verdict:
    target = read_gold(gold, options, deadline) if gold is not None else None
    if target is None:
        return Verdict(None, answer, "gold unreadable")
    text = clean(answer) if answer else ""
    if not text:
        return Verdict(0.0, None, "no answer")
    asker = _Asker(deadline)
    if target.label is not None:
        right, path = _picks(target, text, dict(options), asker)
    else:
        right, path = states(target.value, text, asker)
        option = None if right else letters.split_letter(text)
        if option and option[1]:  # "B. 5" to a question whose options the data lacks
            right, path = states(target.value, clean(option[1]), asker)
        if not right and letters.same_letters(clean(gold), next(iter(stated(text)), text)):
            right, path = True, "letters"
    return Verdict(float(right), answer, asker.path(path))


@dataclass(frozen=True)
class Gold:
    """What a gold asks for: an option's label, a value, or both."""

    label: str | tuple[str, ...] | None
    value: Typed | None


@functools.lru_cache(maxsize=16_384)
def read_gold(gold: str, options: tuple[tuple[str, str], ...] = (), deadline: float = DEADLINE) -> Gold | None:
    """The gold as it is compared, or None where it is no letter, number, word or expression."""
    text = clean(gold_text(gold))
    labels = dict(options)
    letter = letters.gold_letter(text)
    if labels:
        label = letters.label_of(letter[0] if letter else text)
        several = letters.letters_of(text)
        if several and set(several) <= set(labels):
            return Gold(several, None)
        if label in labels:
            return Gold(label, read(clean(labels[label])))
        if letter and letter[1] is None and not any(plain_words(text) == plain_words(v) for v in labels.values()):
            return None  # a letter that no option has
        value = read(text)
        return Gold(_label_by_value(text, value, labels), value) if value else None
    if letter:
        return Gold(letter[0], read(clean(letter[1])) if letter[1] else None)
    small = re.fullmatch(r"[(\[]?([a-z])[)\]]?", text)
    value = Words(small[1]) if small else read(text)
    if value is None or not _readable(value, deadline):
        return None
    return Gold(None, value)


def _label_by_value(text: str, value: Typed, labels: dict[str, str]) -> str | None:
    """The one option that the gold spells out, by its words first and by its value second."""
    cleaned = {label: clean(option) for label, option in labels.items()}
    found = [label for label, option in cleaned.items() if plain_words(option) == plain_words(text)]
    if len(found) != 1:
        typed = {label: read(option) for label, option in cleaned.items()}
        found = [label for label, option in typed.items() if option and same(value, option, lambda *_: False)]
    return found[0] if len(found) == 1 else None


def _picks(target: Gold, text: str, options: dict[str, str], asker: _Asker) -> tuple[bool, str]:
    """Whether an answer picks the gold's option: by its letter, unless a value contradicts it, or by its value."""
    if isinstance(target.label, tuple):  # several options are right: all of them must be picked, and no other
        return letters.letters_of(next(iter(stated(text)), text)) == target.label, "letters"
    split = letters.split_letter(text)
    if split is None and target.value is not None:
        others = [label for label, option in options.items() if plain_words(clean(option)) == plain_words(text)]
        if others and target.label not in others:
            return False, "value of another option"
        right, _ = states(target.value, text, asker)
        concluded = letters.concluded(text)
        if right and concluded in options and concluded != target.label:
            return False, "letter and value contradict"
        if right:
            return True, "value of the option"
    if split is None:
        picked = letters.letter_in_prose(text)
        if picked is not None and picked == target.label and target.value is not None:
            beside = (read(clean(part)) for part in letters.around(text, picked))
            if any(value and _contradicts(target, value, options, asker) for value in beside):
                return False, "letter and value contradict"
        if picked is not None:
            return picked == target.label, "letter"
        named = _names_option(target, text, options)
        return named, "words of the option" if named else "no option found"
    picked, value = split
    if picked != target.label:
        return False, "letter"
    if value is not None and target.value is not None:
        behind = read(clean(value))
        if behind is not None and _contradicts(target, behind, options, asker):
            return False, "letter and value contradict"
    return True, "letter"


def _contradicts(target: Gold, stated: Typed, options: dict[str, str], asker: _Asker) -> bool:
    if same(target.value, stated, asker):
        return False
    if isinstance(target.value, Quantity) and isinstance(stated, Quantity):
        return True
    others = (read(clean(option)) for label, option in options.items() if label != target.label)
    return any(option is not None and same(option, stated, lambda *_: False) for option in others)


def _names_option(target: Gold, text: str, options: dict[str, str]) -> bool:
    """Whether a sentence holds the words of the gold's option and of no other that is not part of it."""
    sentence = f" {plain_words(text)} "
    named = {
        label: words
        for label, option in options.items()
        if (words := plain_words(clean(option))) and any(not found[1] for found in _said(words).finditer(sentence))
    }
    longest = [
        a for a, words in named.items() if not any(words != w and f" {words} " in f" {w} " for w in named.values())
    ]
    return longest == [target.label] and not options[target.label].strip().isdigit()


def _said(words: str) -> re.Pattern:
    """Words in a sentence; the group is what denies them: "is not a mineral", "rather than rock"."""
    return re.compile(rf" (?:((?:not|\w*n t|never|nor|rather than|instead of) )(?:an? |the )?)?{re.escape(words)}(?= )")


def _readable(value: Typed, deadline: float) -> bool:
    """Whether math-verify reads every formula of a gold."""
    if isinstance(value, Group):
        return all(_readable(item, deadline) for item in value.items)
    value = value.value if isinstance(value, Named) else value
    return not isinstance(value, Formula) or not math_worker.compare(value.latex, "0", deadline).startswith("gold")


class _Asker:
    """math-verify within one verdict's deadline, however many comparisons the verdict takes."""

    def __init__(self, deadline: float) -> None:
        self.left, self.verdicts = deadline, []

    def __call__(self, gold: str, answer: str) -> bool:
        if self.left <= 0:
            return False
        verdict, seconds = math_worker.timed_compare(gold, answer, self.left)
        self.verdicts.append(verdict)
        self.left -= seconds
        return verdict == "equal"

    def path(self, path: str) -> str:
        """`path`, with math-verify's last word where it was asked."""
        return f"{path}, math-verify: {self.verdicts[-1]}" if self.verdicts else path
