"""The notebooks on GRPO and GSPO: short runs of both families, from the first cell to the record."""

import json
import os
import subprocess
import sys

import nbformat
import pytest

from recipe_lib.notebooks import declared_parameters
from recipe_lib.record import validate_record

SHORT = {"MAX_STEPS": 8, "N_EVAL": 32, "BATCH_SIZE": 16, "NUM_GENERATIONS": 4}


def run_notebook(root, name, folder, **parameters):
    given = [text for key, value in parameters.items() for text in ("-p", key, str(value))]
    command = [sys.executable, "-m", "recipe_lib", "run", name, "--output-dir", str(folder), *given]
    subprocess.run(command, check=True, cwd=root, env={**os.environ, "HF_HUB_OFFLINE": "1"}, timeout=1500)
    record = json.loads((folder / "metrics.json").read_text())
    validate_record(record)
    cells = nbformat.read(folder / f"{name}.ipynb", as_version=4).cells
    printed = "".join(
        output.get("text", "") for cell in cells for output in cell.get("outputs", []) if output.get("name") == "stdout"
    )
    return record, printed


FAMILIES = ["tiny-qwen2.5-vl", "tiny-smolvlm"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", FAMILIES)
def test_grpo_notebook_runs(root, tmp_path, model):
    record, printed = run_notebook(root, "03_grpo", tmp_path, MODEL=model, **SHORT)
    assert record["notebook"] == "03_grpo" and record["method"] == "GRPO" and record["model"] == model
    assert record["train_steps"] == 8 and record["n_eval"] == 32
    assert record["clip_ratio_mean"] == 0 and record["kl_last"] >= 0
    assert "advantage" in printed and "places count" in printed and "of the clip range" in printed
    assert (tmp_path / "gallery" / "step_00008.html").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", FAMILIES)
def test_gspo_notebook_runs(root, tmp_path, model):
    record, printed = run_notebook(root, "04_gspo", tmp_path, MODEL=model, **SHORT)
    assert record["notebook"] == "04_gspo" and record["method"] == "GSPO" and record["model"] == model
    assert record["train_steps"] == 8 and record["clipped_updates"] > 0 and record["clip_ratio_mean"] > 0
    assert record["log_ratio_std_answers"] < record["log_ratio_std_tokens"]
    assert "steps_per_generation: 4" in printed, "the guard's refusal is shown"


def test_gspo_s_parameters_are_the_paper_s(root, script):
    notebook = script("notebooks/build.py").build(root / "notebooks/src/04_gspo.py")
    declared = {name: parameter.default for name, parameter in declared_parameters(notebook).items()}
    assert (declared["EPSILON"], declared["EPSILON_HIGH"], declared["STEPS_PER_GENERATION"]) == (3e-4, 4e-4, 4)
