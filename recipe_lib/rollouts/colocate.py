"""TRL's vLLM backend with its faults around images mended. Needs vLLM only when a run asks for it.

What TRL 1.16 gets wrong in colocate mode, and what stands here instead:

- It hands vLLM token ids in which every image is already expanded to its N image tokens, together with the images;
  vLLM expands them again. Here vLLM gets the prompt as the chat template wrote it, with one placeholder an image.
- It passes no dtype: vLLM takes the checkpoint's, or bfloat16 on a CPU. Here it is the one that the trainer
  computes in.
- vLLM loads the checkpoint's own processor. Here it gets the settings of the trainer's, such as a size limit.
- Image and video tokens can be sampled, which the next forward pass refuses. Here they are masked.
- After an optimiser step, vLLM goes on using image features from before it wherever a picture comes again: TRL
  empties the prefix cache, and not the encoder's. Here both are emptied.
- On a CPU, vLLM packs its weights when it loads, and new ones cannot be written. Here it keeps them.
- With `vllm_model_impl: transformers`, vLLM expects weights under the names of the checkpoint on the hub, and TRL sends
  them under those of the modules: here they are renamed on the way. vLLM also replaces methods of transformers' own
  classes, and the trainer's model fails in its next forward pass: here it leaves them alone.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
from unittest import mock

import torch
from transformers import AutoProcessor, PreTrainedTokenizerBase, ProcessorMixin
from transformers.core_model_loading import revert_weight_conversion
from trl.generation import vllm_generation

from recipe_lib.rollouts.parity import RolloutMismatch
from recipe_lib.rollouts.server import free_port

GROUP_PORT = 51216  # TRL's default of `vllm_group_port`, over which weights travel in server mode
# prepares a class of transformers for torch.compile, for every model of the process, the trainer's too
DECORATE = "vllm.model_executor.models.transformers.base.Base._decorate_cls_for_torch_compile"
CPU_KV_CACHE = 2**30  # bytes; vLLM's default on a CPU is a share of the whole machine


class VLLMGeneration(vllm_generation.VLLMGeneration):
    """TRL's backend; `images_per_prompt` is the largest number of images in a row of the data, None if unknown."""

    def __init__(self, *args, images_per_prompt: int | None = None, **kwargs):
        self.images_per_prompt = images_per_prompt
        self.placeholder_prompts: dict[tuple[int, ...], list[int]] = {}
        self.last_prompts: list[tuple[list[int], list[int]]] = []
        self.names_checked = False
        if kwargs.get("mode") == "server" and kwargs.get("group_port") == GROUP_PORT:
            kwargs["group_port"] = free_port()  # one number for all would make two runs on a machine clash
        super().__init__(*args, **kwargs)
        self.generation_kwargs = self.generation_kwargs | self._masked_words()

    @property
    def dtype(self) -> torch.dtype:
        """What the trainer computes in: autocast's where mixed precision is on, else that of the weights."""
        mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}
        return mixed.get(self.accelerator.mixed_precision, self.model.dtype)

    def _init_vllm(self):
        if self.mode != "colocate":
            return super()._init_vllm()
        if self.accelerator.num_processes == 1:
            # accelerate has set 29500 for every run on a CPU, on which a second engine cannot listen; several
            # processes share the one that their launcher gave them
            os.environ["MASTER_PORT"] = str(free_port())
        engine = functools.partial(vllm_generation.LLM, **self.engine_arguments())
        with (
            mock.patch.object(vllm_generation, "LLM", engine),
            real_stdout(),
            keep_weights(self.accelerator.device),
            mock.patch(DECORATE, lambda *_, **__: None),
        ):
            super()._init_vllm()

    def engine_arguments(self) -> dict:
        """What vLLM is told beyond TRL's own arguments, which win where TRL comes to pass the same."""
        arguments: dict = {"dtype": self.dtype, "mm_processor_kwargs": changed_settings(self.processing_class)}
        if self.images_per_prompt is not None:
            arguments["limit_mm_per_prompt"] = {"image": self.images_per_prompt}
        if self.accelerator.device.type == "cpu":
            # compiling costs a minute and saves a tiny model nothing
            arguments |= {"enforce_eager": True, "kv_cache_memory_bytes": CPU_KV_CACHE}
        return arguments

    def _masked_words(self) -> dict:
        words = self.generation_kwargs.get("bad_words") or []
        return {"bad_words": [*words, *vision_tokens(self.processing_class, self.model.config)]}

    @functools.cached_property
    def expands_twice(self) -> bool:
        """Whether the installed TRL hands already expanded ids on together with the images: found out by trying."""
        handed = []
        stand_in = mock.Mock(llm_engine=None)
        stand_in.generate = lambda prompts, **_: handed.extend(prompts) or []
        ids, image = [0] * 4, object()
        # an error before the stand-in is asked: TRL looks at the image itself, and the run's check has the last word
        with mock.patch.multiple(self, llm=stand_in, enable_sleep_mode=False), contextlib.suppress(Exception):
            super().generate([ids] * self.tensor_parallel_size, [[image]] * self.tensor_parallel_size, 1)
        return any(
            isinstance(row, dict) and row.get("prompt_token_ids") == ids and "multi_modal_data" in row for row in handed
        )

    def generate(self, prompts, images, num_generations, profiler=None):
        """As TRL's. `images` may hold None or an empty list for a row without any; the two mean the same.

        `last_prompts` keeps, a row, the ids that training sees and those that vLLM sampled from.
        """
        images = [row or None for row in images or []]
        images = images if any(images) else None
        handed = prompts
        if self.mode == "colocate" and images and self.placeholder_prompts and self.expands_twice:
            handed = [
                self.placeholder_prompts.get(tuple(ids), ids) if row else ids for ids, row in zip(prompts, images)
            ]
        output = super().generate(handed, images, num_generations, profiler)
        self.last_prompts = list(zip(prompts, output[0]))
        return output

    def sync_weights(self):
        """As TRL's, and vLLM forgets the image features that it computed with the old weights.

        The first time, every weight of vLLM's must have been written.

        Raises:
            RolloutMismatch: names on the two sides do not match; the message lists some.
        """
        if self.mode == "colocate" and not self.names_checked:
            self._sync_and_check_names()
        else:
            super().sync_weights()
        if self.mode == "colocate":
            self.llm.llm_engine.reset_encoder_cache()
        elif self.accelerator.is_main_process:
            self.vllm_client.session.post(f"{self.vllm_client.base_url}/reset_encoder_cache").raise_for_status()

    def _iter_named_params(self):
        base = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        for name, weight in super()._iter_named_params():
            if self.model_impl == "transformers":
                yield from revert_weight_conversion(base, {name: weight}).items()
            else:
                yield name, weight

    def _sync_and_check_names(self):
        written: set[str] = set()
        model = self.engine_model
        load = model.load_weights

        def recording(weights):
            weights = list(weights)
            names = [name for name, _ in weights]
            try:
                written.update(load(weights) or ())
            except (KeyError, ValueError) as error:
                text = f"weights: the trainer's {names[0]!r} has no place in vLLM's model: {error}"
                raise RolloutMismatch("weights", text, None) from error

        with mock.patch.object(model, "load_weights", recording):
            super().sync_weights()
        missing = sorted({name for name, _ in model.named_parameters()} - written)
        if missing:
            text = (
                f"weights: {len(missing)} of vLLM's model are not among the trainer's, such as {missing[:3]}: vLLM "
                "would sample with the checkpoint's values; vllm_model_impl: transformers may do, or use_vllm: false"
            )
            raise RolloutMismatch("weights", text, None)
        self.names_checked = True

    @property
    def engine_model(self) -> torch.nn.Module:
        """vLLM's own copy of the model; colocate only."""
        return self.llm.llm_engine.model_executor.driver_worker.model_runner.model


def placeholder_ids(texts: list[str], processor: ProcessorMixin | PreTrainedTokenizerBase) -> list[list[int]]:
    """Token ids of prompts as a chat template wrote them, one placeholder an image; special tokens as TRL adds them."""
    tokenizer = getattr(processor, "tokenizer", processor)
    has_start = bool(tokenizer.bos_token) and texts[0].startswith(tokenizer.bos_token)
    return tokenizer(texts, add_special_tokens=not has_start)["input_ids"]


def vision_tokens(processor, config) -> list[str]:
    """The tokens that stand for image and video features: sampled ones would find no features."""
    if not isinstance(processor, ProcessorMixin):
        return []
    ids = {getattr(config, name, None) for name in ("image_token_id", "video_token_id")} - {None}
    return processor.tokenizer.convert_ids_to_tokens(sorted(ids))


def changed_settings(processor) -> dict:
    """Settings of the image processor that differ from its checkpoint's, which is what vLLM loads by itself."""
    if not isinstance(processor, ProcessorMixin):
        return {}
    ours = processor.image_processor.to_dict()
    stored = AutoProcessor.from_pretrained(processor.tokenizer.name_or_path).image_processor.to_dict()
    return {key: value for key, value in ours.items() if key in stored and stored[key] != value}


@contextlib.contextmanager
def keep_weights(device: torch.device):
    """On a CPU, have vLLM compute with the weights themselves.

    It would pack every linear layer's weight once, when it loads, and let the original go: the first push of the
    trainer's weights fails then ("no attribute 'weight_loader'"), and a tied output layer keeps the old ones unseen.
    """
    if device.type != "cpu":
        yield
        return

    def plain(layer, remove_weight):
        layer.cpu_linear = torch.nn.functional.linear

    with mock.patch("vllm.model_executor.layers.utils.dispatch_cpu_unquantized_gemm", plain):
        yield


@contextlib.contextmanager
def real_stdout():
    """vLLM asks sys.stdout for its file descriptor while it starts; a notebook's has none."""
    try:
        sys.stdout.fileno()
    except (AttributeError, io.UnsupportedOperation):
        with contextlib.redirect_stdout(sys.__stdout__):
            yield
    else:
        yield
