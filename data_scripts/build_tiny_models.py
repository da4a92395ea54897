"""Build the tiny models: the families' own classes and chat templates, at about a million parameters.

Nothing is downloaded. The configuration comes from the transformers classes, the chat template from TRL's
wheel, and the tokenizer is trained here, on the texts that the recipes use. A model made this way goes
through exactly the code that a real checkpoint goes through; only the name differs.

    python -m data_scripts.build_tiny_models tiny-qwen2.5-vl    # build, warm-start, measure, about 10 minutes

A checkpoint replaces the committed one only when its accuracy on clean drawn questions lands in `CLEAN_BAND`.

The warm start is supervised fine-tuning on *drawn* digits and shapes only (`digits.py`, `shapes.py`).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from datasets import Dataset, Features, Image, Sequence, Value
from tqdm.auto import tqdm
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ProcessorMixin,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

from data_scripts import digits, shapes, tiny_smolvlm
from data_scripts.tiny_text import chat_template, train_tokenizer
from recipe_lib import datasets as named_datasets
from recipe_lib import evaluation
from recipe_lib import models as named_models
from recipe_lib.answer_format import STYLES, system_prompt
from recipe_lib.datasets import with_prompts

CLEAN_BAND = (0.95, 1.0)  # accuracy on clean drawn questions in which a rebuilt checkpoint must land
# How far drawn digits are bent. The warm start also sees digits that nobody could read for certain, so that the
# model's probabilities mean something: a model that is always sure never tries a second answer in a rollout.
CLEAN_BEND, WARM_START_BEND = (0.0, 0.7), (0.0, 3.0)
QWEN_SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]


def qwen2_5_vl_processor(texts: list[str], vocab_size: int = 512) -> Qwen2_5_VLProcessor:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(QWEN_SPECIAL, texts, vocab_size),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=QWEN_SPECIAL,
        padding_side="left",
        model_max_length=1024,
    )
    size = {"min_pixels": 28 * 28, "max_pixels": 16 * 28 * 28}
    return Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(**size),
        video_processor=Qwen2VLVideoProcessor(**size),
        tokenizer=tokenizer,
        chat_template=chat_template("qwen2_5_vl"),
    )


def qwen2_5_vl_model(processor: Qwen2_5_VLProcessor, seed: int = 0, **text) -> Qwen2_5_VLForConditionalGeneration:
    ids = processor.tokenizer.convert_tokens_to_ids
    text_config = {
        "vocab_size": len(processor.tokenizer),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,  # a third one costs a fifth of the time and reads no better
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 10000.0},
        "initializer_range": 0.06,
        "tie_word_embeddings": True,
        "bos_token_id": None,  # as the tokenizer: Qwen begins a text with no token of its own
        "eos_token_id": ids("<|im_end|>"),
        "pad_token_id": ids("<|endoftext|>"),
        **text,
    }
    vision_config = {
        "depth": 3,
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_heads": 4,
        "out_hidden_size": text_config["hidden_size"],
        "patch_size": 14,
        "spatial_merge_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [2],
        "initializer_range": 0.08,
    }
    config = Qwen2_5_VLConfig(
        text_config=text_config,
        vision_config=vision_config,
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = ids("<|im_end|>")
    model.generation_config.pad_token_id = ids("<|endoftext|>")
    return model


def drawn_rows(n: int, seed: int, bend: tuple[float, float] = CLEAN_BEND) -> list[dict]:
    """Questions about drawn pictures: four of digits to one of clean shapes."""
    n_shapes = n // 5
    return digits.drawn_rows(n - n_shapes, seed, bend) + shapes.drawn_rows(n_shapes, seed)


def drawn_dataset(n: int, seed: int) -> Dataset:
    """The same questions as rows with prompts, for `recipe_lib.evaluation`."""
    kept = ("question", "solution", "reasoning", "kind", "options")
    rows = [{**{k: row.get(k) for k in kept}, "images": [row["image"]]} for row in drawn_rows(n, seed)]
    features = Features(
        {**{k: Value("string") for k in kept}, "options": digits.FEATURES["options"], "images": Sequence(Image())}
    )
    return with_prompts(Dataset.from_list(rows, features=features))


def completion(row: dict) -> str:
    """What the warm start teaches the model to say."""
    return f"<think>{row['reasoning']}</think><answer>{row['solution']}</answer>"


def corpus() -> list[str]:
    """Texts that the tokenizer should spell in few tokens: all system prompts, questions, answers, chat roles."""
    rows = drawn_rows(500, seed=1)
    prompts = [system_prompt(style) for style in STYLES]
    roles = ["system\n", "user\n", "assistant\n", "You are a helpful assistant."]
    return (prompts + roles) * 40 + [row["question"] for row in rows] + [completion(row) for row in rows]


def encode_for_training(processor: ProcessorMixin, rows: list[dict]) -> dict[str, torch.Tensor]:
    """Prompts with their completions, and `labels` that are -100 everywhere but on the completion's tokens."""
    prompts = with_prompts(Dataset.from_dict({"question": [r["question"] for r in rows], "images": [[0]] * len(rows)}))
    ended = [completion(row) + processor.tokenizer.eos_token for row in rows]
    texts = [
        processor.apply_chat_template(prompt["prompt"], add_generation_prompt=True) + end
        for prompt, end in zip(prompts, ended, strict=True)
    ]
    images = [[row["image"]] for row in rows]
    batch = processor(text=texts, images=images, padding=True, padding_side="left", return_tensors="pt")
    labels = torch.full_like(batch["input_ids"], -100)
    for i, ids in enumerate(processor.tokenizer(ended, add_special_tokens=False)["input_ids"]):
        labels[i, -len(ids) :] = batch["input_ids"][i, -len(ids) :]
    return {**batch, "labels": labels}


def warm_start(
    model: PreTrainedModel, processor: ProcessorMixin, steps: int, lr: float = 2e-3, batch_size: int = 64, seed: int = 0
) -> None:
    """Supervised fine-tuning on fresh drawn questions at every step: AdamW, one cycle, gradient norm at most 1."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps, pct_start=0.1)
    model.train()
    bar = tqdm(range(steps), desc="warm start")
    for step in bar:
        batch = encode_for_training(processor, drawn_rows(batch_size, 1000 + seed * steps + step, WARM_START_BEND))
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        bar.set_postfix(loss=f"{loss.item():.3f}")
    model.eval()


# Name -> how to make the processor, how to make the model, and warm-start steps.
TINY: dict[str, tuple[Callable, Callable, int]] = {
    "tiny-qwen2.5-vl": (qwen2_5_vl_processor, qwen2_5_vl_model, 1400),
    "tiny-smolvlm": (tiny_smolvlm.smolvlm_processor, tiny_smolvlm.smolvlm_model, 1400),
}


def build(name: str, folder: Path) -> float:
    """Build, warm-start and save a tiny model; return its greedy accuracy on clean drawn questions."""
    make_processor, make_model, steps = TINY[name]
    processor = make_processor(corpus())
    model = make_model(processor)
    warm_start(model, processor, steps)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    clean = evaluation.evaluate(model, processor, drawn_dataset(1000, seed=7))
    handwritten = evaluation.evaluate(model, processor, named_datasets.load("digits", "test", limit=1000))
    print(f"{name}: clean {clean.accuracy:.1%} {clean.by_kind()}, handwritten {handwritten.accuracy:.1%}")
    return clean.accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*TINY, []], help="which; all where left out")
    low, high = CLEAN_BAND
    for name in parser.parse_args().names or TINY:
        with tempfile.TemporaryDirectory() as scratch:
            accuracy = build(name, Path(scratch))
            if not low <= accuracy <= high:
                raise SystemExit(f"{name}: {accuracy:.1%} on clean questions is outside {low:.0%} to {high:.0%}")
            shutil.copytree(scratch, named_models.CHECKPOINTS / name, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
