"""The process that runs math-verify: a small supervisor, and under it one worker that may be killed at any time.

Started by `math_worker` as a plain script, so that nothing of the caller's is imported here and no
`if __name__ == "__main__"` is asked of the caller's. The supervisor imports math-verify once and forks workers
from itself: after a kill the next verdict waits milliseconds, not the seconds that importing sympy takes.

Protocol, one JSON line each way: `{"gold", "answer", "seconds"}` -> `{"verdict": VERDICT}`, after a first line
`{"ready": true}` or `{"missing": reason}`. The end of standard input ends everything.
"""

import contextlib
import json
import logging
import os
import select
import signal
import sys
import time

JOBS_PER_WORKER = 2_000  # sympy's caches grow: a fresh fork keeps memory flat
MEMORY_BYTES = 2 << 30  # a tower of powers ends in MemoryError instead of in the machine's swap


def unbounded(value) -> bool:
    """Whether an expression (not an interval) holds an infinity or an undefined value."""
    import sympy

    return isinstance(value, sympy.Expr) and value.has(sympy.oo, -sympy.oo, sympy.zoo, sympy.nan)


def judge(gold: str, answer: str, gold_was_read) -> str:
    """One verdict. math-verify's own timeouts need signals of the main thread and cannot stop C code: off."""
    from math_verify import LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig(boxed_match_priority=0)]

    def read(text: str):
        found = parse(f"\\boxed{{{text}}}", config, fallback_mode="no_fallback", parsing_timeout=None)
        return [value for value in found if not isinstance(value, str)]

    golds = read(gold)
    if not golds:
        return "gold unreadable"
    gold_was_read()
    answers = read(answer)
    if not answers:
        return "answer unreadable"
    if unbounded(golds[0]) != unbounded(answers[0]):
        return "different"  # math-verify rounds both sides, and after that 12 equals infinity
    # 12 digits: exactness unless a tolerance is asked for, with room for rounding of sympy's floats.
    equal = verify(golds, answers, float_rounding=12, allow_set_relation_comp=True, timeout_seconds=None)
    return "equal" if equal else "different"


def work(jobs: int, results: int) -> None:
    """The worker's loop over its pipe; never returns."""
    with contextlib.suppress(Exception):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with contextlib.suppress(Exception):  # end with the supervisor, also while busy in C code (Linux)
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    with os.fdopen(jobs, "r") as lines:
        for line in lines:
            job = json.loads(line)
            try:
                verdict = judge(job["gold"], job["answer"], lambda: os.write(results, b"g"))
            except BaseException as error:  # RecursionError, MemoryError, and whatever sympy raises on odd input
                verdict = "failed: " + type(error).__name__
            os.write(results, f" {verdict}\n".encode())
    os._exit(0)


class Worker:
    """A forked worker, its pipes, and the number of verdicts it has given."""

    def __init__(self) -> None:
        (self.job_in, self.job_out), (self.result_in, self.result_out) = os.pipe(), os.pipe()
        self.done = 0
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.job_out)
            os.close(self.result_in)
            os.close(0)
            os.close(1)
            try:
                work(self.job_in, self.result_out)
            finally:
                os._exit(1)
        os.close(self.job_in)
        os.close(self.result_out)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.job_out)
        os.close(self.result_in)

    def run(self, line: bytes, seconds: float) -> str | None:
        """The verdict; "timeout" or "gold timeout" past the deadline, "crashed"; None when the caller has gone."""
        self.done += 1
        try:
            os.write(self.job_out, line)
        except BrokenPipeError:
            return "crashed"
        deadline, answer = time.monotonic() + seconds, b""
        while not answer.endswith(b"\n"):
            remaining = deadline - time.monotonic()
            ready, _, _ = select.select([self.result_in, 0], [], [], max(0.0, remaining))
            if self.result_in in ready:
                chunk = os.read(self.result_in, 4096)
                if not chunk:
                    return "crashed"
                answer += chunk
            elif 0 in ready:  # the caller sends one line at a time: anything now is the end of its pipe
                return None
            else:
                return "timeout" if answer.startswith(b"g") else "gold timeout"
        return answer.decode().partition(" ")[2].strip()


def serve() -> None:
    worker = Worker()
    for line in iter(sys.stdin.buffer.readline, b""):
        if worker.done >= JOBS_PER_WORKER:
            worker.end()
            worker = Worker()
        verdict = worker.run(line, json.loads(line)["seconds"])
        if verdict is None:
            break
        if verdict.endswith("timeout") or verdict == "crashed":
            worker.end()
            worker = Worker()
        sys.stdout.write(json.dumps({"verdict": verdict}) + "\n")
        sys.stdout.flush()
    worker.end()


if __name__ == "__main__":
    sys.path.pop(0)  # this folder's own module names must not shadow anybody's
    logging.disable(logging.CRITICAL)
    sys.setrecursionlimit(3_000)
    try:
        import math_verify  # noqa: F401
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
    else:
        for gold, answer in (("\\frac{x+1}{\\sqrt{2}}", "2x"), ("\\{1,2\\}", "x<1"), ("\\sin 2", "0.5")):
            judge(gold, answer, lambda: None)  # what sympy imports and builds at first use, the forks inherit
        print(json.dumps({"ready": True}), flush=True)
        with contextlib.suppress(BrokenPipeError):
            serve()
