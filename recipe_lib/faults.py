"""What is wrong with a set's rows, found from texts and picture headers before a GPU is spent.

    report = examine(raw, tokens=counter(processor, limit=1024))
    report.faults[0]   # Fault(kind="marker count", number=17, row_id="q17", column="prompt", problem="2 image ...")

| kind | the row |
|---|---|
| unreadable, missing | has a picture that cannot be decoded, or that is not there |
| too small, aspect | has a picture with a side below a patch, or longer than 200 times its width |
| over budget | has more prompt tokens than the model's context |
| marker count, malformed | has another number of image places than images, or no conversation at all |
| empty | lacks a question, a gold or an answer |
| gold unreadable | has a gold that no reward can read |
| gold letter | has a letter as gold that none of its options has |
| gold against solution | has a gold that its own worked solution contradicts |
| equal pair | has one text as chosen and as rejected |
| duplicate, in both splits | repeats pictures and question of a row, or shows a picture of the other split |
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from datasets import Dataset
from tqdm.auto import tqdm

from recipe_lib.any_set import RawSet
from recipe_lib.columns import maker, row_name
from recipe_lib.golds import gold_fault
from recipe_lib.image_budget import MAX_ASPECT, Rule, prompt_tokens
from recipe_lib.image_sources import RowError
from recipe_lib.images import Header, as_list, header, to_rgb

RARE = 0.02  # below this share of a set's rows, a row without a picture is taken for one that lost it


@dataclass(frozen=True)
class Fault:
    """One thing wrong with one row: its kind, the row's number and id, the column, and what mends it."""

    kind: str
    number: int
    row_id: Any
    column: str
    problem: str


@dataclass
class Report:
    """What `examine` found. `tokens` has one prompt length for each row that could be counted."""

    name: str
    kind: str
    rows: int = 0
    images: int = 0
    faults: list[Fault] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def good(self) -> list[int]:
        """Numbers of the rows without a fault, in order."""
        bad = {fault.number for fault in self.faults}
        return [number for number in range(self.rows) if number not in bad]

    def by_kind(self) -> dict[str, list[Fault]]:
        """Faults by their kind, most frequent kind first."""
        order = [kind for kind, _ in Counter(fault.kind for fault in self.faults).most_common()]
        return {kind: [fault for fault in self.faults if fault.kind == kind] for kind in order}


@dataclass(frozen=True)
class TokenCounter:
    """Counts a prompt's tokens. Without a processor, text is taken at `chars_per_token` characters a token."""

    rule: Rule
    processor: Any = None
    limit: int | None = None
    chars_per_token: float = 3.5

    def count(self, messages: list[dict], sizes: list[tuple[int, int]]) -> int:
        """Tokens of a prompt. Raises RowError where the processor would refuse a picture."""
        if self.processor is not None:
            return prompt_tokens(self.processor, messages, sizes, self.rule)
        text = "".join(part.get("text", "") for message in messages for part in message["content"])
        return round(len(text) / self.chars_per_token) + sum(self.rule.tokens(*size) + 2 for size in sizes)


def examine(
    raw: RawSet,
    *,
    style: str | None = None,
    tokens: TokenCounter | None = None,
    min_side: int = 28,
    decode: bool = False,
    against: Iterable[RawSet] = (),
) -> Report:
    """Look over every row of a set.

    Args:
        style: answer format whose system prompt is counted; None counts none.
        tokens: how prompts are counted; None counts no tokens.
        min_side: least side of a picture in pixels.
        decode: decode every picture, which also finds broken pixels behind a good header. Otherwise only pictures
            of one size (and, within the set, with one question) are decoded, to see whether they are the same.
        against: other splits, with which no picture may be shared.

    Raises ValueError on a missing column and on rows that have been through a processor.
    """
    rows, make = raw.rows(), maker(raw.kind, style, raw.convert)
    report, seen = Report(raw.name, raw.kind), _Seen()
    without: list[tuple[int, Any]] = []
    for number, row in enumerate(tqdm(rows, desc=f"checking {raw.name}", disable=None)):
        look = _Look(number, row_name(row, number), report)
        report.rows += 1
        images = as_list(row.get("images"))
        report.images += len(images)
        headers = [look.at(_header, image, look, raw, min_side, decode) for image in images]
        made = look.at(make, row, row_id=look.row_id)
        if made is not None and all(headers):
            look.at(_count, made, headers, tokens, report, look)
        if made is not None and raw.kind == "grpo" and (found := gold_fault(made)):
            look.add(*found)
        if made is not None and not made["images"]:
            without.append((number, look.row_id))
        if look.clean:
            seen.add(number, look.row_id, made, headers)
    if 0 < len(without) < RARE * report.rows:
        share = f"{1 - len(without) / report.rows:.1%}"
        report.faults += [
            Fault("missing", *row, "images", f"no picture; {share} of the rows have one") for row in without
        ]
    _find_repeats(raw, rows, seen, report)
    for other in against:
        _find_shared(raw, rows, other, seen, report)
    report.faults.sort(key=lambda fault: fault.number)
    return report


class _Look:
    """One row while it is looked at: turns RowErrors into faults of the report."""

    def __init__(self, number: int, row_id: Any, report: Report):
        self.number, self.row_id, self.report, self.clean = number, row_id, report, True

    def add(self, kind: str, column: str, problem: str) -> None:
        self.clean = False
        self.report.faults.append(Fault(kind, self.number, self.row_id, column, problem))

    def at(self, step: Callable, *args: Any, **options: Any) -> Any:
        """What `step` returns, or None where it raises RowError, which becomes a fault."""
        try:
            return step(*args, **options)
        except RowError as error:
            self.add(error.fault, error.column, error.problem)
            return None


def _header(image: Any, look: _Look, raw: RawSet, min_side: int, decode: bool) -> Header:
    found = header(image, row_id=look.row_id, source=raw.source, digest=True)
    if decode:
        to_rgb(image, row_id=look.row_id, source=raw.source)
    size = f"{found.width}x{found.height}"
    if min(found.width, found.height) < min_side:
        look.add("too small", "images", f"{size} has a side below {min_side} pixels; drop the row or enlarge it")
    if max(found.width, found.height) > MAX_ASPECT * min(found.width, found.height):
        problem = f"{size} is longer than {MAX_ASPECT} times its width; crop or pad it"
        raise RowError(problem, row_id=look.row_id, fault="aspect")
    return found


def _count(made: dict, headers: list[Header], tokens: TokenCounter | None, report: Report, look: _Look) -> None:
    if tokens is None:
        return
    count = tokens.count(made["prompt"], [(found.width, found.height) for found in headers])
    report.tokens.append(count)
    if tokens.limit is not None and count > tokens.limit:
        problem = f"{count} prompt tokens exceed the context of {tokens.limit}; lower max_pixels or drop the row"
        look.add("over budget", "prompt", problem)


# --- the same picture twice -----------------------------------------------------------------------


class _Seen:
    """Rows by what they show and ask, as far as headers tell."""

    def __init__(self):
        self.rows: dict[int, tuple[Any, bytes, tuple]] = {}
        self.alike: dict[tuple, list[int]] = defaultdict(list)  # same question, same sizes

    def add(self, number: int, row_id: Any, made: dict, headers: list[Header]) -> None:
        turns = [part for message in made["prompt"] if message["role"] != "system" for part in message["content"]]
        asked = blake2b(repr(turns).encode(), digest_size=16).digest()
        self.rows[number] = (row_id, asked, tuple(headers))
        self.alike[asked, tuple((found.width, found.height) for found in headers)].append(number)


def _pixels(row: dict, raw: RawSet) -> tuple[bytes, ...] | None:
    """A digest of each of a row's pictures as decoded; None where one cannot be decoded."""
    try:
        pictures = [to_rgb(image, source=raw.source) for image in as_list(row.get("images"))]
    except RowError:
        return None
    return tuple(blake2b(f"{p.size}".encode() + p.tobytes(), digest_size=16).digest() for p in pictures)


def _find_repeats(raw: RawSet, rows: Any, seen: _Seen, report: Report) -> None:
    alike = [numbers for numbers in seen.alike.values() if len(numbers) > 1]
    for numbers in tqdm(alike, desc="comparing rows", disable=None):
        first: dict[Any, int] = {}
        distinct = {tuple(found.digest for found in seen.rows[number][2]) for number in numbers}
        for number in numbers:
            row_id, _, headers = seen.rows[number]
            key: Any = tuple(found.digest for found in headers)
            if len(distinct) > 1 and isinstance(rows, Dataset):
                key = _pixels(rows[number], raw)
                if key is None:
                    problem = "a picture's pixels cannot be decoded behind a good header; drop the row"
                    report.faults.append(Fault("unreadable", number, row_id, "images", problem))
                    continue
            if key in first:
                other = seen.rows[first[key]][0]
                problem = f"the same pictures and question as row {other}; drop one of them"
                report.faults.append(Fault("duplicate", number, row_id, "images", problem))
            first.setdefault(key, number)


def _find_shared(raw: RawSet, rows: Any, other: RawSet, seen: _Seen, report: Report) -> None:
    """Faults for rows that show a picture of the other split, with whatever question."""
    mine = defaultdict(set)  # size -> rows that have a picture of it
    for number, (_, _, headers) in seen.rows.items():
        for found in headers:
            mine[found.width, found.height].add(number)
    theirs: dict[bytes, Any] = {}
    sizes = set()
    for number, row in enumerate(tqdm(other.rows(), desc=f"reading {other.name}", disable=None)):
        try:
            headers = [header(image, source=other.source) for image in as_list(row.get("images"))]
        except RowError:
            continue
        shared = {(found.width, found.height) for found in headers} & mine.keys()
        if shared and (pixels := _pixels(row, other)):
            sizes |= shared
            theirs.update(dict.fromkeys(pixels, row_name(row, number)))
    candidates = sorted({number for size in sizes for number in mine[size]})
    if candidates and not isinstance(rows, Dataset):
        report.notes.append(f"a streaming set is not compared with {other.name}")
        return
    for number in tqdm(candidates, desc=f"comparing with {other.name}", disable=None):
        for digest in _pixels(rows[number], raw) or ():
            if digest in theirs:
                problem = f"a picture of it is in {other.name} too (row {theirs[digest]}); drop one of the two"
                report.faults.append(Fault("in both splits", number, seen.rows[number][0], "images", problem))
                break
