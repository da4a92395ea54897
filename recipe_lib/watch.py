"""What to look at while a run goes on, beyond what TRL logs: spread within groups, a gallery, and plain warnings.

    watch.attach(trainer, every=25)    # before training

TRL logs the mean of each reward part, the share of groups without spread, completion lengths, the clip ratio,
KL and entropy, to the console, to TensorBoard, trackio or W&B (`report_to`), and, with `log_completions`, tables of
completions to trackio and W&B. What is missing there is added here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import TrainerCallback
from transformers.integrations import TensorBoardCallback
from trl import GRPOTrainer

from recipe_lib.gallery import message_text, number, write_page


def attach(trainer: GRPOTrainer, *, every: int = 25, groups: int = 4) -> Warnings:
    """Add the three callbacks to a trainer.

    Args:
        every: optimiser steps between two pages of the gallery, `output_dir/gallery/step_00025.html`.
        groups: groups a page, and rows of the TensorBoard table in groups.

    Returns:
        The callback of the warnings, whose `said` holds those that were given.
    """
    warnings = Warnings()
    for callback in (Spread(trainer), warnings, Gallery(trainer, every=every, groups=groups)):
        trainer.add_callback(callback)
    return warnings


def check_every(every: int) -> None:
    """Refuse, before anything is loaded, pages of the gallery that are no step apart."""
    if every < 1:
        raise ValueError(f"gallery_every={every}: pages are at least one step apart; gallery_every: 25 would do")


class Spread(TrainerCallback):
    """Log `spread/NAME`, the standard deviation within a group, its mean over the groups, for each reward part.

    It is what an advantage is made of. TRL's `rewards/NAME/std` and `reward_std` are over the whole batch: they
    stay large where questions differ and answers do not.
    """

    def __init__(self, trainer: GRPOTrainer):
        self.trainer = trainer

    def on_step_end(self, args, state, control, **kwargs):
        metrics, rewards = self.trainer._metrics["train"], self.trainer._logs["rewards"]
        for name, values in rewards.items():
            # TRL adds a reward's mean at each rollout, not at each step; so do we
            if len(metrics[f"spread/{name}"]) < len(metrics[f"rewards/{name}/mean"]):
                metrics[f"spread/{name}"].append(spread_within_groups(list(values), self.trainer.num_generations))


def spread_within_groups(rewards: list[float], num_generations: int) -> float:
    """Mean over the groups of the standard deviation within each; NaN rewards abstain, NaN where all do.

    Args:
        rewards: shape `(groups * num_generations,)`, group by group.
    """
    groups = np.array(rewards, dtype=float).reshape(-1, num_generations)
    spreads = [np.std(group[~np.isnan(group)], ddof=1) for group in groups if (~np.isnan(group)).sum() > 1]
    return float(np.mean(spreads)) if spreads else float("nan")


class Gallery(TrainerCallback):
    """Write the rollout in hand as a page, and as a table to TensorBoard where it runs, every `every` steps."""

    def __init__(self, trainer: GRPOTrainer, *, every: int = 25, groups: int = 4):
        check_every(every)
        self.trainer, self.every, self.groups = trainer, every, groups

    def on_step_end(self, args, state, control, **kwargs):
        due = state.global_step % self.every == 0 or state.global_step == state.max_steps
        if not (due and state.is_world_process_zero and self.trainer._logs["prompt"]):
            return
        logs = self.trainer._logs
        rewards = {name: list(values) for name, values in logs["rewards"].items()}
        prompts, completions, advantages = (list(logs[key]) for key in ("prompt", "completion", "advantages"))
        write_page(
            Path(args.output_dir) / "gallery" / f"step_{state.global_step:05d}.html",
            f"Completions of step {state.global_step}",
            prompts,
            completions,
            rewards,
            advantages,
            num_generations=self.trainer.num_generations,
            groups=self.groups,
        )
        writer = next((c.tb_writer for c in _tensorboards(self.trainer) if c.tb_writer is not None), None)
        if writer is not None:
            n = self.groups * self.trainer.num_generations
            shown = {name: values[:n] for name, values in rewards.items()}
            table = markdown_table(prompts[:n], completions[:n], shown, advantages[:n])
            writer.add_text("completions", table, state.global_step)


def _tensorboards(trainer: GRPOTrainer) -> list[TensorBoardCallback]:
    return [c for c in trainer.callback_handler.callbacks if isinstance(c, TensorBoardCallback)]


def markdown_table(prompts: list, completions: list, rewards: dict[str, list[float]], advantages: list[float]) -> str:
    """One row a completion: the prompt's last line, the completion, each reward, and the advantage."""
    rows = [["prompt", "completion", *rewards, "advantage"], ["---"] * (3 + len(rewards))]
    for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        values = [number(values[i]) for values in rewards.values()]
        rows.append([message_text(prompt).splitlines()[-1], message_text(completion), *values, f"{advantages[i]:+.2f}"])
    return "\n".join("| " + " | ".join(_cell(text) for text in row) + " |" for row in rows)


def _cell(text: str) -> str:
    """Text that a Markdown table shows as it is: tags in angle brackets would be taken for HTML."""
    for sign, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;"), ("\n", "<br>")):
        text = text.replace(sign, instead)
    return text


@dataclass(frozen=True)
class Sign:
    """A sign of trouble: `shows` tells it in one log entry, None where the entry does not speak of it.

    It is reported when every entry that spoke of it in `patience` optimiser steps showed it, and then no more.
    """

    shows: Callable[[dict], bool | None]
    patience: int
    advice: str


def _above(key: str, limit: float) -> Callable[[dict], bool | None]:
    return lambda logs: None if logs.get(key) is None else logs[key] >= limit


SIGNS = {
    "no spread": Sign(
        _above("frac_reward_zero_std", 1.0),
        10,
        "all rewards were equal within every group, so nothing was learnt. If they are all 0, the task is too hard or "
        "the reward cannot read the answers: try it by hand on a completion of the gallery. If they are all 1, the "
        "task is learnt. Otherwise raise temperature or num_generations",
    ),
    "cut off": Sign(
        _above("completions/clipped_ratio", 0.99),
        5,
        "every completion was cut off before its end, so no answer could be complete. Raise max_completion_length, "
        "or ask for shorter answers in the system prompt",
    ),
    "KL runs away": Sign(
        _above("kl", 1.0),
        5,
        "the policy is more than 1 nat a token away from the reference model. Lower learning_rate, raise beta, "
        "or lower max_grad_norm",
    ),
}
SILENT_REWARD = 20  # steps in which a reward gave 0, or abstained, throughout


class Warnings(TrainerCallback):
    """Print a plain warning, once, when something is off in the logged figures; `said` holds the warnings given."""

    def __init__(self):
        self.said: dict[str, str] = {}
        self._since: dict[str, int] = {}  # sign -> the step after which it has shown without a break
        self._previous = 0  # step of the entry before

    def on_train_begin(self, args, state, control, **kwargs):
        self._previous = state.global_step  # not 0 where a run is resumed

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not (state.is_world_process_zero and logs):
            return
        for name, sign in SIGNS.items():
            self._heed(name, sign, logs, state.global_step)
        for key in [key for key in logs if key.startswith("rewards/") and key.endswith("/mean")]:
            name = key.removeprefix("rewards/").removesuffix("/mean")
            self._heed(f"silent {name}", _silent(name), logs, state.global_step)
        self._previous = state.global_step

    def _heed(self, name: str, sign: Sign, logs: dict, step: int) -> None:
        shown = sign.shows(logs)
        if shown is False:
            self._since.pop(name, None)
        if not shown or name in self.said:
            return
        if step - self._since.setdefault(name, self._previous) >= sign.patience:
            self.said[name] = f"Warning at step {step}: for {sign.patience} steps {sign.advice}."
            print(self.said[name], flush=True)


def _silent(name: str) -> Sign:
    def shows(logs: dict) -> bool:
        mean, std = logs[f"rewards/{name}/mean"], logs.get(f"rewards/{name}/std")
        return mean is None or (mean == 0 and not std)

    return Sign(
        shows,
        SILENT_REWARD,
        f"the reward {name} gave no completion anything. Try it by hand on a completion of the gallery; if it is right "
        "to give nothing, begin with easier questions, or warm-start the model on the answers' form",
    )
