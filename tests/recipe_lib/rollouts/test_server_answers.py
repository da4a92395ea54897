"""The real server on this CPU: images through TRL's client, greedy, held against transformers token by token."""

import psutil
import pytest
import torch
import trl
from trl.generation import vllm_generation
from trl.generation.vllm_client import VLLMClient

from recipe_lib import datasets, models
from recipe_lib.rollouts import serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PROMPTS, TOKENS = 20, 24


@torch.no_grad()
def greedy(model, processor, messages) -> list[int]:
    inputs = processor.apply_chat_template(
        [messages],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        processor_kwargs={"return_tensors": "pt"},
    )
    output = model.eval().generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
    return output[0, inputs["input_ids"].shape[1] :].tolist()


@pytest.mark.parametrize(
    ("family", "implementation"), [("qwen2.5-vl", "vllm"), ("qwen2.5-vl", "transformers"), ("smolvlm", "vllm")]
)
def test_greedy_answers_are_those_of_transformers(family, implementation):
    source, (model, processor) = models.source(f"tiny-{family}"), models.load(f"tiny-{family}")
    rows = datasets.load("digits", "test", limit=PROMPTS)
    prompts = [trl.prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in rows]
    ids = processor.apply_chat_template(prompts, add_generation_prompt=True, tokenize=True, return_dict=True)[
        "input_ids"
    ]
    backend = vllm_generation.VLLMGeneration.__new__(vllm_generation.VLLMGeneration)
    backend.processing_class = processor  # TRL's own placing of features, without a trainer around it
    extra = ("--max-model-len", "512", "--kv-cache-memory-bytes", str(2**29), "--model-impl", implementation)
    with serve(source, dtype="float32", extra=extra) as server:
        processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        client = VLLMClient(base_url=server.url)
        features = client.image_features([row["images"] for row in rows])
        features = [backend._place_features(one, prompt) for one, prompt in zip(features, ids)]
        answers = client.generate(ids, features=features, temperature=0.0, max_tokens=TOKENS)["completion_ids"]
    assert len(processes) > 1 and not [p for p in processes if p.is_running() and p.status() != "zombie"]
    assert answers == [greedy(model, processor, prompt) for prompt in prompts]


def test_splitting_makes_several_runs_which_trl_refuses():
    """Why `require_backend` refuses: one picture, one item of features, five runs of image tokens."""
    processor = models.load("tiny-smolvlm")[1]
    processor.image_processor.do_image_splitting = True
    row = datasets.load("digits", "test", limit=1)[0]
    prompt = trl.prepare_multimodal_messages(row["prompt"], images=row["images"])
    ids = processor.apply_chat_template([prompt], add_generation_prompt=True, tokenize=True, return_dict=True)
    backend = vllm_generation.VLLMGeneration.__new__(vllm_generation.VLLMGeneration)
    backend.processing_class = processor
    features = {"mm_placeholders": {"image": [{"offset": 0, "length": 45}]}}
    with pytest.raises(ValueError, match="Found 5 runs of image tokens in the prompt but 1 images"):
        backend._place_features(features, ids["input_ids"][0])
