"""Image tokens predicted from sizes alone equal what the families' own processors make."""

from __future__ import annotations

import random

import pytest
import torch
from PIL import Image

from data_scripts import tiny_families
from recipe_lib import image_budget
from recipe_lib.conversations import build_prompt
from recipe_lib.image_budget import NAMED_RULES, AnyResRule, CropsRule, QwenRule, TilesRule
from recipe_lib.image_sources import RowError

# Small tiles keep the processors cheap; the second settings are the ones that change the counts most.
SETTINGS = {
    "qwen2.5-vl": [{}, {"min_pixels": 100 * 28 * 28, "max_pixels": 200 * 28 * 28}],
    "qwen3-vl": [{}],
    "smolvlm": [
        {},
        {"size": {"longest_edge": 150}},  # no multiple of the tile
        {"do_image_splitting": False},
        {"size": {"longest_edge": 64}},
    ],
    "idefics3": [{}, {"size": {"longest_edge": 200}, "max_image_size": {"longest_edge": 48}}],
    "llava-next": [{}, {"image_grid_pinpoints": [[56, 112], [168, 168], [224, 56]]}],
    "gemma3": [{}],
}
CASES = [(family, settings) for family, several in SETTINGS.items() for settings in several]
EDGES = [
    (1, 1),
    (3, 3),
    (1, 150),
    (150, 1),
    (10, 10),
    (27, 200),
    (13, 300),
    (56, 112),
    (112, 56),
    (65, 64),
    (386, 386),
]


def sizes(count: int, seed: int = 0) -> list[tuple[int, int]]:
    rng = random.Random(seed)
    mixed = [(rng.randint(1, 300), rng.randint(1, 300)) for _ in range(count // 2)]
    usual = [(rng.randint(60, 260), rng.randint(60, 260)) for _ in range(count - count // 2)]
    return EDGES + mixed + usual


def image_token_id(processor) -> int:
    tokenizer = processor.tokenizer
    return getattr(tokenizer, "image_token_id", None) or processor.image_token_id


def actual(processor, messages, images) -> torch.Tensor:
    text = processor.apply_chat_template(messages, add_generation_prompt=True)
    return processor(text=[text], images=[images], return_tensors="pt", add_special_tokens=False)["input_ids"][0]


@pytest.mark.parametrize(("family", "settings"), CASES, ids=[f"{f}-{i}" for i, (f, _) in enumerate(CASES)])
def test_counts_equal_the_processors_on_random_sizes(family, settings):
    processor = tiny_families.processor(family, **settings)
    rule, token = image_budget.rule_for(processor), image_token_id(processor)
    checked = 0
    for width, height in sizes(60 if settings else 200):
        messages = build_prompt("What is shown?", 1)
        image = Image.new("RGB", (width, height))
        try:
            expected = rule.tokens(width, height)
        except RowError as error:
            assert error.fault == "aspect"
            with pytest.raises(ValueError, match="aspect ratio"):
                actual(processor, messages, [image])
            continue
        ids = actual(processor, messages, [image])
        assert expected == (ids == token).sum(), (width, height)
        assert image_budget.prompt_tokens(processor, messages, [(width, height)]) == len(ids), (width, height)
        checked += 1
    assert checked >= 65


@pytest.mark.parametrize("family", tiny_families.FAMILIES)
def test_prompts_of_several_images_are_counted_whole(family):
    processor = tiny_families.processor(family)
    three = [(90, 40), (64, 64), (33, 120)]
    images = [Image.new("RGB", size) for size in three]
    messages = build_prompt("Compare <image> with <image>\n\nand <image>.", 3, "Be brief.")
    assert image_budget.prompt_tokens(processor, messages, three) == len(actual(processor, messages, images))
    assert image_budget.prompt_tokens(processor, build_prompt("No image?", 0), []) == len(
        processor.tokenizer(
            processor.apply_chat_template(build_prompt("No image?", 0), add_generation_prompt=True),
            add_special_tokens=False,
        )["input_ids"]
    )


def test_gemma_crops_only_where_the_call_asks_for_them():
    limits = {"pan_and_scan_min_crop_size": 40, "pan_and_scan_max_num_crops": 4}
    asked = {"do_pan_and_scan": True, "pan_and_scan_min_ratio_to_activate": 1.2, **limits}
    processor = tiny_families.processor("gemma3", **asked)
    token, rule = processor.tokenizer.image_token_id, CropsRule(4, True, min_crop=40)
    messages = build_prompt("What is shown?", 1)
    text = processor.apply_chat_template(messages, add_generation_prompt=True)
    cropped = 0
    set_on_the_processor = actual(processor, messages, [Image.new("RGB", (300, 60))])
    assert (set_on_the_processor == token).sum() == 4  # no effect
    for size in sizes(200):
        image = Image.new("RGB", size)
        ids = processor(text=[text], images=[[image]], return_tensors="pt", **asked)["input_ids"][0]
        assert rule.tokens(*size) == (ids == token).sum(), size
        assert image_budget.prompt_tokens(processor, messages, [size], rule) == len(ids), size
        cropped += rule.crops(*size) > 0
    assert cropped > 40


def test_real_settings_agree_with_the_processors_own_arithmetic():
    qwen = tiny_families.processor("qwen2.5-vl", min_pixels=56 * 56, max_pixels=12845056)
    llava = tiny_families.processor(
        "llava-next",
        size={"shortest_edge": 336},
        crop_size={"height": 336, "width": 336},
        image_grid_pinpoints=[list(pinpoint) for pinpoint in AnyResRule().pinpoints],
    )
    tiles = {"size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364}}
    idefics = tiny_families.processor("idefics3", image_seq_len=169, **tiles)
    rng = random.Random(1)
    many = [(rng.randint(30, 5000), rng.randint(30, 5000)) for _ in range(300)]
    turned = [[height, width] for width, height in many]
    for processor in (qwen, llava, idefics):
        rule = image_budget.rule_for(processor)
        expected = processor._get_num_multimodal_tokens(image_sizes=turned)["num_image_tokens"]
        if isinstance(rule, TilesRule):  # that count includes the row markers, so it is the expansion's length
            texts = [rule.expand(processor, *size) for size in many]
            assert [len(processor.tokenizer(text)["input_ids"]) for text in texts] == expected
        else:
            assert [rule.tokens(*size) for size in many] == expected


def test_smolvlm_386_pixels_cost_17_tiles_by_default_and_one_under_the_named_rule():
    tiles = {"size": {"longest_edge": 1536}, "max_image_size": {"longest_edge": 384}}
    processor = tiny_families.processor("smolvlm", image_seq_len=81, **tiles)
    rule = image_budget.rule_for(processor)
    messages, image = build_prompt("What is shown?", 1), Image.new("RGB", (386, 386))
    assert rule.tokens(386, 386) == 17 * 81
    assert (actual(processor, messages, [image]) == processor.image_token_id).sum() == 17 * 81
    NAMED_RULES["smolvlm-instruct"].limit(processor)
    assert image_budget.rule_for(processor) == NAMED_RULES["smolvlm-instruct"]
    assert (actual(processor, messages, [image]) == processor.image_token_id).sum() == 81


def test_the_named_rule_bounds_qwen():
    processor = tiny_families.processor("qwen2.5-vl")
    rule = NAMED_RULES["qwen2.5-vl-3b"]
    rule.limit(processor)
    assert image_budget.rule_for(processor) == rule
    ids = actual(processor, build_prompt("What is shown?", 1), [Image.new("RGB", (1920, 1080))])
    assert (ids == processor.image_token_id).sum() == rule.tokens(1920, 1080) <= 512


@pytest.mark.parametrize("size", [(31, 639), (639, 31), (10, 10), (27, 200), (1, 1), (5, 900)])
def test_qwen_sides_are_at_least_one_token(size):
    rule = QwenRule(min_pixels=4 * 28 * 28, max_pixels=20 * 28 * 28)
    width, height = rule.resized(*size)
    assert min(width, height) >= 28
    assert width % 28 == height % 28 == 0
    assert rule.tokens(*size) == width * height // 28**2 >= 1


def test_qwen_vl_utils_agrees_but_for_sides_that_it_rounds_to_nothing():
    from qwen_vl_utils import smart_resize

    rule = QwenRule(min_pixels=4 * 28 * 28, max_pixels=20 * 28 * 28)

    def theirs(width, height):
        return smart_resize(height, width, 28, rule.min_pixels, rule.max_pixels)[::-1]

    rng = random.Random(2)
    usual = [(rng.randint(28, 900), rng.randint(28, 900)) for _ in range(300)]
    compared = [(rule.resized(*size), theirs(*size)) for size in usual if min(theirs(*size)) > 0]
    assert len(compared) > 250
    assert all(ours == other for ours, other in compared)
    assert theirs(639, 31) == (560, 0)  # the fault of the case table
    assert rule.resized(639, 31) == (560, 28)


def test_qwen_vl_utils_vision_info_gives_the_processors_grid():
    from qwen_vl_utils import process_vision_info

    limits = {"min_pixels": 4 * 28 * 28, "max_pixels": 16 * 28 * 28}
    processor = tiny_families.processor("qwen2.5-vl", **limits)
    for size in [(300, 200), (84, 84), (61, 500)]:
        image = Image.radial_gradient("L").resize(size).convert("RGB")
        messages = [{"role": "user", "content": [{"type": "image", "image": image, **limits}]}]
        resized, _ = process_vision_info(messages)
        by_utils = processor.image_processor(images=resized, do_resize=False, return_tensors="pt")
        alone = processor.image_processor(images=[image], return_tensors="pt")
        assert torch.equal(by_utils["image_grid_thw"], alone["image_grid_thw"])
        assert (by_utils["pixel_values"] - alone["pixel_values"]).abs().mean() < 0.02  # two bicubic filters


def test_rows_over_the_context_are_found_beforehand():
    processor = tiny_families.processor("qwen2.5-vl", min_pixels=28 * 28, max_pixels=400 * 28 * 28)
    row = {"id": "r7", "prompt": build_prompt("Q?", 1), "images": [Image.new("RGB", (504, 504))]}
    small = {**row, "id": "r1", "images": [Image.new("RGB", (28, 28))]}
    image_budget.require_fit([small], processor, 64)
    with pytest.raises(RowError, match=r"row r7, .*, 324 of them for images, exceed max_length=64"):
        image_budget.require_fit([small, row], processor, 64)
    with pytest.raises(RowError, match="max_model_length=1024"):
        NAMED_RULES["qwen2.5-vl-3b"].limit(processor)
        wide = [Image.new("RGB", (1920, 1080))] * 3
        image_budget.require_fit(
            [{"prompt": build_prompt("Q?", 3), "images": wide}], processor, 1024, "max_model_length"
        )


def test_an_unknown_family_names_the_known_ones():
    class StrangeProcessor:
        image_processor = None

    with pytest.raises(ValueError, match=r"StrangeProcessor; known families: Qwen2\.5-VL"):
        image_budget.rule_for(StrangeProcessor())
