"""Named models: what a name means, what the errors say, and that the committed checkpoint sees."""

import pytest
import torch
from safetensors import safe_open

from recipe_lib import datasets, evaluation, models

TINY = "tiny-qwen2.5-vl"


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(
        ValueError, match=r"unknown model 'qwen3'; known: auto, tiny-qwen2.5-vl, tiny-smolvlm, qwen2.5-vl-3b"
    ):
        models.load("qwen3")


def test_auto_picks_the_tiny_model_on_a_cpu_and_says_so(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert models.pick("auto") == TINY
    assert "picked tiny-qwen2.5-vl: no GPU here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gib", "name"), [(6, TINY), (10, "smolvlm2-500m"), (24, "qwen2.5-vl-3b"), (80, "qwen2.5-vl-7b")]
)
def test_auto_picks_by_gpu_memory(gib, name, monkeypatch):
    class Properties:
        total_memory = gib * 2**30

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)
    assert models.pick("auto") == name


def test_hub_model_without_network_says_what_to_do(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=r"neither cached nor reachable.*hf download .*MODEL=tiny-qwen2.5-vl") as caught:
        models.load("nobody/no-such-model-here")
    assert "\n" not in str(caught.value)


def test_missing_package_is_named_with_the_command(monkeypatch):
    def refuse(*args, **kwargs):
        raise ImportError("SmolVLMProcessor requires num2words\nmore lines")

    monkeypatch.setattr(models.AutoProcessor, "from_pretrained", refuse)
    with pytest.raises(ImportError, match=r"requires num2words Run: pip install -r requirements.txt"):
        models.load(TINY)


def test_missing_checkpoint_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(models.NAMED_MODELS, TINY, models.NamedModel(str(tmp_path)))
    with pytest.raises(FileNotFoundError, match="clone of the repository"):
        models.source(TINY)


def test_committed_checkpoint_is_small_and_float32(root):
    path = root / "checkpoints" / TINY / "model.safetensors"
    assert path.stat().st_size <= 6_000_000
    with safe_open(path, "pt") as file:
        names = file.keys()
        assert {file.get_tensor(name).dtype for name in names} == {torch.float32}
    model, processor = models.load(TINY)
    assert model.dtype == torch.float32 and 0.8e6 < sum(p.numel() for p in model.parameters()) < 1.5e6
    assert processor.tokenizer.padding_side == "left"


def test_chat_template_is_the_family_s_own():
    from importlib import resources

    real = (resources.files("trl") / "chat_templates" / "qwen2_5_vl.jinja").read_text()
    assert models.load(TINY)[1].chat_template == real


@pytest.mark.slow
def test_committed_checkpoint_reads_clean_questions():
    from data_scripts.build_tiny_models import CLEAN_BAND, drawn_dataset

    clean = evaluation.evaluate(*models.load(TINY), drawn_dataset(600, seed=123))
    assert CLEAN_BAND[0] <= clean.accuracy <= CLEAN_BAND[1], clean.by_kind()


def test_unknown_data_set_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown data set 'mnist'; known: digits, shapes"):
        datasets.load("mnist")
    with pytest.raises(ValueError, match="limit=0"):
        datasets.load("digits", limit=0)
