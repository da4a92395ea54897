"""Rows with any number of pictures through TRL's GRPOTrainer: a mixin.

Three faults of TRL 1.16 are mended. It turns a row's empty image list into None when it reads the prompts, and the
processor, called once more for the training pass, refuses None beside lists. SmolVLM and Idefics3 pad the pictures of
a batch to one block a row; TRL takes that block for one picture a row wherever the number of rows happens to equal
the number of pictures, as for rows with 2 and with 0 of them. It then cuts the block by pictures, and rows train on
the pictures of other rows, without an error. And where a micro-batch holds only rows without pictures, Qwen's vision
tower is given none, and crashes.
"""

from __future__ import annotations

from torch import nn

_PICTURES = ("pixel_values", "image_grid_thw", "image_sizes", "image_position_ids")


class KeepsPictures:
    """To be named before the trainer: `class GRPOTrainer(KeepsPictures, trl.GRPOTrainer)`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for model in (self.model, self.ref_model):
            if model is not None:
                model.register_forward_pre_hook(_leave_out_no_pictures, with_kwargs=True)

    def _generate_and_score_completions(self, inputs):
        # a column may hold None for "no picture"; TRL only takes an empty list for it
        rows = [{**row, "images": row["images"] or []} if "images" in row else row for row in inputs]
        return _count_by_row(super()._generate_and_score_completions(rows))

    def _tokenize_prompts(self, prompts):
        ids, images, fields = super()._tokenize_prompts(prompts)
        return ids, images if images is None else [found or [] for found in images], fields

    def _get_per_token_logps_and_entropies(self, model, *args, **fields):
        return super()._get_per_token_logps_and_entropies(model, *args, **_count_by_row(fields))


def _count_by_row(fields: dict) -> dict:
    """Count the padded pictures where they are padded, so that TRL sees that the block goes by rows.

    `pixel_values` of SmolVLM has the shape `(rows, most pictures in a row, channels, height, width)`, with a mask
    for what is padding; the other family with such a mask, LFM2-VL, gives `spatial_shapes` too.
    """
    padded = fields.get("pixel_attention_mask") is not None and fields.get("spatial_shapes") is None
    if not padded or fields.get("num_images") is None:
        return fields
    rows, most = fields["pixel_values"].shape[:2]
    return {**fields, "num_images": [most] * rows}


def _leave_out_no_pictures(model: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Before each forward pass: a slice of no pictures is left out, as in a batch that never had any."""
    pixels = kwargs.get("pixel_values")
    if pixels is not None and pixels.shape[0] == 0:
        kwargs = {key: value for key, value in kwargs.items() if key not in _PICTURES}
    return args, kwargs
