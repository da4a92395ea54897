"""Grounding: the intersection over union of the box that the model writes and the gold's.

    from recipes.rewards.box_iou import box_iou_reward
    trainer = GRPOTrainer(reward_funcs=[box_iou_reward, format_reward], ...)

The model answers with a box as text, `[x1, y1, x2, y2]` or `{"bbox_2d": [x1, y1, x2, y2]}` as Qwen2.5-VL does, in the
same coordinates as the gold: pixels of the resized image for Qwen2.5-VL, thousandths for others. A reward of IoU alone
has no slope while the boxes are apart; `soft=True` is the generalised IoU of https://arxiv.org/abs/1902.09630 instead,
moved to 0..1, which has.
"""

import re
from collections.abc import Sequence

from recipe_lib.answer_format import completion_text, extract_answer
from recipe_lib.rewards.contract import check_column

NUMBER = r"(-?\d{1,6}(?:\.\d{1,20})?(?:e-?\d{1,3})?)"
BOX = re.compile(r"[\[(]\s*" + r"\s*,\s*".join([NUMBER] * 4) + r"\s*[\])]")


def box_iou_reward(
    completions: Sequence, solution: Sequence, style: str = "think_answer", soft: bool = False, **columns: object
) -> list[float | None]:
    """IoU of each completion's box and the gold's.

    Args:
        completions: strings, lists of messages, or messages whose content is a list of parts.
        solution: for each completion a list of four numbers, x1, y1, x2, y2, or a text that holds one.
        style: how answers are written, see `recipe_lib.answer_format`.
        soft: the generalised IoU, from 0 (far apart) to 1 (equal), instead of the IoU.

    Returns:
        0 to 1; 0 for no box, for several, and for one that is turned inside out; None where the gold is no box.
    """
    check_column("solution", solution, len(completions))
    rewards = []
    for completion, gold in zip(completions, solution, strict=True):
        if not isinstance(gold, str):  # a list, a tuple or an array of numbers
            gold = str([float(side) for side in gold] if hasattr(gold, "__len__") else [])
        target = read_box(gold)
        box = read_box(extract_answer(completion_text(completion), style) or "")
        rewards.append(None if target is None else 0.0 if box is None else overlap(box, target, soft))
    return rewards


def read_box(text: str) -> tuple[float, ...] | None:
    """The one box in a text; None for none, for several (guessing must not pay) and for an empty one."""
    found = BOX.findall(text)
    if len(found) != 1:
        return None
    x1, y1, x2, y2 = map(float, found[0])
    return (x1, y1, x2, y2) if x1 < x2 and y1 < y2 else None


def overlap(a: Sequence[float], b: Sequence[float], soft: bool = False) -> float:
    """IoU of two boxes, or with `soft` the generalised IoU moved from -1..1 to 0..1."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    iou = width * height / union
    if not soft:
        return iou
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return (iou - (hull - union) / hull + 1) / 2
