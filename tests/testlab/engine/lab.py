"""A new fleet folder, Pulumi's real engine with an empty backend, and an empty simulated AWS."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bedplate.cli import deploy, recover, run
from tests.testlab.engine.client import simulated_client
from tests.testlab.run import need_program

ACCOUNT = "210987654321"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIWf215vwmBI2zNzecqhVbLRbuxkKq4oqpkUVYbswznn"
ANSWERS = ["--account", ACCOUNT, "--owner", "head@uni.edu", "--person", "bob", "--key", KEY, "--region", "us-west-2"]
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class EngineLab:
    """The fleet folder, which is the current folder, and the folder of the simulated AWS."""

    folder: Path
    aws: Path

    def state(self, stack: str) -> dict[str, list[dict[str, object]]]:
        """Return the exported state of a stack."""
        command = ["pulumi", "stack", "export", "--stack", stack]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        deployment: dict[str, list[dict[str, object]]] = json.loads(text)["deployment"]
        return deployment

    def recorded(self, *stacks: str) -> set[tuple[str, str]]:
        """Return type and id of each AWS resource in the states."""
        resources = (resource for stack in stacks for resource in self.state(stack).get("resources") or ())
        return {(str(r["type"]), str(r["id"])) for r in resources if str(r["type"]).startswith("aws:")}

    def objects(self) -> set[tuple[str, str]]:
        """Return type and id of each object in the simulated AWS."""
        return {(token, ident) for token, ident in json.loads((self.aws / "objects.json").read_text())}

    def kill_up(self, stack: str, creations: int) -> bool:
        """Kill a deployment while it waits for the answer to its n-th creation; return False if it ends before."""
        (self.aws / "pause").write_text(str(creations))
        command = ["pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--stack", stack]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as engine:
            while engine.poll() is None and not (self.aws / "paused").exists():
                time.sleep(0.05)
            if engine.poll() is not None:
                assert engine.stdout
                assert engine.returncode == 0, engine.stdout.read()
                (self.aws / "pause").unlink()
                return False
            # The language host and the program would outlive the engine by minutes.
            children = _children(engine.pid)
            descendants = [pid for child in children for pid in (child, *_children(child))]
            engine.kill()
            for pid in descendants:
                os.kill(pid, signal.SIGKILL)
        (self.aws / "paused").unlink()
        return True


def _children(pid: int) -> list[int]:
    command = ["ps", "-o", "pid=", "--ppid", str(pid)]
    return [int(line) for line in subprocess.run(command, check=False, capture_output=True, text=True).stdout.split()]


def replace_gpus(fleet: Path) -> None:
    """Replace types with GPUs: without a refreshed catalog they are not deployed (E419)."""
    fleet.write_text(re.sub(r"types: \[[gp][^]]*\]", "types: [m7i.xlarge]", fleet.read_text()))


@contextmanager
def engine_lab(path: Path, monkeypatch: pytest.MonkeyPatch, example: str) -> Iterator[EngineLab]:
    """Make a fleet folder of an example with recorded addresses, and run its simulated AWS."""
    need_program("pulumi")
    need_program("pulumi-language-python")
    aws = path / "aws"
    for folder in (path / "state", aws):
        folder.mkdir()
    command = [sys.executable, "-m", "tests.testlab.engine.provider", "0", ACCOUNT, str(aws)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as provider:
        assert provider.stdout
        try:
            for name, value in {
                "HOME": str(path),
                "PULUMI_HOME": str(path / "pulumi"),
                "PULUMI_BACKEND_URL": f"file://{path / 'state'}",
                "PULUMI_CONFIG_PASSPHRASE": "x",
                "PULUMI_SKIP_UPDATE_CHECK": "true",
                "PULUMI_DEBUG_PROVIDERS": f"aws:{provider.stdout.readline().strip()}",
            }.items():
                monkeypatch.setenv(name, value)
            for module in (deploy, recover):
                monkeypatch.setattr(module, "open_account", lambda _plan: simulated_client(aws))
            monkeypatch.setattr(deploy, "unrecorded_images", lambda _plan, _catalog: ())
            assert run(["init", str(path / "mylab"), "--example", example, *ANSWERS]) == 0
            monkeypatch.chdir(path / "mylab")
            replace_gpus(Path("fleet.yaml"))
            with Path("fleet.yaml").open("a") as fleet:
                fleet.write("  E418: the zones are the same in this account\n")
            assert run(["plan", "--write"]) == 0
            yield EngineLab(path / "mylab", aws)
        finally:
            provider.kill()
