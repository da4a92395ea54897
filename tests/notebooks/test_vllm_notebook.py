"""06_vllm through papermill with the real vLLM: few steps, and its proof in the record."""

import json
import os
import subprocess
import sys

import pytest

from recipe_lib.record import validate_record

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SHORT = {"MAX_STEPS": 3, "N_EVAL": 32, "BATCH_SIZE": 16}


@pytest.mark.parametrize("model", ["tiny-qwen2.5-vl", "tiny-smolvlm"])
def test_it_samples_from_the_policy_and_shows_the_fault(model, root, tmp_path):
    given = [part for name, value in {"MODEL": model, **SHORT}.items() for part in ("-p", name, str(value))]
    command = [sys.executable, "-m", "recipe_lib", "run", "06_vllm", "--output-dir", str(tmp_path), *given]
    subprocess.run(command, check=True, cwd=root, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    record = json.loads((tmp_path / "metrics.json").read_text())
    validate_record(record)
    assert record["train_steps"] == 3
    assert record["rollout_logp_gap_mean"] <= 0.005 and record["rollout_logp_gap_max"] <= 0.3
    assert record["rollout_logp_gap_mean_unrepaired"] > 0.1, "while TRL hands over prompts that are expanded already"
    gaps = [line for line in (tmp_path / "train_log.jsonl").read_text().splitlines() if "rollout_logp_gap_mean" in line]
    assert len(gaps) == 3, "the run without vLLM has a folder of its own"
