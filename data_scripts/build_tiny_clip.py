"""Build the tiny CLIP: transformers' own CLIP classes at under a million parameters, trained on `shapes` captions.

    python -m data_scripts.build_tiny_clip             # build and train: two minutes on one core
    python -m data_scripts.build_tiny_clip --check     # the same into a temporary folder: is the ranking as good?

It is the image-text similarity of the caption recipe on a CPU; with a GPU any CLIP or SigLIP takes its place by name.
The contrastive loss is the one of https://arxiv.org/abs/2103.00020, over batches in which no caption stands twice.
Pictures come at every shift of `shapes`, fresh at each step, and captions in several wordings.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import processors
from tqdm.auto import tqdm
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, PreTrainedTokenizerFast

from data_scripts.shapes import CANVAS, COLOURS, SHAPES, draw_scene
from data_scripts.tiny_text import train_tokenizer

FOLDER = Path(__file__).resolve().parent.parent / "checkpoints" / "tiny-clip"
SCENES = [(shape, colour, count) for shape in SHAPES for colour in COLOURS for count in range(1, 6)]
WORDINGS = ("{}", "{}.", "I see {}.", "There are {}.", "a picture of {}", "The picture shows {}.")
END = "<|endoftext|>"
RANKING_BAND = (0.9, 1.0)  # share of held-out pairs ranked rightly in which a rebuilt checkpoint must land


def caption(scene: tuple[str, str, int]) -> str:
    """The caption of a scene, as `shapes` words it: "3 red circles"."""
    shape, colour, count = scene
    return f"{count} {colour} {shape}" + ("s" if shape != "cross" else "es") * (count > 1)


def neighbours(scene: tuple[str, str, int]) -> list[tuple[str, str, int]]:
    """The scenes that differ in shape, colour or count alone: the captions that are hardest to tell apart."""
    return [other for other in SCENES if sum(a != b for a, b in zip(scene, other, strict=True)) == 1]


def make_processor() -> CLIPProcessor:
    texts = [wording.format(caption(scene)) for scene in SCENES for wording in WORDINGS]
    tokenizer = train_tokenizer([END], texts, vocab_size=400)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END, model_max_length=32)
    size = {"height": CANVAS, "width": CANVAS}
    return CLIPProcessor(CLIPImageProcessor(size=size, do_center_crop=False, do_convert_rgb=True), fast)


def make_model(processor: CLIPProcessor, seed: int = 0) -> CLIPModel:
    end = processor.tokenizer.eos_token_id
    shared = {"num_attention_heads": 4, "hidden_act": "gelu", "projection_dim": 64}
    config = CLIPConfig(
        text_config={
            **shared,
            "vocab_size": len(processor.tokenizer),
            "hidden_size": 96,
            "intermediate_size": 192,
            "num_hidden_layers": 2,
            "max_position_embeddings": processor.tokenizer.model_max_length,
            "bos_token_id": end,
            "eos_token_id": end,
            "pad_token_id": end,
        },
        vision_config={
            **shared,
            "hidden_size": 96,
            "intermediate_size": 256,
            "num_hidden_layers": 4,
            "image_size": CANVAS,
            "patch_size": 14,
            "initializer_factor": 1.0,
        },
        projection_dim=64,
    )
    torch.manual_seed(seed)
    return CLIPModel(config)


def draw(scenes: list[tuple[str, str, int]], rng: np.random.Generator, shift: float | None = None) -> list[Image.Image]:
    """One picture of each scene, at `shift` or at a shift of its own."""
    return [draw_scene(*scene, rng.uniform() if shift is None else shift, rng) for scene in scenes]


def train(model: CLIPModel, processor: CLIPProcessor, steps: int, lr: float = 1.5e-3, batch: int = 64) -> None:
    """Contrastive training on fresh scenes: AdamW, one cycle."""
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps, pct_start=0.15)
    model.train()
    bar = tqdm(range(steps), desc="training the tiny CLIP")
    for _ in bar:
        scenes = [SCENES[i] for i in rng.choice(len(SCENES), batch, replace=False)]
        texts = [WORDINGS[rng.integers(len(WORDINGS))].format(caption(scene)) for scene in scenes]
        inputs = processor(text=texts, images=draw(scenes, rng), padding=True, return_tensors="pt")
        loss = model(**inputs, return_loss=True).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model.logit_scale.clamp_(max=np.log(100.0))
        bar.set_postfix(loss=f"{loss.item():.3f}")
    model.eval()


@torch.inference_mode()
def ranking(model: CLIPModel, processor: CLIPProcessor, seed: int, shift: float | None = None) -> dict[str, float]:
    """Share of pairs in which a picture's own caption beats another: any other one, and one that is nearly right.

    Pictures come from `seed`, which training does not use. 150 pictures against 149 captions each.
    """
    rng = np.random.default_rng([seed, 99])
    captions = [caption(scene) for scene in SCENES]
    logits = model(
        **processor(text=captions, images=draw(SCENES, rng, shift), padding=True, return_tensors="pt")
    ).logits_per_image.numpy()
    beaten = np.diag(logits)[:, None] > logits
    near = np.array([[other in neighbours(scene) for other in SCENES] for scene in SCENES])
    others = ~np.eye(len(SCENES), dtype=bool)
    return {"any": float(beaten[others].mean()), "near": float(beaten[near].mean())}


def build(folder: Path, steps: int) -> dict[str, float]:
    """Build, train and save; return the held-out ranking."""
    processor = make_processor()
    model = make_model(processor)
    train(model, processor, steps)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    held_out = ranking(model, processor, seed=1)
    print(f"tiny-clip: {sum(p.numel() for p in model.parameters()):,} parameters, right caption first in {held_out}")
    return held_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="build into a temporary folder, leave the committed one")
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        held_out = build(Path(scratch) if options.check else FOLDER, options.steps)
    low, high = RANKING_BAND
    if not low <= held_out["near"] <= high:
        raise SystemExit(f"tiny-clip: {held_out['near']:.1%} of near pairs is outside {low:.0%} to {high:.0%}")


if __name__ == "__main__":
    main()
