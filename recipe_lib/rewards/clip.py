"""A neural reward: how well a caption fits its picture, by any CLIP or SigLIP model of transformers.

from recipe_lib.rewards.clip import ClipReward
reward = ClipReward("openai/clip-vit-base-patch32")       # or a folder, or (model, processor)
trainer = GRPOTrainer(reward_funcs=[reward, format_reward], ...)   # rows need an `images` column
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from PIL.Image import Image
from transformers import AutoModel, AutoProcessor, PreTrainedModel, ProcessorMixin

from ..answer_format import TAGS, completion_text, extract_answer, system_prompt
from ..images import as_list, to_rgb
from .contract import check_column

NOTHING_SAID = -1.0  # the least similarity there is: silence must not pay


class ClipReward:
    """The cosine of picture and caption, in -1..1, as a reward function.

    Args:
        model: a dual encoder (CLIP, SigLIP, SigLIP 2, ...) or the folder or hub name of one.
        processor: its processor; may be left out where `model` is a name.
        device: where the model runs; a GPU where there is one, and a device of its own where the policy needs all.
        batch_size: pictures, and captions, encoded at a time.
        part: "answer" scores the extracted answer, "all" all of the text but for the tags.
        style, think_prefilled: how answers are written, see `answer_format`.

    The text is cut to the length that the model was made for. Each picture of a batch is encoded once, however many
    completions it has. A row of several pictures scores their mean, a row without one abstains (None).
    """

    __name__ = "clip_reward"

    def __init__(
        self,
        model: PreTrainedModel | str,
        processor: ProcessorMixin | None = None,
        device: str | torch.device | None = None,
        batch_size: int = 64,
        part: str = "answer",
        style: str = "think_answer",
        think_prefilled: bool = False,
    ) -> None:
        if part not in ("answer", "all"):
            raise ValueError(f"part={part!r} must be 'answer' or 'all'")
        system_prompt(style)
        if processor is None:
            if not isinstance(model, str):
                raise ValueError("processor is missing: give it with the model, or give the model by its name")
            processor = AutoProcessor.from_pretrained(model)
        model = AutoModel.from_pretrained(model) if isinstance(model, str) else model
        if not hasattr(model, "get_image_features") or not hasattr(model, "get_text_features"):
            raise ValueError(f"{type(model).__name__} has no image and text features: a CLIP or SigLIP is needed")
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model, self.processor = model.to(self.device).eval().requires_grad_(False), processor
        self.batch_size, self.part, self.style, self.think_prefilled = batch_size, part, style, think_prefilled
        text_config = getattr(model.config, "text_config", model.config)
        longest = getattr(text_config, "max_position_embeddings", 64)
        self.max_length = min(longest, processor.tokenizer.model_max_length)
        # SigLIP was trained on texts padded to full length, and has no attention mask to tell padding by.
        self.padding = "max_length" if "siglip" in model.config.model_type else True

    def __call__(self, completions: Sequence, images: Sequence, **columns: object) -> list[float | None]:
        """Score captions.

        Args:
            completions: strings, lists of messages, or messages whose content is a list of parts.
            images: for each completion its pictures: a list, one picture, or None; in any form that
                `recipe_lib.images` reads.

        Returns:
            A cosine for each completion, -1 where nothing was said, None for rows without a picture.
        """
        check_column("images", images, len(completions))
        pictures = [[_key(to_rgb(picture, row_id=n)) for picture in as_list(row)] for n, row in enumerate(images)]
        captions = [self.caption(completion) for completion in completions]
        said = sorted({text for text, row in zip(captions, pictures, strict=True) if text and row})
        texts = self._embed(said, self._text_features)
        distinct = {key: picture for row in pictures for key, picture in row}
        seen = self._embed(list(distinct.values()), self._image_features)
        text_of, picture_of = dict(zip(said, texts)), dict(zip(distinct, seen))
        rewards: list[float | None] = []
        for text, row in zip(captions, pictures, strict=True):
            if not row or not text:
                rewards.append(NOTHING_SAID if row else None)
                continue
            cosines = torch.stack([picture_of[key] for key, _ in row]) @ text_of[text]
            rewards.append(float(cosines.mean()))
        return rewards

    def caption(self, completion: object) -> str:
        """The text of a completion that is scored."""
        text = completion_text(completion)
        if self.part == "answer":
            return extract_answer(text, self.style, self.think_prefilled) or ""
        for tag in TAGS:
            text = text.replace(tag, " ")
        return " ".join(text.split())

    @torch.inference_mode()
    def _embed(self, items: list, features: Callable[[list], torch.Tensor]) -> list[torch.Tensor]:
        """Embeddings of length 1 on the CPU, each of shape (dimension,), batch by batch."""
        found: list[torch.Tensor] = []
        for start in range(0, len(items), self.batch_size):
            output = features(items[start : start + self.batch_size])
            output = getattr(output, "pooler_output", output).float()
            found.extend(torch.nn.functional.normalize(output, dim=-1).cpu())
        return found

    def _text_features(self, texts: list[str]):
        inputs = self.processor.tokenizer(
            texts, padding=self.padding, truncation=True, max_length=self.max_length, return_tensors="pt"
        )
        return self.model.get_text_features(**inputs.to(self.device))

    def _image_features(self, pictures: list[Image]):
        inputs = self.processor.image_processor(images=pictures, return_tensors="pt")
        inputs = inputs.to(self.device, self.model.dtype)
        return self.model.get_image_features(**inputs)


def _key(picture: Image) -> tuple[bytes, Image]:
    """A picture with what tells it from others: TRL reads a row anew for each of its completions."""
    return hashlib.blake2b(picture.tobytes(), digest_size=16, salt=str(picture.size).encode()[:16]).digest(), picture
