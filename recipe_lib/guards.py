"""Settings that would fail, or quietly do nothing, in mid-run: refused before the model loads, with what would do.

    parser = TrlParser((..., guards.GRPOConfig, ModelConfig))   # batch against generations, while the config is read
    guards.check(config, model_config, source=models.source(name), dataset=train_set)

Every error is a ValueError that names the setting, the value found and the value that would do.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path

import trl
from datasets import Dataset
from transformers import TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from trl import ModelConfig

from recipe_lib import models
from recipe_lib.image_budget import Rule
from recipe_lib.prompt_lengths import Longest, longest_prompt
from recipe_lib.record import prepare_output
from recipe_lib.rollouts import require_backend

MAX_ROWS = 1000  # rows whose prompts are counted; `python -m recipe_lib check` counts them all


class GRPOConfig(trl.GRPOConfig):
    """TRL's config, which refuses numbers that would mislead, and a batch without whole groups, with what would do."""

    def __post_init__(self):
        require_numbers(self)
        if self.num_generations < 2:
            raise ValueError(
                f"num_generations={self.num_generations}: an answer is judged against the others of its group, "
                "so a group has at least 2; num_generations: 8 would do"
            )
        try:
            super().__post_init__()
        except ValueError as error:
            if "must be divisible by num_generations" not in str(error):
                raise
            raise ValueError(_batch_message(self)) from None


def _batch_message(config: trl.GRPOConfig) -> str:
    batch, size = config.per_device_train_batch_size, config.generation_batch_size
    times = size // batch  # processes times steps_per_generation
    step = config.num_generations // math.gcd(config.num_generations, times)
    fitting = sorted({max(step, batch // step * step), (batch // step + 1) * step})
    groups = [n for n in range(2, size + 1) if size % n == 0]
    nearest = min(groups, key=lambda n: abs(n - config.num_generations), default=None)
    instead = f", or num_generations: {nearest}" if nearest else ""
    return (
        f"per_device_train_batch_size={batch} gives {size} completions a rollout, which do not make whole groups of "
        f"num_generations={config.num_generations}; per_device_train_batch_size: "
        f"{' or '.join(map(str, fitting))} would do{instead}"
    )


def check(
    config: trl.GRPOConfig,
    model_config: ModelConfig | None = None,
    *,
    source: str | None = None,
    dataset: Dataset | None = None,
    rule: Rule | None = None,
) -> None:
    """Refuse what TRL would refuse, or pass over in silence, only after loading or in mid-run.

    Args:
        source: folder or hub name of the model; with `dataset`, prompts are held against its context.
        dataset: training rows with `prompt` and `images`. The prompts of the first `MAX_ROWS` are counted.
        rule: what a picture costs, where the run sets other limits than the processor's own.
    """
    require_numbers(config)
    _require_known_values(config)
    require_moving_policy(config)
    _require_vllm(config)
    if model_config is not None:
        _require_weights_for_vllm(config, model_config)
    if dataset is not None:
        _require_questions(config, len(dataset))
    prepare_output(Path(config.output_dir))
    if source is not None:
        processor = models.load_processor(source)
        if config.use_vllm:
            require_backend(config, processor)
        _require_room(config, source, processor, dataset, rule)


def run(main: Callable[[], object]) -> None:
    """Run a recipe from the command line: what is refused before training ends it with one line and exit code 2.

    An error in mid-run keeps its traceback.
    """
    try:
        main()
    except KeyboardInterrupt as stop:
        print(stop, file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError, ImportError) as error:
        if hasattr(error, "__notes__"):  # `trainers.train` says how far it came
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


# Values that TRL would take until a loss or a rollout is computed.
_KNOWN = {
    "importance_sampling_level": ("token", "sequence"),
    "loss_type": ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "vllm_mode": ("colocate", "server"),
    "vllm_model_impl": ("auto", "vllm", "transformers"),
}
_AT_LEAST_ONE = ("max_completion_length", "steps_per_generation", "num_iterations", "gradient_accumulation_steps")


def require_numbers(config: TrainingArguments) -> None:
    """Refuse numbers that a trainer takes for something else, or takes until the first step."""
    if config.max_steps == 0 or config.max_steps < -1:
        raise ValueError(
            f"max_steps={config.max_steps}: transformers would train for num_train_epochs={config.num_train_epochs:g} "
            "instead; max_steps: 100 would do, or -1 where epochs are meant"
        )
    if config.learning_rate < 0:
        raise ValueError(f"learning_rate={config.learning_rate}: learning_rate: 1e-6 would do, or 0 to learn nothing")
    if config.beta < 0:
        raise ValueError(f"beta={config.beta} would push the policy off the reference model; beta: 0 is the least")
    if getattr(config, "temperature", 1.0) <= 0:
        raise ValueError(
            f"temperature={config.temperature}: the answers of a group are sampled, so that they differ; "
            "temperature: 1.0 would do"
        )


def _require_known_values(config: trl.GRPOConfig) -> None:
    for name, known in _KNOWN.items():
        if getattr(config, name) not in known:
            raise ValueError(f"{name}={getattr(config, name)}: one of {', '.join(known)} would do")
    for name in _AT_LEAST_ONE:
        if getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)}: {name}: 1 is the least")
    for name in config.report_to:
        if name not in INTEGRATION_TO_CALLBACK:
            raise ValueError(f"report_to={name}: none, tensorboard, trackio or wandb would do")
    whole = config.steps_per_generation * config.num_iterations
    if whole % config.gradient_accumulation_steps and config.gradient_accumulation_steps % whole:
        raise ValueError(
            f"gradient_accumulation_steps={config.gradient_accumulation_steps} with steps_per_generation="
            f"{config.steps_per_generation}: an optimiser step would end inside a rollout; steps_per_generation: "
            f"{4 * config.gradient_accumulation_steps} would do"
        )


def require_moving_policy(config: trl.GRPOConfig) -> None:
    """Refuse GSPO settings under which every ratio is exactly 1, so that the run would be GRPO.

    The sequence-level ratio (Zheng et al. 2025, arXiv 2507.18071, eq. 7) compares the policy that is trained with
    the one that sampled. They differ only where an optimiser step falls between a rollout and its use.
    """
    steps, accumulation = config.steps_per_generation, config.gradient_accumulation_steps
    if config.importance_sampling_level != "sequence" or accumulation % (steps * config.num_iterations):
        return
    raise ValueError(
        f"importance_sampling_level=sequence (GSPO) with steps_per_generation={steps}, "
        f"num_iterations={config.num_iterations} and gradient_accumulation_steps={accumulation}: no optimiser step "
        "falls between a rollout and its use, so every ratio is 1 and nothing is clipped; "
        f"steps_per_generation: {4 * accumulation} (the paper's four minibatches) would do, or num_iterations: 2"
    )


def _require_questions(config: trl.GRPOConfig, rows: int) -> None:
    """TRL fills a rollout with different questions, and ends at once, after no step, where there are too few."""
    wanted = config.generation_batch_size // config.num_generations
    if rows >= wanted:
        return
    steps, generations = config.generation_batch_size // config.per_device_train_batch_size, config.num_generations
    batch = rows * generations // steps // generations * generations
    instead = f"; per_device_train_batch_size: {batch} would do" if batch else ""
    raise ValueError(
        f"per_device_train_batch_size={config.per_device_train_batch_size} with num_generations={generations} takes "
        f"{wanted} different questions a rollout, but there are {rows}, so that no step would be taken{instead}; "
        f"so would {wanted} rows"
    )


def _require_vllm(config: trl.GRPOConfig) -> None:
    if config.use_vllm and importlib.util.find_spec("vllm") is None:
        raise ValueError(
            "use_vllm=true, but vLLM is not installed; use_vllm: false would do, or on a machine with a GPU run "
            "`uv pip install -r requirements.txt -r requirements-vllm.txt`"
        )


def _require_weights_for_vllm(config: trl.GRPOConfig, model_config: ModelConfig) -> None:
    if model_config.load_in_8bit and config.use_vllm and config.vllm_mode == "colocate":
        raise ValueError(
            "load_in_8bit=true with use_vllm=true and vllm_mode=colocate: TRL cannot hand 8-bit weights to vLLM; "
            "load_in_4bit: true in place of load_in_8bit would do, or use_vllm: false"
        )


def _require_room(config, source: str, processor, dataset: Dataset | None, rule: Rule | None) -> None:
    context = models.context_length(source)
    name = f"the model's context of {context} tokens"
    if config.use_vllm and config.vllm_max_model_length and config.vllm_max_model_length < context:
        context = config.vllm_max_model_length
        name = f"vllm_max_model_length={context}"
    longest = Longest()
    if dataset is not None:
        rows = (dataset[number] for number in range(min(len(dataset), MAX_ROWS)))
        longest = longest_prompt(rows, processor, rule)
    left = context - longest.tokens
    if config.max_completion_length <= left and left > 0:
        return
    found = f"the prompt of row {longest.row} has {longest.tokens} tokens, {longest.images} of them for images; "
    if left > 0:
        raise ValueError(
            f"max_completion_length={config.max_completion_length} does not fit into {name}: "
            f"{found if dataset is not None else ''}max_completion_length: {left} would do"
        )
    text = longest.tokens - longest.images
    raise ValueError(
        f"images over the budget of {name}: {found}lower the processor's max_pixels or longest edge so that they "
        f"take at most {max(0, context - text - config.max_completion_length)} tokens, or leave the row out"
    )
