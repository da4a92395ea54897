"""The GRPO recipe and the quickstart notebook: the same data and the same result, and a run that really learns."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from trl import ModelConfig, TrlParser

from recipe_lib import guards
from recipe_lib.record import validate_record

SHORT = {"MAX_STEPS": 3, "N_EVAL": 64, "BATCH_SIZE": 16, "NUM_GENERATIONS": 4}


def run_notebook(root, folder, **parameters):
    given = [text for name, value in parameters.items() for text in ("-p", name, str(value))]
    command = [sys.executable, "-m", "recipe_lib", "run", "00_quickstart", "--output-dir", str(folder), *given]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, check=True, cwd=root, env=environment)
    return json.loads((folder / "metrics.json").read_text())


def test_every_key_of_the_config_is_known(root, script):
    path = root / "recipes/configs/grpo_tiny_qwen2_5_vl.yaml"
    recipe = script("recipes/grpo.py")
    parser = TrlParser((recipe.RecipeArguments, guards.GRPOConfig, ModelConfig))
    arguments, config, model = parser.parse_args_and_config(["--config", str(path), "--max_steps", "7"])
    assert config.max_steps == 7, "the command line comes last"
    given = yaml.safe_load(path.read_text())
    assert config.learning_rate == given["learning_rate"] and arguments.dataset_name == "digits"
    assert model.model_name_or_path == "tiny-qwen2.5-vl" and not config.bf16


def test_flags_of_trl_work(script):
    recipe = script("recipes/grpo.py")
    parser = TrlParser((recipe.RecipeArguments, guards.GRPOConfig, ModelConfig))
    flags = "--model_name_or_path m --use_vllm --vllm_mode colocate --log_completions --use_peft"
    arguments = [*flags.split(), "--lora_target_modules", "q_proj", "v_proj", "--output_dir", "o", "--bf16", "false"]
    _, config, model = parser.parse_args_and_config(arguments)
    assert config.use_vllm and config.vllm_mode == "colocate" and config.log_completions
    assert model.use_peft and model.lora_target_modules == ["q_proj", "v_proj"]


def test_quickstart_and_config_agree(root, script):
    """The notebook's literals are the YAML's values: whoever changes one is told of the other."""
    from recipe_lib.notebooks import declared_parameters

    notebook = script("notebooks/build.py").build(root / "notebooks/src/00_quickstart.py")
    declared = {name: parameter.default for name, parameter in declared_parameters(notebook).items()}
    given = yaml.safe_load((root / "recipes/configs/grpo_tiny_qwen2_5_vl.yaml").read_text())
    pairs = {
        "MODEL": "model_name_or_path",
        "DATASET": "dataset_name",
        "MAX_STEPS": "max_steps",
        "N_EVAL": "n_eval",
        "LEARNING_RATE": "learning_rate",
        "NUM_GENERATIONS": "num_generations",
        "BATCH_SIZE": "per_device_train_batch_size",
        "TEMPERATURE": "temperature",
        "BETA": "beta",
        "SEED": "seed",
    }
    assert {name: declared[name] for name in pairs} == {name: given[key] for name, key in pairs.items()}


@pytest.mark.slow
def test_recipe_and_notebook_give_the_same_result(root, script, tmp_path):
    notebook = run_notebook(root, tmp_path / "notebook", MODEL="auto", **SHORT)
    assert notebook["model"] == "tiny-qwen2.5-vl", "what auto picked here"
    config = str(root / "recipes/configs/grpo_tiny_qwen2_5_vl.yaml")
    short = ["--max_steps", "3", "--n_eval", "64", "--per_device_train_batch_size", "16", "--num_generations", "4"]
    path = script("recipes/grpo.py").main(["--config", config, *short, "--output_dir", str(tmp_path / "recipe")])
    recipe = json.loads(path.read_text())
    validate_record(recipe)
    for key in ("accuracy_before", "accuracy_after", "reward_mean_last10", "entropy_last", "train_steps"):
        assert notebook[key] == recipe[key], key
    from safetensors.torch import load_file

    saved = [load_file(tmp_path / run / "checkpoint-3/model.safetensors") for run in ("notebook", "recipe")]
    assert all(bool((saved[0][name] == saved[1][name]).all()) for name in saved[0])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_quickstart_learns(root, tmp_path):
    """One seed of the README's claim, in full; a run that does not learn lands near 0."""
    record = run_notebook(root, tmp_path)
    validate_record(record)
    assert record["n_eval"] >= 500
    assert record["gain_ci95"][0] > 0.2, record
    assert record["peak_rss_mb"] < 3000
    assert (tmp_path / "00_quickstart.html").is_file() and (tmp_path / "00_quickstart.ipynb").is_file()
