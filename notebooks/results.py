"""Write the results table of README.md from the runs' records.

`python notebooks/results.py outputs README.md`: the table stands between the two marker lines below;
everything else stays as it is.
"""

import json
import sys
from pathlib import Path

from recipe_lib.record import validate_record

START, END = "<!-- results:start -->", "<!-- results:end -->"
HEADER = "| run | method | model | data | n | before | after | gain (95 % interval) | training |"


def row(record: dict) -> str:
    """One line of the table; a dash where the run did not measure."""

    def share(key: str) -> str:
        return "–" if record[key] is None else f"{100 * record[key]:.1f} %"

    gain = "–"
    if record["gain"] is not None:
        low, high = record["gain_ci95"]
        gain = f"{100 * record['gain']:+.1f} ({100 * low:.1f} to {100 * high:.1f})"
    seconds = "–" if record["train_seconds"] is None else f"{record['train_seconds']:.0f} s"
    name = record.get("notebook") or record.get("recipe")
    facts = (record[key] for key in ("method", "model", "dataset", "n_eval"))
    plain = ["–" if fact is None else str(fact) for fact in facts]
    cells = [name, *plain, share("accuracy_before"), share("accuracy_after"), gain, seconds]
    return f"| {' | '.join(cells)} |"


def table(outputs: Path) -> str:
    """The table of all records that lie one folder below `outputs`, in the order of their folders."""
    paths = sorted(outputs.glob("*/metrics.json"))
    records = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    for record in records:
        validate_record(record)
    return "\n".join([HEADER, "|---" * 9 + "|", *map(row, records)])


def insert(text: str, new: str) -> str:
    """`text` with `new` between the markers.

    Raises:
        ValueError: the markers are not there, each once.
    """
    if text.count(START) != 1 or text.count(END) != 1 or text.index(START) > text.index(END):
        raise ValueError(f"the text needs the lines {START} and {END}, once and in this order")
    return text[: text.index(START)] + f"{START}\n{new}\n" + text[text.index(END) :]


if __name__ == "__main__":
    outputs, readme = map(Path, sys.argv[1:])
    readme.write_text(insert(readme.read_text(encoding="utf-8"), table(outputs)), encoding="utf-8")
    print(f"wrote the results table of {readme}")
