"""One rollout as a web page: pictures, completions, rewards and advantages, in one file that opens without a network.

write_page(path, "step 20", prompts, completions, rewards, advantages, num_generations=8)
"""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path

from PIL import Image

LONGEST_EDGE = 256  # pixels of a picture on the page, so that a page of photographs stays below a megabyte
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #1f2933; }
section { border-top: 1px solid #cbd2d9; padding: 1rem 0; }
img { max-width: 256px; max-height: 256px; border: 1px solid #cbd2d9; margin-right: .5rem; }
table { border-collapse: collapse; width: 100%; margin-top: .5rem; }
th, td { text-align: right; padding: .25rem .6rem; vertical-align: top; border-top: 1px solid #e4e7eb; }
th:first-child, td:first-child { text-align: left; white-space: pre-wrap; overflow-wrap: anywhere; }
.up { background: #e3f1e3; } .down { background: #f9e3dc; } .prompt { white-space: pre-wrap; color: #52606d; }
"""


def write_page(
    path: Path,
    title: str,
    prompts: list,
    completions: list,
    rewards: dict[str, list[float]],
    advantages: list[float],
    *,
    num_generations: int,
    groups: int = 4,
) -> Path:
    """Write the first `groups` groups of a rollout to `path`, and return it.

    Args:
        prompts, completions: texts or lists of messages, one a completion, group by group.
        rewards: reward's name -> one value a completion; NaN where the reward abstained.
        advantages: one a completion, in units of the group's spread where rewards are scaled by it.
        num_generations: completions a group.
    """
    shown = range(0, min(len(prompts), groups * num_generations), num_generations)
    sections = [
        _group(
            prompts[start],
            completions[start : start + num_generations],
            {name: values[start : start + num_generations] for name, values in rewards.items()},
            advantages[start : start + num_generations],
        )
        for start in shown
    ]
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{html.escape(title)}</h1>"
        f"<p>{len(sections)} of {len(prompts) // num_generations} groups. A completion with a positive advantage "
        f"is made likelier.</p>{''.join(sections)}</body></html>"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def _group(prompt, completions: list, rewards: dict[str, list[float]], advantages: list[float]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rewards)
    rows = []
    for i, completion in enumerate(completions):
        values = "".join(f"<td>{number(values[i])}</td>" for values in rewards.values())
        kind = "up" if advantages[i] > 0 else "down" if advantages[i] < 0 else ""
        text = html.escape(message_text(completion))
        rows.append(f'<tr class="{kind}"><td>{text}</td>{values}<td>{advantages[i]:+.2f}</td></tr>')
    pictures = "".join(f'<img alt="" src="{data_uri(image)}">' for image in pictures_of(prompt))
    return (
        f'<section>{pictures}<p class="prompt">{html.escape(message_text(prompt))}</p>'
        f"<table><tr><th>completion</th>{head}<th>advantage</th></tr>{''.join(rows)}</table></section>"
    )


def number(value: float | None) -> str:
    """A reward as text; a dash where it abstained (None, or NaN as TRL keeps it)."""
    return "–" if value is None or value != value else f"{value:.2f}"


def message_text(messages: str | list[dict]) -> str:
    """The text of a prompt or completion, the roles of several messages before them; pictures are left out."""
    if isinstance(messages, str):
        return messages
    lines = []
    for message in messages:
        content = message["content"]
        if not isinstance(content, str):
            content = "".join(part.get("text") or "" for part in content if part["type"] == "text")
        lines.append(content if len(messages) == 1 else f"{message['role']}: {content}")
    return "\n".join(lines)


def pictures_of(messages: str | list[dict]) -> list[Image.Image]:
    """The pictures that stand in the messages of a prompt."""
    if isinstance(messages, str):
        return []
    parts = [part for message in messages if not isinstance(message["content"], str) for part in message["content"]]
    return [part["image"] for part in parts if part["type"] == "image" and part.get("image") is not None]


def data_uri(image: Image.Image) -> str:
    """A picture as text for an `img` element, at most `LONGEST_EDGE` pixels a side."""
    small = image.convert("RGB")
    small.thumbnail((LONGEST_EDGE, LONGEST_EDGE))
    buffer = io.BytesIO()
    small.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
