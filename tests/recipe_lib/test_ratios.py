"""Ratios of a rollout: the formulas on numbers by hand, and the probe on a real off-policy run."""

import numpy as np
import pytest
import torch

from recipe_lib import ratios
from tests.recipe_lib.test_hazards import make_trainer, rows, train


def test_ratios_by_hand():
    new = np.log(np.array([[0.2, 0.3, 0.5], [0.4, 0.9, 0.9]]))
    old = np.log(np.array([[0.1, 0.3, 0.25], [0.1, 0.1, 0.1]]))
    mask = np.array([[1, 1, 1], [1, 0, 0]])
    rollout = ratios.Rollout(mask, mask, np.zeros(2), old, new)
    assert np.allclose(rollout.token_ratios(), [2, 1, 2, 4])
    assert np.allclose(rollout.sequence_ratios(), [4 ** (1 / 3), 4])


def test_share_of_clipped_updates():
    logs = [{"step": step, "clip_ratio/region_mean": value} for step, value in enumerate([0, 0.1, 0, 0.3, 0, 0.2], 1)]
    assert ratios.clipped_updates([*logs, {"step": 6, "train_loss": 0.1}], 4) == pytest.approx(3 / 4)
    assert ratios.clipped_updates(logs, 1) is None


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2.5-vl", "smolvlm"])
def test_probe_agrees_with_the_trainer_s_clip_ratio(family, tmp_path):
    settings = {"importance_sampling_level": "sequence", "loss_type": "grpo", "epsilon": 3e-4, "epsilon_high": 4e-4}
    settings |= {"num_iterations": 3, "lr_scheduler_type": "constant", "max_steps": 3}
    trainer = make_trainer(tmp_path, family, rows([1, 1]), **settings)
    probe = ratios.Probe(trainer, steps=[1, 2])
    trainer.add_callback(probe)
    train(trainer)
    again = ratios.Probe(trainer, steps=[1, 2])  # as after a resume from a later checkpoint
    again.on_train_begin(trainer.args, trainer.state, trainer.control)
    for step, kept in probe.rollouts.items():
        assert all(np.array_equal(getattr(again.rollouts[step], key), value) for key, value in vars(kept).items())
    # one rollout, taken up before each of its steps: it was sampled once, and has moved further after the second
    first, rollout = probe.rollouts[1], probe.rollouts[2]
    assert np.array_equal(first.old, rollout.old) and not np.array_equal(first.new, rollout.new)
    moved, gain = rollout.sequence_ratios(), rollout.advantages
    clipped = ((moved > 1 + 4e-4) & (gain > 0)) | ((moved < 1 - 3e-4) & (gain < 0))
    logged = [entry["clip_ratio/region_mean"] for entry in trainer.state.log_history if "loss" in entry]
    # the policy after step 2 is the one that step 3 computes its loss with
    assert logged[0] == 0 and logged[2] == pytest.approx(clipped.mean()) and clipped.mean() > 0
    assert rollout.mask.shape == rollout.old.shape == rollout.new.shape == rollout.ids.shape


@pytest.mark.slow
def test_probe_changes_nothing(tmp_path):
    final = []
    for with_probe in (False, True):
        trainer = make_trainer(tmp_path, "qwen2.5-vl", rows([1, 1]))
        if with_probe:
            probe = ratios.Probe(trainer, steps=[1])
            trainer.add_callback(probe)
        train(trainer)
        final.append(torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()]))
    assert torch.equal(*final) and not np.allclose(probe.rollouts[1].token_ratios(), 1)
