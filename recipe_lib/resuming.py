"""A checkpoint's weights are really loaded on resuming: a mixin for TRL's trainers.

transformers 5 saves a vision-language model under the names that it has on the hub (`visual...`), and the Trainer
of 5.17 loads them as they are, into a model whose names differ (`model.visual...`): nothing fits, a warning is
logged, and training goes on from the start's weights.
"""

from __future__ import annotations

from accelerate.utils import is_peft_model


class LoadsItsWeights:
    """To be named before the trainer: `class GRPOTrainer(LoadsItsWeights, trl.GRPOTrainer)`."""

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        model = self.model if model is None else model
        if is_peft_model(model) or self.is_deepspeed_enabled or self.is_fsdp_enabled:
            return super()._load_from_checkpoint(resume_from_checkpoint, model)
        saved = type(model).from_pretrained(resume_from_checkpoint, dtype=model.dtype)
        model.load_state_dict(saved.state_dict())
