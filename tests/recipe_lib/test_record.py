"""The run record: what is written, and what is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest

from recipe_lib.record import format_record, library_versions, validate_record, write_record

MEASURED = {
    "notebook": "00_quickstart",
    "method": "GRPO",
    "model": "tiny-qwen2.5-vl",
    "dataset": "digits",
    "seed": 0,
    "n_eval": 500,
    "accuracy_before": 0.4,
    "accuracy_before_ci95": [0.36, 0.44],
    "accuracy_after": 0.75,
    "accuracy_after_ci95": [0.71, 0.79],
    "gain": 0.35,
    "gain_ci95": [0.3, 0.4],
    "train_steps": 100,
    "train_seconds": 120.5,
    "peak_rss_mb": 1500.0,
}


def test_written_record_is_complete(tmp_path):
    path = write_record(tmp_path / "new" / "folder", **MEASURED, clip_ratio_mean=0.1)
    record = json.loads(path.read_text())
    assert path == tmp_path / "new" / "folder" / "metrics.json"
    assert list(path.parent.iterdir()) == [path]
    assert record["versions"] == library_versions()
    assert {key: record[key] for key in MEASURED} == MEASURED
    assert record["clip_ratio_mean"] == 0.1
    validate_record(record)


def test_a_run_that_measures_nothing_has_nulls(tmp_path):
    record = json.loads(write_record(tmp_path, notebook="01_data").read_text())
    assert record["accuracy_before"] is None and record["gain_ci95"] is None and record["train_steps"] is None
    assert set(MEASURED) <= set(record)
    assert "gain              -" in format_record(record)


def test_numpy_values_and_tuples_become_plain(tmp_path):
    odd = MEASURED | {"gain": np.float32(0.35), "n_eval": np.int64(500), "gain_ci95": (np.float64(0.3), 0.4)}
    odd["accuracy_before"], odd["accuracy_after"] = np.float64(0.4), np.float64(0.75)
    record = json.loads(write_record(tmp_path, **odd, curve=[np.float32(0.5)], parts={"a": np.int32(2)}).read_text())
    assert record["n_eval"] == 500 and record["gain_ci95"] == [0.3, 0.4]
    assert record["curve"] == [0.5] and record["parts"] == {"a": 2}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"recipe": "grpo"}, "notebook"),
        ({"notebook": ""}, "notebook"),
        ({"seed": "0"}, "seed"),
        ({"seed": True}, "seed"),
        ({"n_eval": 0}, "n_eval"),
        ({"accuracy_before": 40.0, "gain": -39.25}, "accuracy_before"),
        ({"accuracy_after": float("nan")}, "accuracy_after"),
        ({"accuracy_after_ci95": [0.79, 0.71]}, "accuracy_after_ci95"),
        ({"accuracy_after_ci95": [0.71]}, "accuracy_after_ci95"),
        ({"accuracy_after_ci95": None}, "accuracy_after_ci95"),
        ({"gain": 0.3}, "gain"),
        ({"gain": None, "gain_ci95": None}, "gain"),
        ({"train_steps": 1.5}, "train_steps"),
        ({"train_seconds": -1.0}, "train_seconds"),
        ({"clip_ratio_mean": float("inf")}, "clip_ratio_mean"),
        ({"model_object": object()}, "model_object"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_written(tmp_path, change, key):
    with pytest.raises(ValueError, match=rf"(^|'){key}"):
        write_record(tmp_path, **(MEASURED | change))
    assert not list(tmp_path.iterdir())


def test_missing_key_and_versions_are_named():
    record = MEASURED | {"versions": library_versions()}
    validate_record(record)
    with pytest.raises(ValueError, match="train_seconds: missing"):
        validate_record({key: value for key, value in record.items() if key != "train_seconds"})
    with pytest.raises(ValueError, match="versions: trl"):
        validate_record(record | {"versions": record["versions"] | {"trl": None}})
    with pytest.raises(ValueError, match="versions"):
        validate_record(MEASURED)


def test_table_shows_per_cent_with_intervals():
    table = format_record(MEASURED)
    assert "accuracy before   40.0 %   [36.0, 44.0]" in table
    assert "gain              +35.0 %   [30.0, 40.0]" in table
    assert "questions         500" in table and "100 steps, 120 seconds" in table and "1500 MB" in table


def test_peak_memory_is_in_mb_keeps_the_peak_and_leaves_out_the_parent():
    code = "from recipe_lib.record import peak_rss_mb; a = peak_rss_mb(); b = b'x' * (200 * 2**20); del b\n"
    code += "print(a, peak_rss_mb() - a)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    start, grown = map(float, printed.split())
    assert start < 60 and 190 < grown < 250
