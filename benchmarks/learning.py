"""Does it learn, and is it the reward that teaches? Several seeds of the GRPO recipe, each beside its control.

    python benchmarks/learning.py                       # seeds 0, 1, 2 and their controls: about 20 minutes
    python benchmarks/learning.py --seeds 0 --config recipes/configs/gspo_tiny_smolvlm.yaml
    python benchmarks/learning.py --jobs 2              # two runs at a time: sooner done, but seconds mean nothing

The control deals the same rewards at random within each group: same model, data, steps and seeds. Its gain's interval
must contain 0. Gains are means over seeds; intervals draw seeds and questions again (`recipe_lib.evaluation.compare`).
The table goes to outputs/benchmarks/learning_CONFIG.json.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from recipe_lib.evaluation import compare

ROOT = Path(__file__).resolve().parents[1]
CONFIG = "recipes/configs/grpo_tiny_qwen2_5_vl.yaml"


def run_recipe(
    recipe: str, config: str, seed: int, control: bool, folder: Path, *more: str, **environment: str
) -> dict:
    """One run of a recipe in a process of its own, what it prints beside its record, which is returned.

    Args:
        control: deal the rewards at random. more: further flags. environment: on top of this process's own.
    """
    command = [sys.executable, recipe, "--config", config, "--seed", str(seed), *more]
    command += ["--output_dir", str(folder), "--save_strategy", "no", "--shuffle_rewards", str(control)]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "output.txt").open("w") as output:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
    return json.loads((folder / "metrics.json").read_text())


def read_lines(path: Path) -> list[dict]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run_seeds(run: Callable[..., tuple], seeds: list[int], jobs: int) -> list[tuple[dict, list[dict]]]:
    """`run(threads=..., seed=...)` for each seed in order, `jobs` at a time, each on its share of the cores."""
    threads = (os.cpu_count() or 1) // jobs or 1
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda seed: run(threads=threads, seed=seed), seeds))


def run(config: str, control: bool, folder: Path, *, threads: int, seed: int) -> tuple[dict, list[dict]]:
    """One run of the GRPO recipe: its record and its answers."""
    folder = folder / f"{'control' if control else 'reward'}_{seed}"
    record = run_recipe("recipes/grpo.py", config, seed, control, folder, OMP_NUM_THREADS=str(threads))
    print(f"{folder.name}: {record['accuracy_after']:.1%} in {record['train_seconds']:.0f} s", flush=True)
    return record, read_lines(folder / "answers.jsonl")


def summarise(runs: list[tuple[dict, list[dict]]]) -> dict:
    """Base, mean final accuracy, mean gain with its interval, and the longest training, over seeds."""
    before = np.array([answer["right_before"] for answer in runs[0][1]])
    after = np.array([[answer["right_after"] for answer in answers] for _, answers in runs])
    return {
        "accuracy_before": float(before.mean()),
        "accuracy_after": float(after.mean()),
        **compare(before, after),
        "train_seconds_max": max(record["train_seconds"] for record, _ in runs),
        "peak_rss_mb_max": max(record["peak_rss_mb"] for record, _ in runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default=CONFIG)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, each on its share of the cores")
    options = parser.parse_args()
    name = Path(options.config).stem
    folder = ROOT / "outputs" / "benchmarks"
    table = {}
    for control in (False, True):
        runs = run_seeds(partial(run, options.config, control, folder / name), options.seeds, options.jobs)
        kind = "control" if control else "reward"
        table[kind] = summarise(runs)
        low, high = table[kind]["gain_ci95"]
        print(
            f"{kind}: {table[kind]['accuracy_before']:.1%} -> {table[kind]['accuracy_after']:.1%}, gain "
            f"{100 * table[kind]['gain']:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f}), n {table[kind]['n']}, "
            f"{len(options.seeds)} seeds, at most {table[kind]['train_seconds_max']:.0f} s of training",
            flush=True,
        )
        (folder / f"learning_{name}.json").write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
