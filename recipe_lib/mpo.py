"""MPO, mixed preference optimization: what TRL's DPOTrainer lacks of the paper (Wang et al. 2024, arXiv 2411.10442).

    trainer = MPOTrainer(model, args=MPOConfig("outputs/mpo"), train_dataset=pairs, processing_class=processor)

Section 4.1 of the paper adds three losses, with weights 0.8, 0.2 and 1.0. With the rewards
r_c = beta log(pi(y_c | x) / pi_0(y_c | x)) of the chosen answer, and r_r of the rejected one:

- preference loss, TRL's `sigmoid` (DPO): -log sigmoid(r_c - r_r)
- quality loss, `bco_pair` (BCO): -log sigmoid(r_c - delta) - log sigmoid(-(r_r - delta))
- generation loss, `sft`: -log pi(y_c | x) / |y_c|, in TRL averaged over all chosen tokens of the batch

delta, the reward shift, is a running mean of the rewards. TRL 1.16 leaves it out, so that an answer counts as good
when it is likelier than at the start, however much likelier all answers have become. The default is the paper's; on
the tiny models neither does better (notebooks/05_mpo: -0.1 points, -0.8 to +0.5, three seeds).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from datasets import Dataset
from transformers import PreTrainedModel, TrainerCallback
from transformers.trainer_callback import ExportableState
from trl import DPOConfig, DPOTrainer

from recipe_lib import guards
from recipe_lib.answer_format import completion_text
from recipe_lib.checkpoints import LoadsItsWeights
from recipe_lib.columns import row_name
from recipe_lib.image_sources import RowError
from recipe_lib.record import prepare_output

WEIGHTS = {"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.0}  # the paper's, section 5 and the authors' script
SHIFTS = ("none", "running_mean")
# Losses that the shift leaves alone: of the difference of a pair's two rewards, or without the reference.
UNSHIFTED = ("sigmoid", "hinge", "robust", "sft")
LOSSES = (
    *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired"),
    *("apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm"),
)


@dataclass
class MPOConfig(DPOConfig):
    """TRL's DPOConfig with the paper's losses as the default, and the switch for the reward shift.

    The three losses without weights mean `WEIGHTS`; other losses without weights mean 1.0 each, as TRL has it.

    Raises:
        ValueError: as many weights as losses are needed; an unknown shift; and what cannot be done with images.
    """

    loss_type: list[str] = field(
        default_factory=lambda: list(WEIGHTS), metadata={"help": "Losses to add up; the default is MPO's three."}
    )
    bco_shift: str = field(
        default="running_mean",
        metadata={
            "help": "Reward shift of the loss bco_pair: the paper's running mean, or none, as TRL computes it.",
            "choices": list(SHIFTS),
        },
    )

    def __post_init__(self):
        guards.require_numbers(self)
        losses = [self.loss_type] if isinstance(self.loss_type, str) else list(self.loss_type)
        if self.loss_weights is None and sorted(losses) == sorted(WEIGHTS):
            self.loss_weights = [WEIGHTS[name] for name in losses]
        if self.loss_weights is not None and len(self.loss_weights) != len(losses):
            raise ValueError(
                f"loss_weights={self.loss_weights} has {len(self.loss_weights)} values for the {len(losses)} losses of "
                f"loss_type={losses}; give one weight for each loss (weights in the config file count too: give both)"
            )
        if unknown := [name for name in losses if name not in LOSSES]:
            raise ValueError(f"loss_type={unknown[0]!r}; known: {', '.join(LOSSES)}")
        self._check_shift(losses)
        if self.truncation_mode == "keep_end":
            raise ValueError(
                "truncation_mode='keep_end' cuts image tokens off the prompt's beginning; use keep_start, or "
                "max_length: null to cut nothing"
            )
        if self.precompute_ref_log_probs:
            raise ValueError(
                "precompute_ref_log_probs=True: pictures are processed batch by batch, so there is nothing to compute "
                "beforehand; set it to false (with LoRA no reference model is kept in memory anyway)"
            )
        super().__post_init__()

    def _check_shift(self, losses: list[str]) -> None:
        """The shift goes through the reference's log-probabilities, so every loss beside must be blind to it."""
        if self.bco_shift not in SHIFTS:
            raise ValueError(f"bco_shift={self.bco_shift!r}; known: {', '.join(SHIFTS)}")
        if self.bco_shift == "none" or "bco_pair" not in losses:
            return
        if self.ld_alpha is not None:
            raise ValueError(f"ld_alpha={self.ld_alpha} beside bco_shift='running_mean'; use bco_shift: none")
        if self.f_divergence_type != "reverse_kl":
            raise ValueError(
                f"f_divergence_type={self.f_divergence_type!r} beside bco_shift='running_mean'; use bco_shift: none"
            )
        if other := [name for name in losses if name not in (*UNSHIFTED, "bco_pair")]:
            raise ValueError(
                f"loss_type={other[0]!r} beside 'bco_pair' with bco_shift='running_mean', which would shift it "
                f"too; use bco_shift: none, or losses among {', '.join(UNSHIFTED)}"
            )


def check(
    args: MPOConfig, pairs: Dataset | None, *, lora: bool = False, ref_model: PreTrainedModel | None = None
) -> None:
    """Refuse, before a model is loaded, what would fail or mislead later. MPOTrainer calls it as well.

    Args:
        pairs: rows with `chosen` and `rejected`, texts or messages. None: not made yet. Streaming sets are not looked
            through.
        lora: whether an adapter is trained.

    Raises:
        ValueError: a reference model beside LoRA; an output folder that cannot be written to.
        RowError: a pair whose two answers are the same text.
    """
    prepare_output(Path(args.output_dir))
    if lora and ref_model is not None:
        raise ValueError(
            f"ref_model={type(ref_model).__name__} beside LoRA: with its adapter switched off the model is its own "
            "reference, and a second copy would only fill the memory; leave ref_model out"
        )
    if lora and args.sync_ref_model:
        raise ValueError("sync_ref_model=True beside LoRA, where there is no reference model to move; set it to false")
    if not isinstance(pairs, Dataset):
        return
    if missing := {"chosen", "rejected"} - set(pairs.column_names):
        raise ValueError(
            f"the pairs have no column {sorted(missing)[0]!r}, but {', '.join(pairs.column_names)}; give a set "
            "of pairs, such as data_scripts.make_preferences or data_scripts.prepare_any makes"
        )
    texts = pairs.with_format(None)
    texts = texts.select_columns([name for name in ("id", "chosen", "rejected") if name in texts.column_names])
    for number, row in enumerate(texts):
        if completion_text(row["chosen"]).strip() == completion_text(row["rejected"]).strip():
            raise RowError(
                "equals 'rejected'; drop the row", row_id=row_name(row, number), column="chosen", fault="equal pair"
            )


class RewardMean(TrainerCallback, ExportableState):
    """The mean over all batches so far of a batch's mean reward; a checkpoint holds it, in trainer_state.json."""

    def __init__(self):
        self.mean, self.batches = 0.0, 0

    def update(self, value: float) -> None:
        self.batches += 1
        self.mean += (value - self.mean) / self.batches

    def state(self) -> dict:
        return {"args": {}, "attributes": {"mean": self.mean, "batches": self.batches}}

    def on_train_begin(self, args, state, control, **kwargs):
        saved = state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        vars(self).update(saved["attributes"])


class MPOTrainer(LoadsItsWeights, DPOTrainer):
    """TRL's DPOTrainer with the paper's reward shift in `bco_pair`, and with checkpoints that load.

    delta is the mean over all batches up to and with the present one, each batch's reward being the mean over its
    chosen and rejected answers and over all processes. The paper's text says "of previous rewards"; the code that it
    was run with (TRL 0.10.1) counts the present batch, and so does this. In evaluation delta stays as it is.
    """

    def __init__(self, model, ref_model=None, args: MPOConfig | None = None, **options):
        if not isinstance(args, MPOConfig):
            raise TypeError(f"args is {type(args).__name__}; give an MPOConfig, which knows bco_shift")
        lora = options.get("peft_config") is not None or hasattr(model, "peft_config")
        check(args, options.get("train_dataset"), lora=lora, ref_model=ref_model)
        super().__init__(model, ref_model, args, **options)
        self.shifts = args.bco_shift == "running_mean" and "bco_pair" in self.loss_types
        self.precompute_ref_logps = self.shifts  # the loss then reads the reference's log-probabilities off the batch
        self.reward_mean = RewardMean()
        if self.shifts:
            self.add_callback(self.reward_mean)

    def _compute_loss(self, model, inputs, return_outputs):
        if not self.shifts:
            return super()._compute_loss(model, inputs, return_outputs)
        reference = torch.cat(self.compute_ref_log_probs(self.ref_model or self.model, inputs))

        def policy(**kwargs):
            """Answer as the model, and put delta / beta into the reference before the loss reads it.

            Both of a pair's answers get the same, so the preference loss, which takes their difference, does not
            change, and bco_pair's r becomes r - delta.
            """
            outputs = model(**kwargs)
            if self.model.training:
                rewards = self.beta * (outputs.log_probs.detach().sum(dim=1) - reference)
                self.reward_mean.update(self.accelerator.gather(rewards).mean().item())
            shifted = reference + self.reward_mean.mean / self.beta
            inputs["ref_chosen_logps"], inputs["ref_rejected_logps"] = shifted.chunk(2)
            return outputs

        loss = super()._compute_loss(policy, inputs, return_outputs)
        metrics = self._metrics["train" if self.model.training else "eval"]
        for name in ("rewards/chosen", "rewards/rejected"):
            metrics[name][-1] += self.reward_mean.mean  # logged without the shift, as in the other mode
        metrics["rewards/shift"].append(self.reward_mean.mean)
        return loss


def run_figures(log_history: list[dict]) -> dict[str, float | None]:
    """The method's figures for the run record, from `trainer.state.log_history`.

    Margins and reward accuracies at the end; the chosen and rejected answers' summed log-probabilities at the
    beginning and at the end (means over a tenth of the logged steps): DPO alone is known to lower both.
    """
    figures: dict[str, float | None] = {}
    for name in ("rewards/margins", "rewards/accuracies", "rewards/shift", "logps/chosen", "logps/rejected"):
        values = [entry[name] for entry in log_history if name in entry]
        few = max(1, len(values) // 10)
        key = name.replace("/", "_")
        figures[f"{key}_last"] = sum(values[-few:]) / few if values else None
        if name.startswith("logps/"):
            figures[f"{key}_first"] = sum(values[:few]) / few if values else None
    return figures
