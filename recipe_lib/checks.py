"""`python -m recipe_lib check DATASET`: the row checker's command line, its report and its cleaned copy.

python -m recipe_lib check geometry3k --model qwen2.5-vl-3b
python -m recipe_lib check pairs.jsonl --kind mpo --column prompt=question --drop outputs/clean
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from datasets import Dataset, Features, Image, List

from recipe_lib import datasets as named
from recipe_lib import models
from recipe_lib.any_set import RawSet, splits_at
from recipe_lib.columns import column_pair
from recipe_lib.faults import Report, TokenCounter, examine
from recipe_lib.image_budget import NAMED_RULES, rule_for
from recipe_lib.images import as_list, encoded

CLEAN, FAULTY, UNUSABLE = 0, 1, 2  # exit codes
SHOWN = 12  # row ids a fault shows on the terminal; --report has all


def main(argv: list[str]) -> int:
    """Check a set; 0 where every row is in order, 1 where some are not, 2 where the set cannot be opened."""
    options = _parser().parse_args(argv)
    try:
        _refuse_targets(options)
        sets = _open(options)
        others = _against(options, sets)
        counter, how = token_counter(options.model, options.max_tokens)
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return UNUSABLE
    reports: list[Report] = []
    for place, raw in enumerate(sets):
        earlier = sets[:place]
        against = [*earlier, *(other for other in others if not any(_same(other, s) for s in (*earlier, raw)))]
        try:
            report = examine(
                raw,
                style=options.style,
                tokens=counter,
                min_side=options.min_side,
                decode=options.decode,
                against=against,
            )
        except ValueError as error:
            print(f"{raw.name}: cannot be trained on. {error}", file=sys.stderr)
            return FAULTY
        print(summary(report, how))
        reports.append(report)
        if options.drop:
            folder = options.drop if len(sets) == 1 else options.drop / raw.name.rpartition(" ")[2]
            write_clean(raw, report, folder)
            print(f"{len(report.good())} rows written to {folder}, what went and why to {folder}/dropped.jsonl")
    if options.png:
        histogram_png([count for report in reports for count in report.tokens], options.png)
    if options.report:
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(json.dumps([as_json(report) for report in reports], indent=1), encoding="utf-8")
    return FAULTY if any(report.faults for report in reports) else CLEAN


def token_counter(model: str, limit: int | None = None) -> tuple[TokenCounter, str]:
    """Return a counter of prompt tokens for a model, and in words how it counts.

    A processor on this machine counts exactly; nothing is downloaded for it. For a named model without one, image
    tokens follow from its family's rule and text is estimated.

    Raises ValueError on a model that is neither named nor on this machine, or that reads no pictures.
    """
    from transformers import AutoProcessor

    where = models.source(model)
    try:
        processor = AutoProcessor.from_pretrained(where, local_files_only=True)
    except (OSError, ValueError) as error:
        if model in NAMED_RULES:
            return _estimate(model, limit)
        remedy = f"with network, run `hf download {where}` once; or name one of: {', '.join(models.NAMED_MODELS)}"
        raise ValueError(f"--model {model}: its processor is not on this machine ({remedy})") from error
    if not hasattr(processor, "image_processor"):
        raise ValueError(f"--model {model} reads no pictures: it has no image processor; name a vision-language model")
    if model in NAMED_RULES:
        NAMED_RULES[model].limit(processor)
    context = processor.tokenizer.model_max_length
    limit = limit or (context if context < 10**9 else None)  # an unset length is written as a huge number
    return TokenCounter(rule_for(processor), processor, limit), f"{model}, counted by its processor"


def _estimate(model: str, limit: int | None) -> tuple[TokenCounter, str]:
    counter = TokenCounter(NAMED_RULES[model], None, limit)
    said = (
        f"{model}, whose processor is not on this machine: image tokens by its family's {counter.rule}, text "
        f"estimated at {counter.chars_per_token} characters a token"
    )
    return counter, said if limit else f"{said}, no limit checked; --max-tokens sets one"


def summary(report: Report, how: str = "") -> str:
    """The report as text: counts, token histogram, faults with their row ids, verdict."""
    lines = [f"{report.name}: {report.rows:,} rows, {report.images:,} images, for {report.kind}"]
    if report.tokens:
        lines += [f"prompt tokens ({how})" if how else "prompt tokens", *histogram(report.tokens)]
    for kind, faults in report.by_kind().items():
        ids = ", ".join(str(fault.row_id) for fault in faults[:SHOWN])
        more = f", and {len(faults) - SHOWN:,} more" if len(faults) > SHOWN else ""
        lines += [
            f"{kind}: {len(faults):,}   rows {ids}{more}",
            f"    e.g. row {faults[0].row_id}, {faults[0].column}: {faults[0].problem}",
        ]
    lines += [f"note: {note}" for note in report.notes]
    bad = report.rows - len(report.good())
    lines.append(f"verdict: {bad:,} faulty rows of {report.rows:,}" if bad else "verdict: no faults found")
    return "\n".join(lines)


def histogram(counts: list[int], bins: int = 8, width: int = 40) -> list[str]:
    """Counts as lines of text: bins of equal width up to the 99th percentile, and one line for what is above."""
    low, high = min(counts), sorted(counts)[int(0.99 * (len(counts) - 1))]
    step = max(1, -(-(high - low + 1) // bins))
    filled = Counter(min((count - low) // step, bins) for count in counts)
    most = max(filled.values())
    lines = []
    for place in range(max(filled) + 1):
        start = low + place * step
        label = f"{start:>6}-{start + step - 1:<6}" if place < bins else f"{start:>6} or more"
        lines.append(f"  {label:<14} {'#' * round(width * filled[place] / most):<{width}} {filled[place]:,}")
    return [*lines, f"  longest {max(counts):,}, median {sorted(counts)[len(counts) // 2]:,}"]


def histogram_png(counts: list[int], path: Path) -> None:
    """Draw the prompt lengths of a set to a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    axes.hist(counts, bins=40)
    axes.set(xlabel="prompt tokens, images included", ylabel="rows")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, format="png")


def as_json(report: Report) -> dict:
    """All that was found, for programs: every fault of every row."""
    return asdict(report) | {"faulty_rows": report.rows - len(report.good())}


def write_clean(raw: RawSet, report: Report, folder: Path) -> None:
    """Write the rows without a fault to `folder`, pictures as they are stored, and the others to dropped.jsonl.

    A set without one good row is not written at all, only what is wrong with its rows. Raises ValueError where the
    folder holds files already: rows of an earlier run would pass for this one's.
    """
    if not isinstance(raw.dataset, Dataset):
        raise ValueError(f"{raw.name} is a streaming set; open it without streaming to write a cleaned copy")
    _refuse_filled(folder)
    good, features = report.good(), raw.rows().features
    folder.mkdir(parents=True, exist_ok=True)
    if not good:
        pass  # the library reads no empty set back
    elif "images" not in features or isinstance(_inner(features["images"]), Image):
        raw.dataset.with_format(None).select(good).save_to_disk(str(folder))
    else:  # paths or texts: take the files along; not through the cache, which would not see that a file has changed
        features, rows = Features({**features, "images": List(Image())}), {"raw": raw, "good": tuple(good)}
        with tempfile.TemporaryDirectory() as scratch:
            kept = Dataset.from_generator(_with_files, gen_kwargs=rows, features=features, cache_dir=scratch)
            kept.save_to_disk(str(folder))
    with (folder / "dropped.jsonl").open("w", encoding="utf-8") as lines:
        for fault in report.faults:
            lines.write(json.dumps(vars(fault), default=str) + "\n")


def _inner(feature):
    return feature.feature if isinstance(feature, List) else feature


def _with_files(raw: RawSet, good: tuple[int, ...]) -> Iterator[dict]:
    for row in raw.rows().select(good):
        stored = [{"bytes": encoded(image, raw.source), "path": None} for image in as_list(row["images"])]
        yield {**row, "images": stored}


def _refuse_filled(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"--drop {folder} holds files already; give a new folder, or remove that one")


def _refuse_targets(options: argparse.Namespace) -> None:
    """Raise ValueError where what is asked for could not be written after a check of perhaps an hour."""
    for flag in ("drop", "report", "png"):
        if (target := getattr(options, flag)) is None:
            continue
        if flag == "drop":
            _refuse_filled(target)
        elif target.is_dir():
            raise ValueError(f"--{flag} {target} is a folder; give the name of a file")
        elif target.resolve() == Path(options.dataset).resolve():
            raise ValueError(f"--{flag} {target} is the set itself; give another file")
        near = next(place for place in (target.absolute(), *target.absolute().parents) if place.exists())
        if not near.is_dir() and (flag == "drop" or near != target.absolute()):
            raise ValueError(f"--{flag} {target}: {near} is a file; give another place")
        try:
            if near.is_dir():
                tempfile.TemporaryFile(dir=near).close()  # permissions alone do not tell, as for root
            elif not os.access(near, os.W_OK):
                raise PermissionError("no permission")
        except OSError as error:
            raise ValueError(f"--{flag} {target} cannot be written ({error}); give another place") from error


def _open(options: argparse.Namespace) -> list[RawSet]:
    is_named = options.dataset in named.NAMED_DATASETS
    known = _extra(options)
    wrong = [flag for flag in known if (flag == "path") != is_named]
    if wrong and is_named:
        raise ValueError(f"--{wrong[0].rstrip('s')}: {options.dataset} is a named set, which has its own; leave it out")
    if wrong:
        raise ValueError(f"--path is for named sets, and {options.dataset} is none; give the path in its stead")
    found = [options.split] if options.split else splits_at(options.dataset)
    sets = [named.open_raw(options.dataset, split, **known).first(options.limit) for split in found]
    return [_titled(raw, options.dataset, split) for raw, split in zip(sets, found)]


def _extra(options: argparse.Namespace) -> dict:
    path = str(options.path) if options.path else None
    given = {"path": path, "columns": dict(options.column), "kind": options.kind}
    given |= {"revision": options.revision, "config": options.config}
    return {name: value for name, value in given.items() if value}


def _titled(raw: RawSet, name: str, split: str) -> RawSet:
    return replace(raw, name=f"{name} {split}")


def _against(options: argparse.Namespace, sets: list[RawSet]) -> list[RawSet]:
    """What --against names: a split of the same set, or all splits of another one."""
    place = options.against
    if place is None:
        return []
    elsewhere = place in named.NAMED_DATASETS or Path(place).exists() or "/" in place
    if place in splits_at(options.dataset) or not elsewhere:
        others = [_titled(named.open_raw(options.dataset, place, **_extra(options)), options.dataset, place)]
    else:
        others = [_titled(named.open_raw(place, split), place, split) for split in splits_at(place)]
        columns = [{r: c for r, c in options.column if c in (raw.dataset.column_names or [])} for raw in others]
        others = [replace(raw, columns={**raw.columns, **own}) for raw, own in zip(others, columns)]
    if all(_same(other, raw) for other in others for raw in sets):
        raise ValueError(f"--against {place} is what is checked itself ({sets[0].name}); name another split or set")
    for other in others:
        other.rows()  # a missing column is told before the check
    return others


def _same(one: RawSet, other: RawSet) -> bool:
    files = [{file.resolve() for file in raw.files} for raw in (one, other)]
    return one.name == other.name or not files[0].isdisjoint(files[1])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m recipe_lib check",
        description="Look over a data set's rows before training. Exit code 0: no fault, 1: faults, 2: not opened.",
        epilog=f"named sets: {', '.join(named.NAMED_DATASETS)}",
    )
    parser.add_argument("dataset", help="a named set, a folder, a .jsonl/.csv/.parquet file, or a hub name owner/name")
    parser.add_argument("--split", help="the split (default: train; of a set on disk with several, all)")
    parser.add_argument("--path", type=Path, help="a local copy of a named set")
    parser.add_argument("--kind", choices=("grpo", "mpo"), help="what to train with (default: by the columns)")
    parser.add_argument("--column", action="append", default=[], type=column_pair, metavar="ROLE=COLUMN")
    parser.add_argument("--revision", help="of a hub set")
    parser.add_argument("--config", help="of a hub set")
    parser.add_argument("--model", default="qwen2.5-vl-3b", help="whose tokens are counted (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, help="longest prompt (default: the model's context)")
    parser.add_argument("--style", default=None, help="answer format whose system prompt is counted")
    parser.add_argument("--min-side", type=int, default=28, help="least side of a picture in pixels")
    parser.add_argument("--decode", action="store_true", help="decode every picture, not only its header")
    parser.add_argument("--against", help="a split or set with which no picture may be shared")
    parser.add_argument("--limit", type=int, help="the first rows only")
    parser.add_argument("--drop", type=Path, metavar="FOLDER", help="write the cleaned set, and what went and why")
    parser.add_argument("--png", type=Path, help="write the token histogram as a picture")
    parser.add_argument("--report", type=Path, help="write everything that was found as JSON")
    return parser
