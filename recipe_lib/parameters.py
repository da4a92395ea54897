"""Parameters of a notebook: what its `parameters` cell declares, and whether the given values fit.

Plain papermill only warns of an unknown name, and passes `-p NAME false` on as a text, which is true in an
`if`. So the cell after the parameters calls `check_parameters(globals())`, and the runner checks the same
before it starts a kernel.
"""

import ast
import difflib
from dataclasses import dataclass
from typing import Any

# The first line of the cell that papermill writes the given values into.
INJECTED_COMMENT = "# Parameters"
TYPES = {"bool": bool, "int": int, "float": float, "str": str, "list": list, "dict": dict}


@dataclass(frozen=True)
class Parameter:
    """One declared parameter. `type` is that of the default, or the annotation where the default is None."""

    name: str
    default: Any
    type: type


def read_parameters(source: str) -> dict[str, Parameter]:
    """Declared parameters of a cell that holds nothing but `NAME = literal` lines.

    A default of None needs its type, which papermill's own `--help-notebook` reads too: `LIMIT: int = None`.

    Raises:
        ValueError: a line is something else; the message names the line.
        SyntaxError: the cell is not Python.
    """
    parameters = {}
    for node in ast.parse(source).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(target, ast.Name):
            raise ValueError(f"line {node.lineno} of the parameters cell is not `NAME = value`")
        try:
            default = ast.literal_eval(node.value)
        except (ValueError, TypeError):
            raise ValueError(
                f"{target.id} on line {node.lineno} of the parameters cell is not a literal "
                "(a text, a number, True, False, None, a list or a dictionary of these)"
            ) from None
        annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else None
        if default is None and annotation not in TYPES:
            raise ValueError(
                f"{target.id} = None says no type; write it as `{target.id}: int = None`, "
                f"with one of {', '.join(TYPES)}"
            )
        kind = TYPES[annotation] if annotation in TYPES else type(default)
        parameters[target.id] = Parameter(target.id, default, kind)
    return parameters


def fit(parameter: Parameter, value: Any) -> Any:
    """Return `value` in the declared type, or raise a ValueError that names the parameter and the type.

    Widened: an int where a float is declared, and the texts true and false where a bool is declared (so
    papermill passes them on). None fits only where it is the default.
    """
    if value is None and parameter.default is None:
        return None
    if parameter.type is bool and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    # bool is an int to Python, but `-p MAX_STEPS True` is a mistake.
    if parameter.type is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not parameter.type:
        hint = "; papermill's -r passes a text as it is" if parameter.type is str else ""
        raise ValueError(
            f"{parameter.name} takes {parameter.type.__name__} (default {parameter.default!r}), "
            f"but got {value!r}, which is {type(value).__name__}{hint}"
        )
    return value


def from_text(parameter: Parameter, text: str) -> Any:
    """Read a value from the command line in the declared type, or raise as `fit` does.

    A text parameter takes the text as it is; anything else is read as a Python literal.
    """
    if parameter.type is str and not (text == "None" and parameter.default is None):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    return fit(parameter, value)


def refuse_unknown(names, known) -> None:
    """Raise a ValueError for the first of `names` that is not in `known`; it lists the known ones."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.upper(), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ";"
            raise ValueError(f"unknown parameter {name}{hint} Known: {', '.join(sorted(known)) or 'none'}")


def check_parameters(namespace: dict[str, Any]) -> dict[str, Any]:
    """Check the notebook's parameters, put them into `namespace` in their declared types, and return them.

    To be called as `check_parameters(globals())` in the cell after the `parameters` cell. What the cell
    declares, and which names papermill injected, is read from IPython's history of executed cells, so that it
    works in the same way under Jupyter, Colab and papermill. The first declaration of a name in a session
    sets its type.

    Raises:
        ValueError: an unknown name, a value of a wrong type, or a notebook whose parameters cell has no tag.
    """
    declared: dict[str, Parameter] = {}
    injected: list[str] = []
    executed = namespace.get("In", [""])[:-1]  # the last one is the calling cell
    for source in executed:
        if source.startswith(INJECTED_COMMENT + "\n"):
            if not declared:
                raise ValueError(
                    "papermill put its values at the top, where the notebook's own overwrite them: "
                    "give the cell of the defaults the tag `parameters`"
                )
            lines = ast.parse(source).body
            injected += [line.targets[0].id for line in lines if isinstance(line, ast.Assign)]
            continue
        try:
            found = read_parameters(source)
        except (ValueError, SyntaxError):
            continue  # any other cell
        declared = found | declared
    if not declared:
        raise ValueError("no cell with parameters has run yet: run the cell before this one first")
    refuse_unknown(injected, declared)
    present = [parameter for name, parameter in declared.items() if name in namespace]
    values = {parameter.name: fit(parameter, namespace[parameter.name]) for parameter in present}
    namespace.update(values)
    return values
