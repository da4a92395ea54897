"""What of a model is trained: LoRA on the language model, and the vision tower frozen, adapted, or trained in full.

    peft_config = adapters.prepare(model, model_config, vision_tower="frozen")
    trainer = GRPOTrainer(model=model, peft_config=peft_config, ...)

`peft` matches a target given as one string as a regular expression over whole module names. Lists of bare names
("q_proj") also match in the vision tower of some families and not in that of others; these say what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from peft import LoraConfig
from transformers import PreTrainedModel
from trl import ModelConfig, get_peft_config

VISION_CHOICES = ("frozen", "lora", "full")


@dataclass(frozen=True)
class Parts:
    """Where a family keeps its parts.

    `language` and `vision` match the linear layers of the language model and of the vision tower; `tower` names
    the modules that stand before the language model, the one that maps to its width included.
    """

    language: str
    vision: str
    tower: tuple[str, ...]


_ATTENTION, _MLP = r"self_attn\.(q|k|v|o)_proj", r"mlp\.(gate|up|down)_proj"
_QWEN_LANGUAGE = rf".*\.language_model\.layers\.\d+\.({_ATTENTION}|{_MLP})"
_QWEN2_5 = Parts(_QWEN_LANGUAGE, rf".*\.visual\.blocks\.\d+\.(attn\.(qkv|proj)|{_MLP})", ("visual",))
# In the mixture-of-experts model the experts are stacked tensors, not linear layers: attention alone is adapted.
_QWEN3 = Parts(_QWEN_LANGUAGE, r".*\.visual\.blocks\.\d+\.(attn\.(qkv|proj)|mlp\.linear_fc[12])", ("visual",))
_IDEFICS = Parts(
    rf".*\.text_model\.layers\.\d+\.({_ATTENTION}|{_MLP})",
    r".*\.vision_model\.encoder\.layers\.\d+\.(self_attn\.(q|k|v|out)_proj|mlp\.fc[12])",
    ("vision_model", "connector"),
)
FAMILIES = {
    "qwen2_5_vl": _QWEN2_5,
    "qwen3_vl": _QWEN3,
    "qwen3_vl_moe": _QWEN3,
    "smolvlm": _IDEFICS,
    "idefics3": _IDEFICS,
}


def parts(model: PreTrainedModel) -> Parts:
    """The parts of a model's family. Raises ValueError on a family that is not known here."""
    family = model.config.model_type
    if family not in FAMILIES:
        raise ValueError(
            f"no LoRA targets for the family {family!r}; known: {', '.join(FAMILIES)}. Set lora_target_modules"
        )
    return FAMILIES[family]


def prepare(model: PreTrainedModel, model_config: ModelConfig, vision_tower: str | None = None) -> LoraConfig | None:
    """Freeze what is not to be trained, and return the adapter's config for the trainer, None without LoRA.

    Args:
        model: as loaded; with `vision_tower="frozen"` and no LoRA its tower's weights stop asking for gradients.
        model_config: TRL's. Its own `lora_target_modules` win over the family's.
        vision_tower: `frozen`, `lora` (adapters there as well) or `full` (all of its weights, saved with the
            adapter). None is `frozen` with LoRA and `full` without.

    Raises:
        ValueError: a choice that does not fit the other settings, or an unknown family.
    """
    choice = check_choice(vision_tower, model_config)
    if not model_config.use_peft:
        if choice == "frozen":
            for name, weight in model.named_parameters():
                if set(name.split(".")) & set(parts(model).tower):
                    weight.requires_grad_(False)
        return None
    config = get_peft_config(model_config)
    if model_config.lora_target_modules is None:
        found = parts(model)
        config.target_modules = f"({found.language})|({found.vision})" if choice == "lora" else found.language
    if choice == "full":
        config.modules_to_save = [*(config.modules_to_save or []), *parts(model).tower]
    return config


def check_choice(vision_tower: str | None, model_config: ModelConfig) -> str:
    """What `vision_tower` means beside the other settings, which needs no model; ValueError where it does not fit."""
    choice = vision_tower or ("frozen" if model_config.use_peft else "full")
    if choice not in VISION_CHOICES:
        raise ValueError(f"vision_tower={choice!r}: one of {', '.join(VISION_CHOICES)} would do")
    if choice == "lora" and not model_config.use_peft:
        raise ValueError("vision_tower=lora with use_peft=false: use_peft: true would do, or vision_tower: full")
    if choice == "lora" and model_config.lora_target_modules is not None:
        raise ValueError(
            f"vision_tower=lora with lora_target_modules={model_config.lora_target_modules}: leave one of them out"
        )
    quantised = next((name for name in ("load_in_4bit", "load_in_8bit") if getattr(model_config, name)), None)
    if quantised and not model_config.use_peft:
        raise ValueError(
            f"{quantised}=true with use_peft=false: quantised weights cannot be trained; use_peft: true would do"
        )
    if choice == "full" and quantised:
        raise ValueError(
            f"vision_tower=full with {quantised}=true: quantised weights cannot be trained; vision_tower: lora would do"
        )
    return choice
