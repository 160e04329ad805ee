"""The witness of an agent: which programs work, with real processes. It sees all that this process has started."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest

from tests.testlab.fakes.runs import wait_for

# An agent that has started a program prints for how long that is idle, for each line of its input.
_AGENT = """import ctypes, subprocess, sys, time
from pathlib import Path
from bedplate.programs.agent.witness import Witness
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # as agents: what leaves its parent becomes a child of this one
program, witness = subprocess.Popen(["sh", "-c", sys.argv[2]], stdin=subprocess.DEVNULL), Witness(Path(sys.argv[1]))
for _ in sys.stdin:
    print(f"{witness.idle():.6f}", flush=True)
program.kill()
"""
# A second of a processor.
_WORK = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.8: pass'"


_WAIT = "while [ ! -e go ]; do sleep 0.1; done;"


class Agent:
    """An agent with its program, in a folder; it ends with the test."""

    def __init__(self, folder: Path, program: str, **variables: str) -> None:
        pipe = subprocess.PIPE
        command = (sys.executable, "-c", _AGENT, str(folder), program)
        environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), **variables}
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=folder, env=environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=20)

    def idle(self) -> float:
        """Return for how many seconds the program is idle."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def test_a_program_that_waits_is_idle(tmp_path: Path) -> None:
    """Since its start, until it prints; a look is no work."""
    with Agent(tmp_path, "exec sleep 60") as agent:
        former = agent.idle()
        for _ in range(5):
            time.sleep(0.1)
            idle = agent.idle()
            assert idle > former
            former = idle
        assert former > 0.4

        before = time.monotonic()
        (tmp_path / "0/0").mkdir(parents=True)
        (tmp_path / "0/0/000000").write_text("epoch 1\n")
        assert agent.idle() == 0
        time.sleep(0.2)
        assert 0.1 < agent.idle() < time.monotonic() - before


@pytest.mark.parametrize(
    "program",
    [
        f"{_WAIT} exec {_WORK}",
        # As a loader that a rank starts, and waits for.
        f"{_WAIT} {_WORK}; exec sleep 60",
        # As one that leaves its parent.
        f"{_WAIT} ({_WORK} &) ; exec sleep 60",
    ],
    ids=["itself", "a child that has ended", "one of its own"],
)
def test_a_program_that_computes_is_not_idle(program: str, tmp_path: Path) -> None:
    """By its processes, by those that it has waited for, and by those that have left it."""
    with Agent(tmp_path, program) as agent:
        wait_for(lambda: agent.idle() > 0.2)
        (tmp_path / "go").touch()

        wait_for(lambda: agent.idle() == 0)


_SMI = f"""#!/bin/sh
[ "$1 $2" = "--id=GPU-a,GPU-b --query-gpu=utilization.gpu" ] || exit 3
[ ! -e work ] || {_WORK}
cat shares
"""


def _with_gpus(folder: Path, shares: str) -> dict[str, str]:
    """Return the variables of an agent with two leased GPUs, for which nvidia-smi prints what is in `shares`."""
    (folder / "nvidia-smi").write_text(_SMI)
    (folder / "nvidia-smi").chmod(0o755)
    (folder / "shares").write_text(shares)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}


@pytest.mark.parametrize("shares", ["0\n37\n", "[N/A]\n0\n", "0\n", "", "No devices were found\n"])
def test_a_leased_gpu_that_works_is_a_sign_of_work(shares: str, tmp_path: Path) -> None:
    """Also one whose use nvidia-smi does not say: what is unknown is no reason to stop a run."""
    with Agent(tmp_path, "exec sleep 60", **_with_gpus(tmp_path, shares)) as agent:
        assert [agent.idle() for _ in range(3)] == [0, 0, 0]
        (tmp_path / "shares").write_text("0\n0\n")
        wait_for(lambda: agent.idle() > 0.1)


def test_the_look_at_gpus_is_no_work_of_the_program(tmp_path: Path) -> None:
    """A slow nvidia-smi uses more of a processor than the limit of a program that waits."""
    with Agent(tmp_path, "exec sleep 60", **_with_gpus(tmp_path, "0\n0\n")) as agent:
        (tmp_path / "work").touch()
        former = agent.idle()
        for _ in range(2):
            idle = agent.idle()
            assert idle > former
            former = idle


def test_an_nvidia_smi_that_fails_keeps_a_run(tmp_path: Path) -> None:
    """Its driver may hang; a machine without leased GPUs needs none."""
    variables = _with_gpus(tmp_path, "0\n0\n")
    (tmp_path / "shares").unlink()
    with Agent(tmp_path, "exec sleep 60", **variables) as agent:
        assert [agent.idle() for _ in range(3)] == [0, 0, 0]
    with Agent(tmp_path, "exec sleep 60", **{**variables, "CUDA_VISIBLE_DEVICES": ""}) as agent:
        wait_for(lambda: agent.idle() > 0.1)
