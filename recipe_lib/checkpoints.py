"""Checkpoints from which a killed run goes on to the very weights of the unbroken one."""

from __future__ import annotations

import json
from pathlib import Path

from accelerate.utils import is_peft_model
from transformers import TrainerCallback
from transformers.trainer_callback import TrainerState


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
