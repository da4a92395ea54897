"""`python -m recipe_lib vllm-check --model NAME`: does vLLM, on this machine, sample from the model that is trained?"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback

import trl
from transformers import PrinterCallback

from recipe_lib import datasets, models
from recipe_lib.rollouts import RolloutMismatch


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: 1 is the least")
    return int(text)


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line of `vllm-check`."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe_lib vllm-check",
        description="Sample with vLLM in colocate mode as a GRPO run does, and compare prompts and log-probabilities "
        "with the trainer's. Exit code: 0 when they agree, 1 when they do not, 2 when it cannot be told, as with a "
        "mistake in the command line or an engine that does not start.",
    )
    parser.add_argument("--model", default="auto", help="named model, folder or hub name (auto)")
    parser.add_argument("--dataset", default="digits", help="named set, folder or file with the prompts (digits)")
    parser.add_argument("--prompts", type=_positive, default=8, help="how many prompts, two completions each (8)")
    parser.add_argument("--tokens", type=_positive, default=32, help="longest completion (32)")
    parser.add_argument(
        "--steps",
        type=_positive,
        default=1,
        help="rollouts; from the second on, weights that a step has moved are synced (1)",
    )
    parser.add_argument("--model-impl", default="auto", help="vLLM's implementation: auto, vllm or transformers")
    return parser.parse_args(argv)


def check(arguments: argparse.Namespace, folder: str) -> list[dict]:
    """The gaps in order of the rollouts, `rollout_logp_gap_mean` and `_max` each.

    Raises:
        RolloutMismatch: vLLM and the trainer disagree.
    """
    from recipe_lib.trainers import GRPOTrainer

    name = models.pick(arguments.model)
    rows = datasets.load(arguments.dataset, "train", limit=arguments.prompts * arguments.steps)
    model, processor = models.load(name)
    config = trl.GRPOConfig(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=2 * arguments.prompts,
        num_generations=2,
        max_completion_length=arguments.tokens,
        learning_rate=1e-4,
        bf16=model.dtype.is_floating_point and model.dtype.itemsize == 2,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_model_impl=arguments.model_impl,
    )
    trainer = GRPOTrainer(
        model=model, reward_funcs=_places, args=config, train_dataset=rows, processing_class=processor
    )
    trainer.remove_callback(PrinterCallback)  # the verdict is what is printed
    trainer.train()
    return [entry for entry in trainer.state.log_history if "rollout_logp_gap_mean" in entry]


def _places(completions, **_) -> list[float]:
    # differs within every group, so that each step moves the weights
    return [float(place) for place in range(len(completions))]


def main(argv: list[str]) -> int:
    """`python -m recipe_lib vllm-check`; returns the exit code."""
    arguments = parse_arguments(argv)
    try:
        with tempfile.TemporaryDirectory() as folder:
            gaps = check(arguments, folder)
    except RolloutMismatch as error:
        print(f"vLLM does not sample from the policy that is trained ({error.cause}). {error}", file=sys.stderr)
        return 1
    except Exception as error:  # vLLM's engine may end with anything
        if not isinstance(error, (ValueError, OSError, ImportError)):
            traceback.print_exc()
        print(f"error: nothing was compared: {error}", file=sys.stderr)
        return 2
    for number, gap in enumerate(gaps, start=1):
        print(
            f"rollout {number}: |log p(trainer) - log p(vLLM)| mean {gap['rollout_logp_gap_mean']:.6f}, "
            f"max {gap['rollout_logp_gap_max']:.4f}"
        )
    print("vLLM samples from the policy that is trained: prompts agree, and so do log-probabilities")
    return 0
