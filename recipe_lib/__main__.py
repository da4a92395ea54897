"""`python -m recipe_lib VERB`: the command line. Each verb is a `main(argv) -> exit code` in its own room."""

import sys
from importlib import import_module

# verb -> (module, what it does). A module is only imported when its verb is called.
VERBS = {
    "run": ("recipe_lib.notebooks", "run a notebook with checked parameters"),
    "check": ("recipe_lib.checks", "look over a data set's rows before training"),
    "vllm-check": ("recipe_lib.rollouts.check", "does vLLM sample from the model that is trained?"),
    "score": ("recipe_lib.rewards.score", "score a file of completions, with the reason for each verdict"),
}


def usage() -> str:
    """The list of verbs."""
    lines = [f"  {verb:<12}{text}" for verb, (_, text) in VERBS.items()]
    return "\n".join(["usage: python -m recipe_lib VERB ... (VERB --help tells more)", "verbs:", *lines])


def main(argv: list[str]) -> int:
    """Call the verb named first; 2 for an unknown one."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    verb, *rest = argv
    if verb not in VERBS:
        print(f"error: unknown verb {verb!r}\n{usage()}", file=sys.stderr)
        return 2
    return import_module(VERBS[verb][0]).main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
