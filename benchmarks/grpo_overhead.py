"""What our trainer, its log and its callbacks cost beside a bare TRL GRPOTrainer with the same config.

    python benchmarks/grpo_overhead.py                 # about 10 minutes on two CPU cores

Two processes take the same steps on the same data, one step each by turns: a machine whose speed wanders, as shared
ones do by a tenth within a minute, then slows both alike. Where its memory lies makes a process slower or faster than
its twin for all its life, so several pairs are taken, and the interval is over them. Step time is the wall clock of a
whole step in `train`, callbacks and logging included; peak memory is that of the process. The bound is 1.02 for each.
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
from scipy import stats
from transformers import TrainerCallback
from trl import GRPOConfig, ModelConfig, TrlParser

from recipe_lib import datasets, models, trainers, watch
from recipe_lib.record import peak_rss_mb
from recipe_lib.rewards import accuracy_reward, format_reward

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "recipes" / "configs" / "grpo_tiny_qwen2_5_vl.yaml"
FIRST = 5  # steps that are not counted
MARK = "measured "  # before each line that a runner writes for us, among what training prints


class TakeTurns(TrainerCallback):
    """Report the seconds of the step just done, then wait for the other runner's step."""

    def __init__(self):
        self.started = None

    def on_step_begin(self, args, state, control, **kwargs):
        self.hand_over()
        self.started = time.perf_counter()

    def on_train_end(self, args, state, control, **kwargs):
        self.hand_over()

    def hand_over(self):
        seconds = None if self.started is None else time.perf_counter() - self.started
        print(MARK + json.dumps({"seconds": seconds, "peak_rss_mb": peak_rss_mb()}), flush=True)
        sys.stdin.readline()


def take_steps(kind: str, steps: int) -> None:
    """Train in this process, bare or ours, a step at a time."""
    arguments = {"--config": CONFIG, "--max_steps": steps, "--save_strategy": "no", "--output_dir": f"outputs/{kind}"}
    config, _ = TrlParser((GRPOConfig, ModelConfig)).parse_args_and_config(
        [str(word) for pair in arguments.items() for word in pair], fail_with_unknown_args=False
    )[:2]
    model, processor = models.load("tiny-qwen2.5-vl")
    trainer = (trl.GRPOTrainer if kind == "bare" else trainers.GRPOTrainer)(
        model=model,
        reward_funcs=[accuracy_reward, format_reward],
        args=config,
        train_dataset=datasets.load("digits", "train"),
        processing_class=processor,
    )
    trainer.add_callback(TakeTurns())
    if kind == "bare":
        trainer.train()
    else:
        watch.attach(trainer)
        trainers.train(trainer)


def start(kind: str, steps: int) -> subprocess.Popen:
    command = [sys.executable, __file__, "--kind", kind, "--steps", str(steps)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=ROOT, text=True, **pipes)


def report(runner: subprocess.Popen) -> dict:
    """The runner's next report; what else it prints is passed over."""
    for line in runner.stdout:
        if line.startswith(MARK):
            return json.loads(line.removeprefix(MARK))
    raise RuntimeError(f"a runner ended with exit code {runner.wait()}; run {runner.args} by hand to see why")


def measure(steps: int) -> dict[str, list[dict]]:
    """Each runner's reports of its steps, in order."""
    kinds = ("bare", "ours")
    runners = {kind: start(kind, steps) for kind in kinds}
    for runner in runners.values():
        report(runner)  # loaded, and before its first step
    reports = {kind: [] for kind in kinds}
    for step in range(steps):
        for kind in kinds if step % 2 else reversed(kinds):
            print("", file=runners[kind].stdin, flush=True)
            reports[kind].append(report(runners[kind]))
    for runner in runners.values():
        runner.communicate("\n")
    return reports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=6, help="pairs of processes")
    parser.add_argument("--steps", type=int, default=60, help="steps of each process")
    parser.add_argument("--kind", choices=("bare", "ours"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.kind:
        take_steps(options.kind, options.steps)
        return
    pairs = []
    for _ in range(options.pairs):
        reports = measure(options.steps)
        pairs.append(
            {
                kind: {
                    "step_seconds": float(np.mean([r["seconds"] for r in found[FIRST:]])),
                    "peak_rss_mb": found[-1]["peak_rss_mb"],
                }
                for kind, found in reports.items()
            }
        )
        print(pairs[-1], flush=True)
    table = {"pairs": pairs}
    for key in ("step_seconds", "peak_rss_mb"):
        logs = np.log([pair["ours"][key] / pair["bare"][key] for pair in pairs])
        half = stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs) if len(logs) > 1 else float("nan")
        table[key] = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half]).tolist()
        ratio, low, high = table[key]
        print(f"{key}: {ratio:.3f} times the bare trainer's ({low:.3f} to {high:.3f}); at most 1.02 wanted")
    path = ROOT / "outputs" / "benchmarks" / "grpo_overhead.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
