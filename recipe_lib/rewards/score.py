"""`python -m recipe_lib score FILE.jsonl`: the verdict on each row and its reason, to audit one's own data.

A row is a JSON object with `completion` (a string or a list of messages), for all rewards but the format one also
`solution` (or `gold`), and where there are any `options`, a mapping from letter to text.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..answer_format import STYLES, completion_text, extract_answer, format_fault
from .accuracy import DEADLINE, Verdict, judge
from .format import graded_format_reward
from .numeric import closeness_reward


def main(argv: list[str]) -> int:
    """Score a file; 0 when every row could be scored, 1 when rows were bad, 2 for wrong arguments or no file."""
    arguments = _parser().parse_args(argv)
    for name in ("tolerance", "deadline"):
        if not 0 <= getattr(arguments, name) < float("inf"):
            print(f"error: --{name} {getattr(arguments, name):g}: a number from 0 on is needed", file=sys.stderr)
            return 2
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # half of a pair of surrogates has no encoding
    try:
        lines = Path(arguments.file).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        print(f"error: cannot read {arguments.file}: {error}", file=sys.stderr)
        return 2
    try:
        return _score_lines(lines, arguments)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _score_lines(lines: list[str], arguments: argparse.Namespace) -> int:
    verdicts, bad = [], 0
    for number, row in _rows(lines):
        fault = row if isinstance(row, str) else _fault(row, arguments.reward)
        if fault:
            bad += 1
            print(f"bad row, line {number}: {fault}", file=sys.stderr)
            continue
        verdict = _score(row, arguments)
        verdicts.append(verdict)
        record = {"line": number, "id": row.get("id"), "score": verdict.score, "answer": verdict.answer}
        record |= {"gold": row.get("solution", row.get("gold")), "path": verdict.path}
        print(json.dumps(record, ensure_ascii=False) if arguments.json else _line(record))
    print(_summary(verdicts, bad), file=sys.stderr)
    return 1 if bad else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m recipe_lib score", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", metavar="FILE.jsonl")
    parser.add_argument("--reward", default="accuracy", choices=["accuracy", "format", "graded_format", "closeness"])
    parser.add_argument("--style", default="think_answer", choices=list(STYLES), help="how answers are written")
    parser.add_argument("--think-prefilled", action="store_true", help="the chat template already printed <think>")
    parser.add_argument("--tolerance", type=float, default=0.0, help="for closeness, in the gold's unit")
    parser.add_argument("--deadline", type=float, default=DEADLINE, help="seconds of math-verify for one verdict")
    parser.add_argument("--json", action="store_true", help="one JSON object for each row")
    return parser


def _rows(lines: list[str]) -> Iterator[tuple[int, dict | str]]:
    """Line numbers with their rows, or with what is wrong with the line."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, f"no JSON: {error}"
            continue
        yield number, row if isinstance(row, dict) else f"a JSON object is needed, not {type(row).__name__}"


def _fault(row: dict, reward: str) -> str | None:
    missing = [] if "completion" in row else ["completion"]
    if not reward.endswith("format") and not {"solution", "gold"} & set(row):
        missing.append("solution")
    if missing:
        return f"no {' and no '.join(missing)} among the keys {', '.join(row) or '(none)'}"
    if not isinstance(row.get("options"), (Mapping, type(None))):
        return f"options must be a mapping from letter to text, not {type(row['options']).__name__}"
    return None


def _score(row: dict, arguments: argparse.Namespace) -> Verdict:
    completion, gold, how = row["completion"], row.get("solution", row.get("gold")), (arguments.style,)
    how += (arguments.think_prefilled,)
    if arguments.reward == "accuracy":
        return judge(completion, gold, row.get("options"), *how, deadline=arguments.deadline)
    text = completion_text(completion)
    answer = extract_answer(text, *how)
    if arguments.reward == "closeness":
        score = closeness_reward([completion], [gold], arguments.tolerance, 0.0, None, *how)[0]
        return Verdict(score, answer, "gold is no number" if score is None else f"within {arguments.tolerance:g}")
    fault = format_fault(text, *how)
    score = graded_format_reward([completion], *how)[0] if arguments.reward == "graded_format" else float(not fault)
    return Verdict(score, answer, fault or "well formed")


def _line(record: dict) -> str:
    score = "none" if record["score"] is None else f"{record['score']:.2f}"
    name = record["id"] if record["id"] is not None else f"line {record['line']}"
    return (
        f"{score:>5}  {name!s:<24}  {record['path']:<40}  answer {record['answer']!r:.60}  gold {record['gold']!r:.60}"
    )


def _summary(verdicts: list[Verdict], bad: int) -> str:
    scores = [verdict.score for verdict in verdicts if verdict.score is not None]
    mean = f"{sum(scores) / len(scores):.3f}" if scores else "none"
    abstained = len(verdicts) - len(scores)
    return f"{len(verdicts)} rows: mean {mean}, {abstained} abstained (gold unreadable), {bad} bad rows"
