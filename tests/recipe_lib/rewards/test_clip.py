"""The CLIP reward on the tiny CLIP, and on tiny untrained models of the other dual encoders."""

import numpy as np
import pytest
import torch
from transformers import CLIPModel, SiglipConfig, SiglipModel

from data_scripts import build_tiny_clip
from recipe_lib.rewards import check_rewards
from recipe_lib.rewards.clip import ClipReward

RIGHT, WRONG = "3 red circles", "2 blue squares"


@pytest.fixture(scope="module")
def folder(root):
    return root / "checkpoints" / "tiny-clip"


@pytest.fixture(scope="module")
def reward(folder):
    return ClipReward(str(folder))


@pytest.fixture(scope="module")
def picture():
    return build_tiny_clip.draw([("circle", "red", 3)], np.random.default_rng(5))[0]


def tagged(caption):
    return f"<think>I look.</think><answer>{caption}</answer>"


@pytest.mark.slow
def test_the_checkpoint_is_small_and_ranks_the_right_caption_first(folder, reward):
    assert sum(file.stat().st_size for file in folder.iterdir()) < 6e6
    for shift in (None, 0.0, 1.0):
        ranking = build_tiny_clip.ranking(reward.model, reward.processor, seed=2, shift=shift)
        assert ranking["any"] >= 0.99 and ranking["near"] >= 0.9, (shift, ranking)


def test_the_right_caption_scores_higher(reward, picture):
    right, wrong, near = reward([tagged(RIGHT), tagged(WRONG), tagged("3 red squares")], [[picture]] * 3)
    assert right > near > wrong
    assert -1.0 <= wrong < right <= 1.0 and right > 0.7


def test_shapes_parts_and_settings(folder, reward, picture):
    text = tagged(RIGHT)
    shapes = [
        text,
        [{"role": "assistant", "content": text}],
        [{"role": "assistant", "content": [{"type": "text", "text": text}]}],
    ]
    scores = reward(completions=shapes, images=[[picture]] * 3, prompts=[None] * 3, solution=["x"] * 3)
    assert scores == pytest.approx([scores[0]] * 3, abs=1e-5)
    whole = ClipReward(reward.model, reward.processor, part="all")
    assert whole.caption("<think>I see\n3 red circles.</think><answer>red</answer>") == "I see 3 red circles. red"
    assert ClipReward(reward.model, reward.processor, style="direct").caption(" 3 red circles") == RIGHT
    assert reward.__name__ == "clip_reward"


def test_rows_without_pictures_or_words(reward, picture):
    completions = [tagged(RIGHT), tagged(RIGHT), tagged(""), "cut off", tagged(RIGHT)]
    scores = reward(completions, [None, [], [picture], [picture], picture])
    assert scores[:4] == [None, None, -1.0, -1.0] and scores[4] > 0.5
    assert reward([], []) == []


def test_several_pictures_score_their_mean(reward, picture):
    other = build_tiny_clip.draw([("square", "blue", 2)], np.random.default_rng(6))[0]
    one, two, both = reward([tagged(RIGHT)] * 3, [[picture], [other], [picture, other]])
    assert both == pytest.approx((one + two) / 2, abs=1e-5)


def test_each_picture_and_caption_is_encoded_once(reward, picture, monkeypatch):
    encoded = []
    features = reward._image_features
    monkeypatch.setattr(reward, "_image_features", lambda items: encoded.append(len(items)) or features(items))
    copies = [[picture.copy()] for _ in range(8)]  # as TRL reads the row anew for each completion
    scores = reward([tagged(RIGHT)] * 8, copies)
    assert encoded == [1] and scores == [scores[0]] * 8


def test_batches_do_not_change_the_scores(reward):
    scenes = build_tiny_clip.SCENES[::11]
    pictures = [[one] for one in build_tiny_clip.draw(scenes, np.random.default_rng(7))]
    completions = [tagged(build_tiny_clip.caption(scene)) for scene in scenes]
    small = ClipReward(reward.model, reward.processor, batch_size=3)
    assert small(completions, pictures) == pytest.approx(reward(completions, pictures), abs=1e-4)


def test_any_text_is_scored_and_long_ones_are_cut(reward, picture):
    odd = ["red " * 5_000, "\x00\ud7ff😀", "的" * 300, "<|endoftext|>", "\\boxed{", " ", "ＡＢ", "\u200b"]
    scores = reward([tagged(text) for text in odd], [[picture]] * len(odd))
    assert all(-1.0 <= score <= 1.0 for score in scores)


def test_it_learns_nothing_and_keeps_no_graph(reward, picture):
    assert not any(parameter.requires_grad for parameter in reward.model.parameters())
    assert not reward.model.training
    with torch.enable_grad():
        assert isinstance(reward([tagged(RIGHT)], [[picture]])[0], float)


def test_every_form_of_a_picture(reward, picture, tmp_path):
    path = tmp_path / "picture.png"
    picture.save(path)
    forms = [
        picture,
        [picture],
        [{"bytes": path.read_bytes(), "path": None}],
        [picture.convert("RGBA")],
        [np.asarray(picture)],
    ]
    scores = reward([tagged(RIGHT)] * len(forms), forms)
    assert scores == pytest.approx([scores[0]] * len(forms), abs=1e-5)


def test_siglip_models_work_too(reward, picture):
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vocabulary = {"vocab_size": len(reward.processor.tokenizer), "max_position_embeddings": 16}
    config = SiglipConfig(
        text_config={**sizes, **vocabulary}, vision_config={**sizes, "image_size": 84, "patch_size": 14}
    )
    siglip = ClipReward(SiglipModel(config), reward.processor)
    assert siglip.padding == "max_length" and siglip.max_length == 16
    assert -1.0 <= siglip([tagged("red " * 100)], [[picture]])[0] <= 1.0


def test_half_precision_models(folder, reward, picture):
    half = ClipReward(CLIPModel.from_pretrained(folder, dtype=torch.bfloat16), reward.processor)
    assert half([tagged(RIGHT)], [[picture]])[0] == pytest.approx(reward([tagged(RIGHT)], [[picture]])[0], abs=0.05)


def test_wrong_use_is_refused(reward, picture):
    with pytest.raises(ValueError, match="images has 1 entries for 2 completions"):
        reward([tagged(RIGHT)] * 2, [[picture]])
    with pytest.raises(ValueError, match="processor is missing"):
        ClipReward(reward.model)
    with pytest.raises(ValueError, match="part='half' must be"):
        ClipReward(reward.model, reward.processor, part="half")
    with pytest.raises(ValueError, match="Linear has no image and text features"):
        ClipReward(torch.nn.Linear(1, 1), reward.processor)
    with pytest.raises(ValueError, match="clip_reward asks for the column 'images'"):
        check_rewards([reward], [{"prompt": "p", "image": picture}])
    check_rewards([reward], [{"prompt": "p", "images": [picture]}])
    with pytest.raises(ValueError, match="row 1"):
        reward([tagged(RIGHT)] * 2, [[picture], [b"no picture"]])
