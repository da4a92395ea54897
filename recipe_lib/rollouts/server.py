"""Server mode: an engine in a process of its own, from its command line to its end.

    with serve("tiny-qwen2.5-vl's folder") as server:
        VLLMClient(base_url=server.url).generate(...)

Written out for a machine with two GPUs, and what the older guides have instead:

    CUDA_VISIBLE_DEVICES=1 VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out \
        --weight-transfer-config '{"backend": "nccl"}' --logprobs-mode processed_logprobs --max-logprobs -1
    CUDA_VISIBLE_DEVICES=1 trl vllm-serve --model MODEL        # deprecated in TRL 1.16, and starts the above
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

HOST = "127.0.0.1"
LAST_LINES = 25
GRACE = 20.0  # seconds between asking a server to end and ending it


@dataclass(frozen=True)
class Server:
    """A server that answers: its address, the id of its process, and the file with its output."""

    url: str
    pid: int
    log: Path


def free_port() -> int:
    """A TCP port that nothing on this machine listens on now."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return sock.getsockname()[1]


def server_command(model: str, port: int, *, dtype: str = "auto", extra: Sequence[str] = ()) -> list[str]:
    """The command line that serves `model` as TRL's client needs it.

    Args:
        model: folder or hub name.
        dtype: `float32`, `bfloat16` or `float16`; `auto` is the checkpoint's. The trainer's is the right one.
        extra: more of vLLM's options, such as `("--model-impl", "transformers")`.
    """
    import torch

    start = ["vllm", "serve", model]
    if not torch.cuda.is_available():
        # the CPU build is a distribution of another name, whose absence ends the command `vllm`
        start = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--enforce-eager"]
    needs = {
        "--host": HOST,
        "--port": str(port),
        "--dtype": dtype,
        "--weight-transfer-config": json.dumps({"backend": "nccl"}),
        "--logprobs-mode": "processed_logprobs",  # after temperature and masks, as the correction wants them
        "--max-logprobs": "-1",
    }
    # the endpoints that take images and token ids apart
    return [*start, *(part for pair in needs.items() for part in pair), "--enable-scale-out", *extra]


@contextlib.contextmanager
def serve(
    model: str = "",
    *,
    dtype: str = "auto",
    extra: Sequence[str] = (),
    timeout: float = 600.0,
    env: dict[str, str] | None = None,
    command: list[str] | None = None,
    port: int | None = None,
) -> Iterator[Server]:
    """Run a server while the block runs; it and its children are gone afterwards, whatever ended the block.

    Args:
        model, dtype, extra: as `server_command`.
        timeout: seconds until it must answer.
        env: variables on top of this process's own, such as `{"CUDA_VISIBLE_DEVICES": "1"}`.
        command: another command line that serves `/health` on `port`.
        port: a free one where left out, so that two runs do not meet.

    Raises:
        RuntimeError: it ended before it answered; the message has its last lines.
        TimeoutError: it did not answer in time; likewise.
    """
    port = port or free_port()
    command = command or server_command(model, port, dtype=dtype, extra=extra)
    with tempfile.TemporaryDirectory(prefix="vllm-server-") as folder:
        log = Path(folder) / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "VLLM_SERVER_DEV_MODE": "1", **(env or {})},
                start_new_session=True,  # a Ctrl-C in the terminal is for this process, which then ends the server
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        try:
            url = f"http://{HOST}:{port}"
            _wait(process, f"{url}/health", log, timeout)
            yield Server(url, process.pid, log)
        finally:
            end(process)


def _end_with_parent() -> None:
    # a kernel that is killed runs no `finally`; 1 is PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _wait(process: subprocess.Popen, url: str, log: Path, timeout: float) -> None:
    started = time.monotonic()
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() - started < timeout:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode} before it answered:\n{_tail(log)}")
        with contextlib.suppress(OSError, urllib.error.URLError):
            if direct.open(url, timeout=5).status == 200:
                return
        time.sleep(0.5)
    raise TimeoutError(f"the server did not answer at {url} within {timeout:g} s; its last lines:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])


def end(process: subprocess.Popen) -> None:
    """End a process and its descendants: asked first, forced after `GRACE` seconds."""
    try:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.terminate()
    _, left = psutil.wait_procs(family, timeout=GRACE)
    for member in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    # what had lost its parent before is still in the server's process group
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
