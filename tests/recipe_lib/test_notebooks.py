"""The runner: what it refuses before a kernel starts, and what it leaves when a run ends badly."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from recipe_lib import notebooks
from tests.recipe_lib.test_record import MEASURED

PARAMETERS = 'MODEL = "auto"\nMAX_STEPS = 10\nPUSH_TO_HUB = False\nOUTPUT_DIR = "elsewhere"\n'
PYTHON3 = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def write_notebook(folder: Path, *sources: str, tags=("parameters",), metadata=PYTHON3) -> Path:
    """A notebook of code cells whose first one has the tags."""
    cells = [new_code_cell(source) for source in sources]
    cells[0].metadata["tags"] = list(tags)
    path = folder / "given.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata=metadata), path)
    return path


def command(*arguments) -> list[str]:
    return [sys.executable, "-m", "recipe_lib", "run", *map(str, arguments)]


def printed(path: Path) -> str:
    """All that the cells of a notebook printed."""
    cells = nbformat.read(path, as_version=4).cells
    return "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", []))


@pytest.fixture
def no_kernel(monkeypatch):
    """Fails the test when the runner gets as far as running something."""
    monkeypatch.setattr(notebooks, "execute", lambda *arguments: pytest.fail("a kernel was about to start"))


def test_notebooks_are_found_by_name_number_and_path(tmp_path, monkeypatch):
    for name in ("00_quickstart", "03_grpo"):
        (tmp_path / f"{name}.ipynb").touch()
    monkeypatch.setattr(notebooks, "NOTEBOOKS", tmp_path)
    for name in ("03_grpo", "03_grpo.ipynb", "grpo", "03"):
        assert notebooks.find_notebook(name) == tmp_path / "03_grpo.ipynb"
    own = tmp_path / "mine.ipynb"
    own.touch()
    assert notebooks.find_notebook(str(own)) == own
    for name in ("gspo", str(tmp_path / "grpo"), str(tmp_path / "no.ipynb"), ""):
        with pytest.raises(ValueError, match="one of: 00_quickstart, 03_grpo"):
            notebooks.find_notebook(name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-p", "MAX_STEP", "3"],
            "unknown parameter MAX_STEP; did you mean MAX_STEPS? Known: MAX_STEPS, MODEL",
        ),
        (["-p", "MAX_STEPS", "ten"], "MAX_STEPS takes int (default 10), but got 'ten'"),
        (["-p", "PUSH_TO_HUB", "maybe"], "PUSH_TO_HUB takes bool"),
        (["--output-dir", "a_file/out"], "cannot write to a_file/out (Not a directory)"),
        (["--output-dir", "/proc/nope"], "cannot write to /proc/nope ("),
        (["-p", "OUTPUT_DIR", "a", "--output-dir", "b"], "name two folders"),
    ],
)
def test_mistakes_are_refused_before_a_kernel_starts(tmp_path, monkeypatch, capsys, no_kernel, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("a_file").touch()
    assert notebooks.main([str(write_notebook(tmp_path, PARAMETERS)), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") or message in error
    assert error.count("\n") == 1


def test_notebooks_that_cannot_be_run_are_refused(tmp_path, capsys, no_kernel):
    def refusal(path, *arguments):
        assert notebooks.main([str(path), *arguments, "--output-dir", str(tmp_path / "out")]) == 2
        return capsys.readouterr().err

    assert "no cell tagged `parameters`" in refusal(write_notebook(tmp_path, PARAMETERS, tags=()), "-p", "A", "1")
    assert "not a literal" in refusal(write_notebook(tmp_path, "A = open"), "-p", "A", "1")
    foreign = {"kernelspec": {"name": "ir", "display_name": "R", "language": "R"}}
    assert "asks for the kernel 'ir'" in refusal(write_notebook(tmp_path, PARAMETERS, metadata=foreign))
    (tmp_path / "text.ipynb").write_text("not json")
    assert "as a notebook" in refusal(tmp_path / "text.ipynb")


def test_a_page_shows_how_a_bar_ended_and_keeps_warnings_apart():
    bars = ["\rtrain:   0%| | 0/2", "\rtrain:  50%| | 1/2\rtrain: 100%| | 2/2", "\n"]  # as they arrive
    cell = new_code_cell("train()")
    cell.outputs = [
        new_output("stream", name="stdout", text="measured\n"),
        *(new_output("stream", name="stderr", text=piece) for piece in bars),
        new_output("stream", name="stderr", text="UserWarning: too hot\n\rgone: 1/2\r         \r"),
        new_output("stream", name="stdout", text="more\n"),
        new_output("stream", name="stderr", text="a warning alone\n"),
    ]
    notebooks.tidy_streams(new_notebook(cells=[cell]))
    seen = [(output.name, output.text) for output in cell.outputs]
    assert seen == [
        ("stdout", "measured\n"),
        ("stdout", "train: 100%| | 2/2\n"),
        ("stderr", "UserWarning: too hot\n"),
        ("stdout", "more\n"),
        ("stderr", "a warning alone\n"),
    ]


@pytest.mark.slow
def test_a_run_leaves_copy_html_record_and_table(tmp_path, root):
    """In a folder of its own, beside a machine-wide `python3` kernel that does not work."""
    kernel = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(json.dumps({"argv": ["/bin/false"], "display_name": "broken", "language": "python"}))
    check = "from recipe_lib.parameters import check_parameters\ncheck_parameters(globals())"
    show = 'import sys\nprint("seen", PUSH_TO_HUB is False, MAX_STEPS, sys.executable)\n'
    show += 'print("\\r 1/2", file=sys.stderr)\nprint("a warning", file=sys.stderr)'
    record = f"from recipe_lib.record import write_record\nwrite_record(OUTPUT_DIR, **{MEASURED})"
    path = write_notebook(tmp_path, PARAMETERS, check, show, record)
    environment = os.environ | {"JUPYTER_PATH": str(tmp_path / "jupyter"), "PYTHONPATH": str(root)}
    out = tmp_path / "out {x}"
    run = subprocess.run(
        command(path, "-p", "PUSH_TO_HUB", "false", "-p", "MAX_STEPS", 3, "--output-dir", out),
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert sorted(file.name for file in out.iterdir()) == ["given.html", "given.ipynb", "metrics.json"]
    assert f"seen True 3 {sys.executable}" in printed(out / "given.ipynb")
    assert "gain              +35.0 %   [30.0, 40.0]" in run.stdout
    for name in ("given.html", "given.ipynb", "metrics.json"):
        assert str(out / name) in run.stdout
    assert " 1/2" in run.stderr and "given: 100%" in run.stderr and "a warning" not in run.stderr
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.slow
def test_a_failing_cell_leaves_the_copy_and_no_old_figures(tmp_path, root):
    out = tmp_path / "out"
    out.mkdir()
    (out / "metrics.json").write_text("{}")
    os.utime(out / "metrics.json", (0, 0))
    sources = (PARAMETERS, 'print("before")', '1 / 0\nprint("never")', 'print("after")')
    path = write_notebook(tmp_path, *sources, metadata={})  # as editors may leave it
    run = subprocess.run(command(path, "--output-dir", out), cwd=root, capture_output=True, text=True)
    assert run.returncode == 1
    assert "error: cell In [4] failed: ZeroDivisionError: division by zero" in run.stderr
    assert printed(out / "given.ipynb") == "before\n"
    assert "ZeroDivisionError" in (out / "given.html").read_text()
    assert "metrics.json" not in run.stdout


@pytest.mark.slow
def test_time_out_and_dead_kernel(tmp_path, root):
    slow = write_notebook(tmp_path, PARAMETERS, 'print("before")', "import time; time.sleep(60)")
    started = time.time()
    run = subprocess.run(
        command(slow, "--timeout", 1, "--output-dir", tmp_path), cwd=root, capture_output=True, text=True
    )
    assert run.returncode == 1 and "longer than --timeout 1 seconds" in run.stderr
    assert time.time() - started < 30
    assert printed(tmp_path / "given.ipynb") == "before\n"
    dead = write_notebook(tmp_path, PARAMETERS, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    run = subprocess.run(command(dead, "--output-dir", tmp_path), cwd=root, capture_output=True, text=True)
    assert run.returncode == 1 and "the kernel died" in run.stderr


@pytest.mark.slow
def test_interrupt_reaches_the_running_cell(tmp_path, root):
    cell = "import time\ntry:\n    open('started', 'w')\n    time.sleep(60)\n"
    cell += "except KeyboardInterrupt:\n    print('saved')\n    raise KeyboardInterrupt('go on with RESUME')"
    path = write_notebook(tmp_path, PARAMETERS, cell, 'print("after")')
    environment = os.environ | {"PYTHONPATH": str(root)}
    run = subprocess.Popen(
        command(path, "--output-dir", tmp_path / "out"),
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(300):
        if (tmp_path / "started").exists():
            break
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    error = run.communicate(timeout=60)[1]
    assert run.returncode == 1 and "error: interrupted: go on with RESUME;" in error
    assert printed(tmp_path / "out" / "given.ipynb") == "saved\n"
