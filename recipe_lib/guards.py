"""Settings that would fail, or quietly do nothing, in mid-run: refused before the model loads, with what would do.

    parser = TrlParser((..., guards.GRPOConfig, ModelConfig))   # batch against generations, while the config is read
    guards.check(config, model_config, source=models.source(name), dataset=train_set)

Every error is a ValueError that names the setting, the value found and the value that would do.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass

import trl
from datasets import Dataset
from transformers import AutoConfig, AutoProcessor
from trl import ModelConfig

from recipe_lib.image_budget import Rule, prompt_tokens, rule_for
from recipe_lib.image_sources import DEFAULT_SOURCE
from recipe_lib.images import as_list, header

MAX_ROWS = 1000  # rows whose prompts are counted; `python -m recipe_lib check` counts them all


class GRPOConfig(trl.GRPOConfig):
    """TRL's config, whose refusal of a batch without whole groups says what would do."""

    def __post_init__(self):
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
    require_moving_policy(config)
    _require_vllm(config)
    if model_config is not None:
        _require_trainable_weights(config, model_config)
    if dataset is not None:
        _require_questions(config, len(dataset))
    if source is not None:
        _require_room(config, source, dataset, rule)


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


def _require_trainable_weights(config: trl.GRPOConfig, model_config: ModelConfig) -> None:
    quantised = next((name for name in ("load_in_4bit", "load_in_8bit") if getattr(model_config, name)), None)
    if quantised and not model_config.use_peft:
        raise ValueError(
            f"{quantised}=true with use_peft=false: quantised weights cannot be trained; use_peft: true would do"
        )
    if model_config.load_in_8bit and config.use_vllm and config.vllm_mode == "colocate":
        raise ValueError(
            "load_in_8bit=true with use_vllm=true and vllm_mode=colocate: TRL cannot hand 8-bit weights to vLLM; "
            "load_in_4bit: true in place of load_in_8bit would do, or use_vllm: false"
        )


@dataclass
class _Longest:
    """The longest prompt that was counted: tokens, those of its images among them, and the row's id."""

    tokens: int = 0
    images: int = 0
    row: object = None


def _require_room(config: trl.GRPOConfig, source: str, dataset: Dataset | None, rule: Rule | None) -> None:
    context = AutoConfig.from_pretrained(source).get_text_config().max_position_embeddings
    name = f"the model's context of {context} tokens"
    if config.use_vllm and config.vllm_max_model_length and config.vllm_max_model_length < context:
        context = config.vllm_max_model_length
        name = f"vllm_max_model_length={context}"
    longest = _Longest() if dataset is None else _longest_prompt(source, dataset, rule)
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


def _longest_prompt(source: str, dataset: Dataset, rule: Rule | None) -> _Longest:
    processor = AutoProcessor.from_pretrained(source)
    rule = rule or rule_for(processor)
    longest = _Longest()
    for number in range(min(len(dataset), MAX_ROWS)):
        row = dataset[number]
        row_id = row.get("id", number)
        headers = [header(image, row_id=row_id, source=DEFAULT_SOURCE) for image in as_list(row.get("images"))]
        sizes = [(found.width, found.height) for found in headers]
        tokens = prompt_tokens(processor, row["prompt"], sizes, rule)
        if tokens > longest.tokens:
            longest = _Longest(tokens, sum(rule.tokens(*size) for size in sizes), row_id)
    return longest
