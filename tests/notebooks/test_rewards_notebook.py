"""The rewards notebook, from end to end in a few steps."""

import json
import os
import subprocess
import sys

import nbformat
import pytest

from recipe_lib.record import validate_record


@pytest.mark.slow
def test_it_runs_and_leaves_a_record(root, tmp_path):
    given = {"MAX_STEPS": 2, "N_EVAL": 8, "BATCH_SIZE": 16}
    parameters = [text for name, value in given.items() for text in ("-p", name, str(value))]
    command = [sys.executable, "-m", "recipe_lib", "run", "02_rewards", "--output-dir", str(tmp_path), *parameters]
    subprocess.run(command, check=True, cwd=root, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    record = json.loads((tmp_path / "metrics.json").read_text())
    validate_record(record)
    assert record["notebook"] == "02_rewards" and record["train_steps"] == 2 and record["n_eval"] == 8
    cells = nbformat.read(tmp_path / "02_rewards.ipynb", as_version=4).cells
    printed = "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", []))
    # Under a faulty reward few answers are right at the end, whatever its curve says; under the mended one nearly all.
    start = printed.index("the curve says")
    lines = [line.split()[-3:] for line in printed[start:].splitlines()[1:6]]
    shown, truly, mended = ([int(line[column].rstrip("%")) for line in lines] for column in range(3))
    assert sorted(shown)[1] >= 95 and max(truly) <= 45 and min(mended) >= 95, lines
