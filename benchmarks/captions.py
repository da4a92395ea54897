"""Does a neural reward teach? Caption GRPO over several seeds, each beside its control with shuffled rewards.

    python benchmarks/captions.py                                            # seeds 0, 1, 2 and their controls
    python benchmarks/captions.py --jobs 2                                   # two runs at a time: sooner done
    python benchmarks/captions.py --seeds 0 --max_steps 2 --n_eval 8         # a dry run; the rest goes to the recipe

What is measured is the mean similarity of greedy captions of held-out pictures with their pictures, before and after.
The interval of the gain is paired: it draws seeds and pictures again, each picture with both of its similarities
(`recipe_lib.evaluation.compare`). The reward's interval must lie above 0 and the control's must contain 0. Beside it
stands what was not rewarded: how often the right caption was said. The table goes to outputs/benchmarks/captions.json.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import numpy as np
from learning import ROOT, read_lines, run_recipe, run_seeds

from recipe_lib.evaluation import compare

CONFIG = "recipes/configs/grpo_captions_tiny_qwen2_5_vl.yaml"


def run(control: bool, folder: Path, more: list[str], *, threads: int, seed: int) -> tuple[dict, list[dict]]:
    """One run of the captions recipe: its record, and what it said of each held-out picture."""
    folder = folder / f"{'control' if control else 'reward'}_{seed}"
    recipe = "recipes/grpo_captions.py"
    record = run_recipe(recipe, CONFIG, seed, control, folder, *more, OMP_NUM_THREADS=str(threads))
    print(f"{folder.name}: similarity {record['similarity_after']:.3f}", flush=True)
    return record, read_lines(folder / "captions.jsonl")


def summarise(runs: list[tuple[dict, list[dict]]]) -> dict:
    """Similarity before and after, the gain with its paired interval, and how often the right caption was said."""
    records, captions = zip(*runs)
    before = np.array([line["similarity_before"] for line in captions[0]])
    after = np.array([[line["similarity_after"] for line in lines] for lines in captions])
    summary = {"similarity_before": float(before.mean()), "similarity_after": float(after.mean())}
    summary |= compare(before, after)
    for when in ("before", "after"):
        summary[f"said_{when}"] = float(np.mean([record[f"accuracy_{when}"] for record in records]))
    return summary | {"train_seconds_max": max(record["train_seconds"] for record in records)}


def main(argv: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, each on its share of the cores")
    parser.add_argument("--output_dir", type=Path, default=ROOT / "outputs" / "benchmarks")
    options, more = parser.parse_known_args(argv)
    table = {}
    for name in ("reward", "control"):
        one = partial(run, name == "control", options.output_dir / "captions", more)
        runs = run_seeds(one, options.seeds, options.jobs)
        table[name] = found = summarise(runs)
        low, high = found["gain_ci95"]
        print(
            f"{name}: similarity {found['similarity_before']:.3f} -> {found['similarity_after']:.3f}, gain "
            f"{found['gain']:+.3f} (paired 95 % interval {low:+.3f} to {high:+.3f}), n {found['n']}, "
            f"{found['seeds']} seeds; right caption said {found['said_before']:.1%} -> {found['said_after']:.1%}; "
            f"at most {found['train_seconds_max']:.0f} s of training",
            flush=True,
        )
    (options.output_dir / "captions.json").write_text(json.dumps(table, indent=2) + "\n")
    return table


if __name__ == "__main__":
    main()
