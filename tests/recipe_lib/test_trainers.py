"""Around TRL's trainer: the control, Ctrl-C and resuming, the log, and mixed batches, on real training steps."""

import json
import os
import signal

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig

from recipe_lib import datasets, guards, models, trainers
from recipe_lib.rewards import accuracy_reward, format_reward


def test_control_keeps_each_group_s_rewards_and_cuts_their_link():
    rewards = np.random.default_rng(0).random(64).tolist()
    shuffled = trainers.shuffled_within_groups(lambda completions: rewards, num_generations=8)
    dealt = np.array(shuffled(completions=[""] * 64)).reshape(8, 8)
    groups = np.array(rewards).reshape(8, 8)
    assert np.allclose(np.sort(dealt), np.sort(groups))
    assert (dealt != groups).any(1).all()


def test_control_deals_two_rewards_alike():
    first = trainers.shuffled_within_groups(lambda completions: list(range(8)), 4, seed=1)
    second = trainers.shuffled_within_groups(lambda completions: [10 * i for i in range(8)], 4, seed=1)
    assert [10 * r for r in first(completions=[""] * 8)] == second(completions=[""] * 8)
    assert first.__name__ == "<lambda>"


def test_control_refuses_broken_groups():
    with pytest.raises(ValueError, match=r"6 rewards.*num_generations=4"):
        trainers.shuffled_within_groups(lambda completions: [0.0] * 6, 4)(completions=[""] * 6)


def test_run_figures_are_means_and_last_values():
    logs = [{"reward": float(i), "frac_reward_zero_std": i / 20, "entropy": 1.0 - i / 20} for i in range(20)]
    figures = trainers.run_figures([*logs, {"train_runtime": 3.0}])
    assert figures["reward_mean_last10"] == 14.5
    assert figures["frac_reward_zero_std"] == pytest.approx(0.475)
    assert figures["entropy_last"] == pytest.approx(0.05) and figures["clip_ratio_mean"] is None


def test_run_figures_of_runs_with_kl_and_with_vllm():
    logs = [{"kl": 0.1, "rollout_logp_gap_mean": 1e-5, "rollout_logp_gap_max": 0.01}]
    logs += [{"kl": 0.2, "rollout_logp_gap_mean": 3e-5, "rollout_logp_gap_max": 0.005}]
    figures = trainers.run_figures(logs)
    assert figures["kl_last"] == 0.2
    assert figures["rollout_logp_gap_mean"] == pytest.approx(2e-5) and figures["rollout_logp_gap_max"] == 0.01
    assert "kl_last" not in trainers.run_figures([{"reward": 1.0}])


def test_a_resumed_log_has_every_step_once(tmp_path):
    path = tmp_path / trainers.LOG_NAME
    path.write_text("".join(json.dumps({"step": step}) + "\n" for step in (1, 2, 3, 4)) + '{"step": 5, "lo')
    trainers._cut_log(path, last=2)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


def make_trainer(folder, steps=4, callbacks=(), dataset=None, name="tiny-qwen2.5-vl"):
    model, processor = models.load(name)
    config = GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=24,
        learning_rate=1e-3,
        temperature=1.5,
        lr_scheduler_type="constant",
        gradient_checkpointing=False,
        bf16=False,
        logging_steps=1,
        save_steps=2,
        report_to="none",
    )
    return trainers.GRPOTrainer(
        model=model,
        reward_funcs=[accuracy_reward, format_reward],
        args=config,
        train_dataset=dataset if dataset is not None else datasets.load("digits", "train", limit=40),
        processing_class=processor,
        callbacks=list(callbacks),
    )


class InterruptAt(TrainerCallback):
    """Press Ctrl-C in the middle of a step."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


@pytest.mark.slow
def test_interrupted_run_resumes_to_the_weights_of_the_unbroken_one(tmp_path, capsys):
    handler = signal.getsignal(signal.SIGINT)  # ignored, in the background of a shell script
    unbroken = make_trainer(tmp_path / "unbroken", steps=4)
    start = weights(unbroken).clone()
    trainers.train(unbroken)
    broken = make_trainer(tmp_path / "broken", steps=4, callbacks=[InterruptAt(2)])
    with pytest.raises(KeyboardInterrupt, match=r"stopped after step 3 of 4.*RESUME=True"):
        trainers.train(broken)
    assert signal.getsignal(signal.SIGINT) is handler
    log = (tmp_path / "broken" / trainers.LOG_NAME).read_text().splitlines()
    assert [json.loads(line)["step"] for line in log if "reward" in line] == [1, 2, 3]

    resumed = make_trainer(tmp_path / "broken", steps=4)
    trainers.train(resumed, resume=True)
    assert "checkpoint-3" in capsys.readouterr().out
    log = (tmp_path / "broken" / trainers.LOG_NAME).read_text().splitlines()
    assert [json.loads(line)["step"] for line in log if '"reward"' in line] == [1, 2, 3, 4]
    assert torch.equal(weights(resumed), weights(unbroken))
    assert not torch.equal(weights(unbroken), start)


@pytest.mark.slow
def test_nothing_to_resume_is_said_and_a_fresh_run_empties_the_log(tmp_path, capsys):
    (tmp_path / trainers.LOG_NAME).write_text("old\n")
    trainers.train(make_trainer(tmp_path, steps=1), resume=True)
    assert "Nothing to resume" in capsys.readouterr().out
    trainers.train(make_trainer(tmp_path, steps=1))
    assert "old" not in (tmp_path / trainers.LOG_NAME).read_text()


@pytest.mark.slow
def test_steps_of_smolvlm_are_not_buried_in_warnings(tmp_path, caplog):
    trainer = make_trainer(tmp_path, steps=2, name="tiny-smolvlm")
    guards.check(trainer.args, source=models.source("tiny-smolvlm"), dataset=trainer.train_dataset)
    trainers.train(trainer)
    assert "processor_kwargs" not in caplog.text
    trainer.train()  # TRL's own: the library's logger is as it was
    assert "processor_kwargs" in caplog.text


class FailAt(TrainerCallback):
    """A disk that is full, in the middle of a run."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise OSError("No space left on device")


@pytest.mark.slow
def test_a_fault_in_mid_run_keeps_its_traceback_and_says_how_far_it_came(tmp_path):
    trainer = make_trainer(tmp_path, steps=3, callbacks=[FailAt(1)])
    with pytest.raises(OSError, match="No space left") as caught:
        guards.run(lambda: trainers.train(trainer))
    assert caught.value.__notes__ == [f"in training, after step 1; checkpoints are in {tmp_path}"]


@pytest.mark.slow
def test_rows_with_and_without_images_train_together(tmp_path):
    rows = [dict(row) for row in datasets.load("digits", "train", limit=6)]
    for i, row in enumerate(rows):
        if i % 2 == 0:
            row["images"] = []
            row["prompt"] = [{"role": "user", "content": [{"type": "text", "text": row["question"]}]}]
    plain = Dataset.from_dict({"row": range(len(rows))})
    mixed = plain.with_transform(lambda batch: {k: [rows[i][k] for i in batch["row"]] for k in rows[0]})
    trainer = make_trainer(tmp_path, steps=3, dataset=mixed)
    start = weights(trainer).clone()
    trainers.train(trainer)
    assert torch.isfinite(weights(trainer)).all() and not torch.equal(weights(trainer), start)
