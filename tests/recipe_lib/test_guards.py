"""Guards: each refusal names the setting, the value found and the value that would do, and that value does."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from trl import ModelConfig, TrlParser

from recipe_lib import datasets, guards, models
from recipe_lib.mpo import MPOConfig

TINY = models.source("tiny-qwen2.5-vl")


def config(tmp_path, **settings):
    given = {"per_device_train_batch_size": 16, "num_generations": 4, "bf16": False, "report_to": "none", **settings}
    return guards.GRPOConfig(output_dir=str(tmp_path), **given)


def test_batch_that_does_not_hold_whole_groups(tmp_path):
    with pytest.raises(ValueError, match=r"per_device_train_batch_size=7 .*num_generations=8.*: 8 would do.*: 7") as no:
        config(tmp_path, per_device_train_batch_size=7, num_generations=8)
    assert "\n" not in str(no.value)
    assert config(tmp_path, per_device_train_batch_size=8, num_generations=8).generation_batch_size == 8
    assert config(tmp_path, per_device_train_batch_size=7, num_generations=7).generation_batch_size == 7


@pytest.mark.parametrize(("batch", "generations", "accumulation"), [(12, 8, 1), (3, 8, 2), (30, 16, 4), (5, 7, 3)])
def test_every_batch_that_is_offered_does(tmp_path, batch, generations, accumulation):
    settings = {"num_generations": generations, "gradient_accumulation_steps": accumulation}
    with pytest.raises(ValueError, match="would do") as refused:
        config(tmp_path, per_device_train_batch_size=batch, **settings)
    offered = re.search(r"per_device_train_batch_size: ([\d or]+) would do", str(refused.value))[1]
    for value in offered.split(" or "):
        config(tmp_path, per_device_train_batch_size=int(value), **settings)
    groups = int(str(refused.value).rpartition("num_generations: ")[2])
    config(tmp_path, per_device_train_batch_size=batch, **{**settings, "num_generations": groups})


def test_one_generation_is_refused_through_the_parser(tmp_path):
    parser = TrlParser((guards.GRPOConfig, ModelConfig))
    with pytest.raises(ValueError, match=r"num_generations=1: .*num_generations: 8 would do"):
        parser.parse_args_and_config(["--output_dir", str(tmp_path), "--num_generations", "1", "--bf16", "false"])


def test_other_refusals_of_trl_pass_unchanged(tmp_path):
    with pytest.raises(ValueError, match="can not be both configured"):
        config(tmp_path, generation_batch_size=16, steps_per_generation=1)


@pytest.mark.parametrize(
    ("steps", "iterations", "accumulation", "moves"),
    [(1, 1, 1, False), (2, 1, 2, False), (4, 1, 8, False), (4, 1, 1, True), (1, 2, 1, True), (8, 1, 2, True)],
)
def test_gspo_needs_a_policy_that_moves(tmp_path, steps, iterations, accumulation, moves):
    settings = {
        "importance_sampling_level": "sequence",
        "steps_per_generation": steps,
        "num_iterations": iterations,
        "gradient_accumulation_steps": accumulation,
    }
    if moves:
        return guards.check(config(tmp_path, **settings))
    with pytest.raises(ValueError, match=rf"steps_per_generation={steps}, .*steps_per_generation: {4 * accumulation}"):
        guards.check(config(tmp_path, **settings))
    guards.check(config(tmp_path, **{**settings, "steps_per_generation": 4 * accumulation}))
    guards.check(config(tmp_path, **{**settings, "importance_sampling_level": "token"}))


def test_vllm_that_is_not_installed(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "vllm" else find(name))
    with pytest.raises(ValueError, match=r"use_vllm=true.*use_vllm: false would do.*requirements-vllm.txt"):
        guards.check(config(tmp_path, use_vllm=True))
    guards.check(config(tmp_path, use_vllm=False))


def test_eight_bits_with_colocated_vllm(tmp_path):
    colocate = config(tmp_path, use_vllm=True, vllm_mode="colocate")
    with pytest.raises(ValueError, match=r"load_in_8bit=true .*vllm_mode=colocate.*load_in_4bit: true"):
        guards._require_weights_for_vllm(colocate, ModelConfig(load_in_8bit=True, use_peft=True))
    guards._require_weights_for_vllm(colocate, ModelConfig(load_in_4bit=True, use_peft=True))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"importance_sampling_level": "banana"}, r"importance_sampling_level=banana: one of token, sequence would do"),
        ({"loss_type": "nope"}, r"loss_type=nope: one of grpo, dapo"),
        ({"vllm_mode": "banana"}, r"vllm_mode=banana: one of colocate, server would do"),
        ({"max_completion_length": 0}, r"max_completion_length=0"),
        ({"report_to": "nope"}, r"report_to=nope: none, tensorboard"),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 3}, r"inside a rollout; .*steps_per_generation: 8"),
    ],
)
def test_values_that_trl_would_take_until_mid_run(tmp_path, settings, words):
    with pytest.raises(ValueError, match=words):
        guards.check(config(tmp_path, **settings))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_steps": 0}, "max_steps=0: transformers would train for num_train_epochs=3 instead"),
        ({"max_steps": -3}, "max_steps=-3: .* max_steps: 100 would do"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0"),
        ({"beta": -5.0}, "beta=-5.0 would push the policy off"),
        ({"temperature": 0.0}, "temperature=0.0: .* temperature: 1.0 would do"),
        ({"num_generations": 0}, "num_generations=0: .* num_generations: 8 would do"),
    ],
)
def test_numbers_that_mean_something_else(tmp_path, settings, words):
    with pytest.raises(ValueError, match=words):
        guards.GRPOConfig(output_dir=str(tmp_path), bf16=False, **settings)
    if set(settings) <= {"max_steps", "learning_rate", "beta"}:
        with pytest.raises(ValueError, match=words):
            MPOConfig(output_dir=str(tmp_path), bf16=False, **settings)


def test_epochs_are_meant_by_minus_one(tmp_path):
    assert guards.GRPOConfig(output_dir=str(tmp_path), bf16=False, max_steps=-1, beta=0.0).max_steps == -1


def test_training_with_a_server_on_a_cpu_is_refused_before_the_model_loads(tmp_path):
    with pytest.raises(ValueError, match=r"vllm_mode=server: .*needs CUDA"):
        guards.check(config(tmp_path, use_vllm=True, vllm_mode="server", use_cpu=True), source=TINY)


def test_an_output_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot write to .*file/out"):
        guards.check(config(tmp_path / "file" / "out"))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["grpo.py", "grpo_captions.py", "mpo.py"])
def test_a_refusal_is_one_line_on_the_command_line(recipe, root, tmp_path):
    name = recipe.removesuffix(".py")
    path = root / f"recipes/configs/{name}_tiny_qwen2_5_vl.yaml"
    command = [sys.executable, str(root / "recipes" / recipe), "--config", str(path), "--vision_tower", "banana"]
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [*command, "--output_dir", str(tmp_path)], env=env, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    last = done.stderr.decode().splitlines()[-1]
    assert done.returncode == 2 and b"Traceback" not in done.stderr
    assert last == "error: vision_tower='banana': one of frozen, lora, full would do"


def test_a_refusal_before_training_is_one_line(capsys):
    with pytest.raises(SystemExit):
        guards.run(lambda: int("settings"))
    assert capsys.readouterr().err.startswith("error: invalid literal")


def test_completion_beyond_the_context(tmp_path):
    rows = datasets.load("digits", "train", limit=8)
    with pytest.raises(ValueError, match=r"max_completion_length=1000 .*context of 1024 tokens: the prompt of row dig"):
        guards.check(config(tmp_path, max_completion_length=1000), source=TINY, dataset=rows)
    with pytest.raises(ValueError, match=r"max_completion_length=2000 .*1024 tokens: max_completion_length: 1024 w"):
        guards.check(config(tmp_path, max_completion_length=2000), source=TINY)
    try:
        guards.check(config(tmp_path, max_completion_length=1000), source=TINY, dataset=rows)
    except ValueError as error:
        offered = int(re.search(r"max_completion_length: (\d+) would do", str(error))[1])
    guards.check(config(tmp_path, max_completion_length=offered), source=TINY, dataset=rows)


def test_images_over_the_budget(tmp_path):
    from recipe_lib.image_budget import QwenRule

    rows = datasets.load("digits", "train", limit=4)
    huge = QwenRule(min_pixels=2000 * 28 * 28, max_pixels=4000 * 28 * 28)
    with pytest.raises(ValueError, match=r"images over the budget of the model's context of 1024 .*row digits-train"):
        guards.check(config(tmp_path, max_completion_length=64), source=TINY, dataset=rows, rule=huge)


def test_vllm_s_own_length_counts(tmp_path):
    short = config(tmp_path, use_vllm=True, vllm_max_model_length=128, max_completion_length=256)
    with pytest.raises(ValueError, match=r"max_completion_length=256 does not fit into vllm_max_model_length=128"):
        guards._require_room(short, TINY, models.load_processor(TINY), None, None)


def test_fewer_questions_than_a_rollout_takes(tmp_path):
    rows = datasets.load("digits", "train", limit=7)
    with pytest.raises(ValueError, match=r"takes 8 different questions .*there are 7, .*batch_size: 28 would"):
        guards.check(config(tmp_path, per_device_train_batch_size=32), dataset=rows)
    guards.check(config(tmp_path, per_device_train_batch_size=28), dataset=rows)
    with pytest.raises(ValueError, match=r"takes 16 different .*there are 7.*batch_size: 4 would do; so would 16 rows"):
        guards.check(config(tmp_path, steps_per_generation=4), dataset=rows)
    guards.check(config(tmp_path, steps_per_generation=4, per_device_train_batch_size=4), dataset=rows)
