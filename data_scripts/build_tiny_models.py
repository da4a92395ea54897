"""Build the tiny models: the families' own classes and chat templates, at about a million parameters.

Nothing is downloaded. The configuration comes from the transformers classes, the chat template from TRL's
wheel, and the tokenizer is trained here, on the texts that the recipes use. A model made this way goes
through exactly the code that a real checkpoint goes through; only the name differs.

    python data_scripts/build_tiny_models.py tiny-qwen2.5-vl           # build and warm-start, minutes
    python data_scripts/build_tiny_models.py tiny-qwen2.5-vl --check   # rebuild, and compare with the committed one

The warm start is supervised fine-tuning on *drawn* digits and shapes only (`digits.py`, `shapes.py`).
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

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


def chat_template(name: str) -> str:
    """A family's real chat template, from the installed TRL wheel."""
    return (resources.files("trl") / "chat_templates" / f"{name}.jinja").read_text()


def train_tokenizer(special: list[str], texts: list[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE that can spell any text, and spells `texts` in few tokens.

    Digits stay single tokens, as in Qwen2.5: a number is read digit by digit.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


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
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 10000.0},
        "initializer_range": 0.06,
        "tie_word_embeddings": True,
        "bos_token_id": ids("<|endoftext|>"),
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
