"""Align a vision-language model with MPO: make right answers likelier than wrong ones, on pairs made beforehand.

    python recipes/mpo.py --config recipes/configs/mpo_tiny_qwen2_5_vl.yaml
    python recipes/mpo.py --config ... --loss_type sigmoid --loss_weights 1   # DPO; with sft in its place, SFT
    python recipes/mpo.py --config ... --bco_shift none                       # TRL's quality loss, without the shift
    python recipes/mpo.py --config ... --pairs rlaif-v                        # ready-made pairs: a named set, a folder
    python recipes/mpo.py --config ... --resume                               # go on after Ctrl-C or a crash

Read it top to bottom: data, model, accuracy before, training, accuracy after, record. Where `pairs` names a folder
that holds none, the model at hand makes them there first (`data_scripts/make_preferences.py`). Every flag of TRL's
`DPOConfig` and `ModelConfig` works. For your own data, replace the lines that load it: pairs need `prompt`, `images`,
`chosen` and `rejected`.

How this differs from the method of the paper (Wang et al. 2024, arXiv 2411.10442): the generation loss is averaged
over all chosen tokens of a batch, as TRL has it, not over each answer first.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from trl import ModelConfig, TrlParser, get_quantization_config

from data_scripts import make_preferences
from recipe_lib import adapters, datasets, guards, models, mpo, trainers
from recipe_lib.evaluation import evaluate, record_fields, write_answers
from recipe_lib.image_budget import require_fit
from recipe_lib.mpo import MPOConfig, MPOTrainer
from recipe_lib.record import peak_rss_mb, write_record


@dataclass
class RecipeArguments:
    """What the recipe adds to TRL's own arguments and to those of the pairs."""

    dataset_name: str = field(default="digits", metadata={"help": "Questions, to make pairs of and to be held out."})
    eval_split: str = field(default="test", metadata={"help": "Split of the held-out questions."})
    n_eval: int = field(default=600, metadata={"help": "Held-out questions, the first of that split."})
    vision_tower: str | None = field(
        default=None, metadata={"help": "frozen, lora or full; where left out, frozen with LoRA and full without."}
    )
    resume: bool = field(default=False, metadata={"help": "Go on from the last checkpoint in output_dir."})


PARSER = (RecipeArguments, make_preferences.PairArguments, MPOConfig, ModelConfig)


def main(argv: list[str] | None = None) -> Path:
    """Run the recipe and return the path of its `metrics.json`."""
    recipe, how, config, model_config = TrlParser(PARSER).parse_args_and_config(argv)
    name = models.pick(model_config.model_name_or_path or "auto")

    models.source(name)
    adapters.check_choice(recipe.vision_tower, model_config)
    test_set = datasets.load(recipe.dataset_name, recipe.eval_split, limit=recipe.n_eval)
    pairs = datasets.load(how.pairs) if make_preferences.are_made(how.pairs) else None
    mpo.check(config, pairs, lora=model_config.use_peft)
    quantization = get_quantization_config(model_config)  # None without 4 or 8 bits
    model, processor = models.load(name, dtype=model_config.dtype, quantization_config=quantization)
    if pairs is None:
        questions = datasets.load(recipe.dataset_name, "train", limit=how.n_questions)
        pairs = make_preferences.make(name, model, processor, questions, how, dataset=recipe.dataset_name)
    if config.max_length:
        require_fit(pairs, processor, config.max_length)
    before = evaluate(model, processor, test_set, max_new_tokens=how.max_answer_tokens, description="before")

    trainer = MPOTrainer(
        model=model,
        args=config,
        train_dataset=pairs,
        processing_class=processor,
        peft_config=adapters.prepare(model, model_config, recipe.vision_tower),
    )
    seconds = trainers.train(trainer, resume=recipe.resume)

    after = evaluate(trainer.model, processor, test_set, max_new_tokens=how.max_answer_tokens, description="after")
    write_answers(config.output_dir, test_set, before, after)
    path = write_record(
        config.output_dir,
        recipe=os.path.basename(__file__),
        method={("sigmoid",): "DPO", ("sft",): "SFT"}.get(tuple(config.loss_type), "MPO"),
        model=name,
        dataset=recipe.dataset_name,
        seed=config.seed,
        train_steps=trainer.state.global_step,
        train_seconds=seconds,
        peak_rss_mb=peak_rss_mb(),
        n_pairs=len(pairs),
        **record_fields(before, after),
        **mpo.run_figures(trainer.state.log_history),
    )
    print(f"accuracy {before.accuracy:.1%} -> {after.accuracy:.1%} in {seconds:.0f} s; record: {path}")
    return path


if __name__ == "__main__":
    guards.run(main)
