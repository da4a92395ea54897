"""LoRA targets on the families' real module names, switches of the vision tower, and 4-bit and 8-bit training."""

import re

import pytest
import torch
import transformers as tf
from peft import get_peft_model
from trl import GRPOConfig, ModelConfig, get_quantization_config

from data_scripts import tiny_families
from recipe_lib import adapters, datasets, models, trainers
from recipe_lib.rewards import accuracy_reward, format_reward

# Families with the numbers of layers of Qwen2.5-VL-3B, Qwen3-VL-4B, Qwen3-VL-30B-A3B, SmolVLM2-500M, SmolVLM.
REAL = {
    "qwen2_5_vl": tf.Qwen2_5_VLConfig(text_config={"num_hidden_layers": 36}),
    "qwen3_vl": tf.Qwen3VLConfig(text_config={"num_hidden_layers": 36}),
    "qwen3_vl_moe": tf.Qwen3VLMoeConfig(text_config={"num_hidden_layers": 48}),
    "smolvlm": tf.SmolVLMConfig(text_config={"num_hidden_layers": 32}),
    "idefics3": tf.Idefics3Config(text_config={"num_hidden_layers": 24}),
}


def on_meta(config):
    with torch.device("meta"):
        return tf.AutoModelForImageTextToText.from_config(config)


@pytest.mark.parametrize("family", REAL)
def test_targets_match_the_real_module_names(family):
    model = on_meta(REAL[family])
    found = adapters.parts(model)
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    in_tower = {name for name in linear if set(name.split(".")) & set(found.tower)}
    language = {name for name in linear if re.fullmatch(found.language, name)}
    vision = {name for name in linear if re.fullmatch(found.vision, name)}
    a_layer = 4 if family == "qwen3_vl_moe" else 7  # q, k, v, o, and gate, up, down where they are linear layers
    assert len(language) == a_layer * REAL[family].text_config.num_hidden_layers
    assert not language & in_tower and vision < in_tower
    blocks = getattr(REAL[family].vision_config, "depth", None) or REAL[family].vision_config.num_hidden_layers
    assert len(vision) == blocks * {"qwen2_5_vl": 5, "smolvlm": 6, "idefics3": 6}.get(family, 4)
    # what neither has: the output layer, the router of the experts, and what maps pictures to the model's width
    rest = {re.sub(r"\d+", "N", name) for name in linear - language - vision}
    assert all(re.search(r"lm_head|mlp\.gate$|merger|connector", name) for name in rest), rest


def tiny(family="qwen2.5-vl"):
    return tiny_families.model(family, tiny_families.processor(family))


def trainable(model):
    return {name for name, weight in model.named_parameters() if weight.requires_grad}


@pytest.mark.parametrize("family", ["qwen2.5-vl", "smolvlm"])
def test_switches_of_the_vision_tower(family):
    lora = ModelConfig(use_peft=True, lora_r=2)
    tower = adapters.parts(tiny(family)).tower

    def in_tower(names):
        return {name for name in names if set(name.split(".")) & set(tower)}

    adapted = trainable(get_peft_model(model := tiny(family), adapters.prepare(model, lora)))
    assert adapted and all("lora_" in name for name in adapted) and not in_tower(adapted)
    adapted = trainable(get_peft_model(model := tiny(family), adapters.prepare(model, lora, "lora")))
    assert in_tower(adapted) and all("lora_" in name for name in adapted)
    adapted = trainable(get_peft_model(model := tiny(family), adapters.prepare(model, lora, "full")))
    whole = {name for name, _ in tiny(family).named_parameters()}
    assert len([name for name in adapted if "modules_to_save" in name]) == len(in_tower(whole))

    model = tiny(family)
    assert adapters.prepare(model, ModelConfig()) is None and trainable(model) == whole
    assert adapters.prepare(model, ModelConfig(), "frozen") is None
    assert trainable(model) == whole - in_tower(whole)


def test_own_targets_win():
    config = adapters.prepare(tiny(), ModelConfig(use_peft=True, lora_target_modules=["q_proj", "v_proj"]))
    assert config.target_modules == {"q_proj", "v_proj"}


@pytest.mark.parametrize(
    ("settings", "choice", "message"),
    [
        ({}, "open", r"vision_tower='open': one of frozen, lora, full would do"),
        ({}, "lora", r"vision_tower=lora with use_peft=false: use_peft: true would do"),
        ({"load_in_4bit": True}, None, r"load_in_4bit=true with use_peft=false.*use_peft: true would do"),
        ({"use_peft": True, "load_in_4bit": True}, "full", r"load_in_4bit=true.*vision_tower: lora would do"),
        ({"use_peft": True, "lora_target_modules": ["q_proj", "o_proj"]}, "lora", "leave one of them out"),
    ],
)
def test_choices_that_do_not_fit_are_refused(settings, choice, message):
    with pytest.raises(ValueError, match=message):
        adapters.prepare(tiny(), ModelConfig(**settings), choice)


def test_unknown_family_is_refused():
    with pytest.raises(ValueError, match=r"family 'gemma3'; known: qwen2_5_vl, .*Set lora_target_modules"):
        adapters.prepare(tiny("gemma3"), ModelConfig(use_peft=True))


def step_config(folder, **settings):
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=3,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=16,
        learning_rate=1e-3,
        temperature=1.5,
        gradient_checkpointing=False,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        **settings,
    )


def varied(completions, **columns):
    """A reward that differs within every group."""
    return [float(i) for i in range(len(completions))]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2.5-vl", "smolvlm"])
@pytest.mark.parametrize("bits", ["load_in_4bit", "load_in_8bit"])
def test_three_steps_on_quantised_weights(family, bits, tmp_path):
    pytest.importorskip("bitsandbytes")
    model_config = ModelConfig(use_peft=True, lora_r=4, lora_dropout=0.0, **{bits: True})
    folder = tiny_families.save(family, tmp_path / "model")
    model, processor = models.load(str(folder), quantization_config=get_quantization_config(model_config))
    trainer = trainers.GRPOTrainer(
        model=model,
        reward_funcs=[varied, accuracy_reward, format_reward],
        args=step_config(tmp_path / "run"),
        train_dataset=datasets.load("digits", "train", limit=12),
        processing_class=processor,
        peft_config=adapters.prepare(model, model_config),
    )
    weights = dict(trainer.model.named_parameters())
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    seen = set()
    for name, weight in weights.items():
        if weight.requires_grad:
            weight.register_hook(lambda gradient, name=name: seen.add(name) if gradient.abs().sum() > 0 else None)
    trainer.train()
    assert trainer.state.global_step == 3
    adapted = {name for name in weights if "lora_" in name}
    assert adapted == trainable(trainer.model) == seen  # B from the first step on, A from the second
    for name, weight in weights.items():
        assert torch.equal(weight, before[name]) == (name not in adapted), name
    kinds = {type(module).__name__ for module in trainer.model.modules()}
    assert ("Linear4bit" if bits == "load_in_4bit" else "Linear8bitLt") in kinds
