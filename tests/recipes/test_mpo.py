"""The MPO recipe, its YAMLs and notebook 05: each constructs its config here, and a short run goes through."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from trl import TrlParser

from recipe_lib import models, mpo
from recipe_lib.record import validate_record

FOLDER = Path(__file__).resolve().parents[2] / "recipes" / "configs"
CONFIGS = sorted(FOLDER.glob("mpo_*.yaml"))


def test_every_config_is_found():
    real = {f"{name}_{kind}" for name in ("qwen2_5_vl_3b", "smolvlm2_2_2b") for kind in ("full", "lora", "qlora")}
    real |= {"smolvlm2_500m_full", "smolvlm2_500m_lora", "tiny_qwen2_5_vl", "tiny_smolvlm"}
    assert {path.stem for path in CONFIGS} == {f"mpo_{name}" for name in real} and len(CONFIGS) == 10


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_constructs(path, script):
    holders = TrlParser(script("recipes/mpo.py").PARSER).parse_args_and_config(
        ["--config", str(path), "--use_cpu", "true"]
    )
    _, how, config, model = holders
    given = yaml.safe_load(path.read_text())
    for key, value in given.items():  # each key arrived as it was written
        found = getattr(next(holder for holder in holders if hasattr(holder, key)), key)
        assert found == value or (key == "report_to" and found == []), key
    assert given["output_dir"] == f"outputs/{path.stem}" and model.model_name_or_path in models.NAMED_MODELS
    assert dict(zip(config.loss_type, config.loss_weights, strict=True)) == mpo.WEIGHTS
    assert config.bco_shift == "running_mean" and config.max_length is None and how.pair_method == "correctness"
    assert model.use_peft == bool(re.search("lora", path.stem)) and (not model.use_peft or model.lora_dropout == 0)
    assert model.load_in_4bit == ("qlora" in path.stem)
    mpo.check(config, None, lora=model.use_peft)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_values_say_why(path):
    for key in ("learning_rate", "max_answer_tokens", "samples", "beta", "max_length"):
        line = next(line for line in path.read_text().splitlines() if line.startswith(f"{key}:"))
        assert " # " in line or key == "samples", line


def test_the_command_line_comes_last_and_dpo_is_two_flags(script):
    parse = TrlParser(script("recipes/mpo.py").PARSER).parse_args_and_config
    config = ["--config", str(FOLDER / "mpo_tiny_qwen2_5_vl.yaml")]
    _, _, dpo, _ = parse([*config, "--loss_type", "sigmoid", "--loss_weights", "1", "--max_steps", "7"])
    assert dpo.loss_type == ["sigmoid"] and dpo.loss_weights == [1.0] and dpo.max_steps == 7
    with pytest.raises(ValueError, match=r"loss_weights=\[0.8, 0.2, 1.0\] has 3 values for the 1 losses"):
        parse([*config, "--loss_type", "sigmoid"])
    _, how, shifted, _ = parse([*config, "--bco_shift", "none", "--pairs", "rlaif-v"])
    assert shifted.bco_shift == "none" and how.pairs == "rlaif-v"


def test_notebook_and_config_agree(root, script):
    """The notebook's literals are the YAML's values: whoever changes one is told of the other."""
    from recipe_lib.notebooks import declared_parameters

    notebook = script("notebooks/build.py").build(root / "notebooks/src/05_mpo.py")
    declared = {name: parameter.default for name, parameter in declared_parameters(notebook).items()}
    given = yaml.safe_load((FOLDER / "mpo_tiny_qwen2_5_vl.yaml").read_text())
    pairs = {
        "MODEL": "model_name_or_path",
        "DATASET": "dataset_name",
        "MAX_STEPS": "max_steps",
        "N_EVAL": "n_eval",
        "N_QUESTIONS": "n_questions",
        "SAMPLES": "samples",
        "SAMPLING_TEMPERATURE": "sampling_temperature",
        "PAIRS_PER_QUESTION": "pairs_per_question",
        "BATCH_SIZE": "per_device_train_batch_size",
        "LEARNING_RATE": "learning_rate",
        "BETA": "beta",
        "SEED": "seed",
    }
    assert {name: declared[name] for name in pairs} == {name: given[key] for name, key in pairs.items()}


def short(folder) -> list[str]:
    options = "--max_steps 3 --n_eval 16 --n_questions 12 --per_device_train_batch_size 4 --sampling_temperature 2.0"
    return [*options.split(), "--output_dir", str(folder / "run"), "--pairs", str(folder / "pairs")]


@pytest.mark.slow
def test_recipe_makes_its_pairs_trains_and_records(root, script, tmp_path):
    recipe = script("recipes/mpo.py")
    config = ["--config", str(FOLDER / "mpo_tiny_qwen2_5_vl.yaml")]
    record = json.loads(recipe.main([*config, *short(tmp_path)]).read_text())
    validate_record(record)
    assert record["recipe"] == "mpo.py" and record["method"] == "MPO" and record["train_steps"] == 3
    assert record["n_pairs"] > 0 and record["rewards_shift_last"] is not None
    answers = (tmp_path / "pairs/answers.jsonl").stat().st_mtime_ns
    dpo = ["--loss_type", "sigmoid", "--loss_weights", "1", "--output_dir", str(tmp_path / "dpo")]
    record = json.loads(recipe.main([*config, *short(tmp_path), *dpo]).read_text())
    assert record["method"] == "DPO" and record["rewards_shift_last"] is None
    assert (tmp_path / "pairs/answers.jsonl").stat().st_mtime_ns == answers, "pairs that are there are not made again"


@pytest.mark.slow
def test_notebook_runs_short(root, tmp_path):
    given = {
        "MAX_STEPS": 2,
        "N_EVAL": 16,
        "N_QUESTIONS": 12,
        "BATCH_SIZE": 4,
        "N_SEEDS": 1,
        "SAMPLING_TEMPERATURE": 2.0,
    }
    command = [sys.executable, "-m", "recipe_lib", "run", "05_mpo", "--output-dir", str(tmp_path)]
    command += [text for name, value in given.items() for text in ("-p", name, str(value))]
    subprocess.run(command, check=True, cwd=root, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    record = json.loads((tmp_path / "metrics.json").read_text())
    validate_record(record)
    assert set(record["gains"]) == {"SFT", "DPO", "MPO, no shift", "MPO"} and len(record["mpo_minus"]) == 3
    assert record["n_eval"] == 16 and record["train_steps"] == 2 and (tmp_path / "05_mpo.html").is_file()
