"""The notebook pipeline: parity with the sources, stable ids, skeleton, Colab cell, results table."""

import json
import os
import subprocess
import sys
import types

import nbformat
import pytest

from tests.recipe_lib.test_record import MEASURED

SOURCE = """\
# %% [markdown]
# # A title
#
# **What you will learn**
# - much
#
# **Hardware and time**: two cores, 3 minutes.

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
MODEL = "auto"
PUSH_TO_HUB = False
OUTPUT_DIR = "outputs/x"

# %%
from recipe_lib.parameters import check_parameters

check_parameters(globals())

# %% [markdown]
# ## Data

# %% [markdown]
# ## The reward by hand

# %% [markdown]
# ## Train

# %%
trainer.train()

# %% [markdown]
# ## Evaluate

# %% [markdown]
# ## A section of its own

# %% [markdown]
# ## Plots

# %% [markdown]
# ## Record

# %%
write_record(OUTPUT_DIR)

# %% [markdown]
# ## What next
"""


@pytest.fixture(scope="module")
def build(script):
    return script("notebooks/build.py")


@pytest.fixture
def tree(build, root, tmp_path, monkeypatch):
    """A repository with one notebook source, and the builder looking at it; returns its notebooks folder."""
    monkeypatch.setattr(build, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text((root / "pyproject.toml").read_text())
    (tmp_path / "notebooks" / "src").mkdir(parents=True)
    (tmp_path / "notebooks" / "src" / "09_x.py").write_text(SOURCE)
    return tmp_path / "notebooks"


def test_committed_notebooks_agree_with_their_sources(build, capsys):
    """Regenerates every notebook and checks its skeleton and parameters."""
    assert build.main(["--check"]) == 0, capsys.readouterr().err


def test_build_is_repeatable_and_holds_no_outputs(build, tree):
    assert build.main([]) == 0
    first = (tree / "09_x.ipynb").read_bytes()
    assert build.main([]) == 0 and build.main(["--check"]) == 0
    assert (tree / "09_x.ipynb").read_bytes() == first
    notebook = json.loads(first)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)


def test_check_finds_an_edited_a_missing_and_a_left_over_notebook(build, tree, capsys):
    assert build.main(["--check"]) == 1  # not written yet
    build.main([])
    path = tree / "09_x.ipynb"
    path.write_text(path.read_text().replace("outputs/x", "outputs/y"))
    assert build.main(["--check"]) == 1
    assert "09_x.ipynb differs" in capsys.readouterr().err
    build.main([])
    path.with_name("08_old.ipynb").write_text(path.read_text())
    assert build.main(["--check"]) == 1
    assert "08_old.ipynb has no source" in capsys.readouterr().err


def test_an_edit_changes_the_id_of_that_cell_only(build, tree):
    source = tree / "src" / "09_x.py"
    before = [cell.id for cell in build.build(source).cells]
    source.write_text(SOURCE.replace("- much", "- more"))
    after = [cell.id for cell in build.build(source).cells]
    assert [old == new for old, new in zip(before, after)].count(False) == 1
    source.write_text(SOURCE.replace("# ## Data\n", "# ## Data\n\n# %% [markdown]\n# new\n"))
    assert len(set(before) - {cell.id for cell in build.build(source).cells}) == 0


def test_badge_colab_cell_and_versions_follow_the_title(build, tree):
    cells = build.build(tree / "src" / "09_x.py").cells
    here = build.repository()
    assert cells[1].source.endswith(f"/github/{here['slug']}/blob/{here['tag']}/notebooks/09_x.ipynb)")
    assert "google.colab" in cells[2].source and cells[3].source == "## Versions"
    versions = {}
    exec(cells[4].source.replace("\nlibrary_versions()", "\nversions = library_versions()"), versions)
    assert versions["versions"]["trl"]


def test_colab_cell_does_nothing_elsewhere_and_clones_the_tag_there(build, tree, tmp_path, monkeypatch):
    cell = build.build(tree / "src" / "09_x.py").cells[2].source
    here, calls, path = build.repository(), [], list(sys.path)
    monkeypatch.setattr(subprocess, "run", lambda command, check: calls.append(command))
    monkeypatch.setattr(os, "chdir", lambda folder: calls.append(folder))
    exec(cell, {})
    assert not calls and sys.path == path
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    monkeypatch.setattr(sys, "path", list(path))
    exec(cell, {})
    folder = f"/content/{here['folder']}"
    clone, install, chdir = calls
    assert clone[:2] == ["git", "clone"] and clone[clone.index("--branch") + 1] == here["tag"]
    assert clone[-2:] == [here["url"], folder]
    assert install[-2:] == ["-r", f"{folder}/requirements.txt"] and chdir == folder == sys.path[0]


def faults(build, tree, old: str, new: str) -> str:
    assert old in SOURCE
    source = tree / "src" / "09_x.py"
    source.write_text(SOURCE.replace(old, new))
    return "; ".join(build.check_skeleton(build.build(source)))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("# # A title", "# A title without a mark", "first cell"),
        ("**What you will learn**", "", "What you will learn"),
        ("3 minutes", "not long", "minute"),
        ("# ## Data", "# ## Dataset", "sections are"),
        ("# ## Plots", "# ## Train", "sections are"),
        ("# ## Evaluate", "# Evaluate", "sections are"),
        ("write_record(OUTPUT_DIR)", "pass", "write_record("),
        (' tags=["parameters"]', "", "found 0"),
        ("\n# %%\ntrainer", '\n# %% tags=["parameters"]\ntrainer', "found 2"),
        ('"auto"', "1 + len('a')", "not a literal"),
        ("MODEL =", "model =", "in capitals"),
        ("OUTPUT_DIR = ", "OUTPUT = ", "OUTPUT_DIR"),
        ("PUSH_TO_HUB = False", "PUSH_TO_HUB = True", "PUSH_TO_HUB is False"),
        ("check_parameters(globals())", "pass", "check_parameters(globals())"),
        ('MODEL = "auto"', '# Parameters\nMODEL = "auto"', "papermill's own mark"),
    ],
)
def test_skeleton_faults_are_named(build, tree, old, new, fault):
    assert fault in faults(build, tree, old, new)


def test_skeleton_of_a_notebook_that_trains_nothing(build, tree):
    assert faults(build, tree, "trainer.train()", "pass") == ""
    assert faults(build, tree, "# ## Train\n\n# %%\ntrainer.train()\n\n# %% [markdown]\n# ## Evaluate", "# x") == ""
    assert "sections are" in faults(build, tree, "# ## Train\n", "# x\n")  # it trains without such a section


def test_results_table(script, tmp_path):
    results = script("notebooks/results.py")
    for name, record in (("05_b", MEASURED), ("01_a", dict.fromkeys(MEASURED) | {"notebook": "01_a"})):
        (tmp_path / name).mkdir()
        versions = dict.fromkeys(("python", "torch", "transformers", "trl", "peft", "datasets"), "1")
        (tmp_path / name / "metrics.json").write_text(json.dumps(record | {"versions": versions}))
    header, rule, first, second = results.table(tmp_path).splitlines()
    assert header.count("|") == rule.count("|") == first.count("|") == second.count("|")
    assert first == "| 01_a | – | – | – | – | – | – | – | – |"
    assert "| 500 | 40.0 % | 75.0 % | +35.0 (30.0 to 40.0) | 120 s |" in second
    text = f"a\n{results.START}\nold\n{results.END}\nb\n"
    assert results.insert(text, "new") == f"a\n{results.START}\nnew\n{results.END}\nb\n"
    for wrong in ("no markers", text + results.START, text + results.END, text.replace(results.START, "")):
        with pytest.raises(ValueError, match="results:start"):
            results.insert(wrong, "new")


def test_notebooks_are_valid(root):
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        nbformat.validate(nbformat.read(path, as_version=4))
