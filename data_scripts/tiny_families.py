"""A tiny model and processor of each vision-language family, with random weights, made in about a second.

    processor = tiny_families.processor("gemma3")
    model = tiny_families.model("gemma3", processor)
    tiny_families.save("gemma3", "outputs/tiny-gemma3")

The classes and the chat templates are the families' own, so prompts, image tokens and tensors have the real
layout; widths, depths and picture sizes are small. For tests of data and of plumbing: these models know nothing.
The ones that can see are made by `build_tiny_models.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import transformers as tf

from data_scripts.tiny_text import chat_template, train_tokenizer

CORPUS = [
    "system user assistant model User Assistant What is shown in the picture? Compare the first with the second.",
    "<think> reasoning </think><answer> answer </answer> 0 1 2 3 4 5 6 7 8 9 A B C D red green blue circle square",
]
ROW_COL = [f"<row_{row}_col_{col}>" for row in range(1, 7) for col in range(1, 7)]
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 4096,
}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


@cache
def _trained(special: tuple[str, ...]):
    return train_tokenizer(list(special), CORPUS, 256 + len(special) + 80)


def _tokenizer(special: list[str], eos: str, pad: str, **options) -> tf.PreTrainedTokenizerFast:
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=_trained(tuple(special)),
        eos_token=eos,
        pad_token=pad,
        additional_special_tokens=special,
        padding_side="left",
        model_max_length=4096,
        **options,
    )


def _qwen_tokenizer():
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    return _tokenizer([*special, "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"], "<|im_end|>", "<|endoftext|>")


def _qwen2_5_vl_processor(**images):
    images = {"min_pixels": 28 * 28, "max_pixels": 16 * 28 * 28, **images}
    return tf.Qwen2_5_VLProcessor(
        image_processor=tf.Qwen2VLImageProcessor(**images),
        video_processor=tf.Qwen2VLVideoProcessor(),
        tokenizer=_qwen_tokenizer(),
        chat_template=chat_template("qwen2_5_vl"),
    )


def _qwen3_vl_processor(**images):
    images = {"min_pixels": 32 * 32, "max_pixels": 16 * 32 * 32, "patch_size": 16, **images}
    return tf.Qwen3VLProcessor(
        image_processor=tf.Qwen2VLImageProcessor(**images),
        video_processor=tf.Qwen3VLVideoProcessor(),
        tokenizer=_qwen_tokenizer(),
        chat_template=chat_template("qwen3_vl"),
    )


def _qwen_ids(processor) -> dict:
    ids = processor.tokenizer.convert_tokens_to_ids
    return {
        "image_token_id": ids("<|image_pad|>"),
        "video_token_id": ids("<|video_pad|>"),
        "vision_start_token_id": ids("<|vision_start|>"),
        "vision_end_token_id": ids("<|vision_end|>"),
    }


def _rope() -> dict:
    return {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}


def _qwen2_5_vl_model(processor):
    text = {**TEXT, **_ids(processor), "rope_parameters": _rope()}
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"patch_size": 14, "spatial_merge_size": 2, "window_size": 112, "fullatt_block_indexes": [1]}
    config = tf.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **_qwen_ids(processor))
    return tf.Qwen2_5_VLForConditionalGeneration(config)


def _qwen3_vl_model(processor):
    text = {**TEXT, **_ids(processor), "rope_parameters": {**_rope(), "mrope_interleaved": True}}
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"patch_size": 16, "spatial_merge_size": 2, "num_position_embeddings": 64}
    vision |= {"deepstack_visual_indexes": [0]}
    config = tf.Qwen3VLConfig(text_config=text, vision_config=vision, **_qwen_ids(processor))
    return tf.Qwen3VLForConditionalGeneration(config)


def _idefics_tokenizer(start: str):
    special = ["<pad>", start, "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>"]
    return _tokenizer([*special, "<video>", *ROW_COL], "<end_of_utterance>", "<pad>", bos_token=start)


def _idefics_images(images: dict) -> dict:
    return {"size": {"longest_edge": 128}, "max_image_size": {"longest_edge": 64}, **images}


def _smolvlm_processor(image_seq_len: int = 4, **images):
    return tf.SmolVLMProcessor(
        image_processor=tf.SmolVLMImageProcessor(**_idefics_images(images)),
        video_processor=tf.SmolVLMVideoProcessor(),
        tokenizer=_idefics_tokenizer("<|im_start|>"),
        image_seq_len=image_seq_len,
        chat_template=chat_template("smolvlm"),
    )


def _idefics3_processor(image_seq_len: int = 4, **images):
    return tf.Idefics3Processor(
        image_processor=tf.Idefics3ImageProcessor(**_idefics_images(images)),
        tokenizer=_idefics_tokenizer("<|begin_of_text|>"),
        image_seq_len=image_seq_len,
        chat_template=chat_template("idefics3"),
    )


def _idefics_config(processor) -> dict:
    vision = {**VISION, "image_size": 64, "patch_size": 16}  # 16 patches, 4 tokens after the shuffle
    text = {"model_type": "llama", **TEXT, **_ids(processor)}
    return {"vision_config": vision, "text_config": text, "scale_factor": 2} | {
        "image_token_id": processor.image_token_id,
        "pad_token_id": processor.tokenizer.pad_token_id,
    }


def _smolvlm_model(processor):
    return tf.SmolVLMForConditionalGeneration(tf.SmolVLMConfig(**_idefics_config(processor)))


def _idefics3_model(processor):
    return tf.Idefics3ForConditionalGeneration(tf.Idefics3Config(**_idefics_config(processor)))


PINPOINTS = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]]


def _llava_next_processor(**images):
    side = {"height": 56, "width": 56}
    images = {"size": {"shortest_edge": 56}, "crop_size": side, "image_grid_pinpoints": PINPOINTS, **images}
    return tf.LlavaNextProcessor(
        image_processor=tf.LlavaNextImageProcessor(**images),
        tokenizer=_tokenizer(["<unk>", "<s>", "</s>", "<image>", "<pad>"], "</s>", "<pad>", bos_token="<s>"),
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,  # CLIP's class token, which "default" leaves out again
        chat_template=chat_template("llava_next"),
    )


def _llava_next_model(processor):
    config = tf.LlavaNextConfig(
        vision_config={"model_type": "clip_vision_model", **VISION, "image_size": 56, "patch_size": 14},
        text_config={"model_type": "mistral", **TEXT, **_ids(processor)},
        image_token_id=processor.image_token_id,
        image_grid_pinpoints=PINPOINTS,
        vision_feature_layer=-1,
    )
    return tf.LlavaNextForConditionalGeneration(config)


def _gemma3_processor(image_seq_length: int = 4, **images):
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    named = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    tokenizer = _tokenizer(
        [*special, *named.values()], "<end_of_turn>", "<pad>", bos_token="<bos>", extra_special_tokens=named
    )
    return tf.Gemma3Processor(
        image_processor=tf.Gemma3ImageProcessor(**{"size": {"height": 56, "width": 56}, **images}),
        tokenizer=tokenizer,
        image_seq_length=image_seq_length,
        chat_template=chat_template("gemma3"),
    )


def _gemma3_model(processor):
    tokenizer = processor.tokenizer
    text = {**TEXT, **_ids(processor), "query_pre_attn_scalar": 16, "sliding_window": 64}
    config = tf.Gemma3Config(
        text_config=text,
        vision_config={**VISION, "image_size": 56, "patch_size": 14},
        mm_tokens_per_image=4,
        boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
        image_token_index=tokenizer.image_token_id,
    )
    return tf.Gemma3ForConditionalGeneration(config)


def _ids(processor) -> dict:
    tokenizer = processor.tokenizer
    names = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    bos = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.pad_token_id
    return {"vocab_size": len(tokenizer), "bos_token_id": bos, **names}


@dataclass(frozen=True)
class Family:
    """How to make a family's processor (with its image processor's settings) and its model."""

    processor: Callable
    model: Callable


FAMILIES = {
    "qwen2.5-vl": Family(_qwen2_5_vl_processor, _qwen2_5_vl_model),
    "qwen3-vl": Family(_qwen3_vl_processor, _qwen3_vl_model),
    "smolvlm": Family(_smolvlm_processor, _smolvlm_model),
    "idefics3": Family(_idefics3_processor, _idefics3_model),
    "llava-next": Family(_llava_next_processor, _llava_next_model),
    "gemma3": Family(_gemma3_processor, _gemma3_model),
}


def processor(family: str, **images) -> tf.ProcessorMixin:
    """The family's processor; `images` overrides settings of its image processor."""
    return FAMILIES[family].processor(**images)


def model(family: str, processor: tf.ProcessorMixin, seed: int = 0) -> tf.PreTrainedModel:
    """A float32 model with random weights, about 100 thousand parameters, that takes what `processor` makes."""
    torch.manual_seed(seed)
    built = FAMILIES[family].model(processor)
    built.generation_config.eos_token_id = processor.tokenizer.eos_token_id
    built.generation_config.pad_token_id = processor.tokenizer.pad_token_id
    return built.eval()


def save(family: str, folder: str | Path) -> Path:
    """Write model and processor to a folder that `from_pretrained` reads; return the folder."""
    made = processor(family)
    model(family, made).save_pretrained(folder)
    made.save_pretrained(folder)
    return Path(folder)
