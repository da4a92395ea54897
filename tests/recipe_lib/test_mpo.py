"""MPO over TRL's DPOTrainer: losses by hand, the two methods it contains, refusals, resuming, any count of images."""

import copy
import inspect
import tempfile

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as PILImage
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from data_scripts import tiny_families
from recipe_lib import mpo, trainers
from recipe_lib.columns import ready
from recipe_lib.image_sources import RowError
from recipe_lib.mpo import MPOConfig, MPOTrainer

QUIET = {"report_to": "none", "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "disable_tqdm": True}
SHORT = {"max_steps": 4, "per_device_train_batch_size": 2, "logging_steps": 1, "save_strategy": "no", "optim": "sgd"}


def picture(number: int) -> PILImage.Image:
    pixels = np.random.default_rng(number).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    return PILImage.fromarray(pixels)


def pairs(counts=(1, 1, 1, 1, 1, 1, 1, 1), **changed) -> Dataset:
    """Pairs with as many pictures a row as `counts` says."""
    n = len(counts)
    data = {
        "prompt": [f"What is in picture {i}?" for i in range(n)],
        "images": [[picture(10 * i + k) for k in range(count)] for i, count in enumerate(counts)],
        "chosen": [f"a red circle {i}" for i in range(n)],
        "rejected": [f"green {i}" for i in range(n)],
        **changed,
    }
    features = Features({name: List(Image()) if name == "images" else Value("string") for name in data})
    return ready(Dataset.from_dict(data, features=features), "mpo")[0]


@pytest.fixture(scope="module", params=["qwen2.5-vl", "smolvlm"])
def folder(request, tmp_path_factory):
    """A saved random model of each family."""
    return tiny_families.save(request.param, tmp_path_factory.mktemp(request.param))


def make(folder, out, trainer=MPOTrainer, config=MPOConfig, data=None, **options):
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    return trainer(
        model,
        args=config(output_dir=str(out), **{**QUIET, **SHORT, "learning_rate": 0.5, **options}),
        train_dataset=pairs() if data is None else data,
        processing_class=AutoProcessor.from_pretrained(folder, padding_side="left"),
    )


def weights(trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def losses(trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


# --- the losses by hand ---------------------------------------------------------------------------


def answer_logps(model, batch) -> torch.Tensor:
    """Summed log-probability of every answer of a batch, from the plain logits: chosen ones, then rejected ones."""
    inputs = {name: value for name, value in batch.items() if name != "completion_mask"}
    logps = model(**inputs).logits[:, :-1].log_softmax(-1)
    taken = logps.gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    return (taken * batch["completion_mask"][:, 1:]).sum(1)


@pytest.mark.slow
@pytest.mark.parametrize("shift", ["none", "running_mean"])
def test_quality_loss_and_gradients_equal_those_by_hand(folder, tmp_path, shift):
    trainer = make(folder, tmp_path, loss_type=["bco_pair"], loss_weights=[1.0], bco_shift=shift, beta=0.3)
    reference = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    torch.manual_seed(0)
    for parameter in trainer.model.parameters():  # away from the start, so that rewards are not 0
        parameter.data += 0.05 * torch.randn_like(parameter)
    plain = copy.deepcopy(trainer.model)
    plain.forward = type(plain).forward.__get__(plain)  # TRL's own head is left aside
    trainer.model.train()
    means, rows = [], [trainer.train_dataset[i] for i in range(6)]
    for start in (0, 2, 4):
        batch = trainer.data_collator([dict(row) for row in rows[start : start + 2]])
        trainer.model.zero_grad()
        loss = trainer.compute_loss(trainer.model, dict(batch))
        loss.backward()

        with torch.no_grad():
            start_logps = answer_logps(reference, batch)
        rewards = 0.3 * (answer_logps(plain, batch) - start_logps)
        means.append(rewards.mean().item())
        delta = np.mean(means) if shift == "running_mean" else 0.0
        by_hand = -F.logsigmoid(rewards[:2] - delta) - F.logsigmoid(-(rewards[2:] - delta))
        plain.zero_grad()
        by_hand.mean().backward()
        assert loss.item() == pytest.approx(by_hand.mean().item(), rel=1e-4)
        for mine, theirs in zip(trainer.model.parameters(), plain.parameters(), strict=True):
            if theirs.grad is not None:
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-5)
    assert abs(np.mean(means)) > 0.01, "a shift of 0 would show nothing"
    logged = trainer._metrics["train"]
    assert logged["rewards/chosen"][-1] == pytest.approx(rewards[:2].mean().item(), rel=1e-3)
    if shift == "running_mean":
        assert logged["rewards/shift"][-1] == pytest.approx(np.mean(means), rel=1e-3)
        trainer.model.eval()
        trainer.compute_loss(trainer.model, dict(batch))
        assert trainer.reward_mean.batches == 3, "evaluation leaves the mean as it is"


@pytest.mark.slow
def test_three_losses_add_up_with_the_papers_weights(folder, tmp_path):
    whole = make(folder, tmp_path, learning_rate=0.01)
    whole.train()
    alone = {}
    for name in mpo.WEIGHTS:
        trainer = make(folder, tmp_path, learning_rate=0.0, loss_type=[name], max_steps=1)
        trainer.train()
        alone[name] = losses(trainer)[0]
    assert losses(whole)[0] == pytest.approx(sum(mpo.WEIGHTS[name] * alone[name] for name in alone), rel=1e-4)
    assert alone["sigmoid"] == pytest.approx(np.log(2), rel=1e-3)
    assert alone["bco_pair"] == pytest.approx(2 * np.log(2), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("shift", ["none", "running_mean"])
def test_weights_1_0_0_are_dpo_step_by_step(folder, tmp_path, shift):
    ours = make(folder, tmp_path, loss_weights=[1.0, 0.0, 0.0], bco_shift=shift)
    theirs = make(folder, tmp_path, DPOTrainer, DPOConfig)
    start = weights(ours).clone()
    ours.train()
    theirs.train()
    assert losses(ours) == pytest.approx(losses(theirs), rel=1e-5) and len(losses(ours)) == 4
    assert losses(ours)[-1] < 0.9 * losses(ours)[0], "nothing was learnt, so nothing was compared"
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-4, atol=1e-5)
    assert not torch.equal(weights(ours), start)


@pytest.mark.slow
def test_weights_0_0_1_are_sft_on_the_chosen_answers_step_by_step(folder, tmp_path):
    rows = [pairs()[i] for i in range(8)]
    made = [{"prompt": row["prompt"], "completion": row["chosen"], "images": row["images"]} for row in rows]
    numbers = Dataset.from_dict({"row": range(8)})
    chosen = numbers.with_transform(lambda batch: {name: [made[i][name] for i in batch["row"]] for name in made[0]})
    ours = make(folder, tmp_path, loss_weights=[0.0, 0.0, 1.0])
    options = {"completion_only_loss": True, "max_length": None, "remove_unused_columns": False}
    theirs = make(folder, tmp_path, SFTTrainer, SFTConfig, chosen, **options)
    ours.train()
    theirs.train()
    assert losses(ours) == pytest.approx(losses(theirs), rel=1e-4) and len(losses(ours)) == 4
    assert losses(ours)[-1] < 0.9 * losses(ours)[0]
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-3, atol=1e-4)


# --- the config and the refusals ------------------------------------------------------------------


def config(**options) -> MPOConfig:
    return MPOConfig(output_dir=f"{tempfile.gettempdir()}/mpo-configs", **QUIET, **options)


def test_weights_left_out_are_the_papers():
    assert config().loss_weights == [0.8, 0.2, 1.0] and config().loss_type == ["sigmoid", "bco_pair", "sft"]
    assert config(loss_type=["sft", "sigmoid", "bco_pair"]).loss_weights == [1.0, 0.8, 0.2]
    assert config(loss_weights=[1.0, 1.0, 1.0]).loss_weights == [1.0, 1.0, 1.0]
    assert config(loss_type=["sigmoid"]).loss_weights is None, "one loss alone has weight 1, as TRL has it"
    assert config().bco_shift == "running_mean"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss_weights": [0.8, 0.2]}, ["loss_weights=[0.8, 0.2]", "2 values", "3 losses", "give both"]),
        ({"truncation_mode": "keep_end"}, ["truncation_mode='keep_end'", "keep_start"]),
        ({"precompute_ref_log_probs": True}, ["precompute_ref_log_probs=True", "set it to false"]),
        ({"bco_shift": "median"}, ["bco_shift='median'", "none, running_mean"]),
        ({"ld_alpha": 0.5}, ["ld_alpha=0.5", "bco_shift: none"]),
        ({"loss_type": ["nope"]}, ["loss_type='nope'", "sigmoid"]),
        ({"f_divergence_type": "forward_kl"}, ["f_divergence_type=", "bco_shift: none"]),
        *(
            ({"loss_type": ["bco_pair", name]}, [f"loss_type={name!r}", "would shift it too"])
            for name in ("apo_zero", "nca_pair", "sppo_hard", "ipo")
        ),
    ],
)
def test_a_config_that_cannot_work_is_refused(options, words):
    with pytest.raises(ValueError) as refusal:
        config(**options)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_the_losses_that_are_known_are_trl_s():
    from trl.trainer import dpo_trainer

    source = inspect.getsource(dpo_trainer.DPOTrainer._compute_loss)
    for name in mpo.LOSSES:
        assert f'loss_type == "{name}"' in source, f"TRL no longer has the loss {name}"


def test_a_set_without_answers_is_refused():
    with pytest.raises(ValueError, match=r"no column 'chosen', but prompt; give a set of pairs"):
        mpo.check(config(), Dataset.from_dict({"prompt": ["x"]}))


@pytest.mark.slow
def test_a_reference_model_beside_lora_is_refused_and_not_kept(folder, tmp_path):
    from peft import LoraConfig

    model = AutoModelForImageTextToText.from_pretrained(folder)
    with pytest.raises(ValueError, match=r"ref_model=.* beside LoRA.*leave ref_model out"):
        mpo.check(config(), pairs(), lora=True, ref_model=model)
    with pytest.raises(ValueError, match=r"sync_ref_model=True beside LoRA"):
        mpo.check(config(sync_ref_model=True), pairs(), lora=True)
    options = {
        "args": MPOConfig(str(tmp_path), **QUIET, **{**SHORT, "max_steps": 2}),
        "train_dataset": pairs(),
        "processing_class": AutoProcessor.from_pretrained(folder, padding_side="left"),
        "peft_config": LoraConfig(r=2, target_modules=["q_proj"]),
    }
    with pytest.raises(ValueError, match=r"leave ref_model out"):
        MPOTrainer(model, copy.deepcopy(model), **options)
    trainer = MPOTrainer(model, **options)
    assert trainer.ref_model is None
    trainer.train()
    assert trainer.reward_mean.batches == 2


@pytest.mark.parametrize("same", ["a red circle 2", [{"role": "assistant", "content": "a red circle 2 "}]])
def test_a_pair_of_equal_answers_is_refused_with_its_row(same):
    rows = [{"id": f"q{i}", "chosen": f"a red circle {i}", "rejected": f"green {i}"} for i in range(4)]
    rows[2]["rejected"] = same
    if isinstance(same, list):
        for row in rows:
            for name in ("chosen", "rejected"):
                row[name] = row[name] if isinstance(row[name], list) else [{"role": "assistant", "content": row[name]}]
    with pytest.raises(RowError, match=r"row q2, column 'chosen': equals 'rejected'; drop the row"):
        mpo.check(config(), Dataset.from_list(rows))


# --- resuming, and rows of any count --------------------------------------------------------------


@pytest.mark.slow
def test_resuming_restores_weights_and_running_mean(folder, tmp_path):
    options = {"learning_rate": 0.05, "save_strategy": "steps", "save_steps": 2, "optim": "adamw_torch"}
    unbroken = make(folder, tmp_path / "unbroken", **options)
    trainers.train(unbroken)
    broken = make(folder, tmp_path / "broken", **options)
    broken.add_callback(StopAfter(2))
    trainers.train(broken)
    assert broken.state.global_step == 2 and broken.reward_mean.batches == 2
    resumed = make(folder, tmp_path / "broken", **options)
    trainers.train(resumed, resume=True)
    assert resumed.state.global_step == 4
    assert resumed.reward_mean.state() == unbroken.reward_mean.state() and resumed.reward_mean.batches == 4
    assert resumed.reward_mean.mean != 0.0
    assert torch.equal(weights(resumed), weights(unbroken))


class StopAfter(trainers.TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.step


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(0, 1, 1, 0), (1, 3, 0, 2), (0, 0, 0, 0)])
def test_rows_of_any_count_of_images_train(folder, tmp_path, counts):
    for batch in (2, 4):
        trainer = make(folder, tmp_path, data=pairs(counts), max_steps=2, per_device_train_batch_size=batch)
        trainer.train()
        assert np.isfinite(losses(trainer)).all()


def test_figures_tell_where_the_likelihood_went():
    logs = [{"logps/chosen": -10.0 - i, "rewards/margins": i / 10, "rewards/accuracies": 0.5} for i in range(20)]
    figures = mpo.run_figures([*logs, {"train_runtime": 3.0}])
    assert figures["logps_chosen_first"] == -10.5 and figures["logps_chosen_last"] == -28.5
    assert figures["rewards_margins_last"] == pytest.approx(1.85) and figures["rewards_shift_last"] is None
