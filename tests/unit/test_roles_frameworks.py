"""The role `frameworks`: which machines get PyTorch, and how its environment is replaced."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.nodes import Hardware
from roles.base import file_text
from roles.frameworks.role import CURRENT, DIGEST, PROGRAMS, Frameworks, InstalledLock, has_frameworks
from tests.testlab.fakes.node import Recorder, recorded
from tests.testlab.fleets.variants import lab_node

UBUNTU = recorded("ubuntu-24.04")
LOCK = file_text("frameworks/torch.txt")


@pytest.mark.parametrize(
    ("name", "model", "setting", "expected"),
    [
        ("titan-03.cellar", "h100", None, True),
        ("titan-03.cellar", "h100", False, False),
        ("titan-03.cellar", "titan-x", None, False),
        ("workbench-cpu-1.us-west-2", None, None, False),
        ("workbench-cpu-1.us-west-2", None, True, True),
        ("titan-01.cellar", "h100", None, False),
    ],
)
def test_workbenches_with_supported_gpus_have_pytorch(
    name: str, model: str | None, *, setting: bool | None, expected: bool
) -> None:
    """The file decides; without it GPUs do, unless they are too old. Workers run PyTorch in containers."""
    node = replace(lab_node(name), gpus=Hardware(model, 8) if model else None, frameworks=setting)

    assert has_frameworks(node) is expected


def test_the_lock_has_a_hash_for_every_package() -> None:
    """Uv refuses packages without hashes; CUDA 13.0 runs on the oldest driver branch of a software set."""
    packages = re.findall(
        r"^([a-z0-9-]+)==(\S+)(?: .*)?\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)", LOCK, re.MULTILINE
    )

    assert len(packages) == len(re.findall("^[a-z]", LOCK, re.MULTILINE))
    assert {version for name, version, _ in packages if name == "cuda-toolkit"} == {"13.0.3.0"}
    assert min(int(software.driver) for software in load_catalog().software.values()) >= 580


def test_an_environment_is_used_once_it_is_complete() -> None:
    """It is in a new folder; the link changes only after PyTorch could be imported."""
    played = Recorder(UBUNTU.but({InstalledLock.name: ("other",)})).play(Frameworks())

    (command,) = played.step("Install PyTorch 2.14.1").commands
    order = ["umask 022", "uv venv", "--require-hashes", "import torch", f"ln -sfnT {DIGEST} {CURRENT}", "rm -rf"]
    assert [command.index(part) for part in order] == sorted(command.index(part) for part in order)


def test_a_complete_environment_is_kept() -> None:
    """Nothing is downloaded; the programs are written."""
    played = Recorder(UBUNTU.but({InstalledLock.name: (DIGEST,)})).play(Frameworks())

    assert "Install PyTorch 2.14.1" not in played.names
    assert {played.written(path) for path in PROGRAMS} == {file_text("frameworks/python.sh")}


def test_a_program_runs_the_environments_program_of_its_name(tmp_path: Path) -> None:
    """The program of the environment gets all arguments."""
    target = tmp_path / "bin"
    target.mkdir()
    script = file_text("frameworks/python.sh").replace(f"{CURRENT}/bin", str(target))
    for folder, text in ((target, '#!/bin/sh\necho "$0" "$2"\n'), (tmp_path, script)):
        (folder / "torchrun").write_text(text)
        (folder / "torchrun").chmod(0o755)

    output = subprocess.run([tmp_path / "torchrun", "-m", "a job"], capture_output=True, text=True, check=True).stdout

    assert output == f"{target}/torchrun a job\n"
