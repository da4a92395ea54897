"""The tiny SmolVLM before its warm start: the family's own template, few tokens a picture, tied embeddings."""

from importlib import resources

import pytest

from data_scripts import build_tiny_models, tiny_smolvlm
from recipe_lib import evaluation
from recipe_lib.image_budget import rule_for


@pytest.fixture(scope="module")
def processor():
    return tiny_smolvlm.smolvlm_processor(build_tiny_models.corpus())


@pytest.fixture(scope="module")
def model(processor):
    return tiny_smolvlm.smolvlm_model(processor)


def test_template_is_the_family_s_own(processor):
    assert processor.chat_template == (resources.files("trl") / "chat_templates" / "smolvlm.jinja").read_text()
    assert processor.tokenizer.padding_side == "left"


@pytest.mark.parametrize(("splitting", "tokens"), [(False, 9), (True, 45)])
def test_tokens_of_a_picture(processor, model, monkeypatch, splitting, tokens):
    monkeypatch.setattr(processor.image_processor, "do_image_splitting", splitting)
    rows = build_tiny_models.drawn_dataset(2, seed=1)
    inputs = evaluation.encode(processor, [rows[0]])
    assert (inputs["input_ids"] == processor.image_token_id).sum() == tokens == rule_for(processor).tokens(84, 84)
    assert len(evaluation.generate(model, processor, rows, max_new_tokens=2)) == 2


def test_model_is_small_tied_and_wide_enough_to_learn(model):
    assert 0.6e6 < model.num_parameters() < 1.2e6
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert model.config.tie_word_embeddings and model.config.text_config.tie_word_embeddings  # vLLM reads the second
    for name, weight in model.named_parameters():
        if weight.ndim > 1:
            wanted = 0.08 if ".vision_model." in name else 0.06
            assert weight.std().item() == pytest.approx(wanted, rel=0.1), name


@pytest.mark.slow
def test_warm_start_lowers_the_loss(processor):
    model = tiny_smolvlm.smolvlm_model(processor)
    batch = build_tiny_models.encode_for_training(processor, build_tiny_models.drawn_rows(16, 5))
    before = model(**batch).loss.item()
    build_tiny_models.warm_start(model, processor, steps=8, batch_size=16)
    assert model(**batch).loss.item() < before - 1
