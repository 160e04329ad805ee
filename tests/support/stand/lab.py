"""A fleet's folder at the desk of a stand: its file, its lock with the nodes' host keys, and bedplate run there."""

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.lock import lock_path, record_host_keys, record_plan
from tests.support.declared import EXAMPLES
from tests.support.stand.node import Node
from tests.support.stand.stand import Stand

BEDPLATE = str(Path(sys.executable).with_name("bedplate"))
BENCH = "titan-03.cellar"  # a workbench of the cellar
# A role of few operations, for tests of what is around them.
QUICK = ("--role", "monitoring")
LAB = (EXAMPLES / "lab.yaml").read_text(encoding="utf-8")


@dataclass(frozen=True)
class LabFolder:
    """The folder in which an operator keeps examples/lab.yaml; `stand` has the machines that answer."""

    stand: Stand
    folder: Path

    @property
    def fleet(self) -> Path:
        """The fleet file."""
        return self.folder / "fleet.yaml"

    def know(self, node: Node, key: str | None = None) -> None:
        """Record a node's host key, as somebody who has read its fingerprint does."""
        kept = " ".join((key or node.host_key).split()[:2])
        record_host_keys(lock_path(self.fleet), "lab", node.name, (kept,), replace_known=True)

    def edit(self, pattern: str, text: str) -> None:
        """Change the fleet file."""
        after, count = re.subn(pattern, text, self.fleet.read_text(encoding="utf-8"))
        assert count == 1, pattern
        self.fleet.write_text(after, encoding="utf-8")

    def record(self, *released: str) -> None:
        """Record the plan, as an apply wants it; these blocks are given back first."""
        _record(self.fleet, released)

    def bedplate(self, *arguments: str, seconds: float = 900) -> CompletedProcess[str]:
        """Run a command of bedplate at the desk."""
        environment = {**os.environ, "TERM": "dumb"}
        return self.stand.desk.run(BEDPLATE, *arguments, "--fleet", str(self.fleet), env=environment, seconds=seconds)

    def apply(self, *arguments: str, user: str = "ubuntu", seconds: float = 900) -> CompletedProcess[str]:
        """Apply as the first account of a machine, with the operator's key."""
        return self.bedplate(
            "node", "apply", *arguments, "--user", user, "--identity", str(self.stand.key), seconds=seconds
        )

    def applying(self, *arguments: str) -> "Popen[str]":
        """Start an apply as a shell of the operator would: in a process group of its own."""
        # Whoever runs the tests may ignore Ctrl-C, as a shell's background does; an operator's shell does not.
        inside = ("ip", "netns", "exec", self.stand.desk.host.namespace, "env", "--default-signal=INT")
        command = (BEDPLATE, "node", "apply", *arguments, "--fleet", str(self.fleet), "--user", "ubuntu")
        return Popen(
            (*inside, *command, "--identity", str(self.stand.key)),
            stdout=PIPE,
            stderr=PIPE,
            text=True,
            start_new_session=True,
        )

    def outcome(self, *arguments: str, user: str = "ubuntu", seconds: float = 900) -> Mapping[str, Any]:
        """Apply, and return what became of each machine as programs read it, with the exit status as `status`."""
        done = self.apply(*arguments, "--json", user=user, seconds=seconds)
        assert "Traceback" not in done.stderr, done.stderr
        return {**json.loads(done.stdout)["nodes"], "status": done.returncode}


def wait_for(running: "Popen[str]", words: str) -> None:
    """Wait until a command says these words; fail where it ends without."""
    assert running.stderr
    if not any(words in line for line in running.stderr):
        pytest.fail(f"it never said {words!r}")


def lab_folder(stand: Stand, folder: Path) -> LabFolder:
    """Make the folder of a fleet whose plan is recorded."""
    recorded_lab(folder, stand.public)
    return LabFolder(stand, folder)


def recorded_lab(folder: Path, key: str = "") -> Path:
    """Copy examples/lab.yaml into a folder, its lock beside it, and return the path; the administrator has that key."""
    fleet = folder / "fleet.yaml"
    more = f', "{key}"' if key else ""
    fleet.write_text(LAB.replace('ada@laptop"]}', f'ada@laptop"{more}]}}', 1), encoding="utf-8")
    _record(fleet)
    return fleet


def _record(fleet: Path, released: tuple[str, ...] = ()) -> None:
    declared = load_fleet(fleet, load_catalog()).fleet
    record_plan(lock_path(fleet), declared, load_catalog(), release_of=released)
