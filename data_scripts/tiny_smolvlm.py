"""The tiny SmolVLM: how its processor and its model are made. `build_tiny_models.py` warm-starts and saves it.

A picture of 84 pixels a side, as the question sets draw them, is one frame: 6 x 6 patches of 14 pixels, which the
connector shuffles into 9 tokens, as many as the tiny Qwen2.5-VL spends. With image splitting on and the longest
edge at two tiles, the same picture costs four tiles and the overview, 45 tokens:

    processor.image_processor.do_image_splitting = True
"""

from __future__ import annotations

import torch
from transformers import (
    PreTrainedTokenizerFast,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    SmolVLMImageProcessor,
    SmolVLMProcessor,
    SmolVLMVideoProcessor,
)

from data_scripts.tiny_text import chat_template, train_tokenizer

TILE = 84  # pixels a side of a frame
PATCH = 14
SCALE = 2  # the connector merges 2 x 2 patches into a token
GRID = 6  # the real tokenizer has place names for tiles of up to 6 rows and columns
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    "<video>",
    *(f"<row_{row}_col_{column}>" for row in range(1, GRID + 1) for column in range(1, GRID + 1)),
]


def smolvlm_processor(texts: list[str], vocab_size: int = 512 + GRID * GRID) -> SmolVLMProcessor:
    """SmolVLM's processor with a tokenizer trained on `texts`; pictures are not split until they are asked to be."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(SPECIAL, texts, vocab_size),
        bos_token="<|im_start|>",
        eos_token="<end_of_utterance>",
        pad_token="<|endoftext|>",
        additional_special_tokens=SPECIAL,
        padding_side="left",
        model_max_length=1024,
    )
    return SmolVLMProcessor(
        image_processor=SmolVLMImageProcessor(
            size={"longest_edge": 2 * TILE}, max_image_size={"longest_edge": TILE}, do_image_splitting=False
        ),
        video_processor=SmolVLMVideoProcessor(),
        tokenizer=tokenizer,
        image_seq_len=(TILE // PATCH // SCALE) ** 2,
        chat_template=chat_template("smolvlm"),
    )


def smolvlm_model(processor: SmolVLMProcessor, seed: int = 0, **text) -> SmolVLMForConditionalGeneration:
    """A float32 model of 0.7 million parameters with random weights; `text` overrides its language model's config.

    The widths are those of the tiny Qwen2.5-VL, so that the two families can be compared.
    """
    tokenizer = processor.tokenizer
    ends = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    text_config = {
        "model_type": "llama",
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "initializer_range": 0.06,  # near 1 / sqrt(width): at the default 0.02 so narrow a model learns nothing
        "tie_word_embeddings": True,  # here too: vLLM reads it here, transformers on the outer config
        **ends,
        **text,
    }
    vision_config = {
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": TILE,
        "patch_size": PATCH,
        "initializer_range": 0.08,
    }
    config = SmolVLMConfig(
        text_config=text_config,
        vision_config=vision_config,
        scale_factor=SCALE,
        image_token_id=processor.image_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    model = SmolVLMForConditionalGeneration(config)
    for name, value in ends.items():
        setattr(model.generation_config, name, value)
    return model
