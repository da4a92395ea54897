"""What our trainer, its log and its callbacks cost beside a bare TRL GRPOTrainer with the same config.

    python benchmarks/grpo_overhead.py                 # about 4 minutes on two CPU cores

Both take the same steps on the same data, each in processes of its own, by turns (bare, ours, ours, bare, ...), so
that a machine that slows down slows both. Step time is the wall clock of `train`, callbacks and logging included,
without the first steps; peak memory is that of the process. The bound is 1.02 for each.
The table goes to outputs/benchmarks/grpo_overhead.json.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import trl
from transformers import TrainerCallback
from trl import GRPOConfig, ModelConfig, TrlParser

from recipe_lib import datasets, models, trainers, watch
from recipe_lib.record import peak_rss_mb
from recipe_lib.rewards import accuracy_reward, format_reward

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "recipes" / "configs" / "grpo_tiny_qwen2_5_vl.yaml"
FIRST, STEPS = 3, 15  # steps that are not counted, and all steps


class Clock(TrainerCallback):
    """Wall-clock time at the beginning of each step."""

    def __init__(self):
        self.times = []

    def on_step_begin(self, args, state, control, **kwargs):
        self.times.append(time.perf_counter())


def measure(kind: str) -> dict:
    """Seconds a step (median) and peak memory in MB of one run in this process."""
    parser = TrlParser((GRPOConfig, ModelConfig))
    config = parser.parse_args_and_config(
        [
            "--config",
            str(CONFIG),
            "--max_steps",
            str(STEPS),
            "--save_strategy",
            "no",
            "--output_dir",
            "outputs/overhead",
        ],
        fail_with_unknown_args=False,
    )[0]
    model, processor = models.load("tiny-qwen2.5-vl")
    trainer = (trl.GRPOTrainer if kind == "bare" else trainers.GRPOTrainer)(
        model=model,
        reward_funcs=[accuracy_reward, format_reward],
        args=config,
        train_dataset=datasets.load("digits", "train", limit=1000),
        processing_class=processor,
    )
    clock = Clock()
    trainer.add_callback(clock)
    if kind == "bare":
        trainer.train()
    else:
        watch.attach(trainer, every=5)
        trainers.train(trainer)
    return {"seconds": float(np.median(np.diff(clock.times)[FIRST:])), "peak_rss_mb": peak_rss_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3, help="runs of each kind")
    parser.add_argument("--measure", choices=("bare", "ours"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    runs = {"bare": [], "ours": []}
    for pair in range(options.pairs):
        for kind in ("bare", "ours") if pair % 2 == 0 else ("ours", "bare"):
            command = [sys.executable, __file__, "--measure", kind]
            done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            runs[kind].append(json.loads(done.stdout.splitlines()[-1]))
            print(kind, runs[kind][-1], flush=True)
    table = {kind: {key: float(np.median([run[key] for run in of])) for key in of[0]} for kind, of in runs.items()}
    table["ratio"] = {key: table["ours"][key] / table["bare"][key] for key in table["bare"]}
    for key, ratio in table["ratio"].items():
        print(f"{key}: {table['bare'][key]:.3f} bare, {table['ours'][key]:.3f} ours, {ratio:.3f} times; 1.02 wanted")
    path = ROOT / "outputs" / "benchmarks" / "grpo_overhead.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**table, "runs": runs}, indent=2) + "\n")


if __name__ == "__main__":
    main()
