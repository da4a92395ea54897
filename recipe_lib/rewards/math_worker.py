"""math-verify behind a deadline that holds: `compare(gold, answer, seconds)` from any thread, fork or notebook.

One child process per process, started at the first call (importing sympy takes seconds; that is not counted in the
deadline), ended with this process. See `math_child` for what runs there.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

_START_SECONDS = 180.0
_GRACE_SECONDS = 5.0  # the child enforces the deadline; past this the child itself is stuck and is replaced

counts: Counter[str] = Counter()
"""How often each verdict was given in this process ("equal", "different", "timeout", "gold timeout", ...)."""


class MathWorker:
    """The child process and the lock that lets one thread at a time talk to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None

    def compare(self, gold: str, answer: str, seconds: float) -> str:
        """The verdict alone of `timed_compare`."""
        return self.timed_compare(gold, answer, seconds)[0]

    def timed_compare(self, gold: str, answer: str, seconds: float) -> tuple[str, float]:
        """math-verify's verdict on two LaTeX texts, and the seconds it took, neither start-up nor queue included.

        See `math_child.Worker.run` for the words.

        Raises:
            ImportError: math-verify is not installed.
            RuntimeError: the child process does not start.
        """
        line = json.dumps({"gold": gold, "answer": answer, "seconds": seconds}) + "\n"
        with self._lock:
            verdict = "crashed"
            try:
                for _ in range(2):  # once more where the child had died since the last call
                    process = self._process or self._start()
                    started = time.monotonic()
                    reply = self._exchange(process, line, seconds + _GRACE_SECONDS)
                    if reply is not None:
                        verdict = reply["verdict"]
                        break
                    self.close()
            except BaseException:  # an interrupt leaves an unread reply in the pipe: never read it as the next one
                self.close()
                raise
        counts[verdict] += 1
        return verdict, time.monotonic() - started

    def close(self) -> None:
        """End the child and reap it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    def forget(self) -> None:
        """After a fork: the child belongs to the parent; drop our copies of its pipes, which would keep it alive."""
        process, self._process, self._lock = self._process, None, threading.Lock()
        if process is not None:
            process.returncode = 0  # nothing of ours to wait for
            for pipe in (process.stdin, process.stdout):
                pipe.close()

    def _start(self) -> subprocess.Popen:
        script = Path(__file__).with_name("math_child.py")
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the training process, which then closes the pipe
        )
        self._process = process
        hello = self._exchange(process, "", _START_SECONDS)
        if hello is None or "missing" in hello:
            self.close()
            if hello is None:
                raise RuntimeError(f"the math-verify process did not start within {_START_SECONDS:.0f} s: {script}")
            raise ImportError(f"math-verify: {hello['missing']}. Run: pip install 'math-verify[antlr4_13_2]'")
        return process

    @staticmethod
    def _exchange(process: subprocess.Popen, line: str, seconds: float) -> dict | None:
        """Send a line, read a line; None where the child has gone or says nothing in time."""
        deadline, reply = time.monotonic() + seconds, b""
        poll = select.poll()  # select() refuses file numbers above 1023, which training processes reach
        poll.register(process.stdout, select.POLLIN)
        try:
            if line:
                process.stdin.write(line.encode())
            while not reply.endswith(b"\n"):
                ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
                chunk = os.read(process.stdout.fileno(), 65536) if ready else b""
                if not chunk:
                    return None
                reply += chunk
        except OSError:
            return None
        return json.loads(reply)


worker = MathWorker()
compare, timed_compare = worker.compare, worker.timed_compare
atexit.register(worker.close)
os.register_at_fork(after_in_child=worker.forget)


def late() -> int:
    """How many verdicts of this process were cut off by the deadline."""
    return counts["timeout"] + counts["gold timeout"]
