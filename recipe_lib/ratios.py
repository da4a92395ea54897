"""How far the policy has moved since it sampled: probability ratios of one rollout, per token and per sequence.

probe = ratios.Probe(trainer, steps=[8])
trainer.add_callback(probe)
...train...
probe.rollouts[8].token_ratios(), probe.rollouts[8].sequence_ratios()
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import TrainerCallback
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing

# What TRL's scoring pass takes from a batch beside the ids.
_FIELDS = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters.keys()


@torch.no_grad()
def completion_logps(trainer: GRPOTrainer, batch: dict) -> torch.Tensor:
    """Log-probabilities that the policy as it is now gives a batch's completions, in nats, shape `(N, T)`."""
    ids, mask = (torch.cat([batch[f"prompt_{key}"], batch[f"completion_{key}"]], 1) for key in ("ids", "mask"))
    fields = {key: value for key, value in batch.items() if key in _FIELDS}
    length, size = batch["completion_ids"].size(1), trainer.args.per_device_train_batch_size
    with disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs):
        logps, *_ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, length, batch_size=size, **fields
        )
    return logps


@dataclass
class Rollout:
    """A rollout of N completions of at most T tokens, scored by the policy that sampled it and by a later one.

    `ids`, `mask` (1 for tokens that count, 0 for padding after the end), `old` and `new` (log-probabilities in nats)
    have the shape `(N, T)`, `advantages` `(N,)`.
    """

    ids: np.ndarray
    mask: np.ndarray
    advantages: np.ndarray
    old: np.ndarray
    new: np.ndarray | None = None

    def token_ratios(self) -> np.ndarray:
        """pi_new / pi_old of each token that counts, shape `(mask.sum(),)` (GRPO: Shao et al. 2024, eq. 3)."""
        return np.exp(self.new - self.old)[self.mask == 1]

    def sequence_ratios(self) -> np.ndarray:
        """(pi_new(y) / pi_old(y))^(1/|y|) of each completion y, shape `(N,)` (GSPO: Zheng et al. 2025, eq. 7)."""
        moved = ((self.new - self.old) * self.mask).sum(1) / np.maximum(self.mask.sum(1), 1)
        return np.exp(moved)


class Probe(TrainerCallback):
    """Keep what single optimiser steps (from 1) train on: `rollouts[step]`, its `new` taken after that step.

    Costs two forward passes over the rollout, in these steps alone; training is not changed by it. Each rollout is
    kept in the trainer's output folder, so that a run that was resumed after the step has it too.
    """

    def __init__(self, trainer: GRPOTrainer, steps: list[int]):
        self.trainer, self.steps = trainer, set(steps)
        self.rollouts: dict[int, Rollout] = {}

    def _path(self, step: int) -> Path:
        return Path(self.trainer.args.output_dir) / f"rollout_{step}.npz"

    def on_train_begin(self, args, state, control, **kwargs):
        for step in self.steps:
            if state.global_step >= step and self._path(step).is_file():
                with np.load(self._path(step)) as saved:
                    self.rollouts[step] = Rollout(**saved)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        step = state.global_step + 1
        if step not in self.steps:
            return
        self._batches = self.trainer._buffered_inputs
        old = [batch.get("old_per_token_logps") for batch in self._batches]
        # TRL keeps none where every rollout is used before the policy moves: then they are the present ones
        old = [
            completion_logps(self.trainer, b) if known is None else known
            for b, known in zip(self._batches, old, strict=True)
        ]
        parts = [[b[key] for b in self._batches] for key in ("completion_ids", "completion_mask", "advantages")]
        self.rollouts[step] = Rollout(*(_joined(part) for part in parts), _joined(old))

    def on_step_end(self, args, state, control, **kwargs):
        if (step := state.global_step) in self.steps:
            self.rollouts[step].new = _joined([completion_logps(self.trainer, batch) for batch in self._batches])
            del self._batches
            self._path(step).parent.mkdir(parents=True, exist_ok=True)
            np.savez(self._path(step), **vars(self.rollouts[step]))


def _joined(parts: list[torch.Tensor]) -> np.ndarray:
    return torch.cat(parts).float().cpu().numpy()


def clipped_updates(log_history: list[dict], steps_per_rollout: int) -> float | None:
    """Share of off-policy updates in which anything was clipped; None where no update was off-policy.

    Args:
        log_history: of a trainer with `logging_steps=1`.
        steps_per_rollout: optimiser steps that use one rollout. The first of them is on-policy.
    """
    logged = [(entry["step"], entry.get("clip_ratio/region_mean")) for entry in log_history]
    clipped = [ratio > 0 for step, ratio in logged if ratio is not None and (step - 1) % steps_per_rollout]
    return float(np.mean(clipped)) if clipped else None
