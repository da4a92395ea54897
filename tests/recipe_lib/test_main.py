"""The command line: verbs, help, exit codes."""

import subprocess
import sys
from importlib import import_module

import pytest

from recipe_lib.__main__ import VERBS, main


def test_every_verb_has_a_main_and_a_help(capsys):
    assert "run" in VERBS
    for verb, (module, _) in VERBS.items():
        with pytest.raises(SystemExit) as stop:
            import_module(module).main(["--help"])
        assert stop.value.code == 0, verb
        assert f"usage: python -m recipe_lib {verb}" in capsys.readouterr().out


def test_unknown_verb_lists_the_known(capsys):
    assert main(["runn"]) == 2
    error = capsys.readouterr().err
    assert "'runn'" in error and all(verb in error for verb in VERBS)


def test_no_verb_is_an_error_and_help_is_not(capsys):
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "run " in capsys.readouterr().out


def test_exit_code_reaches_the_shell_and_no_heavy_import_happens(root):
    code = "import sys; from recipe_lib.__main__ import main; code = main(['run', 'nope'])\n"
    code += "assert 'torch' not in sys.modules and 'papermill' not in sys.modules; sys.exit(code)"
    for command in (["-c", code], ["-m", "recipe_lib", "run", "nope"]):
        run = subprocess.run([sys.executable, *command], cwd=root, capture_output=True, text=True)
        assert run.returncode == 2, run.stderr
        assert run.stderr.startswith("error: no notebook 'nope'") and run.stderr.count("\n") == 1
