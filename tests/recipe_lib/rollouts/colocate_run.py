"""One engine, every question to it: `python colocate_run.py FAMILY OUT.json`.

Started by test_colocate.py as a process of its own, since an engine cannot be started twice in one process and
leaves variables behind. Trains, breaks things on purpose, and writes what happened.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import torch
import trl
from datasets import Dataset, Features, Image, List, Value
from peft import LoraConfig
from PIL import Image as PILImage
from PIL import ImageDraw
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl.generation import vllm_generation

from recipe_lib import models, trainers
from recipe_lib.rollouts import RolloutMismatch, Tolerance

STEPS = 10


def picture(number: int) -> PILImage.Image:
    image = PILImage.new("RGB", (84, 84 + 28 * (number % 2)), (20 * number % 256, 200, 90))
    ImageDraw.Draw(image).text((20, 20), str(number), fill="black")
    return image


def rows() -> Dataset:
    """Rows with 0, 1 and 2 pictures, one of them between two pieces of text."""
    text, see = (lambda words: {"type": "text", "text": words}), {"type": "image"}
    users = [
        ([see, text("What digit is shown?")], [picture(1)]),
        ([see, text("Which is larger, this or"), see, text("this?")], [picture(2), picture(5)]),
        ([text("What is 3 + 4?")], []),
        ([text("Look:"), see, text("What digit is shown?")], [picture(8)]),
    ]
    data = [
        {"prompt": [{"role": "user", "content": content}], "images": images, "solution": "7"}
        for content, images in users
    ]
    part = {"type": Value("string"), "text": Value("string")}
    features = Features(
        {
            "prompt": List({"role": Value("string"), "content": List(part)}),
            "images": List(Image()),
            "solution": Value("string"),
        }
    )
    made = Dataset.from_list(data, features=features)
    return Dataset.from_list([made[i % 4] for i in range(64)], features=features)


def even_letters(completions, **_) -> list[float]:
    """A reward that always differs within a group."""
    return [float(len(str(completion)) % 2) + 0.01 * len(str(completion)) for completion in completions]


def make(source: str, folder: str, **kwargs) -> trl.GRPOTrainer:
    config = trl.GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=16,
        num_generations=4,
        max_completion_length=16,
        learning_rate=3e-4,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_vllm=True,
        vllm_mode="colocate",
        vllm_max_model_length=512,
        **{"max_steps": STEPS, **kwargs.pop("config", {})},
    )
    processor = AutoProcessor.from_pretrained(source, padding_side="left")
    # other settings than the checkpoint's, of which vLLM has to be told: a size limit, and tiles
    if "qwen" in source:
        processor.image_processor.size = {"shortest_edge": 28 * 28, "longest_edge": 84 * 84}
    else:
        processor.image_processor.do_image_splitting = True
    return trainers.GRPOTrainer(
        model=AutoModelForImageTextToText.from_pretrained(source, dtype=torch.float32),
        reward_funcs=even_letters,
        args=config,
        train_dataset=rows(),
        processing_class=processor,
        **kwargs,
    )


def gaps(trainer) -> dict:
    history = [entry for entry in trainer.state.log_history if "rollout_logp_gap_mean" in entry]
    return {
        "looks": len(history),
        "mean": max(entry["rollout_logp_gap_mean"] for entry in history),
        "max": max(entry["rollout_logp_gap_max"] for entry in history),
    }


@torch.no_grad()
def greedy_pairs(trainer) -> list:
    """Greedy answers to the first 8 rows, from vLLM after a push of the weights and from the trainer's model."""
    generation = trainer.vllm_generation
    prompts = [
        trl.prepare_multimodal_messages(row["prompt"], images=row["images"] or None)
        for row in trainer.train_dataset.select(range(8))
    ]
    ids, images, _ = trainer._tokenize_prompts(prompts)
    generation.sync_weights()
    kept, generation.temperature = generation.temperature, 0.0
    _, theirs, _, _ = generation.generate(ids, images, 1)
    generation.temperature = kept
    processor, pairs = trainer.processing_class, []
    trainer.model.eval()
    for prompt, answer in zip(prompts, theirs):
        inputs = processor.apply_chat_template(
            [prompt],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            processor_kwargs={"return_tensors": "pt"},
        )
        output = trainer.model.generate(
            **inputs, max_new_tokens=16, do_sample=False, suppress_tokens=[trainer.model.config.image_token_id]
        )[0, inputs["input_ids"].shape[1] :].tolist()
        pairs.append([list(answer), output])
    trainer.model.train()
    return pairs


def rollout(trainer) -> dict:
    """Sample and check one rollout; the error's cause and text, or the gap."""
    trainer._rollouts = 0  # the first is always looked at
    trainer._metrics["train"].clear()
    batch = [trainer.train_dataset[i // 4] for i in range(16)]
    trainer.model.train()
    trainer._last_loaded_step = -1
    try:
        trainer._generate_and_score_completions(batch)
    except RolloutMismatch as error:
        return {"cause": error.cause, "text": str(error)}
    return {"cause": None, "mean": trainer._metrics["train"]["rollout_logp_gap_mean"][0]}


def break_each(trainer) -> dict:
    """Every cause of a gap, made on purpose, and what the check said."""
    generation, out = trainer.vllm_generation, {"nothing": rollout(trainer)}
    generation.__dict__["expands_twice"] = False
    out["prompt"] = rollout(trainer)
    with mock.patch("recipe_lib.rollouts.parity.check_prompts"):
        trainer.tolerance = Tolerance(mean=1e9, max=1e9)
        out["unrepaired"] = rollout(trainer)
    trainer.tolerance = Tolerance.of(torch.float32)
    generation.__dict__["expands_twice"] = True

    right = trainer._placeholder_prompts
    with mock.patch.object(
        trainer, "_placeholder_prompts", lambda prompts: [[*i[:-2], *i[-1:]] for i in right(prompts)]
    ):
        out["template"] = rollout(trainer)

    trainer.tolerance = Tolerance(mean=2 * out["nothing"]["mean"], max=0.3)
    out["tight"] = rollout(trainer)
    trainer.model.to(torch.bfloat16)
    out["dtype"] = rollout(trainer)
    trainer.model.to(torch.float32)
    rollout(trainer)  # the rounded weights are pushed
    trainer.tolerance = Tolerance.of(torch.float32)
    with mock.patch.object(generation, "sync_weights"), torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(0.3 * parameter.abs().mean() * torch.randn_like(parameter))
        out["weights"] = rollout(trainer)
    with mock.patch.object(generation.llm.llm_engine, "reset_encoder_cache"), torch.no_grad():
        rollout(trainer)
        for name, parameter in trainer.model.named_parameters():
            if "visual" in name or "vision" in name:
                parameter.add_(parameter.abs().mean() * torch.randn_like(parameter))
        out["old_features"] = rollout(trainer)
    return out


def wanted_image_tokens(trainer) -> dict:
    """How many image tokens are sampled when the model badly wants to, with the mask and without it."""
    generation, image = trainer.vllm_generation, trainer.model.config.image_token_id
    ids = trainer._tokenize_prompts([[{"role": "user", "content": "What is 3 + 4?"}]] * 4)[0]
    kept, out = generation.generation_kwargs, {}
    for name, words in (("masked", kept["bad_words"]), ("unmasked", None)):
        generation.generation_kwargs = {"logit_bias": {image: 100.0}, "bad_words": words}
        _, answers, _, _ = generation.generate(ids, None, 1)
        out[name] = sum(list(answer).count(image) for answer in answers)
    generation.generation_kwargs = kept
    return out


def main(family: str, out: Path) -> None:
    torch.manual_seed(0)
    found: dict = {"seconds": {}}
    clock = time.perf_counter()

    def note(stage: str, value) -> None:
        nonlocal clock
        found[stage] = value
        found["seconds"][stage] = round(time.perf_counter() - clock, 1)
        clock = time.perf_counter()
        out.write_text(json.dumps(found, indent=1))
        print(stage, found["seconds"][stage], value, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        source = models.source(f"tiny-{family}")
        trainer = make(source, folder)
        config = trainer.vllm_generation.llm.llm_engine.model_config
        limit = config.multimodal_config.limit_per_prompt["image"]
        note("engine", {"dtype": str(config.dtype), "limit": getattr(limit, "count", limit)})
        start = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        note("broken", break_each(trainer))
        trainer.model.load_state_dict(start)
        trainer._last_loaded_step = -1
        trainer._metrics["train"].clear()  # of what was broken
        trainer.train()
        note("training", gaps(trainer))
        note("greedy", greedy_pairs(trainer))
        note("image_tokens", wanted_image_tokens(trainer))
        # the same engine for a second trainer: LoRA, merged into the weights that are pushed
        with mock.patch.object(vllm_generation, "LLM", lambda *_, **__: trainer.vllm_generation.llm):
            lora = make(
                source,
                folder,
                config={"max_steps": 3, "vllm_importance_sampling_correction": False},
                peft_config=LoraConfig(r=8, target_modules="all-linear"),
            )
        lora.tolerance = Tolerance(mean=0.005, max=0.3, every=1)
        lora.train()
        note("lora_training", gaps(lora))
        note("lora_greedy", greedy_pairs(lora))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
