"""Checkpoints from which a killed run goes on to the very weights of the unbroken one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from accelerate.utils import is_peft_model
from torch.utils.data import Sampler
from transformers import TrainerCallback
from transformers.trainer_callback import TrainerState
from trl.trainer.utils import RepeatSampler


class LoadsItsWeights:
    """A mixin to be named before TRL's trainer: a checkpoint's weights are really loaded on resuming.

    transformers 5 saves a vision-language model under the names that it has on the hub (`visual...`), and the Trainer
    of 5.17 loads them as they are, into a model whose names differ (`model.visual...`): nothing fits, a warning is
    logged, and training goes on from the start's weights.
    """

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        model = self.model if model is None else model
        if is_peft_model(model) or self.is_deepspeed_enabled or self.is_fsdp_enabled:
            return super()._load_from_checkpoint(resume_from_checkpoint, model)
        saved = type(model).from_pretrained(resume_from_checkpoint, dtype=model.dtype)
        model.load_state_dict(saved.state_dict())


class ShufflesByEpoch:
    """A mixin to be named before TRL's GRPOTrainer: a resumed run goes on in the order of the epoch that it was in.

    TRL 1.16's sampler draws one order after another from its own generator. On resuming it begins anew, so that a run
    that was killed in its second epoch gets the first one's order.
    """

    def _get_train_sampler(self, dataset=None):
        sampler = super()._get_train_sampler(dataset)
        return _OrderOfEpoch(sampler, lambda: int(self.state.epoch or 0)) if self.shuffle_dataset else sampler


class _OrderOfEpoch(Sampler):
    """TRL's `RepeatSampler`, whose n-th order (from 0) is that of epoch n, whether or not it gave those before."""

    def __init__(self, sampler: RepeatSampler, epoch: Callable[[], int]):
        self.sampler, self.epoch = sampler, epoch

    def __iter__(self) -> Iterator[int]:
        self.sampler.generator.manual_seed(self.sampler.seed)
        for _ in range(self.epoch()):
            torch.randperm(self.sampler.num_samples, generator=self.sampler.generator)
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


def last_complete(folder: Path) -> str | None:
    """The newest checkpoint in `folder` that was written to its end, None where there is none.

    The trainer writes `trainer_state.json` last: a process that was killed while it saved leaves a folder without
    it, or with half of it.
    """
    found = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    for path in sorted(found, key=lambda path: int(path.name.removeprefix("checkpoint-")), reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return str(path)
    return None


class SaveBetweenRollouts(TrainerCallback):
    """Put a checkpoint, or a stop, off until the rollout in hand is used up.

    TRL keeps a rollout in memory and uses it for `steps_per_generation * num_iterations` micro-batches. A checkpoint
    does not hold it, so that a run which is resumed in its middle samples anew, from a policy that has moved, and
    at other places of the data. To be added after every callback that asks for checkpoints.
    """

    def __init__(self):
        self._save = self._stop = False

    def on_step_end(self, args, state, control, **kwargs):
        if not hasattr(args, "steps_per_generation"):
            return
        self._save |= control.should_save
        self._stop |= control.should_training_stop
        now = between_rollouts(args, state) or state.global_step >= state.max_steps
        control.should_save, control.should_training_stop = self._save and now, self._stop and now
        if now:
            self._save = self._stop = False


def between_rollouts(args, state: TrainerState) -> bool:
    """Whether the optimiser step just done was the last that uses its rollout."""
    used = state.global_step * args.gradient_accumulation_steps
    return used % (args.steps_per_generation * args.num_iterations) == 0
