"""The server's life: a small HTTP server stands in for the engine where only its life is asked about."""

import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from functools import partial

import psutil
import pytest

from recipe_lib.rollouts import serve, server_command
from recipe_lib.rollouts.server import free_port

# answers /health after a while, and has a child that ignores the request to end
STAND_IN = textwrap.dedent("""
    import http.server, subprocess, sys, time
    port, wait = int(sys.argv[1]), float(sys.argv[2])
    subprocess.Popen([sys.executable, "-c",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"])
    print("loading the weights", flush=True)
    time.sleep(wait)
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()
        def log_message(self, *_):
            pass
    http.server.HTTPServer(("127.0.0.1", port), Answer).serve_forever()
""")


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr("recipe_lib.rollouts.server.GRACE", 0.5)


def stand_in(port: int, wait: float = 0.0) -> list[str]:
    return [sys.executable, "-c", STAND_IN, str(port), str(wait)]


def family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def assert_gone(processes: list[psutil.Process]) -> None:
    assert len(processes) == 2
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(p.is_running() and p.status() != "zombie" for p in processes):
        time.sleep(0.1)
    left = [p for p in processes if p.is_running() and p.status() != "zombie"]
    assert not left


@pytest.mark.slow
def test_answers_and_leaves_nothing_behind():
    port = free_port()
    with serve(command=stand_in(port), port=port, timeout=30) as server:
        assert urllib.request.urlopen(f"{server.url}/health").status == 200
        processes = family(server.pid)
        assert "loading" in server.log.read_text()
    assert_gone(processes)


@pytest.mark.slow
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_ends_after_an_error_in_the_block(error):
    port = free_port()
    with pytest.raises(error), serve(command=stand_in(port), port=port, timeout=30) as server:
        processes = family(server.pid)
        raise error
    assert_gone(processes)


HOLDER = """
import importlib.util, sys, time
spec = importlib.util.spec_from_file_location("server", sys.argv[1])  # the package is slow to load
server = sys.modules["server"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(server)
server.GRACE = 0.5
port = server.free_port()
with server.serve(command=[sys.executable, "-c", sys.argv[2], str(port), "0"], port=port, timeout=60) as running:
    print(running.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_kill_of_the_parent(sent, root):
    """Ctrl-C reaches the process that holds the server, and no other; a kill of it leaves no time to clean up."""
    command = [sys.executable, "-c", HOLDER, str(root / "recipe_lib/rollouts/server.py"), STAND_IN]
    # a job in the background of a shell script ignores Ctrl-C, and so would what it starts
    hear = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=hear)
    server, child = family(int(holder.stdout.readline()))
    holder.send_signal(sent)
    holder.wait(timeout=20)
    gone = [server, child] if sent == signal.SIGINT else [server]
    psutil.wait_procs(gone, timeout=10)
    assert not [p for p in gone if p.is_running() and p.status() != "zombie"]
    if child.is_running():
        child.kill()  # it ignores what an engine obeys


def test_a_server_that_dies_shows_its_last_lines():
    command = [sys.executable, "-c", "print('no such model: x'); raise SystemExit(3)"]
    said = r"(?s)ended with code 3 before it answered:.*no such model: x"
    with pytest.raises(RuntimeError, match=said), serve(command=command, timeout=30):
        pass


@pytest.mark.slow
def test_a_server_that_never_answers_is_ended():
    port = free_port()
    before = set(psutil.Process().children(recursive=True))
    command, said = stand_in(port, wait=60), r"(?s)did not answer at .*health within 3 s.*loading the weights"
    with pytest.raises(TimeoutError, match=said), serve(command=command, port=port, timeout=3):
        pass
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.slow
def test_two_servers_get_two_ports():
    ports = [free_port(), free_port()]
    with (
        serve(command=stand_in(ports[0]), port=ports[0]) as one,
        serve(command=stand_in(ports[1]), port=ports[1]) as two,
    ):
        assert one.url != two.url


def test_command_lines(monkeypatch):
    command = server_command("m", 8123, dtype="bfloat16", extra=("--model-impl", "transformers"))
    assert "vllm.entrypoints.openai.api_server" in command and command[-2:] == ["--model-impl", "transformers"]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    command = " ".join(server_command("m", 8123, dtype="bfloat16"))
    assert command.startswith("vllm serve m --host 127.0.0.1 --port 8123 --dtype bfloat16")
    for flag in (
        '{"backend": "nccl"}',
        "--logprobs-mode processed_logprobs",
        "--max-logprobs -1",
        "--enable-scale-out",
    ):
        assert flag in command
