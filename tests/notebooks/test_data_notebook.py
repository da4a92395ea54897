"""01_data through papermill, from the first cell to the record."""

import json
import os
import subprocess
import sys

import pytest

from recipe_lib.record import validate_record


@pytest.mark.slow
def test_it_runs_and_leaves_a_record(root, tmp_path):
    command = [sys.executable, "-m", "recipe_lib", "run", "01_data", "--output-dir", str(tmp_path)]
    subprocess.run(command, check=True, cwd=root, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    record = json.loads((tmp_path / "metrics.json").read_text())
    validate_record(record)
    assert record["notebook"] == "01_data" and record["train_steps"] is None
    assert (tmp_path / "01_data.html").is_file()
