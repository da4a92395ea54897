"""The caption recipe: two steps from end to end, and what it measures."""

import json

import numpy as np
import pytest

from recipe_lib.record import validate_record

CONFIG = "recipes/configs/grpo_captions_tiny_qwen2_5_vl.yaml"


@pytest.fixture(scope="module")
def recipe(script):
    return script("recipes/grpo_captions.py")


@pytest.mark.slow
def test_two_steps_leave_a_record(recipe, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    small = ["--max_steps", "2", "--n_eval", "8", "--per_device_train_batch_size", "8", "--num_generations", "4"]
    path = recipe.main(["--config", CONFIG, "--output_dir", str(tmp_path), "--shuffle_rewards", "true", *small])
    record = json.loads(path.read_text())
    validate_record(record)
    assert record["train_steps"] == 2 and record["n_eval"] == 8
    assert -1 <= record["similarity_before"] <= 1
    assert record["similarity_gain"] == pytest.approx(record["similarity_after"] - record["similarity_before"])
    assert 0 <= record["accuracy_before"] <= 1
    lines = [json.loads(line) for line in (tmp_path / "captions.jsonl").read_text().splitlines()]
    assert len(lines) == 8
    assert np.mean([line["similarity_after"] for line in lines]) == pytest.approx(record["similarity_after"])


def test_every_picture_gets_the_question(recipe):
    rows = recipe.pictures("shapes", "test", "What is shown?", limit=3)
    assert len(rows) == 3
    assert rows[0]["prompt"][-1]["content"][-1]["text"] == "What is shown?"
    assert len(rows[0]["images"]) == 1 and rows[0]["caption"]


def test_the_record_leaves_out_what_was_not_measured(recipe):
    assert recipe.said(None, None) == {}
    fields = recipe.said(np.array([0.0, 1.0]), np.array([1.0, 1.0]))
    assert fields["gain"] == 0.5 and fields["accuracy_after"] == 1.0
