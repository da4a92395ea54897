"""What a run needs around TRL's trainers: a clean stop on Ctrl-C, a log on disk, resuming, and the control run.

trainer = GRPOTrainer(...)      # TRL's arguments
trainers.train(trainer, resume=RESUME)
"""

from __future__ import annotations

import functools
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import trl
from tqdm.auto import tqdm
from transformers import Trainer, TrainerCallback

from recipe_lib import template_warnings
from recipe_lib.checkpoints import LoadsItsWeights, SaveBetweenRollouts, ShufflesByEpoch, last_complete
from recipe_lib.mixed_rows import KeepsPictures
from recipe_lib.rollouts import VLLMRollouts

LOG_NAME = "train_log.jsonl"


class GRPOTrainer(LoadsItsWeights, ShufflesByEpoch, KeepsPictures, VLLMRollouts, trl.GRPOTrainer):
    """TRL's trainer with its faults around pictures mended; each mixin says which, and steps aside where there is none.

    Checkpoints load on resuming and the data's order goes on; rows may have any number of pictures; and vLLM samples
    from the policy that is trained, which every run with `use_vllm` checks.
    """


def train(trainer: Trainer, *, resume: bool = False) -> float:
    """Train to the end, or until Ctrl-C, and return the seconds that took.

    Ctrl-C (or Jupyter's stop button) ends the step in hand, saves a checkpoint, and raises KeyboardInterrupt with
    the way to go on. A second Ctrl-C stops at once; what was saved before stays.

    Args:
        resume: go on from the last checkpoint in `args.output_dir`; where there is none, begin at the beginning.
    """
    folder = Path(trainer.args.output_dir)
    checkpoint = last_complete(folder) if resume else None
    if checkpoint:
        print(f"Resuming from {checkpoint}")
        _cut_log(folder / LOG_NAME, last=int(Path(checkpoint).name.rpartition("-")[2]))
    elif resume:
        print(f"Nothing to resume in {folder}: beginning at the beginning")
    else:
        (folder / LOG_NAME).unlink(missing_ok=True)
    stop = _StopOnInterrupt()
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback).__name__ in _NOISY:
            trainer.remove_callback(callback)
    for callback in (stop, _LogToFile(), _Progress(), SaveBetweenRollouts()):
        trainer.add_callback(callback)
    if not torch.cuda.is_available():
        trainer.args.dataloader_pin_memory = False  # torch warns at every epoch where there is nothing to pin for
    started = time.perf_counter()
    with stop, template_warnings.left_out(trainer.processing_class):
        try:
            trainer.train(resume_from_checkpoint=checkpoint)
        except Exception as error:
            error.add_note(f"in training, after step {trainer.state.global_step}; checkpoints are in {folder}")
            raise
    if stop.interrupted:
        raise KeyboardInterrupt(
            f"stopped after step {trainer.state.global_step} of {trainer.state.max_steps}; "
            f"checkpoint and {LOG_NAME} are in {folder}. Run again with RESUME=True to go on."
        )
    return time.perf_counter() - started


class _StopOnInterrupt(TrainerCallback):
    """Turn the first SIGINT into "save and stop after this step"; only the main thread may take signals."""

    def __init__(self):
        self.interrupted = False
        self._previous = None

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_):
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _on_signal(self, signum, frame):
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        print("Interrupted: saving after this step. Interrupt again to stop at once.", flush=True)

    def on_step_end(self, args, state, control, **kwargs):
        if self.interrupted:
            control.should_save = control.should_training_stop = True


# transformers' own reports: a line or a table row for every logged step, which buries the notebook's text.
_NOISY = ("ProgressCallback", "NotebookProgressCallback", "PrinterCallback")


class _Progress(TrainerCallback):
    """One bar over the steps, with the mean reward of the last one."""

    def on_train_begin(self, args, state, control, **kwargs):
        off = args.disable_tqdm or not state.is_world_process_zero
        self.bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", disable=off)

    def on_step_end(self, args, state, control, **kwargs):
        self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args, state, control, logs=None, **kwargs):
        shown = {key: f"{logs[key]:.2f}" for key in ("reward", "loss") if key in (logs or {})}
        self.bar.set_postfix(shown)

    def on_train_end(self, args, state, control, **kwargs):
        self.bar.close()


class _LogToFile(TrainerCallback):
    """Append every logged line to `train_log.jsonl`, so that a killed run still leaves what it measured."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and logs:
            path = Path(args.output_dir) / LOG_NAME
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": state.global_step, **logs}) + "\n")


def _cut_log(path: Path, last: int) -> None:
    """Drop what was logged after step `last`: a resumed run takes those steps again."""
    if path.is_file():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]  # a killed run may leave half a line
        path.write_text("".join(line for line in whole if json.loads(line)["step"] <= last), encoding="utf-8")


def shuffled_within_groups(reward: Callable, num_generations: int, seed: int = 0) -> Callable:
    """The control of a learning claim: the same rewards, dealt at random among the completions of each group.

    Group means, spreads and the number of steps stay what they were; only the link between a completion and its
    reward is cut. A gain that survives this did not come from the reward.

    Args:
        reward: a TRL reward function.
        num_generations: completions a group, G in GRPO. Completions come group by group.
        seed: of the shuffling. Rewards that share a seed are shuffled alike.
    """
    rng = np.random.default_rng(seed)

    @functools.wraps(reward)
    def shuffled(completions, **columns):
        rewards = list(reward(completions=completions, **columns))
        if len(rewards) % num_generations:
            raise ValueError(f"{len(rewards)} rewards do not make whole groups of num_generations={num_generations}")
        for start in range(0, len(rewards), num_generations):
            group = rewards[start : start + num_generations]
            rewards[start : start + num_generations] = [group[i] for i in rng.permutation(num_generations)]
        return rewards

    return shuffled


# Field of the run record -> GRPOTrainer's logged name.
_FIGURES = {
    "reward_mean_last10": "reward",
    "frac_reward_zero_std": "frac_reward_zero_std",
    "clip_ratio_mean": "clip_ratio/region_mean",
    "completion_length_mean": "completions/mean_length",
    "completion_clipped_ratio": "completions/clipped_ratio",
    "entropy_last": "entropy",
}
# Figures of some runs only: of those with a KL term, and of those that vLLM samples for.
_FURTHER = (
    ("kl_last", "kl", lambda values: values[-1]),
    ("rollout_logp_gap_mean", "rollout_logp_gap_mean", np.mean),
    ("rollout_logp_gap_max", "rollout_logp_gap_max", max),
)


def run_figures(log_history: list[dict]) -> dict[str, float | None]:
    """The method's figures for the run record: means over the steps; rewards and entropy at the end of training.

    `frac_reward_zero_std` is the share of groups in which all rewards were equal, which teach nothing;
    `completion_clipped_ratio` the share of completions that the length limit cut off. None where not logged. With a
    KL term there is `kl_last`; with vLLM `rollout_logp_gap_mean` and `_max`, over all rollouts that were looked at.
    """
    figures: dict[str, float | None] = {}
    for field, logged in _FIGURES.items():
        values = [entry[logged] for entry in log_history if entry.get(logged) is not None]
        last = {"reward_mean_last10": 10, "entropy_last": 1}.get(field, len(values))
        figures[field] = float(np.mean(values[-last:])) if values else None
    for field, logged, reduce in _FURTHER:
        values = [entry[logged] for entry in log_history if entry.get(logged) is not None]
        if values:
            figures[field] = float(reduce(values))
    return figures
