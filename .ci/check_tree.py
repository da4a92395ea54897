"""What no committed file may have: part of `make lint`.

- a notebook with outputs, execution counts or widget state (they are made by `make notebooks-build`);
- more than 6 MB;
- the name of a package registry's host (an environment's own set-up says where packages come from).
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 6 * 2**20
# Written in parts, so that this file does not hold what it looks for.
REGISTRIES = [f"{name}.org".encode() for name in ("pypi", "pythonhosted", "npmjs")]


def tracked() -> list[Path]:
    """Files in git's index that are in the work tree too."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    paths = [ROOT / name.decode() for name in listing.split(b"\0") if name]
    return [path for path in paths if path.is_file()]


def faults(path: Path) -> list[str]:
    """What is wrong with one file, one line per fault."""
    found = []
    if path.stat().st_size > LARGEST:
        found.append(f"{path}: {path.stat().st_size / 2**20:.1f} MB; at most {LARGEST / 2**20:.0f} MB")
    content = path.read_bytes()
    found += [f"{path}: names the registry host {host.decode()}" for host in REGISTRIES if host in content]
    if path.suffix == ".ipynb":
        notebook = json.loads(content)
        if "widgets" in notebook["metadata"]:
            found.append(f"{path}: stores the state of widgets; mend with: make notebooks-build")
        if any(cell.get("outputs") or cell.get("execution_count") for cell in notebook["cells"]):
            found.append(f"{path}: stores outputs; mend with: make notebooks-build")
    return found


if __name__ == "__main__":
    wrong = [fault for path in tracked() for fault in faults(path)]
    print("\n".join(wrong) or "no stored outputs, no large files, no registry hosts", file=sys.stderr)
    sys.exit(1 if wrong else 0)
