"""Named models, and one way to load them.

    model, processor = models.load("tiny-qwen2.5-vl")

The tiny models are committed under `checkpoints/`, made by `data_scripts/build_tiny_models.py`. They are the
families' own classes with the real chat templates, so a real checkpoint is a change of name and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, PreTrainedModel, ProcessorMixin

from recipe_lib.image_budget import NAMED_RULES

CHECKPOINTS = Path(__file__).resolve().parent.parent / "checkpoints"


@dataclass(frozen=True)
class NamedModel:
    """Where a named model lives, and the GPU memory in GiB from which `auto` trains it with LoRA."""

    source: str
    gpu_gib: int | None = None


NAMED_MODELS = {
    "tiny-qwen2.5-vl": NamedModel(str(CHECKPOINTS / "tiny-qwen2.5-vl")),
    "tiny-smolvlm": NamedModel(str(CHECKPOINTS / "tiny-smolvlm")),
    "qwen2.5-vl-3b": NamedModel("Qwen/Qwen2.5-VL-3B-Instruct", gpu_gib=22),
    "qwen2.5-vl-7b": NamedModel("Qwen/Qwen2.5-VL-7B-Instruct", gpu_gib=40),
    "smolvlm-instruct": NamedModel("HuggingFaceTB/SmolVLM-Instruct"),
    "smolvlm2-500m": NamedModel("HuggingFaceTB/SmolVLM2-500M-Video-Instruct", gpu_gib=8),
    "smolvlm2-2.2b": NamedModel("HuggingFaceTB/SmolVLM2-2.2B-Instruct", gpu_gib=15),
}


def pick(name: str = "auto") -> str:
    """Resolve `auto` to a named model and say which: tiny on a CPU, else the largest that the GPU holds.

    Any other name comes back unchanged.
    """
    if name != "auto":
        return name
    if not torch.cuda.is_available():
        choice, why = "tiny-qwen2.5-vl", "no GPU here"
    else:
        gib = torch.cuda.get_device_properties(0).total_memory / 2**30
        fitting = {known: m.gpu_gib for known, m in NAMED_MODELS.items() if m.gpu_gib and m.gpu_gib <= gib}
        choice = max(fitting, key=fitting.get, default="tiny-qwen2.5-vl")
        why = f"a GPU with {gib:.0f} GiB"
    print(f"MODEL=auto picked {choice}: {why}")
    return choice


def source(name: str) -> str:
    """The folder or hub name behind a model's name.

    Raises:
        ValueError: neither a known name, nor a folder, nor of the form `owner/name`.
        FileNotFoundError: a tiny model whose checkpoint is not in this checkout.
    """
    if name in NAMED_MODELS:
        where = NAMED_MODELS[name].source
        if name.startswith("tiny-") and not (Path(where) / "config.json").is_file():
            raise FileNotFoundError(f"{name}: nothing at {where}; work in a clone of the repository")
        return where
    if Path(name).is_dir():
        return name
    if name.count("/") == 1 and not name.startswith((".", "/")):
        return name
    known = ", ".join(("auto", *NAMED_MODELS))
    raise ValueError(f"unknown model {name!r}; known: {known}, or a folder, or a hub name `owner/name`")


def load(name: str, **init) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Load a model and its processor; padding is on the left, as generation needs.

    Real models get the image size limits of `recipe_lib.image_budget`, so that one picture cannot fill the context.

    Args:
        name: `auto`, a key of `NAMED_MODELS`, a folder, or a hub name.
        init: passed to `from_pretrained`. `dtype` defaults to float32 on a CPU and for the tiny models, whose
            training would drown in bfloat16's rounding, and to bfloat16 for real models on a GPU.

    Raises:
        ValueError, FileNotFoundError: as `source`.
        ImportError: a helper package is missing; the message gives the command.
        OSError: the checkpoint is not cached and the hub cannot be reached.
    """
    name = pick(name)
    where = source(name)
    tiny = name.startswith("tiny-")
    on_gpu = torch.cuda.is_available()
    init.setdefault("dtype", torch.bfloat16 if on_gpu and not tiny else torch.float32)
    with _explained(name, where):
        processor = AutoProcessor.from_pretrained(where, padding_side="left")
        model = AutoModelForImageTextToText.from_pretrained(where, **init)
    if name in NAMED_RULES:
        NAMED_RULES[name].limit(processor)
    return model, processor


def load_processor(where: str) -> ProcessorMixin:
    """The processor alone, with padding on the left; errors as `load`."""
    with _explained(where, where):
        return AutoProcessor.from_pretrained(where, padding_side="left")


def context_length(where: str) -> int:
    """Tokens of prompt and completion together that the model at `where` was made for; errors as `load`."""
    with _explained(where, where):
        return AutoConfig.from_pretrained(where).get_text_config().max_position_embeddings


@contextlib.contextmanager
def _explained(name: str, where: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{name} needs a package: {_last_line(error)} Run: pip install -r requirements.txt") from None
    except OSError as error:
        raise OSError(
            f"{name}: {where!r} is neither cached nor reachable ({_last_line(error)}). With network, run "
            f"`hf download {where}` once; without, MODEL=tiny-qwen2.5-vl needs no download"
        ) from None


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
