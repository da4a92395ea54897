"""The comparison and the refusals, without an engine."""

from types import SimpleNamespace

import pytest
import torch
import trl
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as PILImage
from transformers import AutoProcessor
from trl.generation import vllm_generation

from data_scripts import tiny_families
from recipe_lib import datasets, models
from recipe_lib.rollouts import RolloutMismatch, Tolerance, parity
from recipe_lib.rollouts.colocate import VLLMGeneration, changed_settings, placeholder_ids, real_stdout, vision_tokens
from recipe_lib.rollouts.trainer import longest_sequence, most_images, require_backend

IMAGE = 9
TOKENIZER = SimpleNamespace(decode=lambda ids: " ".join(map(str, ids)))


def test_gap_leaves_out_padding_and_tokens_without_a_score():
    ours = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -1.0, 0.0]])
    theirs = torch.tensor([[-1.5, -2.0, float("nan")], [-1.0, -1.25, -99.0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    part = parity.measure(ours, theirs, mask)
    assert part.tolist() == [[0.75, 0.5, 4.0]]
    gap = parity.combine(torch.cat([part, torch.tensor([[0.25, 0.25, 1.0]])]))
    assert (gap.mean, gap.max, gap.tokens) == (0.2, 0.5, 5)


def test_gap_of_nothing_is_zero():
    nothing = parity.measure(torch.zeros(1, 2), torch.ones(1, 2), torch.zeros(1, 2))
    assert parity.combine(nothing) == parity.Gap(0.0, 0.0, 0)


def test_equal_prompts_pass():
    parity.check_prompts([([1, IMAGE, 2], [1, IMAGE, 2]), ([3], (3,))], TOKENIZER, IMAGE)


def test_more_image_tokens_are_a_fault_of_the_prompt():
    with pytest.raises(RolloutMismatch, match=r"row 1 has 2 image tokens in training and 3 in vLLM's") as error:
        parity.check_prompts([([1], [1]), ([1, IMAGE, IMAGE, 2], [1, IMAGE, IMAGE, IMAGE, 2])], TOKENIZER, IMAGE)
    assert error.value.cause == "prompt"


def test_other_text_is_a_fault_of_the_template():
    with pytest.raises(
        RolloutMismatch, match=r"row 0 differs; from token 2 on .*'1 9 2 4' and vLLM '1 9 3 4'"
    ) as error:
        parity.check_prompts([([1, IMAGE, 2, 4], [1, IMAGE, 3, 4])], TOKENIZER, IMAGE)
    assert error.value.cause == "template"
    with pytest.raises(RolloutMismatch, match="template"):
        parity.check_prompts([([1, 2, 3], [1, 2])], TOKENIZER, IMAGE)


def test_a_large_gap_in_server_mode_has_no_known_cause():
    error = parity.diagnose(SimpleNamespace(mode="server"), parity.Gap(1.0, 2.0, 10), Tolerance.of(torch.float32))
    assert error.cause == "unknown" and "mean 1.0000, max 2.000 over 10 tokens" in str(error)


@pytest.mark.parametrize("family", ["qwen2.5-vl", "qwen3-vl", "smolvlm", "idefics3", "gemma3", "llava-next"])
@pytest.mark.parametrize("sides", [[(84, 84)], [(84, 84), (100, 60)]])
def test_one_placeholder_an_image_in_every_family(family, sides):
    """What vLLM gets, expanded by the processor's own text replacement, is what training sees."""
    processor = tiny_families.processor(family)
    pictures = [PILImage.new("RGB", side) for side in sides]
    parts = [
        part for picture in pictures for part in ({"type": "image", "image": picture}, {"type": "text", "text": "a"})
    ]
    prompts = [[{"role": "user", "content": parts}]]
    text = processor.apply_chat_template(prompts, add_generation_prompt=True, tokenize=False)
    ids = placeholder_ids(text, processor)[0]
    mark = processor.tokenizer.convert_tokens_to_ids(getattr(processor, "boi_token", processor.image_token))
    assert ids.count(mark) == len(pictures)
    full = processor.apply_chat_template(prompts, add_generation_prompt=True, tokenize=True, return_dict=True)
    full = full["input_ids"][0]
    assert len(full) > len(ids) and full[-4:] == ids[-4:] and full[0] == ids[0]


def test_image_and_video_tokens_are_masked():
    processor = AutoProcessor.from_pretrained(models.source("tiny-qwen2.5-vl"))
    config = SimpleNamespace(image_token_id=processor.image_token_id, video_token_id=processor.video_token_id)
    assert set(vision_tokens(processor, config)) == {"<|image_pad|>", "<|video_pad|>"}
    assert vision_tokens(processor.tokenizer, config) == []


def test_settings_that_vllm_would_not_know_of():
    processor = AutoProcessor.from_pretrained(models.source("tiny-qwen2.5-vl"))
    assert changed_settings(processor) == {}
    processor.image_processor.size = {"shortest_edge": 784, "longest_edge": 7056}
    assert changed_settings(processor) == {"size": {"shortest_edge": 784, "longest_edge": 7056}}


def backend(**attributes) -> VLLMGeneration:
    made = VLLMGeneration.__new__(VLLMGeneration)
    settings = {"mode": "colocate", "tensor_parallel_size": 1, "enable_sleep_mode": False, "temperature": 1.0}
    settings |= {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0, "max_completion_length": 4}
    settings |= {"logprobs": 0, "generation_kwargs": {}, "structured_outputs_regex": None, "llm": None}
    settings |= {"accelerator": None, "placeholder_prompts": {}, "model": torch.nn.Linear(1, 1)}
    for name, value in {**settings, **attributes}.items():
        setattr(made, name, value)
    return made


def test_the_fault_is_found_by_trying_and_left_alone_when_mended(monkeypatch):
    assert backend(enable_sleep_mode=True).expands_twice
    assert backend().expands_twice  # the installed TRL: when this fails, TRL is mended and tests/upstream can go

    def mended(self, prompts, images, num_generations, profiler=None):
        self.llm.generate([{"prompt_token_ids": [7], "multi_modal_data": {"image": images[0]}}])

    monkeypatch.setattr(vllm_generation.VLLMGeneration, "generate", mended)
    assert not backend().expands_twice


def test_what_reaches_vllm(monkeypatch):
    handed = []

    def generate(self, prompts, images, num_generations, profiler=None):
        handed.append((prompts, images))
        return prompts, [], [], []

    made = backend(placeholder_prompts={(1, IMAGE, IMAGE): [1, IMAGE]})
    assert made.expands_twice
    monkeypatch.setattr(vllm_generation.VLLMGeneration, "generate", generate)
    made.generate([[1, IMAGE, IMAGE], [1]], [["picture"], []], 1)
    assert handed.pop() == ([[1, IMAGE], [1]], [["picture"], None]), "an empty list crashes TRL"
    assert made.last_prompts == [([1, IMAGE, IMAGE], [1, IMAGE]), ([1], [1])]
    made.generate([[1], [2]], [[], []], 1)
    assert handed.pop() == ([[1], [2]], None)


def test_limit_of_images_follows_the_data():
    features = Features({"prompt": Value("string"), "images": List(Image())})
    picture = PILImage.new("RGB", (8, 8))
    data = Dataset.from_list([{"prompt": "", "images": [picture] * n} for n in (1, 0, 3)], features=features)
    assert most_images(data, None) == 3
    assert most_images(data.select([0, 1])) <= 3
    assert most_images(Dataset.from_list([{"prompt": "", "image": 1}])) == 1
    assert most_images(data.to_iterable_dataset()) is None


def test_training_in_server_mode_is_refused_on_a_cpu(tmp_path):
    config = trl.GRPOConfig(str(tmp_path), use_vllm=True, vllm_mode="server", use_cpu=True, bf16=False)
    with pytest.raises(ValueError, match=r"vllm_mode=server: .*NCCL, which needs CUDA.*vllm_mode: colocate would do"):
        require_backend(config, None)


def test_splitting_in_server_mode_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    config = SimpleNamespace(vllm_mode="server", vllm_model_impl="vllm")
    processor = tiny_families.processor("smolvlm")
    with pytest.raises(ValueError, match=r"do_image_splitting=true: .*one run of image tokens.*= False would do"):
        require_backend(config, processor)
    processor.image_processor.do_image_splitting = False
    require_backend(config, processor)


def test_a_family_that_vllm_s_transformers_backend_cannot_take_is_refused():
    config = SimpleNamespace(vllm_mode="colocate", vllm_model_impl="transformers")
    with pytest.raises(ValueError, match=r"vllm_model_impl=transformers: .*SmolVLMProcessor .*vllm would do"):
        require_backend(config, tiny_families.processor("smolvlm"))
    require_backend(config, tiny_families.processor("qwen2.5-vl"))


def test_length_of_sequences_follows_the_data():
    processor = models.load_processor(models.source("tiny-qwen2.5-vl"))
    rows = datasets.load("digits", "train", limit=8)
    config = SimpleNamespace(max_completion_length=16)
    longest = max(
        len(processor.apply_chat_template(
            trl.prepare_multimodal_messages(row["prompt"], images=row["images"]),
            tokenize=True, return_dict=True, add_generation_prompt=True,
        )["input_ids"][0])
        for row in rows
    )  # fmt: skip
    assert longest_sequence(config, rows, processor) == longest + 16 + 1
    assert longest_sequence(config, rows.with_format(None).to_iterable_dataset(), processor) is None


def test_vllm_starts_where_stdout_has_no_descriptor(monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with real_stdout():
        assert sys.stdout is sys.__stdout__
    assert isinstance(sys.stdout, io.StringIO)


def test_two_runs_in_server_mode_get_two_ports_for_weights(monkeypatch):
    given = []
    monkeypatch.setattr(vllm_generation.VLLMGeneration, "__init__", lambda self, **kw: given.append(kw["group_port"]))
    for port in (51216, 51216, 40000):
        with pytest.raises(AttributeError):  # nothing else was made
            VLLMGeneration(mode="server", group_port=port)
    assert given[0] != 51216 and given[0] != given[1] and given[2] == 40000
