"""The YAMLs that sample with vLLM construct here, and differ from the files that they vary in the documented keys."""

from pathlib import Path

import pytest
import yaml
from trl import ModelConfig, TrlParser

from recipe_lib import guards

FOLDER = Path(__file__).resolve().parents[2] / "recipes" / "configs"
CONFIGS = sorted(FOLDER.glob("*_vllm*.yaml"))


def test_every_config_is_found():
    ends = ["qwen2_5_vl_3b_lora_vllm_colocate", "qwen2_5_vl_3b_lora_vllm_server", "tiny_qwen2_5_vl_vllm"]
    assert [path.stem for path in CONFIGS] == [f"grpo_{end}" for end in ends]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_constructs_and_adds_vllm_alone(path, script):
    recipe = script("recipes/grpo.py")
    parser = TrlParser((recipe.RecipeArguments, guards.GRPOConfig, ModelConfig))
    _, config, model = parser.parse_args_and_config(["--config", str(path), "--use_cpu", "true"])
    guards.check(config, model)
    assert config.use_vllm and config.vllm_mode == ("server" if path.stem.endswith("server") else "colocate")
    for line in path.read_text().splitlines():
        if line.startswith("vllm_") and not line.startswith(("vllm_mode: server", "vllm_server_base_url")):
            assert " # " in line, f"{line}: why this value?"
    given = yaml.safe_load(path.read_text())
    plain = yaml.safe_load((FOLDER / f"{path.stem.split('_vllm')[0]}.yaml").read_text())
    if "tiny" in path.stem:
        return  # sized for a dry run
    differing = {key for key in given.keys() | plain.keys() if given.get(key) != plain.get(key)}
    assert {key for key in differing if "vllm" not in key} == {"output_dir"}
