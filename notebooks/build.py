"""Write notebooks/*.ipynb from notebooks/src/*.py: `python notebooks/build.py`, with --check to only compare.

A source is a jupytext percent script. How to write one:
- The first cell is markdown: `# Title`, then **What you will learn** and **Hardware and time** (in minutes).
  After it the builder puts the Colab badge, the Colab cell and `## Versions`, the same in every notebook.
- Sections are markdown cells that begin with `## `, in the order of SECTIONS; others may stand between them.
  A notebook that never calls `.train(` may leave out Train and Evaluate.
- `# %% tags=["parameters"]` marks the one cell of parameters: `NAME = literal` lines, names in capitals,
  OUTPUT_DIR among them, and PUSH_TO_HUB False if there is one. The next code cell calls
  `check_parameters(globals())`.
- The section Record calls `write_record(`.
Outputs are never stored. A cell's id comes from its text, so an edit changes only the edited cells' ids.
"""

import argparse
import hashlib
import sys
import tomllib
from collections import Counter
from pathlib import Path

import jupytext
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from recipe_lib.parameters import INJECTED_COMMENT, read_parameters

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = (
    "Versions",
    "Parameters",
    "Data",
    "The reward by hand",
    "Train",
    "Evaluate",
    "Plots",
    "Record",
    "What next",
)
ONLY_WITH_TRAINING = ("Train", "Evaluate")
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
BADGE = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    "(https://colab.research.google.com/github/{slug}/blob/{tag}/notebooks/{name}.ipynb)"
)
COLAB_CELL = """\
# In Colab this fetches the recipes at their release and installs them. Elsewhere it does nothing.
import os
import subprocess
import sys

if "google.colab" in sys.modules:
    folder = "/content/{folder}"
    if not os.path.isdir(folder):
        clone = ["git", "clone", "--quiet", "--depth", "1", "--branch", "{tag}", "{url}", folder]
        subprocess.run(clone, check=True)
        requirements = os.path.join(folder, "requirements.txt")
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    os.chdir(folder)
    sys.path.insert(0, folder)"""
VERSIONS_CELL = """\
from recipe_lib.record import library_versions

library_versions()"""


def repository() -> dict[str, str]:
    """URL, slug, folder name and release tag of this repository, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    url = project["urls"]["Repository"]
    slug = "/".join(url.split("/")[-2:])
    return {"url": url, "slug": slug, "folder": slug.split("/")[1], "tag": f"v{project['version']}"}


def build(source: Path) -> nbformat.NotebookNode:
    """The notebook of one percent script, with the shared cells put in after the first cell."""
    cells = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent").cells
    here = repository()
    shared = [
        new_markdown_cell(BADGE.format(name=source.stem, **here)),
        new_code_cell(COLAB_CELL.format(**here)),
        new_markdown_cell("## Versions"),
        new_code_cell(VERSIONS_CELL),
    ]
    notebook = new_notebook(cells=[*cells[:1], *shared, *cells[1:]], metadata=METADATA)
    seen = Counter()
    for cell in notebook.cells:
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        text = f"{cell.cell_type}\n{cell.source}"
        seen[text] += 1
        cell.id = hashlib.sha256(f"{seen[text]}\n{text}".encode()).hexdigest()[:12]
    nbformat.validate(notebook)
    return notebook


def check_skeleton(notebook: nbformat.NotebookNode) -> list[str]:
    """What the notebook lacks of the fixed skeleton, one line per fault; empty when it is right."""
    cells, faults = notebook.cells, []
    title = cells[0].source if cells and cells[0].cell_type == "markdown" else ""
    for part in ("# ", "**What you will learn**", "**Hardware and time**", "minute"):
        if part not in title:
            faults.append(f"the first cell is markdown and has {part!r}")
    headings = [
        line.removeprefix("## ").strip()
        for cell in cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()[:1]
        if line.startswith("## ")
    ]
    code = [cell for cell in cells if cell.cell_type == "code"]
    trains = any(".train(" in cell.source for cell in code)
    wanted = [name for name in SECTIONS if trains or name in headings or name not in ONLY_WITH_TRAINING]
    if [name for name in headings if name in SECTIONS] != wanted:
        faults.append(f"the sections are {', '.join(wanted)}, each once and in this order; found {headings}")
    if not any("write_record(" in cell.source for cell in code):
        faults.append("the notebook ends by calling write_record(")
    return faults + check_parameters_cell(code)


def check_parameters_cell(code: list[nbformat.NotebookNode]) -> list[str]:
    """Faults of the `parameters` cell and of the code cell after it."""
    tagged = [i for i, cell in enumerate(code) if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        return [f'one cell has the tag "parameters"; found {len(tagged)}']
    source = code[tagged[0]].source
    try:
        parameters = read_parameters(source)
    except (ValueError, SyntaxError) as error:
        return [str(error)]
    faults = [f"the parameter {name} is in capitals" for name in parameters if name != name.upper()]
    if "OUTPUT_DIR" not in parameters:
        faults.append("there is a parameter OUTPUT_DIR")
    if "PUSH_TO_HUB" in parameters and parameters["PUSH_TO_HUB"].default is not False:
        faults.append("PUSH_TO_HUB is False")
    if source.startswith(INJECTED_COMMENT + "\n"):
        faults.append(f"the parameters cell does not begin with {INJECTED_COMMENT!r}, papermill's own mark")
    following = code[tagged[0] + 1].source if tagged[0] + 1 < len(code) else ""
    if "check_parameters(globals())" not in following:
        faults.append("the code cell after the parameters calls check_parameters(globals())")
    return faults


def main(argv: list[str]) -> int:
    """Write the notebooks, or with --check compare them; 1 when something is wrong."""
    parser = argparse.ArgumentParser(description="Write notebooks/*.ipynb from notebooks/src/*.py.")
    parser.add_argument("--check", action="store_true", help="write nothing; say which notebooks differ")
    check = parser.parse_args(argv).check
    faults = []
    sources = sorted((ROOT / "notebooks" / "src").glob("*.py"))
    for source in sources:
        notebook = build(source)
        path = ROOT / "notebooks" / f"{source.stem}.ipynb"
        text = nbformat.writes(notebook) + "\n"
        faults += [f"{source.name}: wanted: {fault}" for fault in check_skeleton(notebook)]
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            faults.append(f"{path.name} differs from its source; mend with: make notebooks-build")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        if path.stem not in [source.stem for source in sources]:
            faults.append(f"{path.name} has no source in notebooks/src; remove it")
    print("\n".join(faults) or f"{len(sources)} notebooks agree with their sources", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
