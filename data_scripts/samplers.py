"""Samples answers for `make_preferences.py`, with transformers or with vLLM.

A sampler is called with texts to go on from (chat text, up to where the answer begins or beyond it), the pictures of
each, the number of answers to each, and a seed. It returns, for each text, the answers as (text, whether the model
itself ended it).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import PreTrainedModel, ProcessorMixin

from recipe_lib import models, template_warnings

Answer = tuple[str, bool]
Sampler = Callable[[list[str], list[list], int, int], list[list[Answer]]]


def chat_text(processor: ProcessorMixin, prompt: list[dict], *, with_images: bool = True) -> str:
    """The prompt as the model reads it, up to where its answer begins; without its images on request."""
    if not with_images:
        prompt = [{**turn, "content": [part for part in turn["content"] if part["type"] != "image"]} for turn in prompt]
    with template_warnings.left_out(processor):
        return processor.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)


def transformers_sampler(
    model: PreTrainedModel, processor: ProcessorMixin, *, max_new_tokens: int, temperature: float = 1.0, top_k: int = 50
) -> Sampler:
    """Sample with `generate`, all answers to all texts of a call at once. `top_k` 0 draws from all tokens."""
    ends = model.generation_config.eos_token_id
    ends = torch.tensor(ends if isinstance(ends, list) else [ends])

    @torch.no_grad()
    def sample(texts: list[str], images: list[list], n: int, seed: int) -> list[list[Answer]]:
        inputs = processor(
            text=texts,
            images=images if any(images) else None,
            padding=True,
            padding_side="left",
            return_tensors="pt",
            add_special_tokens=False,
        ).to(model.device)
        with torch.random.fork_rng():  # whoever trains next draws what it would have drawn
            torch.manual_seed(seed)
            output = model.eval().generate(
                **inputs,
                do_sample=True,
                num_return_sequences=n,
                temperature=temperature,
                top_k=top_k,
                top_p=1.0,
                max_new_tokens=max_new_tokens,
                use_cache=True,
            )
        new = output[:, inputs["input_ids"].shape[1] :].cpu()
        finished = torch.isin(new, ends).any(dim=1).tolist()
        answers = list(zip(processor.batch_decode(new, skip_special_tokens=True), finished, strict=True))
        return [answers[i : i + n] for i in range(0, len(answers), n)]

    return sample


def vllm_sampler(
    name: str,
    processor: ProcessorMixin,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_k: int = 50,
    max_images: int = 1,
    **engine,
) -> Sampler:
    """Sample with vLLM in this process. vLLM expands image tokens itself, so a text holds one place for an image.

    Args:
        name: of `recipe_lib.models`. processor: as `models.load` gives it; its image budget is handed on.
        max_images: most pictures of one question. engine: any argument of vLLM's `LLM`.
    """
    from vllm import LLM, SamplingParams

    budget = {"size": dict(processor.image_processor.size)}
    if hasattr(processor.image_processor, "do_image_splitting"):
        budget["do_image_splitting"] = processor.image_processor.do_image_splitting
    engine.setdefault("dtype", "float32" if name.startswith("tiny-") else "auto")
    llm = LLM(
        model=models.source(name), limit_mm_per_prompt={"image": max_images}, mm_processor_kwargs=budget, **engine
    )

    def sample(texts: list[str], images: list[list], n: int, seed: int) -> list[list[Answer]]:
        requests = [
            {"prompt": text, **({"multi_modal_data": {"image": list(pictures)}} if pictures else {})}
            for text, pictures in zip(texts, images, strict=True)
        ]
        drawing = SamplingParams(n=n, seed=seed, temperature=temperature, top_k=top_k, max_tokens=max_new_tokens)
        found = llm.generate(requests, drawing, use_tqdm=False)
        return [[(one.text, one.finish_reason == "stop") for one in request.outputs] for request in found]

    return sample
