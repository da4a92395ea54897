"""Run a notebook from the command line: `python -m recipe_lib run 00_quickstart -p SEED 1`.

A convenience over plain papermill, which runs the same notebooks: names and types are checked before a
kernel starts, the kernel is that of this environment, and the executed notebook, its HTML copy and the
record lie together in one folder, also when a cell fails.
"""

import argparse
import io
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

from recipe_lib.parameters import Parameter, from_text, read_parameters, refuse_unknown
from recipe_lib.record import format_record, prepare_output

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
KERNEL = "python3"


def find_notebook(name: str) -> Path:
    """A notebook by path, or one of this repository's by name: `03_grpo.ipynb`, `03_grpo`, `grpo` or `03`.

    Raises:
        ValueError: there is none; the message lists the known names.
    """
    path = Path(name)
    if path.suffix == ".ipynb" and path.is_file():
        return path
    known = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    for candidate in known:
        number, _, title = candidate.stem.partition("_")
        if path.name.removesuffix(".ipynb") in (candidate.stem, title, number) and path.parent == Path("."):
            return candidate
    names = ", ".join(candidate.stem for candidate in known)
    raise ValueError(f"no notebook {name!r}; give the path of an .ipynb file, or one of: {names or 'none'}")


def declared_parameters(notebook: Any) -> dict[str, Parameter]:
    """Parameters that the cell tagged `parameters` declares; empty where no cell has the tag."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", []):
            return read_parameters(cell.source)
    return {}


def read_values(notebook: Any, given: list[tuple[str, str]]) -> dict[str, Any]:
    """Command-line texts in the declared types.

    Raises:
        ValueError: unknown name, wrong type, or values given to a notebook without a `parameters` cell.
    """
    declared = declared_parameters(notebook)
    if given and not declared:
        raise ValueError("the notebook has no cell tagged `parameters`, so it takes no -p")
    refuse_unknown([name for name, _ in given], declared)
    return {name: from_text(declared[name], text) for name, text in given}


def check_kernel(notebook: Any) -> None:
    """Raise a ValueError when the notebook asks for a kernel that is not this environment's."""
    asked = notebook.metadata.get("kernelspec", {}).get("name", KERNEL)
    if asked != KERNEL:
        raise ValueError(
            f"the notebook asks for the kernel {asked!r}, but this runner has only {KERNEL!r}, the one of "
            f"{sys.executable}; choose {KERNEL!r} in the notebook and save it, or use plain papermill"
        )


@contextmanager
def own_kernel() -> Iterator[None]:
    """Make the kernel name `python3` mean this interpreter, whatever the machine's Jupyter says it is."""
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "kernels" / KERNEL / "kernel.json"
        spec.parent.mkdir(parents=True)
        # The kernel's own log (transport hints, sockets closed at a time-out) is no news to the reader.
        # Nor is tqdm's wish for widgets: a page that nobody watches shows its bars as text.
        quiet = ["-W", "ignore:IProgress not found"]
        argv = [sys.executable, *quiet, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=50"]
        spec.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
        before = os.environ.get("JUPYTER_PATH")
        os.environ["JUPYTER_PATH"] = folder + (os.pathsep + before if before else "")
        try:
            yield
        finally:
            del os.environ["JUPYTER_PATH"]
            if before:
                os.environ["JUPYTER_PATH"] = before


@contextmanager
def gentle_interrupt() -> Iterator[None]:
    """Pass the first Ctrl-C on to the kernel, so that a training cell can save; the second one stops at once.

    The kernel is a session of its own, which the terminal's Ctrl-C does not reach.
    """
    import psutil

    def interrupt(signum, frame):
        signal.signal(signal.SIGINT, before)
        print("\ninterrupting the running cell; press Ctrl-C again to stop at once", file=sys.stderr)
        for child in psutil.Process().children():
            if "ipykernel_launcher" in child.cmdline():
                child.send_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class ProgressOnly:
    """Takes the kernel's stderr and shows its progress bars (what rewrites a line) in the terminal."""

    def write(self, text: str) -> None:
        for line in io.StringIO(text, newline="\n"):
            if "\r" in line:
                sys.stderr.write(line)

    def flush(self) -> None:
        sys.stderr.flush()


def execute(notebook: Any, copy: Path, values: dict[str, Any], timeout: int | None) -> str | None:
    """Run a notebook through papermill, with its progress, and leave the executed copy whatever happens.

    Args:
        notebook: as read by nbformat.
        copy: path of the executed copy.
        values: parameters in their declared types.
        timeout: seconds that one cell may take; None for no limit.

    Returns:
        None when every cell ran, else what went wrong, in one line.
    """
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    # papermill fills names in braces into paths.
    output_path = str(copy).replace("{", "{{").replace("}", "}}")
    try:
        with own_kernel(), gentle_interrupt():
            papermill.execute_notebook(
                notebook,
                output_path,
                parameters=values,
                kernel_name=KERNEL,
                language="python",
                progress_bar={"desc": copy.stem},
                stderr_file=ProgressOnly(),
                execution_timeout=timeout,
            )
    except papermill.PapermillExecutionError as error:
        cause = error.evalue.partition("\n")[0]
        if error.ename == "KeyboardInterrupt":
            return f"interrupted: {cause}" if cause else "interrupted"
        return f"cell In [{error.exec_count}] failed: {error.ename}: {cause}"
    except CellTimeoutError:
        return f"a cell took longer than --timeout {timeout} seconds"
    except DeadKernelError:
        return "the kernel died: most often the machine ran out of memory; try a smaller model or batch"
    except KeyboardInterrupt:
        return "interrupted"
    return None


def _joined(outputs: list[Any]) -> list[Any]:
    """Outputs with neighbouring pieces of one stream put together: a bar is written in a piece for each update."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            joined[-1] = nbformat.from_dict({**last, "text": last.text + output.text})
        else:
            joined.append(output)
    return joined


def tidy_streams(notebook: Any) -> None:
    """Leave of every progress bar the line that it ended with, as plain output.

    A bar rewrites its line on stderr, and a page shows every rewriting, in the red of a warning.
    """
    for cell in notebook.cells:
        outputs = []
        for output in _joined(cell.get("outputs", [])):
            if output.output_type != "stream" or output.name != "stderr" or "\r" not in output.text:
                outputs.append(output)
                continue
            lines = output.text.split("\n")
            ends = [line.rstrip("\r").rpartition("\r")[2].strip() for line in lines if "\r" in line]
            rest = "\n".join(line for line in lines if "\r" not in line)
            for name, text in (("stdout", "\n".join(filter(None, ends))), ("stderr", rest)):
                if text.strip():
                    outputs.append(nbformat.from_dict({**output, "name": name, "text": text + "\n"}))
        if "outputs" in cell:
            cell.outputs = outputs


def write_html(copy: Path) -> Path:
    """Write the HTML copy beside an executed notebook and return its path."""
    from nbconvert import HTMLExporter

    notebook = nbformat.read(copy, as_version=4)
    tidy_streams(notebook)
    html, _ = HTMLExporter().from_notebook_node(notebook, {"metadata": {"name": copy.stem}})
    path = copy.with_suffix(".html")
    path.write_text(html, encoding="utf-8")
    return path


def report(copy: Path, html: Path, started: float) -> None:
    """Print the record, if this run wrote one, and where everything lies."""
    record = copy.with_name("metrics.json")
    written = record.is_file() and record.stat().st_mtime >= started
    if written:
        print(f"\n{format_record(json.loads(record.read_text(encoding='utf-8')))}\n")
    print(f"executed notebook  {copy}\nHTML copy          {html}")
    if written:
        print(f"metrics            {record}")


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line of `run`."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe_lib run",
        description="Run a notebook with checked parameters. Exit code: 0 when every cell ran, 1 when a cell "
        "failed or was interrupted, 2 for a mistake in the command line.",
    )
    parser.add_argument("notebook", metavar="NAME", help="such as 00_quickstart, or the path of any notebook")
    parser.add_argument(
        "-p", dest="parameters", nargs=2, action="append", default=[], metavar=("KEY", "VALUE"),
        help="set a parameter of the notebook; may be repeated",
    )  # fmt: skip
    parser.add_argument("--output-dir", type=Path, help="folder for all that the run writes (outputs/NAME)")
    parser.add_argument("--timeout", type=int, metavar="SECONDS", help="longest time that one cell may take")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """`python -m recipe_lib run`; returns the exit code."""
    arguments = parse_arguments(argv)
    try:
        path = find_notebook(arguments.notebook)
        try:
            notebook = nbformat.read(path, as_version=4)
        except (OSError, ValueError) as error:
            raise ValueError(f"cannot read {path} as a notebook: {error}") from None
        check_kernel(notebook)
        values = read_values(notebook, arguments.parameters)
        output_dir = arguments.output_dir or Path(values.get("OUTPUT_DIR") or Path("outputs") / path.stem)
        if arguments.output_dir and values.get("OUTPUT_DIR", str(output_dir)) != str(output_dir):
            raise ValueError("--output-dir and -p OUTPUT_DIR name two folders; give one of them")
        prepare_output(output_dir)
    except (ValueError, SyntaxError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if "OUTPUT_DIR" in declared_parameters(notebook):
        values["OUTPUT_DIR"] = str(output_dir)
    started = time.time()
    copy = output_dir / f"{path.stem}.ipynb"
    failure = execute(notebook, copy, values, arguments.timeout)
    report(copy, write_html(copy), started)
    if failure:
        print(f"error: {failure}; {copy} shows how far it came", file=sys.stderr)
    return 1 if failure else 0
