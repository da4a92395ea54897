"""Align a vision-language model with GRPO: sample a group of answers, reward them, push towards the better ones.

    python recipes/grpo.py --config recipes/configs/grpo_tiny_qwen2_5_vl.yaml
    python recipes/grpo.py --config recipes/configs/gspo_tiny_qwen2_5_vl.yaml   # GSPO; its head says what differs
    python recipes/grpo.py --config ... --learning_rate 1e-4 --max_steps 20     # the command line comes last
    python recipes/grpo.py --config ... --resume                               # go on after Ctrl-C or a crash

Read it top to bottom: data, settings, model, accuracy before, training, accuracy after, record. Every flag of TRL's
`GRPOConfig` and `ModelConfig` works (`--use_vllm`, `--vllm_mode`, `--log_completions`, `--use_peft`,
`--lora_target_modules`, ...). For your own data, replace the two lines that load it: rows need `prompt`, `images`
and `solution`.

How this differs from the method of the paper (Shao et al. 2024, arXiv 2402.03300): no KL term by default
(beta 0), and the loss is averaged over all completion tokens of the batch (`loss_type: dapo`), both TRL's defaults.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from trl import ModelConfig, TrlParser, get_quantization_config

from recipe_lib import adapters, datasets, guards, image_budget, models, trainers, watch
from recipe_lib.evaluation import evaluate, record_fields, write_answers
from recipe_lib.record import peak_rss_mb, write_record
from recipe_lib.rewards import accuracy_reward, check_rewards, format_reward


@dataclass
class RecipeArguments:
    """What the recipe adds to TRL's own arguments."""

    dataset_name: str = field(default="digits", metadata={"help": "Named set of recipe_lib.datasets."})
    n_eval: int = field(default=600, metadata={"help": "Held-out questions, the first of the test split."})
    n_train: int | None = field(default=None, metadata={"help": "Training questions; all where left out."})
    vision_tower: str | None = field(
        default=None, metadata={"help": "frozen, lora or full; where left out, frozen with LoRA and full without."}
    )
    gallery_every: int = field(default=25, metadata={"help": "Steps between pages of completions with pictures."})
    resume: bool = field(default=False, metadata={"help": "Go on from the last checkpoint in output_dir."})
    shuffle_rewards: bool = field(
        default=False, metadata={"help": "Control run: deal the rewards at random within each group."}
    )


def main(argv: list[str] | None = None) -> Path:
    """Run the recipe and return the path of its `metrics.json`."""
    parser = TrlParser((RecipeArguments, guards.GRPOConfig, ModelConfig))
    recipe, config, model_config = parser.parse_args_and_config(argv)
    name = models.pick(model_config.model_name_or_path or "auto")

    train_set = datasets.load(recipe.dataset_name, "train", limit=recipe.n_train)
    test_set = datasets.load(recipe.dataset_name, "test", limit=recipe.n_eval)
    adapters.check_choice(recipe.vision_tower, model_config)
    watch.check_every(recipe.gallery_every)
    guards.check(
        config, model_config, source=models.source(name), dataset=train_set, rule=image_budget.NAMED_RULES.get(name)
    )
    quantization = get_quantization_config(model_config)  # None without 4 or 8 bits
    model, processor = models.load(name, dtype=model_config.dtype, quantization_config=quantization)

    rewards = [accuracy_reward, format_reward]
    check_rewards(rewards, train_set)  # columns that a reward asks for and the data lacks are refused here
    if recipe.shuffle_rewards:
        rewards = [trainers.shuffled_within_groups(r, config.num_generations, config.seed) for r in rewards]
    answer_length = config.max_completion_length
    before = evaluate(model, processor, test_set, max_new_tokens=answer_length, description="before")

    trainer = trainers.GRPOTrainer(
        model=model,
        reward_funcs=rewards,
        args=config,
        train_dataset=train_set,
        processing_class=processor,
        peft_config=adapters.prepare(model, model_config, recipe.vision_tower),
    )
    watch.attach(trainer, every=recipe.gallery_every)
    seconds = trainers.train(trainer, resume=recipe.resume)

    after = evaluate(trainer.model, processor, test_set, max_new_tokens=answer_length, description="after")
    write_answers(config.output_dir, test_set, before, after)
    path = write_record(
        config.output_dir,
        recipe=os.path.basename(__file__),
        method="GSPO" if config.importance_sampling_level == "sequence" else "GRPO",
        model=name,
        dataset=recipe.dataset_name,
        seed=config.seed,
        train_steps=trainer.state.global_step,
        train_seconds=seconds,
        peak_rss_mb=peak_rss_mb(),
        **record_fields(before, after),
        **trainers.run_figures(trainer.state.log_history),
    )
    print(f"accuracy {before.accuracy:.1%} -> {after.accuracy:.1%} in {seconds:.0f} s; record: {path}")
    return path


if __name__ == "__main__":
    guards.run(main)
