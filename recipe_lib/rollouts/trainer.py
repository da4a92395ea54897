"""The mixin that puts mended vLLM rollouts, and the check of every run, into TRL's GRPOTrainer."""

from __future__ import annotations

import functools
from unittest import mock

import pyarrow.compute as pc
import torch
from datasets import Dataset
from trl.trainer import grpo_trainer

from recipe_lib.image_budget import rule_for
from recipe_lib.prompt_lengths import longest_prompt
from recipe_lib.ratios import completion_logps
from recipe_lib.rollouts import parity
from recipe_lib.rollouts.colocate import VLLMGeneration, placeholder_ids

MAX_COUNTED = 10_000  # rows whose prompts are counted before the engine starts: at most about a minute


class VLLMRollouts:
    """To be named before the trainer: `class GRPOTrainer(VLLMRollouts, trl.GRPOTrainer)`. Idle without `use_vllm`.

    Every rollout's prompts are compared with what vLLM sampled from (a server only echoes them, so that in server mode
    the log-probabilities alone tell), and, on the first rollout and each
    `tolerance.every`th after it, the log-probabilities of the sampled tokens. `rollout_logp_gap_mean` and `_max` go
    into the log history.

    Attributes:
        tolerance: of the comparison; None switches it off.
    """

    tolerance: parity.Tolerance | None = None

    def __init__(self, model, reward_funcs, args=None, train_dataset=None, **kwargs):
        given = {"model": model, "reward_funcs": reward_funcs, "args": args, "train_dataset": train_dataset, **kwargs}
        if not getattr(args, "use_vllm", False):
            super().__init__(**given)
            return
        require_backend(args, kwargs.get("processing_class"))
        if args.vllm_max_model_length is None:
            args.vllm_max_model_length = longest_sequence(args, train_dataset, kwargs.get("processing_class"))
        backend = functools.partial(
            VLLMGeneration, images_per_prompt=most_images(train_dataset, kwargs.get("eval_dataset"))
        )
        with mock.patch.object(grpo_trainer, "VLLMGeneration", backend):
            super().__init__(**given)
        # with the correction TRL scores every rollout anyway, so that looking costs nothing
        every = 1 if args.vllm_importance_sampling_correction else 10
        self.tolerance = parity.Tolerance.of(self.vllm_generation.dtype, every)
        self._rollouts = 0

    def _tokenize_prompts(self, prompts):
        ids, images, fields = super()._tokenize_prompts(prompts)
        if self.use_vllm and images and any(images):
            placeholders = self._placeholder_prompts(prompts)
            self.vllm_generation.placeholder_prompts = {tuple(a): b for a, b in zip(ids, placeholders)}
        return ids, images, fields

    def _placeholder_prompts(self, prompts) -> list[list[int]]:
        prompts = [grpo_trainer.prepare_multimodal_messages(prompt) for prompt in prompts]
        texts = self.processing_class.apply_chat_template(
            prompts,
            tools=self.tools or None,
            chat_template=self.chat_template,
            add_generation_prompt=True,
            tokenize=False,
            **self.chat_template_kwargs,
        )
        return placeholder_ids(texts, self.processing_class)

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        if self.use_vllm and self.tolerance and self.model.training:
            self._check_rollout(batch)
            self._rollouts += 1
        return batch

    def _check_rollout(self, batch) -> None:
        image_token_id = getattr(self.model.config, "image_token_id", None)
        parity.check_prompts(self.vllm_generation.last_prompts, self._tokenizer, image_token_id)
        if self._rollouts % self.tolerance.every or not self._comparable:
            return
        gap = parity.combine(self.accelerator.gather(parity.measure(*self._logps(batch))))
        self._metrics["train"]["rollout_logp_gap_mean"].append(gap.mean)
        self._metrics["train"]["rollout_logp_gap_max"].append(gap.max)
        if gap.mean > self.tolerance.mean or gap.max > self.tolerance.max:
            raise parity.diagnose(self.vllm_generation, gap, self.tolerance)

    def sampled_logps(self, rows: list[dict]) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample a completion to each row with vLLM, unchecked; log-probabilities of all tokens, trainer's and vLLM's.

        `rows` are whole groups: each question `num_generations` times. Both tensors have the shape `(tokens,)`.
        """
        ours, theirs, mask = self._logps(super()._generate_and_score_completions(rows))
        return ours[mask.bool()], theirs[mask.bool()]

    def _logps(self, batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        ours = batch.get("old_per_token_logps")  # TRL has them where it corrects for the gap
        ours = completion_logps(self, batch) if ours is None else ours
        return ours, batch["sampling_per_token_logps"], batch["completion_mask"] * batch.get("tool_mask", 1)

    @functools.cached_property
    def _comparable(self) -> bool:
        # vLLM reports the probabilities that it sampled with, after truncation; the trainer's are not truncated
        cut = {"top_p": self.top_p != 1.0, "top_k": self.top_k > 0, "min_p": bool(self.min_p)}
        cut["repetition_penalty"] = self.repetition_penalty != 1.0
        if names := [name for name, is_cut in cut.items() if is_cut]:
            print(f"{', '.join(names)} changes what is sampled from: the rollout check compares prompts only")
        return not names


def most_images(*datasets) -> int | None:
    """The largest number of images in a row; 1 for a column `image`, None where a set cannot be looked through."""
    most = 0
    for data in datasets:
        if data is None:
            continue
        names = getattr(data, "column_names", None) or []
        if not hasattr(data, "data") or not {"image", "images"} & set(names):
            return None
        if "images" in names:
            most = max(most, pc.max(pc.list_value_length(data.data["images"])).as_py() or 0)
        else:
            most = max(most, 1)
    return most


def require_backend(args, processor) -> None:
    """Raise ValueError for settings with which vLLM could not sample from the policy that is trained.

    Args:
        args: a GRPOConfig with `use_vllm`. processor: of the model; its image processor decides some.
    """
    if args.vllm_model_impl == "transformers" and not hasattr(processor, "_get_num_multimodal_tokens"):
        raise ValueError(
            f"vllm_model_impl=transformers: vLLM asks the processor how many image tokens a picture takes, and "
            f"{type(processor).__name__} of the installed transformers does not say; vllm_model_impl: vllm would do"
        )
    if args.vllm_mode != "server":
        return
    if not torch.cuda.is_available():
        raise ValueError(
            "vllm_mode=server: TRL sends the weights to the server over NCCL, which needs CUDA, and this machine has "
            "none, so the server would go on sampling from the start's weights; vllm_mode: colocate would do, or "
            "use_vllm: false"
        )
    if getattr(getattr(processor, "image_processor", None), "do_image_splitting", False):
        raise ValueError(
            "vllm_mode=server with do_image_splitting=true: the server takes one run of image tokens an image, and "
            "splitting makes several; processor.image_processor.do_image_splitting = False would do, or vllm_mode: "
            "colocate"
        )


def longest_sequence(args, dataset, processor) -> int | None:
    """`vllm_max_model_length` from the data: its longest prompt and `max_completion_length`, in tokens.

    vLLM keeps memory for sequences of that length; its own default is the model's whole context. None where the
    rows are not counted beforehand: a stream, very many, or a family whose image tokens are not known here.
    """
    if not isinstance(dataset, Dataset) or len(dataset) > MAX_COUNTED:
        return None
    try:
        rule = rule_for(processor)
    except ValueError:
        return None
    # one token more, since vLLM refuses a prompt that fills the whole length
    return longest_prompt(dataset, processor, rule).tokens + args.max_completion_length + 1
