r"""The one answer format contract: what the prompt asks for, what counts as well formed, and where the answer is.

Each named style states its system prompt, an example that the prompt shows, and good and bad texts. Rewards,
notebooks and evaluations all read answers through this module, so that they cannot disagree.

| style | what the model writes | where the answer is |
|---|---|---|
| `think_answer` | `<think>reasoning</think><answer>5</answer>` | the last closed answer block |
| `think` | `<think>reasoning</think>The answer is 5.` | the text after the reasoning |
| `boxed` | `Two and three make five, so \boxed{5}.` | the last closed box |
| `direct` | `5` | the whole text |

In every style, text inside the reasoning is never an answer, and a `\boxed{}` inside the answer is the answer.
Everything here is linear in the length of the text and accepts any text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE = TAGS = ("<think>", "</think>", "<answer>", "</answer>")

# What decoding with `skip_special_tokens=False` leaves at the end: <|im_end|>, <end_of_utterance>, </s>, ...
_SPECIAL = re.compile(r"(?:<[|｜][^<>|｜\s]{1,40}[|｜]>|<(?:/s|s|eos|bos|pad|unk|end_of_\w{1,20})>)$")
_INVISIBLE = re.compile(r"[\s\u200b-\u200f\u2060\ufeff]+")
_BOX_PARTS = re.compile(r"\\(?:boxed|fbox)\s*\{|\\[{}\\]|[{}]")


@dataclass(frozen=True)
class Style:
    """One named format: its system prompt, the example inside that prompt, and texts that pass and fail."""

    system_prompt: str
    example: str
    example_answer: str
    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()


def _style(instruction: str, example: str, good: tuple[str, ...], bad: tuple[str, ...]) -> Style:
    return Style(f"{instruction} {example}", example, "5", (example, *good), bad)


STYLES: dict[str, Style] = {
    "think_answer": _style(
        "Reason first, then give only the final answer, in exactly this form:",
        "<think> two and three make five </think><answer> 5 </answer>",
        good=("<think>a</think>\n<answer>3</answer>\n", "<think>1.\n2.</think><answer>B</answer><|im_end|>"),
        bad=(
            "5",
            "<answer>3</answer><think>a</think>",
            "<think></think><answer>3</answer>",
            "<think>a</think><answer>3",
        ),
    ),
    "think": _style(
        "Reason first, then state the final answer, in this form:",
        "<think> two and three make five </think> The answer is 5.",
        good=("<think>a</think>B", "<think>1.\n2.</think>\nIt is red.<end_of_utterance>"),
        bad=("The answer is 5.", "<think>a</think>", "<think>a", "<think> </think> 5", "<think>a</think></think> 5"),
    ),
    "boxed": _style(
        "Reason first, then end with the final answer in a box, like this:",
        r"Two and three make five, so the answer is \boxed{5}.",
        good=(r"\boxed{\frac{1}{2}}", "<think>a</think> \\boxed{B}<|im_end|>"),
        bad=("5", r"\boxed{}", r"\boxed{5", r"\boxed", r"<think>\boxed{5}", r"<think>\boxed{5}</think> so"),
    ),
    "direct": _style(
        "Give only the final answer, like this:",
        "5",
        good=("B", "red\n", "2 1/2<|im_end|>"),
        bad=("", "  ", "<answer>5</answer>", "<think>a</think>5", "First line\nsecond line"),
    ),
}


def system_prompt(style: str = "think_answer") -> str:
    """The system prompt that asks for `style`; its last words are `STYLES[style].example`."""
    return _known(style).system_prompt


def completion_text(completion: object) -> str:
    """The assistant's text of one completion, without special tokens at its end.

    Takes what TRL hands to rewards: a string, a list of messages, or messages whose content is a list of parts
    (non-text parts are left out). Of several messages the last of the assistant counts, so that tool results and
    user turns never do. Anything else, None included, is the empty string or its `str`.
    """
    text = _content_text(completion)
    end = len(text)
    while end:
        special = _SPECIAL.search(text, max(0, end - 50), end)
        if special is None and not text[end - 1].isspace():
            break
        end = special.start() if special else end - 1
    return text[:end]


def answer_region(text: str, style: str = "think_answer", think_prefilled: bool = False) -> str | None:
    r"""The part of `text` in which the answer stands, or None where there is none.

    Args:
        text: what `completion_text` returns.
        style: a key of `STYLES`.
        think_prefilled: the chat template already printed `<think>`, so that the text begins inside the reasoning.

    Returns:
        The inside of the last closed answer block, or from the last closed box on, or the text after the
        reasoning, as the style says. A block that was opened and never closed was cut off: None.
    """
    _known(style)
    rest = _after_reasoning(text, think_prefilled)
    if rest is None:
        return None
    if style == "think_answer":
        close = rest.rfind(ANSWER_CLOSE)
        start = rest.rfind(ANSWER_OPEN, 0, close) if close >= 0 else -1
        if start >= 0:
            return rest[start + len(ANSWER_OPEN) : rest.find(ANSWER_CLOSE, start)]
        if ANSWER_OPEN in rest:
            return None
    if style in ("think_answer", "boxed"):
        box = _last_box_span(rest)
        return rest[box[0] :] if box else None
    return rest


def extract_answer(text: str, style: str = "think_answer", think_prefilled: bool = False) -> str | None:
    r"""The answer as the model wrote it, or None: the last box of the answer region, else all of the region."""
    region = answer_region(completion_text(text), style, think_prefilled)
    if region is None:
        return None
    box = last_box(region)
    return (box[0] if box else region).strip() or None


def last_box(text: str) -> tuple[str, str] | None:
    r"""Content of the last closed `\boxed{}` (or `\fbox{}`) and the text after it; None without a closed box."""
    span = _last_box_span(text)
    return (text[span[1] : span[2]], text[span[2] + 1 :]) if span else None


def is_well_formed(text: str, style: str = "think_answer", think_prefilled: bool = False) -> bool:
    """Whether the whole of `text` keeps to `style`: `format_fault` finds nothing."""
    return format_fault(text, style, think_prefilled) is None


def format_fault(text: str, style: str = "think_answer", think_prefilled: bool = False) -> str | None:
    """What breaks `style` in `text`, in words; None where nothing does.

    Tags stand exactly once and in order, blocks hold something visible, and nothing but white space stands outside
    of them. With `think_prefilled` the opening `<think>` may be missing.
    """
    _known(style)
    text = completion_text(text).strip()
    if think_prefilled and style != "direct" and THINK_OPEN not in text:
        text = THINK_OPEN + text
    counts = {tag: text.count(tag) for tag in TAGS}
    if style == "direct":
        tags = [tag for tag, count in counts.items() if count]
        return f"{tags[0]} has no place here" if tags else _line_fault(text)
    if style == "boxed":
        if counts[THINK_OPEN] != counts[THINK_CLOSE] or counts[THINK_OPEN] > 1:
            return "the reasoning tags do not pair"
        box = last_box(_after_reasoning(text, False) or "")
        return None if box and _visible(box[0]) else "no closed box with something in it"
    for tag in TAGS[: 4 if style == "think_answer" else 2]:
        if counts[tag] != 1:
            return f"{tag} stands {counts[tag]} times"
    if not text.startswith(THINK_OPEN):
        return f"text before {THINK_OPEN}"
    reasoning, _, rest = text[len(THINK_OPEN) :].partition(THINK_CLOSE)
    if style == "think_answer":
        rest = rest.strip()
        if not (rest.startswith(ANSWER_OPEN) and rest.endswith(ANSWER_CLOSE)):
            return "text outside of the blocks"
        rest = rest[len(ANSWER_OPEN) : -len(ANSWER_CLOSE)]
    return None if _visible(reasoning) and _visible(rest) else "an empty block"


def _line_fault(text: str) -> str | None:
    return "more than one line" if "\n" in text else None if _visible(text) else "no text"


def _known(style: str) -> Style:
    if not isinstance(style, str) or style not in STYLES:
        raise ValueError(f"style={style!r} is unknown; the known styles are {', '.join(STYLES)}")
    return STYLES[style]


def _visible(text: str) -> bool:
    return bool(_INVISIBLE.sub("", text))


def _after_reasoning(text: str, think_prefilled: bool) -> str | None:
    """What follows the last closing tag; all of it where no reasoning was opened; None where it never ended."""
    _, closed, rest = text.rpartition(THINK_CLOSE)
    if THINK_OPEN in rest or (think_prefilled and not closed):
        return None
    return rest


def _last_box_span(text: str) -> tuple[int, int, int] | None:
    """Start of the box command, start and end of its content, for the closed box that begins last."""
    if "boxed" not in text and "fbox" not in text:
        return None
    found, stack = None, []
    for part in _BOX_PARTS.finditer(text):
        token = part.group()
        if token[-1] == "{" and token != "\\{":
            stack.append((part.start(), part.end(), len(token) > 1))
        elif token == "}" and stack:
            start, inside, is_box = stack.pop()
            if is_box and (found is None or start > found[0]):
                found = (start, inside, part.start())
    return found


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, Mapping):
        return _content_text(content.get("content") if "content" in content else content.get("text"))
    if isinstance(content, Sequence) and not isinstance(content, (bytes, bytearray)):
        messages = [part for part in content if isinstance(part, Mapping) and ("role" in part or "content" in part)]
        if messages:
            own = [message for message in messages if message.get("role", "assistant") == "assistant"]
            return _content_text(own[-1].get("content")) if own else ""
        return "".join(_content_text(part) for part in content)
    return str(content)
