"""The project under Python 3.13, that of Debian 13, with the packages of its lock; other tests run under 3.11."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bedplate.bundle import BundleTarget, install
from tests.testlab.machines import imported
from tests.testlab.machines.container import call
from tests.testlab.machines.layers import cached_layer, python_root
from tests.testlab.run import ROOT, need_program, need_root

pytestmark = pytest.mark.nightly

PYTHON = "3.13"
PACKAGES = ("bedplate", "images", "roles", "stacks", "vpn")


@pytest.fixture(scope="module")
def load() -> Callable[..., Any]:
    """Return a function that loads the packages of a project with Debian 13, and returns what that prints."""
    need_root()
    for program in ("mmdebstrap", "systemd-nspawn"):
        need_program(program)
    root, lock = python_root("trixie"), ROOT / "requirements.lock"
    with pytest.MonkeyPatch.context() as patch:
        # The tests' proxy refuses connections, and pip is a process of its own.
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            patch.delenv(name, raising=False)
        target = BundleTarget(PYTHON, os.uname().machine)
        wheels = cached_layer("wheels", lock.read_text(), lambda folder: install(target, lock, folder))

    def load_packages(project: Path, *packages: str) -> Any:  # noqa: ANN401  a document
        binds = {project: "/mnt/project", wheels: "/mnt/wheels", Path(imported.__file__): "/mnt/imported.py"}
        words = ("--quiet", "--register=no", "--keep-unit", "--as-pid2", "--pipe", "--volatile=overlay")
        options = [f"--bind-ro={source}:{target}" for source, target in binds.items()]
        variables = ("--setenv=PYTHONPATH=/mnt/wheels", "--setenv=PYTHONDONTWRITEBYTECODE=1")
        command = ("python3", "-P", "/mnt/imported.py", "/mnt/project", *packages)
        nspawn = ("systemd-nspawn", *words, "--private-network", "--directory", str(root), *options, *variables)
        return json.loads(call(*nspawn, *command, seconds=300))

    return load_packages


def test_every_module_loads_under_the_python_of_debian_13(load: Callable[..., Any]) -> None:
    """Each module is imported, and each Python program of a role is compiled."""
    assert load(ROOT, *PACKAGES) == {"version": [3, 13], "failures": {}}


def test_a_module_that_this_python_does_not_load_is_named(load: Callable[..., Any], tmp_path: Path) -> None:
    """Also one that needs a module that Python 3.13 has no more, and a program with a wrong syntax; others are not."""
    texts = {
        "__init__.py": "",
        "good.py": "import json",
        "old.py": "import telnetlib",
        "tool": "#!/usr/bin/python3\n1 +",
    }
    (tmp_path / "seeded").mkdir()
    for name, text in texts.items():
        (tmp_path / "seeded" / name).write_text(text)

    assert sorted(load(tmp_path, "seeded")["failures"]) == ["seeded.old", "seeded/tool"]
