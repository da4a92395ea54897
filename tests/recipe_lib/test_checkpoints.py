"""A killed run goes on to the weights of the unbroken one, bit for bit; half-written checkpoints are passed over."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from transformers import TrainerControl, TrainerState

from recipe_lib import checkpoints

ROLLOUT_STEPS = {"GRPO": 1, "GSPO": 4}


def run(root, method, kill_at, *folders):
    environment = {**os.environ, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    script = str(root / "tests" / "recipe_lib" / "killed_run.py")
    command = [sys.executable, script, method, str(kill_at), *map(str, folders)]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("method", "kill_at"), [("GRPO", 8), ("GSPO", 7)])
def test_killed_run_ends_at_the_weights_of_the_unbroken_one(method, kill_at, root, tmp_path):
    folder = tmp_path / "killed"
    assert run(root, method, kill_at, folder).returncode == -signal.SIGKILL
    steps = [int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*")]
    assert steps and all(step % ROLLOUT_STEPS[method] == 0 for step in steps)
    # and as if it had been killed while it saved the next one
    (folder / "checkpoint-10").mkdir()
    (folder / "checkpoint-10" / "trainer_state.json").write_text('{"global_step": 10, "log_his')

    finished = run(root, method, 0, folder, tmp_path / "unbroken")
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert f"Resuming from {folder / f'checkpoint-{max(steps)}'}\n" in finished.stdout
    resumed, unbroken = (line for line in finished.stdout.splitlines() if line.startswith("digest"))
    assert resumed == unbroken
    log = (tmp_path / "unbroken" / "train_log.jsonl").read_text().splitlines()
    assert json.loads(log[-1])["step"] == 11


def test_last_complete_checkpoint(tmp_path):
    assert checkpoints.last_complete(tmp_path / "missing") is None
    for step, state in ((2, "{}"), (10, "{}"), (12, '{"half'), (14, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    (tmp_path / "checkpoint-best").mkdir()
    assert checkpoints.last_complete(tmp_path) == str(tmp_path / "checkpoint-10")


def asked(steps, *, save=(), stop=(), last=100, accumulation=1, per_rollout=4):
    """Steps at which a checkpoint is written, and at which the run stops, when they are asked for at some steps."""
    args = SimpleNamespace(steps_per_generation=per_rollout, num_iterations=1, gradient_accumulation_steps=accumulation)
    callback, saved, stopped = checkpoints.SaveBetweenRollouts(), [], []
    for step in range(1, steps + 1):
        control = TrainerControl(should_save=step in save, should_training_stop=step in stop or step == last)
        callback.on_step_end(args, TrainerState(global_step=step, max_steps=last), control)
        saved += [step] * control.should_save
        stopped += [step] * control.should_training_stop
    return saved, stopped


def test_checkpoints_wait_for_the_end_of_the_rollout():
    assert asked(12, save=(3, 6, 9)) == ([4, 8, 12], [])
    assert asked(12, save=(5, 7)) == ([8], [])
    assert asked(12, save=(3, 6), per_rollout=1) == ([3, 6], [])
    assert asked(6, save=(3, 5), per_rollout=8, accumulation=4) == ([4, 6], [])


def test_a_stop_waits_as_well_but_the_end_does_not():
    assert asked(6, save=(5,), stop=(5,)) == ([], [])
    assert asked(8, save=(5,), stop=(5,)) == ([8], [8])
    assert asked(10, save=(10,), last=10) == ([10], [10])


def test_other_trainers_are_left_alone():
    control = TrainerControl(should_save=True)
    checkpoints.SaveBetweenRollouts().on_step_end(SimpleNamespace(), TrainerState(global_step=3, max_steps=9), control)
    assert control.should_save
