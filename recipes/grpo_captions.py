"""Align captions to an image-text similarity: GRPO with a neural reward, any CLIP or SigLIP model.

    python recipes/grpo_captions.py --config recipes/configs/grpo_captions_tiny_qwen2_5_vl.yaml
    python recipes/grpo_captions.py --config ... --shuffle_rewards true   # the control, which must stay flat

No captions are needed to train on, only pictures: the reward says how well what was written fits the picture. A
reward model can be gamed like any reward, so the recipe also measures what it does not reward: where the data has
captions, how often the right one is said word for word (`accuracy_before`, `accuracy_after`). What was said before
and after of each held-out picture goes to `captions.jsonl` beside the record.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from datasets import Dataset
from trl import ModelConfig, TrlParser, get_quantization_config

from recipe_lib import adapters, datasets, guards, image_budget, models, trainers
from recipe_lib.evaluation import compare, generate, wilson_interval
from recipe_lib.record import peak_rss_mb, write_record
from recipe_lib.rewards import check_rewards
from recipe_lib.rewards.clip import ClipReward


@dataclass
class RecipeArguments:
    """What the recipe adds to TRL's own arguments."""

    reward_model: str = field(metadata={"help": "Folder or hub name of a CLIP or SigLIP model."})
    dataset_name: str = field(default="shapes", metadata={"help": "Named set of recipe_lib.datasets."})
    question: str = field(default="What is shown?", metadata={"help": "Asked of every picture."})
    n_eval: int = field(default=300, metadata={"help": "Held-out pictures, the first of the test split."})
    vision_tower: str | None = field(
        default=None, metadata={"help": "frozen, lora or full; where left out, frozen with LoRA and full without."}
    )
    resume: bool = field(default=False, metadata={"help": "Go on from the last checkpoint in output_dir."})
    shuffle_rewards: bool = field(default=False, metadata={"help": "Control: deal rewards at random within groups."})


def main(argv: list[str] | None = None) -> Path:
    """Run the recipe and return the path of its `metrics.json`."""
    parser = TrlParser((RecipeArguments, guards.GRPOConfig, ModelConfig))
    recipe, config, model_config = parser.parse_args_and_config(argv)
    name = models.pick(model_config.model_name_or_path or "auto")
    train_set = pictures(recipe.dataset_name, "train", recipe.question)
    test_set = pictures(recipe.dataset_name, "test", recipe.question, recipe.n_eval)
    adapters.check_choice(recipe.vision_tower, model_config)
    guards.check(
        config, model_config, source=models.source(name), dataset=train_set, rule=image_budget.NAMED_RULES.get(name)
    )
    quantization = get_quantization_config(model_config)  # None without 4 or 8 bits
    model, processor = models.load(name, dtype=model_config.dtype, quantization_config=quantization)

    similarity = ClipReward(recipe.reward_model, part="all")
    check_rewards([similarity], train_set)
    reward = similarity
    if recipe.shuffle_rewards:
        reward = trainers.shuffled_within_groups(similarity, config.num_generations, config.seed)
    before = measure(model, processor, test_set, similarity, config.max_completion_length)

    trainer = trainers.GRPOTrainer(
        model=model,
        reward_funcs=[reward],
        args=config,
        train_dataset=train_set,
        processing_class=processor,
        peft_config=adapters.prepare(model, model_config, recipe.vision_tower),
    )
    seconds = trainers.train(trainer, resume=recipe.resume)

    after = measure(trainer.model, processor, test_set, similarity, config.max_completion_length)
    gain = compare(before["similarity"], after["similarity"])
    write_captions(config.output_dir, before, after)
    path = write_record(
        config.output_dir,
        recipe=os.path.basename(__file__),
        method="GSPO" if config.importance_sampling_level == "sequence" else "GRPO",
        model=name,
        dataset=recipe.dataset_name,
        seed=config.seed,
        n_eval=len(test_set),
        similarity_before=before["similarity"].mean(),
        similarity_after=after["similarity"].mean(),
        similarity_gain=gain["gain"],
        similarity_gain_ci95=gain["gain_ci95"],
        **said(before["said"], after["said"]),
        train_steps=trainer.state.global_step,
        train_seconds=seconds,
        peak_rss_mb=peak_rss_mb(),
        **trainers.run_figures(trainer.state.log_history),
    )
    low, high = gain["gain_ci95"]
    print(f"similarity {before['similarity'].mean():.3f} -> {after['similarity'].mean():.3f}", end=" ")
    print(f"(gain's 95 % interval {low:+.3f} to {high:+.3f}) in {seconds:.0f} s; record: {path}")
    return path


def pictures(name: str, split: str, question: str, limit: int | None = None) -> Dataset:
    """The pictures of a named set, each with the same question; `caption` is kept where the set has it."""
    rows = datasets.load(name, split, limit=limit).with_format(None)
    rows = rows.select_columns([column for column in ("images", "caption") if column in rows.column_names])
    return datasets.with_prompts(rows.add_column("question", [question] * len(rows)))


def measure(model, processor, test_set: Dataset, similarity: ClipReward, length: int) -> dict:
    """Greedy captions as `texts`, the `similarity` of each with its picture, and whether the right one was `said`."""
    texts = generate(model, processor, test_set, max_new_tokens=length)
    scores = similarity(texts, [row["images"] for row in test_set])
    right = test_set["caption"] if "caption" in test_set.column_names else None
    hits = right and [
        float(f" {gold}" in f" {similarity.caption(text)}") for text, gold in zip(texts, right, strict=True)
    ]
    return {"texts": texts, "similarity": np.array(scores, dtype=float), "said": np.array(hits) if hits else None}


def write_captions(folder: str, before: dict, after: dict) -> None:
    """Write both captions of every held-out picture, with their similarities, to `captions.jsonl`."""
    columns = {"before": before["texts"], "after": after["texts"]}
    columns |= {"similarity_before": before["similarity"], "similarity_after": after["similarity"]}
    with (Path(folder) / "captions.jsonl").open("w", encoding="utf-8") as file:
        for row in zip(*columns.values(), strict=True):
            file.write(json.dumps(dict(zip(columns, row)), ensure_ascii=False) + "\n")


def said(before: np.ndarray | None, after: np.ndarray | None) -> dict[str, object]:
    """The record's accuracies; empty where the data has no captions."""
    if before is None or after is None:
        return {}
    gain, fields = compare(before, after), {}
    for when, hits in (("before", before), ("after", after)):
        fields[f"accuracy_{when}"] = hits.mean()
        fields[f"accuracy_{when}_ci95"] = wilson_interval(int(hits.sum()), len(hits))
    return fields | {"gain": gain["gain"], "gain_ci95": gain["gain_ci95"]}


if __name__ == "__main__":
    guards.run(main)
