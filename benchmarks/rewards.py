"""How fast and how right the accuracy reward is, beside TRL's and math-verify's own, in one process.

    python benchmarks/rewards.py                     # 5,000 completions: a few minutes
    python benchmarks/rewards.py --completions 500   # a dry run

Throughput: mixed completions (numbers, letters, fractions, surds, degrees; half of them wrong), in chunks that the two
rewards take in turn, so that both meet the same machine. Cold: empty caches; warm: the same chunk once more.
Correctness: the labelled pairs in `tests/cases/`. Both sets have since been used to mend the reward, so its own row
says how it does on texts that it was mended for. held_out_answers.jsonl was written before any of it was scored; its
first run (1,007 pairs, two CPU cores, 1 December 2026) gave these, before any mending:

    recipe_lib 98.7 % precision, 94.8 % recall           math-verify 80.9 %, 33.0 %
    trl.rewards 91.7 %, 2.0 %                            math-verify on the answer block alone 84.6 %, 49.8 %
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from recipe_lib.answer_format import extract_answer
from recipe_lib.rewards import accuracy, accuracy_reward, units
from recipe_lib.rewards.reading import gold_text

CASES = Path(__file__).parents[1] / "tests" / "cases"
LABELLED = ("labelled_answers.jsonl", "held_out_answers.jsonl")


def mixed(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """`count` golds and answers of five kinds; every second answer is wrong."""
    rng, golds, answers = random.Random(seed), [], []
    for row in range(count):
        wrong = row % 2
        a, b, c = rng.randint(2, 900), rng.randint(2, 60), rng.choice([2, 3, 5, 6, 7, 10, 11])
        kind = rng.choice(["number", "letter", "fraction", "surd", "degree"])
        if kind == "number":
            gold, answer = f"{a * 10 + 1}", rng.choice(["{}", "{}.0", "The answer is {}"]).format(a * 10 + 1 + wrong)
        elif kind == "letter":
            gold = rng.choice("ABCD")
            answer = rng.choice(["{}", "({})", "So the answer is {}."]).format(chr(ord(gold) + wrong))
        elif kind == "fraction":
            gold, answer = f"{a}/{b}", f"\\frac{{{2 * a + wrong}}}{{{2 * b}}}"
        elif kind == "surd":
            gold, answer = f"{b}\\sqrt{{{c}}}", f"$\\sqrt{{{b * b * c + wrong * c}}}$"
        else:
            gold, answer = f"{a}°", f"${a + wrong}^\\circ$"
        golds.append(gold)
        answers.append(f"\\boxed{{{answer}}}" if rng.random() < 0.5 else answer)
    return golds, answers


def messages(answers: Sequence[str]) -> list[list[dict[str, str]]]:
    """Completions as TRL hands them to rewards."""
    texts = [f"<think>\nI look at the picture.\n</think>\n<answer>{answer}</answer>" for answer in answers]
    return [[{"role": "assistant", "content": text}] for text in texts]


def forget() -> None:
    """Empty every cache of the accuracy reward."""
    for cached in (accuracy._judge, accuracy.read_gold, units.parse_unit):
        cached.cache_clear()


def seconds(reward: Callable, completions: list, golds: list[str]) -> float:
    started = time.perf_counter()
    reward(completions, golds)
    return time.perf_counter() - started


def throughput(count: int, chunk: int = 250) -> dict[str, float]:
    """Completions a second of both rewards on the same chunks in turn, and the ratios."""
    from trl.rewards import accuracy_reward as trl_accuracy_reward

    golds, answers = mixed(count)
    completions = messages(answers)
    ours, warm, theirs = [], [], []
    forget()
    trl_accuracy_reward(completions[:4], golds[:4])  # its imports and grammars are not counted
    for start in range(0, count, chunk):
        part = completions[start : start + chunk], golds[start : start + chunk]
        ours.append(seconds(accuracy_reward, *part))
        warm.append(seconds(accuracy_reward, *part))
        theirs.append(seconds(trl_accuracy_reward, *part))
    return {
        "cold_per_second": count / sum(ours),
        "warm_per_second": count / sum(warm),
        "trl_per_second": count / sum(theirs),
        "ratio_cold": statistics.median(b / a for a, b in zip(ours, theirs)),
        "ratio_cold_worst_chunk": min(b / a for a, b in zip(ours, theirs)),
        "ratio_warm": statistics.median(b / a for a, b in zip(warm, theirs)),
    }


def verdicts() -> dict[str, Callable[[dict], bool]]:
    """For each judge a function from a labelled row to whether it gives the row 1.0."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, StringExtractionConfig, parse, verify
    from trl.rewards import accuracy_reward as trl_accuracy_reward

    def ours(row: dict) -> bool:
        return accuracy_reward([row["completion"]], [row["gold"]], [row["options"]]) == [1.0]

    def trl(row: dict) -> bool:
        return trl_accuracy_reward([[{"content": row["completion"]}]], [row["gold"]]) == [1.0]

    def math_verify(gold: str, answer: str) -> bool:
        """As its documentation asks: golds in delimiters, boxes first, a list of strings where letters are golds."""
        kinds = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
        if re.fullmatch("[A-H]", gold):
            kinds = [StringExtractionConfig(strings=tuple("ABCDEFGH"))]
        else:
            gold = f"${gold}$"
        return verify(parse(gold, kinds), parse(answer, kinds))

    return {
        "recipe_lib": ours,
        "trl.rewards": trl,
        "math-verify": lambda row: math_verify(row["gold"], row["completion"]),
        "math-verify, answer block": lambda row: math_verify(
            gold_text(row["gold"]), extract_answer(row["completion"]) or ""
        ),
    }


def correctness(name: str) -> dict[str, tuple[float, float]]:
    """Precision and recall of each judge on one file of labelled pairs."""
    rows = [json.loads(line) for line in (CASES / name).read_text(encoding="utf-8").splitlines()]
    table = {}
    for judge_name, judge in verdicts().items():
        given = [judge(row) for row in rows]
        both = sum(one and row["expect"] for one, row in zip(given, rows))
        table[judge_name] = (both / max(1, sum(given)), both / sum(row["expect"] for row in rows))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=5_000, help="0 leaves the throughput out")
    count = parser.parse_args().completions
    if count:
        print(f"{count} mixed completions, half wrong, single process")
        for name, value in throughput(count).items():
            print(f"  {name:<24}{value:>12,.1f}")
    for name in LABELLED:
        print(f"{name:<32}  precision   recall")
        for judge, (precision, recall) in correctness(name).items():
            print(f"  {judge:<32}{precision:>9.1%}{recall:>9.1%}", flush=True)


if __name__ == "__main__":
    main()
