"""Short runs in a process that may be killed: `python killed_run.py GRPO|GSPO KILL_AT FOLDER...`; 0 means never.

Prints a digest of the final weights of each run. Used by test_checkpoints.py.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

import torch
from transformers import TrainerCallback
from trl import GRPOConfig

from data_scripts import tiny_families
from recipe_lib import datasets, trainers

METHODS = {
    "GRPO": {"steps_per_generation": 1},
    "GSPO": {"importance_sampling_level": "sequence", "loss_type": "grpo", "steps_per_generation": 2}
    | {"num_iterations": 2, "epsilon": 3e-4, "epsilon_high": 4e-4},
}


class KillAt(TrainerCallback):
    """kill -9 in the middle of an optimiser step: after its gradients, before its update."""

    def __init__(self, step: int):
        self.step = step

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def by_length(completions, **columns):
    return [float(len(completion[0]["content"])) for completion in completions]


def run(folder: Path, method: str, kill_at: int) -> str:
    torch.set_num_threads(1)
    processor = tiny_families.processor("qwen2.5-vl")
    config = GRPOConfig(
        output_dir=str(folder),
        max_steps=11,
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=6,
        learning_rate=1e-3,
        gradient_checkpointing=False,
        bf16=False,
        logging_steps=1,
        save_steps=3,
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        **METHODS[method],
    )
    trainer = trainers.GRPOTrainer(
        model=tiny_families.model("qwen2.5-vl", processor),
        reward_funcs=by_length,
        args=config,
        train_dataset=datasets.load("digits", "train", limit=10),
        processing_class=processor,
        callbacks=[KillAt(kill_at)],
    )
    trainers.train(trainer, resume=True)
    weights = torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()


if __name__ == "__main__":
    for folder in sys.argv[3:]:
        print("digest", run(Path(folder), sys.argv[1], int(sys.argv[2])), flush=True)
