"""How much memory LoRA saves MPO: peak bytes of all tensors, against full training with a kept reference model.

    python benchmarks/mpo_memory.py        # about two minutes on two cores

Each mode trains a random Qwen2.5-VL of over 100 million parameters for three steps, in float32 and in a process of its
own. Counted is every allocation of torch's CPU allocator, as its profiler reports it: weights, gradients, optimiser
state, activations. Python and the libraries, which a process holds in either mode, are not counted. The reference is a
copy in memory, since one read from disk could be mapped and go uncounted. Fails where the share is above `GOAL`.
"""

import argparse
import copy
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as PILImage
from trl import ModelConfig

from data_scripts import tiny_families
from recipe_lib import adapters
from recipe_lib.columns import ready
from recipe_lib.mpo import MPOConfig, MPOTrainer
from recipe_lib.record import peak_rss_mb

ROOT = Path(__file__).resolve().parents[1]
GOAL = 0.6
WIDTH, LAYERS = 768, 18


def random_model(processor) -> torch.nn.Module:
    """The tiny family's model, made wide and deep."""
    config = tiny_families.model("qwen2.5-vl", processor).config
    text = {"hidden_size": WIDTH, "intermediate_size": 2048, "num_hidden_layers": LAYERS, "num_attention_heads": 12}
    text |= {"num_key_value_heads": 4, "head_dim": 64, "layer_types": ["full_attention"] * LAYERS}
    text["rope_parameters"] = {"rope_type": "default", "mrope_section": [8, 12, 12], "rope_theta": 10000.0}
    config = type(config)(
        text_config={**config.text_config.to_dict(), **text},
        vision_config={**config.vision_config.to_dict(), "out_hidden_size": WIDTH},
        **{name: getattr(config, name) for name in ("image_token_id", "video_token_id", "vision_start_token_id")},
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def pairs(n: int = 8) -> Dataset:
    """Pairs about noise."""
    noise = np.random.default_rng(0).integers(0, 256, (n, 84, 84, 3), dtype=np.uint8)
    data = {
        "images": [[PILImage.fromarray(pixels)] for pixels in noise],
        "prompt": ["What is shown in the picture?"] * n,
        "chosen": [f"<think> a red circle </think><answer> {i} </answer>" for i in range(n)],
        "rejected": [f"<think> a green square </think><answer> {i + 1} </answer>" for i in range(n)],
    }
    features = Features({name: List(Image()) if name == "images" else Value("string") for name in data})
    return ready(Dataset.from_dict(data, features=features), "mpo")[0]


def train(lora: bool) -> int:
    """Build and train; return the number of parameters of the model itself."""
    processor = tiny_families.processor("qwen2.5-vl")
    model = random_model(processor)
    parameters = sum(p.numel() for p in model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        config = MPOConfig(
            output_dir=folder, max_steps=3, per_device_train_batch_size=2, bf16=False, use_cpu=True, max_length=None,
            gradient_checkpointing=True, save_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip
        MPOTrainer(
            model,
            None if lora else copy.deepcopy(model),
            args=config,
            train_dataset=pairs(),
            processing_class=processor,
            peft_config=adapters.prepare(model, ModelConfig(use_peft=lora)),
        ).train()
    return parameters


def measure(lora: bool) -> dict:
    """Peak bytes of one mode, in this process."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profile:
        parameters = train(lora)
    events = profile.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    peak = max(itertools.accumulate(nbytes for _, nbytes in changes))
    return {"parameters": parameters, "peak_tensor_mb": peak / 2**20, "peak_rss_mb": peak_rss_mb()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=("lora", "full"), help="measure one mode in this process, and print it")
    mode = parser.parse_args().mode
    if mode:
        print(json.dumps(measure(mode == "lora")))
        return 0
    found = {}
    for mode in ("full", "lora"):
        command = [sys.executable, __file__, "--mode", mode]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KINETO_LOG_LEVEL": "5"}  # the profiler's own log is long
        output = subprocess.run(
            command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        ).stdout
        found[mode] = json.loads(output.splitlines()[-1])
        print(f"{mode}: {found[mode]['peak_tensor_mb']:,.0f} MB of tensors, {found[mode]['parameters']:,} parameters")
    share = found["lora"]["peak_tensor_mb"] / found["full"]["peak_tensor_mb"]
    print(f"LoRA without a reference model takes {share:.2f} of full training with one (goal: at most {GOAL})")
    path = ROOT / "outputs" / "benchmarks" / "mpo_memory.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**found, "share": share}, indent=2) + "\n")
    return int(share > GOAL)


if __name__ == "__main__":
    sys.exit(main())
