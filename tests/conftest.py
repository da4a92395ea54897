"""Shared by all tests."""

import importlib.util
import ipaddress
import os
import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest

# No test needs the hub; where it cannot be reached, each try would wait for minutes.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's folder."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def no_network():
    """Connections from the test process to anything but this machine fail, as they do without a network."""
    connect = socket.socket.connect

    def is_local(host):
        try:
            return ipaddress.ip_address(host.partition("%")[0]).is_loopback
        except ValueError:
            return host == "localhost"

    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_local(address[0]):
            raise OSError(f"tests reach nothing outside this machine, but {address[0]} was asked for")
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


def load_script(path: str) -> ModuleType:
    """Import a script that is not part of a package, such as `notebooks/build.py`, by its path."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def script():
    """The function `load_script`."""
    return load_script
