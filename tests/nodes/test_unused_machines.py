"""A machine of the cloud with all its roles: nobody uses it, and it ends itself."""

from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest

from tests.testlab.machines.whole import Whole, config_of_ada, whole_machine
from tests.testlab.machines.whole_kinds import KINDS
from tests.testlab.network.netlab import until
from tests.testlab.run import need_program, need_root

pytestmark = pytest.mark.nightly

IDLE = 75.0
GROUP = "lab-workbench-cpu-us-west-2"
# A container shows the load of the test machine.
QUIET = "echo 0.00 0.00 0.00 1/100 4000 >/run/quiet; mount --bind /run/quiet /proc/loadavg"
LOOK = "systemctl start bedplate-idle.service"


@pytest.fixture(autouse=True)
def _requirements() -> None:
    need_root()
    for program in ("systemd-nspawn", "mmdebstrap", "slirp4netns", "nft", "ssh", "dnsmasq", "openssl"):
        need_program(program)


def _desired(machine: Whole) -> tuple[int, int]:
    """Return the number of machines that the group wants, and that it has."""
    assert machine.place
    query = {"AutoScalingGroupNames": [GROUP]}
    (group,) = machine.place.aws.call("autoscaling", "describe_auto_scaling_groups", **query)["AutoScalingGroups"]
    return group["DesiredCapacity"], len(group["Instances"])


def _set_minimum(machine: Whole, size: int) -> None:
    assert machine.place
    machine.place.aws.call("autoscaling", "update_auto_scaling_group", AutoScalingGroupName=GROUP, MinSize=size)


def _said(machine: Whole, text: str) -> bool:
    """Look at the machine as its timers do, and return whether its journal has a text."""
    machine.node.run(LOOK, seconds=300)
    return text in machine.node.run("journalctl --no-pager --output=cat --unit=bedplate-idle.service")


def test_an_unused_machine_ends_itself(tmp_path: Path) -> None:
    """A login keeps it, and so does the minimum of its group; then it leaves the group, and is off."""
    kind = replace(next(kind for kind in KINDS if kind.name == "workbench"), idle=IDLE)
    with whole_machine(kind, tmp_path) as machine:
        assert machine.place
        assert machine.node.run("systemctl is-active bedplate-idle.timer") == "active\n"
        machine.node.run(QUIET)
        to = ("ssh", "-F", str(config_of_ada(machine)), machine.node.name)
        login = machine.lab.workstation.host.start(*to, "sleep 600", log="login")
        until(lambda: "logged in: ada" in _use(machine), 60, "the login is not seen", every=1)
        sleep(IDLE)
        machine.node.run(LOOK, seconds=300)
        assert "logged in: ada" in _use(machine)
        login.end()
        _set_minimum(machine, 1)
        until(lambda: _said(machine, "it stays: its group is at its minimum of 1"), 300, "it does not stay", every=5)
        assert _desired(machine) == (1, 1)

        _set_minimum(machine, 0)
        assert machine.place.names
        machine.node.run("systemctl start --no-block bedplate-idle.service")
        until(lambda: not machine.node.machine.runs, 420, "it is still on", every=1)

        assert _desired(machine) == (0, 0)
        assert machine.place.names == {}


def _use(machine: Whole) -> str:
    """Return what the machine says about its use."""
    machine.node.run("systemctl start bedplate-idle.service", seconds=300)
    return machine.node.run("cat /run/bedplate/idle.json")
