"""Generation throughput of a GRPO run's two samplers, vLLM in colocate mode and transformers, on the same prompts.

    python benchmarks/vllm_throughput.py                          # 8, 32 and 128 completions of 64 tokens: minutes
    python benchmarks/vllm_throughput.py --completions 8 --tokens 16   # a dry run

Every completion has the same number of tokens, whatever the model wants, so that the two do equal work. Each size is
run once to warm up and three times for the figure; the middle one counts. Prompts and pictures are those of `digits`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import trl

from recipe_lib import datasets, models
from recipe_lib.evaluation import encode
from recipe_lib.record import library_versions
from recipe_lib.trainers import GRPOTrainer


def median_seconds(sample: Callable[[], int], repeats: int = 3) -> tuple[float, int]:
    """Seconds of the middle run, and the tokens that each made."""
    tokens, seconds = sample(), []
    for _ in range(repeats):
        started = time.perf_counter()
        assert sample() == tokens
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)[repeats // 2], tokens


def make_trainer(name: str, folder: str, most: int, tokens: int) -> GRPOTrainer:
    """A trainer whose engine holds `most` completions at once; it is never trained."""
    model, processor = models.load(name)
    config = trl.GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=most,
        num_generations=2,
        max_completion_length=tokens,
        use_vllm=True,
        vllm_mode="colocate",
        bf16=model.dtype == torch.bfloat16,
        report_to="none",
        generation_kwargs={"ignore_eos": True},
    )
    rows = datasets.load("digits", "train", limit=most)
    return GRPOTrainer(model, lengths, args=config, train_dataset=rows, processing_class=processor)


def lengths(completions, **_) -> list[float]:
    """The reward that a trainer has to have."""
    return [0.0] * len(completions)


def compare(trainer: GRPOTrainer, count: int, tokens: int) -> dict:
    """Tokens a second of both samplers at `count` completions."""
    rows = [trainer.train_dataset[i] for i in range(count)]
    prompts = [trl.prepare_multimodal_messages(row["prompt"], images=row["images"] or None) for row in rows]

    def with_vllm() -> int:
        ids, images, _ = trainer._tokenize_prompts(prompts)
        return sum(map(len, trainer.vllm_generation.generate(ids, images, 1)[1]))

    @torch.no_grad()
    def with_transformers() -> int:
        inputs = encode(trainer.processing_class, rows).to(trainer.model.device)
        output = trainer.model.generate(**inputs, do_sample=True, min_new_tokens=tokens, max_new_tokens=tokens)
        return output[:, inputs["input_ids"].shape[1] :].numel()

    found = {"completions": count, "tokens_each": tokens}
    for sampler, sample in (("vllm", with_vllm), ("transformers", with_transformers)):
        seconds, made = median_seconds(sample)
        assert made == count * tokens, f"{sampler} made {made} tokens, not {count * tokens}"
        found[f"{sampler}_tokens_per_s"] = made / seconds
    found["times"] = found["vllm_tokens_per_s"] / found["transformers_tokens_per_s"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="auto")
    parser.add_argument("--completions", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--tokens", type=int, default=64, help="tokens of every completion")
    options = parser.parse_args()
    name = models.pick(options.model)
    record = {"model": name, "versions": library_versions(), "sizes": []}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        trainer = make_trainer(name, folder, max(options.completions), options.tokens)
        record["engine_start_s"] = time.perf_counter() - started
        trainer.model.eval()
        for count in options.completions:
            found = compare(trainer, count, options.tokens)
            record["sizes"].append(found)
            print(
                f"{count:4d} completions of {options.tokens} tokens: vLLM {found['vllm_tokens_per_s']:7.0f} tokens/s, "
                f"transformers {found['transformers_tokens_per_s']:7.0f} tokens/s: {found['times']:.2f} times",
                flush=True,
            )
    target = Path("outputs/benchmarks/vllm_throughput.json")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(record, indent=1), encoding="utf-8")
    print(f"engine up in {record['engine_start_s']:.0f} s; written to {target}")


if __name__ == "__main__":
    main()
