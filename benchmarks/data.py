"""The data claims, measured side by side on this machine.

    python benchmarks/data.py                 # everything, a few minutes
    python benchmarks/data.py --rows 500      # smaller

1. Ready to train, by two ways, on the same JPEGs of 384 pixels: `map, filter, map`, as TRL's example
   `grpo_vlm.py` prepares a set (prompt, size filter, RGB, each a pass that writes decoded pictures anew), and
   `recipe_lib.columns.ready`. Rows a second until the trainer could start, rows a second when every picture is
   also read once, and growth on disk.
2. Memory of `ready` plus one full read, at one and at ten times the rows.
3. The row checker: rows a second by headers, and a hundred seeded faults in ten thousand rows.

Each measurement runs in a process of its own. Seconds are given as wall clock and as this process's CPU time: on a
busy machine the second is the fairer. Results go to outputs/benchmarks/data.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from datasets import Dataset, Features, Image, Value, disable_progress_bars, load_from_disk

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from data_scripts import faulty_rows
from recipe_lib.answer_format import system_prompt
from recipe_lib.any_set import RawSet, open_set
from recipe_lib.columns import ready
from recipe_lib.faults import TokenCounter, examine
from recipe_lib.image_budget import NAMED_RULES

SIDE = 384


def build_jpegs(folder: str, rows: int) -> None:
    """Write a set as it comes from the hub: one JPEG a row, embedded."""
    rng = np.random.default_rng(0)

    def generate():
        for number in range(rows):
            picture = {"bytes": faulty_rows.picture(rng, SIDE), "path": None}
            yield {"image": picture, "problem": f"What is in picture {number}?", "solution": str(number)}

    features = Features({"image": Image(), "problem": Value("string"), "solution": Value("string")})
    Dataset.from_generator(generate, features=features, cache_dir=f"{folder}-cache").save_to_disk(folder)
    shutil.rmtree(f"{folder}-cache")


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Wall-clock and CPU seconds of `work`."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def disk(folder: Path) -> int:
    """Bytes below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def read_all(dataset: Dataset) -> None:
    """Touch every row as a trainer does."""
    for row in dataset:
        assert row["images" if "images" in row else "image"] is not None


def map_filter_map(folder: str, scratch: str) -> dict:
    """The way of TRL's example: three passes, each of which decodes and writes every picture."""
    dataset = load_from_disk(folder)
    before, made = disk(Path(folder)), {}
    work = Path(scratch)

    def conversation(example):
        prompt = [
            {"role": "system", "content": system_prompt()},
            {"role": "user", "content": example["problem"]},
        ]
        return {"prompt": prompt}

    def prepare():
        data = dataset.map(conversation, cache_file_name=str(work / "prompt.arrow"))
        data = data.filter(
            lambda example: example["image"].size[0] <= 512 and example["image"].size[1] <= 512,
            cache_file_name=str(work / "size.arrow"),
        )

        def to_rgb(example):
            if example["image"].mode != "RGB":
                example["image"] = example["image"].convert("RGB")
            return example

        made["set"] = data.map(to_rgb, cache_file_name=str(work / "rgb.arrow"))

    setup, read = timed(prepare), timed(lambda: read_all(made["set"]))
    return result(len(dataset), setup, read, before, disk(work))


def lazily(folder: str, scratch: str) -> dict:
    """The way of this project."""
    dataset = load_from_disk(folder)
    before, made = disk(Path(folder)), {}

    def prepare():
        made["set"], _ = ready(dataset, "grpo", style="think_answer")

    setup, read = timed(prepare), timed(lambda: read_all(made["set"]))
    return result(len(dataset), setup, read, before, disk(Path(folder)) - before + disk(Path(scratch)))


def result(rows: int, setup: dict, read: dict, before: int, grown: int) -> dict:
    """Rates and growth of one way."""
    both = {clock: setup[clock] + read[clock] for clock in setup}
    return {
        "rows": rows,
        "ready_rows_per_s": rows / setup["wall_s"],
        "ready_rows_per_cpu_s": rows / setup["cpu_s"],
        "ready_and_read_rows_per_s": rows / both["wall_s"],
        "ready_and_read_rows_per_cpu_s": rows / both["cpu_s"],
        "disk_growth": grown / before,
    }


def peak_memory(folder: str, scratch: str) -> dict:
    """Peak memory that getting ready and reading all adds to what imports take, in MB, without mapped pages."""
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    anonymous, highest = anonymous_mb(), 0.0
    dataset, _ = ready(load_from_disk(folder), "grpo", style="think_answer")
    highest = anonymous_mb()
    for number, row in enumerate(dataset):
        assert row["images"]
        if number % 100 == 0:
            highest = max(highest, anonymous_mb())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"rows": len(dataset), "added_mb": highest - anonymous, "added_rss_mb": (peak - start) / 1024}


def anonymous_mb() -> float:
    """Memory of this process that is no page of a mapped file, which the system may drop at will."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024


def checker_speed(folder: str, scratch: str) -> dict:
    """The row checker on good rows, by headers."""
    raw = open_set(folder)
    counter = TokenCounter(NAMED_RULES["qwen2.5-vl-3b"], limit=4096)
    found = {}

    def check():
        found["report"] = examine(raw, style="think_answer", tokens=counter)

    seconds = timed(check)
    rows = found["report"].rows
    assert not found["report"].faults, found["report"].faults[:3]
    return {"rows": rows, "rows_per_s": rows / seconds["wall_s"], "rows_per_cpu_s": rows / seconds["cpu_s"]}


def seeded_faults(rows: int, scratch: str) -> dict:
    """A hundred faults of every kind in ten thousand rows."""
    dataset, truth = faulty_rows.build(rows, faults=100, side=SIDE, seed=7)
    counter = TokenCounter(NAMED_RULES["qwen2.5-vl-3b"], limit=2000)
    found = {}
    seconds = timed(lambda: found.setdefault("report", examine(RawSet(dataset), tokens=counter)))
    named = {(fault.number, fault.kind) for fault in found["report"].faults}
    truth_pairs = set(truth.items())
    return {
        "rows": rows,
        "seeded": len(truth),
        "found": len(named & truth_pairs),
        "invented": len(named - truth_pairs),
        "rows_per_s": rows / seconds["wall_s"],
        "rows_per_cpu_s": rows / seconds["cpu_s"],
    }


def alone(measure: Callable, *arguments, scratch: Path) -> dict:
    """Run one measurement in a fresh process."""
    scratch.mkdir(parents=True)
    with multiprocessing.get_context("spawn").Pool(1, initializer=_quiet) as pool:
        found = pool.apply(measure, (*arguments, str(scratch)))
    shutil.rmtree(scratch)
    print(f"{measure.__name__}: {json.dumps({k: round(v, 3) for k, v in found.items()})}", flush=True)
    return found


def _quiet() -> None:
    os.environ["TQDM_DISABLE"] = "1"
    disable_progress_bars()


def main() -> None:
    _quiet()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000, help="JPEGs of the comparison")
    parser.add_argument("--fault-rows", type=int, default=10_000)
    options = parser.parse_args()
    record = {}
    with tempfile.TemporaryDirectory() as place:
        folder, big, scratch = Path(place) / "set", Path(place) / "big", Path(place) / "scratch"
        build_jpegs(str(folder), options.rows)
        record["map_filter_map"] = alone(map_filter_map, str(folder), scratch=scratch)
        record["ready"] = alone(lazily, str(folder), scratch=scratch)
        record["memory"] = alone(peak_memory, str(folder), scratch=scratch)
        record["checker"] = alone(checker_speed, str(folder), scratch=scratch)
        build_jpegs(str(big), 10 * options.rows)
        record["memory_of_ten_times"] = alone(peak_memory, str(big), scratch=scratch)
        record["seeded_faults"] = alone(seeded_faults, options.fault_rows, scratch=scratch)
    ours, theirs = record["ready"], record["map_filter_map"]
    for name in (
        "ready_rows_per_cpu_s",
        "ready_and_read_rows_per_cpu_s",
        "ready_rows_per_s",
        "ready_and_read_rows_per_s",
    ):
        record[f"times_{name}"] = ours[name] / theirs[name]
        print(f"{name}: {record[f'times_{name}']:.1f} times as many as map, filter, map")
    target = Path("outputs/benchmarks/data.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(f"written to {target}")


if __name__ == "__main__":
    main()
