"""The math-verify process: its deadline holds, it outlives nothing, and it can be used from anywhere."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from recipe_lib.rewards import math_worker
from recipe_lib.rewards.math_worker import MathWorker

pytestmark = pytest.mark.slow  # each start of the child imports sympy
TOWER = "9^{9^{9^{9}}}"


@pytest.fixture(scope="module")
def worker():
    assert math_worker.compare("1", "1", 20.0) == "equal"  # the start-up is not what the tests time
    return math_worker.worker


def run(code, *arguments, timeout=200):
    """Standard output of a script in its own process."""
    code = (
        "import os, sys, time, threading\nfrom recipe_lib.rewards.math_worker import compare, worker\n"
        + textwrap.dedent(code)
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def alive(pid):
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def family(pid):
    """A process and all below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(pid), *(one for child in children for one in family(child))]


def wait_for_the_end_of(pids, seconds=5.0):
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)):
        assert time.monotonic() < deadline, f"still there: {[pid for pid in pids if alive(pid)]}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("gold", "answer", "verdict"),
    [
        ("3x-y+13=0", "6x-2y+26=0", "equal"),
        ("3x-y+13=0", "3x+4y+14=0", "different"),
        ("\\log_2 8", "3", "equal"),
        ("\\sqrt{2}", "1.414214", "different"),
        ("1 < x < 3", "(1,3)", "equal"),
        ("2x-3y=6", "6", "different"),  # an equation is not the last number in it
        ("x^2=4", "4", "different"),
        ("x > 3", "3", "different"),
        ("(1,3)", "1 < x < 3", "equal"),
        ("12", "\\frac{1}{2}\\infty ^{1.5}e", "different"),
        ("\\begin{tabular}{c}a\\end{tabular}", "3", "gold unreadable"),
        ("3", "\\frac{\\sqrt{x}}", "answer unreadable"),
    ],
)
def test_verdicts(worker, gold, answer, verdict):
    assert worker.compare(gold, answer, 20.0) == verdict


@pytest.mark.parametrize(
    "answer", [TOWER, "(10^{9})!", "\\sum_{i=1}^{10^{12}} \\frac{1}{i^{3}}", "2^{" * 20 + "9" + "}" * 20]
)
def test_the_deadline_holds_and_the_next_verdict_is_quick(worker, answer):
    started = time.perf_counter()
    verdict = worker.compare("1", answer, 0.5)
    assert time.perf_counter() - started < 2.0
    assert verdict in ("timeout", "different", "answer unreadable") or verdict.startswith("failed")
    started = time.perf_counter()
    assert worker.compare("x+1", "1+x", 20.0) == "equal"
    assert time.perf_counter() - started < 2.0  # a fork, not a new import of sympy


def test_late_verdicts_are_counted(worker):
    before = math_worker.late()
    assert worker.compare("1", TOWER, 0.2) == "timeout"
    assert math_worker.late() == before + 1


def test_threads_share_one_process(worker):
    found, first = [], worker._process.pid
    threads = [
        threading.Thread(target=lambda n=n: found.append((n, worker.compare(f"x+{n}", f"{n}+x", 20.0))))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(n, "equal") for n in range(16)]
    assert worker._process.pid == first


def test_a_killed_child_is_replaced(worker):
    os.kill(worker._process.pid, signal.SIGKILL)
    assert worker.compare("x", "x", 20.0) == "equal"
    os.kill(family(worker._process.pid)[1], signal.SIGKILL)  # the forked worker, under the supervisor
    assert worker.compare("x", "y", 20.0) in ("crashed", "different")
    assert worker.compare("x", "x", 20.0) == "equal"


def test_an_interrupt_does_not_mix_up_replies(worker, monkeypatch):
    monkeypatch.setattr(math_worker.json, "loads", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        worker.compare("x", "x", 20.0)
    monkeypatch.undo()
    assert worker.compare("x", "y", 20.0) == "different"


def test_nothing_is_left_at_exit():
    pids = run(
        """
        compare("1", "9^{9^{9^{9}}}", 0.2)
        child = worker._process.pid
        print(child, open(f"/proc/{child}/task/{child}/children").read())
        """
    )
    assert len(pids) == 2
    wait_for_the_end_of(pids)


@pytest.mark.parametrize("busy", ["idle", "busy"])
def test_the_end_of_the_parent_ends_the_child(busy):
    code = f"""
    from recipe_lib.rewards.math_worker import compare, worker
    compare("1", "1", 20.0)
    print(worker._process.pid, flush=True)
    compare("1", {TOWER!r}, 600.0) if {busy == "busy"} else input()
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    pids = family(int(parent.stdout.readline()))
    assert len(pids) == 2
    time.sleep(0.5)
    assert all(map(alive, pids))
    parent.kill()
    parent.communicate()
    wait_for_the_end_of(pids)


def test_forks_have_a_process_each_and_take_nothing_from_the_parent():
    """As data-loader workers and launchers fork: the fork's exit must not end the parent's child."""
    out = run(
        """
        compare("1", "1", 20.0)
        mine = worker._process.pid
        fork = os.fork()
        if fork == 0:
            ok = worker._process is None and compare("x", "x", 20.0) == "equal" and worker._process.pid != mine
            worker.close()
            os._exit(0 if ok else 3)
        print(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]), compare("x", "x", 20.0), worker._process.pid == mine)
        """
    )
    assert out == ["0", "equal", "True"]


def test_a_fork_that_lives_on_does_not_keep_the_child_alive():
    out = run(
        """
        compare("1", "1", 20.0)
        fork = os.fork()
        if fork == 0:
            os.close(1), os.close(2)
            time.sleep(30)
            os._exit(0)
        print(fork, worker._process.pid, flush=True)
        os._exit(0)  # no clean-up of ours runs: the closed pipe must do
        """
    )
    try:
        wait_for_the_end_of(out[1:])
    finally:
        os.kill(int(out[0]), signal.SIGKILL)


def test_several_processes_on_one_machine():
    code = "from recipe_lib.rewards.math_worker import compare; print(compare('x+1', '1+x', 20), compare('1', '2', 20))"
    many = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [one.communicate(timeout=200)[0].split() for one in many] == [["equal", "different"]] * 3


def test_a_missing_package_is_named_with_the_command(tmp_path, monkeypatch):
    (tmp_path / "math_verify.py").write_text("raise ImportError('No module named math_verify')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = MathWorker()
    with pytest.raises(ImportError, match=r"math_verify.*pip install 'math-verify"):
        worker.compare("1", "1", 1.0)
    assert worker._process is None


def test_importing_the_rewards_imports_neither_sympy_nor_torch():
    heavy = ("sympy", "torch", "math_verify", "transformers")
    assert run(f"import recipe_lib.rewards; print([name for name in {heavy} if name in sys.modules])") == ["[]"]
