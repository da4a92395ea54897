"""GRPO with the real vLLM in colocate mode, one engine a family; what it did is read from a file and judged here."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["qwen2.5-vl", "smolvlm"])
def found(request, tmp_path_factory, root):
    out = tmp_path_factory.mktemp("colocate") / "found.json"
    script = root / "tests/recipe_lib/rollouts/colocate_run.py"
    env = {**os.environ, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, str(script), request.param, str(out)], env=env, cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return json.loads(out.read_text())


def test_vllm_computes_in_the_trainer_s_dtype_and_expects_the_data_s_images(found):
    assert found["engine"] == {"dtype": "torch.float32", "limit": 2}


def test_training_samples_from_the_policy(found):
    for stage, looks in (("training", 10), ("lora_training", 3)):
        assert found[stage]["looks"] == looks
        assert found[stage]["mean"] <= 0.005 and found[stage]["max"] <= 0.3


def test_greedy_answers_after_training_are_the_trainer_s(found):
    for stage in ("greedy", "lora_greedy"):
        assert len(found[stage]) == 8
        assert all(vllm == trainer for vllm, trainer in found[stage])


def test_image_tokens_cannot_be_sampled(found):
    assert found["image_tokens"]["masked"] == 0
    assert found["image_tokens"]["unmasked"] > 0, "the model of this test wants to"


def test_each_cause_is_named(found):
    broken = found["broken"]
    assert broken["nothing"]["cause"] is None and broken["tight"]["cause"] is None
    for cause in ("prompt", "template", "dtype", "weights"):
        assert broken[cause]["cause"] == cause, broken[cause]


def test_without_the_repair_the_gap_is_large(found):
    assert found["broken"]["unrepaired"]["mean"] > 0.1


def test_old_image_features_would_show(found):
    """TRL alone leaves the features of pictures that vLLM has seen before as they were before the optimiser's steps."""
    assert found["broken"]["old_features"]["cause"] == "unknown"


def test_the_check_by_itself_and_vllm_s_transformers_backend(root):
    """That backend has other names for the weights, and would break the trainer's model: two rollouts show both."""
    command = [sys.executable, "-m", "recipe_lib", "vllm-check", "--model-impl", "transformers", "--prompts", "4"]
    env = {**os.environ, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1"}

    def run(*more):
        return subprocess.run([*command, *more], env=env, cwd=root, capture_output=True, text=True)

    done = run("--model", "tiny-qwen2.5-vl", "--steps", "2")
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "rollout 2: |log p(trainer) - log p(vLLM)| mean 0.0000" in done.stdout

    refused = run("--model", "tiny-smolvlm")
    assert refused.returncode == 2
    assert "vllm_model_impl=transformers" in refused.stderr and "SmolVLMProcessor" in refused.stderr
