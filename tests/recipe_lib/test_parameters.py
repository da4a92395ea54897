"""Parameters: what a cell declares, which values fit, and how plain papermill's mistakes are caught."""

import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from recipe_lib.parameters import check_parameters, fit, from_text, read_parameters

CELL = """\
# What this run does.
MODEL = "auto"
MAX_STEPS = 10
LR = -1e-4  # a comment
PUSH_TO_HUB = False
LIMIT: int = None
STEPS_OF = {"a": [1, 2]}
OUTPUT_DIR = "outputs/x"
"""
CHECK = "from recipe_lib.parameters import check_parameters\ncheck_parameters(globals())"


@pytest.fixture
def declared():
    return read_parameters(CELL)


def test_cell_is_read_with_types(declared):
    types = {name: parameter.type for name, parameter in declared.items()}
    assert types == {
        "MODEL": str,
        "MAX_STEPS": int,
        "LR": float,
        "PUSH_TO_HUB": bool,
        "LIMIT": int,
        "STEPS_OF": dict,
        "OUTPUT_DIR": str,
    }
    assert declared["LR"].default == -1e-4 and declared["LIMIT"].default is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("A = 1\nB = A + 1", "B on line 2"),
        ("import os", "line 1"),
        ("A, B = 1, 2", "line 1"),
        ("A = open('x')", "not a literal"),
        ("A = None", "A = None says no type"),
        ("A: Path = None", "says no type"),
        ("A += 1", "line 1"),
    ],
)
def test_anything_but_literals_is_refused(line, message):
    with pytest.raises(ValueError, match=message):
        read_parameters(line)


@pytest.mark.parametrize(
    ("name", "value", "result"),
    [
        ("PUSH_TO_HUB", "false", False),
        ("PUSH_TO_HUB", "True", True),
        ("LR", 1, 1.0),
        ("LIMIT", None, None),
        ("LIMIT", 5, 5),
        ("MODEL", "7", "7"),
    ],
)
def test_fitting_values(declared, name, value, result):
    fitted = fit(declared[name], value)
    assert fitted == result and type(fitted) is type(result)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PUSH_TO_HUB", 1),
        ("PUSH_TO_HUB", "no"),
        ("MAX_STEPS", True),
        ("MAX_STEPS", 1.0),
        ("MAX_STEPS", "10"),
        ("MAX_STEPS", None),
        ("LR", True),
        ("LIMIT", "all"),
        ("MODEL", 7),
        ("STEPS_OF", [1]),
    ],
)
def test_values_of_another_type_are_refused(declared, name, value):
    with pytest.raises(ValueError, match=rf"^{name} takes {declared[name].type.__name__} .*{type(value).__name__}"):
        fit(declared[name], value)


def test_texts_of_the_command_line(declared):
    assert from_text(declared["MODEL"], "7") == "7"
    assert from_text(declared["MODEL"], "None") == "None"
    assert from_text(declared["PUSH_TO_HUB"], "false") is False
    assert from_text(declared["LR"], "1e-3") == 1e-3
    assert from_text(declared["LIMIT"], "None") is None
    assert from_text(declared["STEPS_OF"], "{'b': 1}") == {"b": 1}
    for name, text in (("MAX_STEPS", "ten"), ("MAX_STEPS", "1.5"), ("LIMIT", "x"), ("LR", "")):
        with pytest.raises(ValueError, match=f"^{name} takes"):
            from_text(declared[name], text)


def session(*cells: str, **values) -> dict:
    """A namespace as IPython's after the cells, the calling one being the last."""
    namespace = {"In": ["", *cells, CHECK]}
    for cell in cells:
        exec(cell, namespace)
    return namespace | values


def test_injected_values_are_checked_and_converted():
    namespace = session("import os", CELL, '# Parameters\nPUSH_TO_HUB = "false"\nLR = 1\n')
    values = check_parameters(namespace)
    assert namespace["PUSH_TO_HUB"] is False and type(namespace["LR"]) is float
    assert values["PUSH_TO_HUB"] is False and values["MODEL"] == "auto" and len(values) == 7


def test_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match=r"unknown parameter MAX_STEP; did you mean MAX_STEPS\? Known: LIMIT, LR"):
        check_parameters(session(CELL, "# Parameters\nMAX_STEP = 3\n"))


def test_untagged_notebook_is_refused():
    with pytest.raises(ValueError, match="tag `parameters`"):
        check_parameters(session("# Parameters\nMAX_STEPS = 3\n", CELL))


def test_check_before_the_parameters_is_refused():
    with pytest.raises(ValueError, match="run the cell before"):
        check_parameters(session("import os"))


def test_cell_edited_and_run_again_in_jupyter():
    """By hand one edits the cell itself: the first type of the session holds, and no injection is assumed."""
    assert check_parameters(session(CELL, CELL.replace("= 10", "= 20")))["MAX_STEPS"] == 20
    with pytest.raises(ValueError, match="MAX_STEPS takes int"):
        check_parameters(session(CELL, CELL.replace("= 10", '= "10"')))
    # An executed copy opened in Jupyter: the injected cell ran once, then the first cell was run again.
    assert check_parameters(session(CELL, "# Parameters\nMAX_STEPS = 3\n", CELL))["MAX_STEPS"] == 10


@pytest.mark.slow
def test_plain_papermill(tmp_path):
    """The real thing, from papermill's command line: with and without the tag, and with a foreign kernel."""
    show = 'print("values", PUSH_TO_HUB is False, MAX_STEPS, LR, MODEL, LIMIT)'
    tagged = new_code_cell(CELL, metadata={"tags": ["parameters"]})
    python3 = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    foreign = {"kernelspec": {"name": "no-such-kernel", "display_name": "X", "language": "python"}}

    def papermill(first_cell, metadata, *arguments):
        cells = [first_cell, new_code_cell(CHECK), new_code_cell(show)]
        nbformat.write(new_notebook(cells=cells, metadata=metadata), tmp_path / "in.ipynb")
        command = [sys.executable, "-m", "papermill", "in.ipynb", "out.ipynb", "--log-output", *arguments]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return run.returncode, run.stdout + run.stderr

    code, output = papermill(tagged, python3, "-p", "PUSH_TO_HUB", "false", "-p", "LR", "1", "-p", "MAX_STEPS", "3")
    assert code == 0 and "values True 3 1.0 auto None" in output
    code, output = papermill(tagged, python3, "-p", "MAX_STEP", "3")
    assert code != 0 and "ValueError: unknown parameter MAX_STEP; did you mean MAX_STEPS?" in output
    code, output = papermill(new_code_cell(CELL), python3, "-p", "MAX_STEPS", "3")
    assert code != 0 and "ValueError: papermill put its values at the top" in output
    code, output = papermill(tagged, foreign, "-p", "MAX_STEPS", "3")
    assert code != 0 and "no-such-kernel" in output.strip().splitlines()[-1]
