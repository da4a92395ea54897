"""The YAMLs of GRPO and GSPO: each constructs its real config on this CPU, and GSPO's differ where they say."""

import re
from pathlib import Path

import pytest
import yaml
from trl import ModelConfig, TrlParser

from recipe_lib import guards, models

FOLDER = Path(__file__).resolve().parents[2] / "recipes" / "configs"
# The captions recipe and the runs with vLLM have tests of their own.
CONFIGS = sorted(path for path in FOLDER.glob("g[rs]po_*.yaml") if not re.search("captions|vllm", path.name))
# What makes GRPO's file GSPO's; the head of each GSPO file says the same.
DOCUMENTED = {"importance_sampling_level", "epsilon", "epsilon_high", "loss_type", "steps_per_generation"}


def test_every_config_is_found():
    names = [path.stem for path in CONFIGS]
    assert len(names) == 21 and sum(name.startswith("gspo") for name in names) == 9
    both = ("tiny_qwen2_5_vl", "tiny_smolvlm", "qwen2_5_vl_3b_full", "qwen2_5_vl_3b_lora", "qwen2_5_vl_7b_lora")
    both += tuple(f"smolvlm2_{size}_{kind}" for size in ("500m", "2_2b") for kind in ("full", "lora"))
    only_grpo = ("qwen2_5_vl_3b_qlora", "smolvlm_instruct_4bit", "smolvlm_instruct_8bit")
    wanted = {f"{method}_{name}" for name in both for method in ("grpo", "gspo")}
    assert wanted | {f"grpo_{name}" for name in only_grpo} == set(names)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_constructs(path, script):
    recipe = script("recipes/grpo.py")
    parser = TrlParser((recipe.RecipeArguments, guards.GRPOConfig, ModelConfig))
    arguments, config, model = parser.parse_args_and_config(["--config", str(path), "--use_cpu", "true"])
    guards.check(config, model)
    given = yaml.safe_load(path.read_text())
    for key, value in given.items():  # each key arrived as it was written
        holder = next(holder for holder in (arguments, config, model) if hasattr(holder, key))
        found = getattr(holder, key)
        assert found == value or (key == "report_to" and found == []), key
    assert given["output_dir"] == f"outputs/{path.stem}"
    assert model.model_name_or_path in models.NAMED_MODELS
    assert config.generation_batch_size % config.num_generations == 0
    assert config.beta == (0.08 if "grpo_tiny" in path.stem else 0.0)
    assert config.importance_sampling_level == ("sequence" if "gspo" in path.stem else "token")
    assert model.use_peft == bool(re.search("lora|bit", path.stem)) and (not model.use_peft or model.lora_dropout == 0)


@pytest.mark.parametrize("path", [p for p in CONFIGS if p.stem.startswith("gspo")], ids=lambda path: path.stem)
def test_gspo_differs_in_the_documented_keys_alone(path):
    gspo = yaml.safe_load(path.read_text())
    grpo = yaml.safe_load((path.parent / path.name.replace("gspo", "grpo")).read_text())
    differing = {key for key in gspo.keys() | grpo.keys() if gspo.get(key) != grpo.get(key)}
    tiny = {"beta", "max_steps", "per_device_train_batch_size", "learning_rate"}
    documented = DOCUMENTED | (tiny if "tiny" in path.stem else set())
    assert differing == documented | {"output_dir"}
    comment = "".join(line for line in path.read_text().splitlines(True) if line.startswith("#"))
    assert all(key in comment for key in documented)
    assert gspo["epsilon"] == 3e-4 and gspo["epsilon_high"] == 4e-4
    assert gspo["steps_per_generation"] == 4 * gspo["gradient_accumulation_steps"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_values_say_why(path):
    """A number that somebody chose has its source or its reason on its line, or in the comment above its block."""
    for key in ("learning_rate", "max_completion_length", "temperature"):
        line = next(line for line in path.read_text().splitlines() if line.startswith(f"{key}:"))
        assert " # " in line, line
