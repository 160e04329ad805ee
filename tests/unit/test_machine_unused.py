"""A machine that nobody uses ends itself; its group is in moto."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from bedplate.catalog import load_catalog
from bedplate.errors import PartialError
from bedplate.machine.unused import end_unused
from bedplate.permissions import permissions
from bedplate.plan.nodes import pool_node
from bedplate.programs.idle import Machine, is_over
from bedplate.programs.program import ProgramError
from bedplate.spec.text import seconds_of
from tests.testlab.fakes.scaling import ScalingCloud
from tests.testlab.fleets.sketch import with_group
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

NOW, HOUR, GROUP = 1_795_410_000.0, 3600.0, "box-box-eu-north-1"
Printed = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Fake(Machine):
    """A machine without GPUs; it records the programs that it runs."""

    calls: list[str] = field(default_factory=list)

    def output(self, *command: str) -> str:
        """Return what a program prints; the metadata service is away, so the name is not released."""
        self.calls.append(" ".join(command))
        if command[-1] == "release_name":
            raise ProgramError("cannot connect")
        return ""

    @property
    def ends(self) -> bool:
        """Whether it shuts down."""
        return "systemctl poweroff" in self.calls


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScalingCloud]:
    """Yield the box fleet with two machines of at least one."""
    plan = plan_of(EXAMPLES / "gpu-box.yaml")
    plan = replace(plan, account="123456789012", pools=(replace(plan.pools[0], min=1, max=4),))
    with mock_aws():
        cloud = ScalingCloud(plan)
        monkeypatch.setattr("bedplate.account.client.open_session", lambda: cloud)
        cloud.deploy()
        _scaling().update_auto_scaling_group(AutoScalingGroupName=GROUP, MinSize=1, MaxSize=4, DesiredCapacity=2)
        yield cloud


@pytest.fixture
def machine(cloud: ScalingCloud, tmp_path: Path) -> Fake:
    """Return a machine of the group that nobody uses."""
    assert not cloud.requests
    write(tmp_path, "var/lib/bedplate/document.json", {"version": 1, "node": {"idle": 7200, "region": "eu-north-1"}})
    write(tmp_path, "var/lib/bedplate/ready", _instances()[0])
    write(tmp_path, "usr/local/lib/bedplate/bootstrap", "release_name() {")
    return Fake(tmp_path)


def write(root: Path, name: str, value: object) -> None:
    """Write a file of a machine."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(value if isinstance(value, str) else json.dumps(value))


def _scaling() -> boto3.client:
    return boto3.client("autoscaling", "eu-north-1")


def _group() -> dict[str, object]:
    (group,) = _scaling().describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
    return dict(group)


def _instances() -> list[str]:
    return [member["InstanceId"] for member in _group()["Instances"]]  # type: ignore[attr-defined]


def _tag(key: str, value: str) -> None:
    owner = {"ResourceId": GROUP, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    _scaling().create_or_update_tags(Tags=[{**owner, "Key": key, "Value": value}])


def test_an_unused_machine_leaves_its_group_and_shuts_down(machine: Fake, capsys: Printed) -> None:
    """The group wants one machine less, so it starts no other; the name that it could not release is no reason."""
    first, second = _instances()
    end_unused(machine, NOW)

    assert machine.ends
    assert (_instances(), _group()["DesiredCapacity"]) == ([second], 1)
    assert boto3.client("ec2", "eu-north-1").describe_instances(InstanceIds=[first])["Reservations"]
    assert capsys.readouterr().err == "<5>nobody uses this machine: it ends\n"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("bedplate:paused", "ada", "ada has paused its group"),
        ("bedplate:until", "2026-11-24T05:12:00+00:00", "somebody has started it with `--for`"),
        ("bedplate:until", "tomorrow", "somebody has started it with `--for`, until tomorrow"),
        ("min", "2", "its group is at its minimum of 2"),
    ],
    ids=["pause", "for", "edited time", "minimum"],
)
def test_a_machine_stays_while_its_group_needs_it(
    machine: Fake, key: str, value: str, reason: str, capsys: Printed
) -> None:
    """A pause, the end of `node start --for`, a time that cannot be read, and the minimum keep it."""
    if key == "min":
        _scaling().update_auto_scaling_group(AutoScalingGroupName=GROUP, MinSize=int(value))
    else:
        _tag(key, value)
    end_unused(machine, NOW)

    assert (machine.ends, len(_instances())) == (False, 2)
    assert reason in capsys.readouterr().err


def test_a_machine_stays_while_the_group_lacks_others(machine: Fake, cloud: ScalingCloud, capsys: Printed) -> None:
    """AWS has no capacity for the third machine that the group wants: the two that run are its minimum."""
    _scaling().update_auto_scaling_group(AutoScalingGroupName=GROUP, MinSize=2)
    cloud.empty[GROUP] = "InsufficientInstanceCapacity"
    cloud.set_desired(_scaling(), GROUP, 3)
    end_unused(machine, NOW)

    assert not machine.ends
    assert "its group is at its minimum of 2" in capsys.readouterr().err


def test_a_machine_stays_in_a_group_that_ends_none(machine: Fake, capsys: Printed) -> None:
    """Somebody has suspended the group's process Terminate, for example to look at a machine; Launch is no reason."""
    _scaling().suspend_processes(AutoScalingGroupName=GROUP, ScalingProcesses=["Launch", "Terminate"])
    end_unused(machine, NOW)
    assert (machine.ends, len(_instances())) == (False, 2)
    assert "somebody has suspended the process Terminate of its group" in capsys.readouterr().err

    _scaling().resume_processes(AutoScalingGroupName=GROUP, ScalingProcesses=["Terminate"])
    end_unused(machine, NOW)
    assert machine.ends


@pytest.mark.parametrize("until", ["2026-11-23T04:00Z", "-"], ids=["over", "without --for"])
def test_a_machine_ends_after_the_time_of_a_start(machine: Fake, until: str) -> None:
    """The tag of an earlier start stays at its group, also of one without an end."""
    _tag("bedplate:until", until)
    end_unused(machine, NOW)
    assert machine.ends


@pytest.mark.parametrize(
    ("idle", "since", "over"),
    [
        (7200, 3 * HOUR, True),
        (7200, 2 * HOUR, True),
        (7200, 2 * HOUR + 61, False),
        (7200, HOUR, False),
        (7200, None, False),
        (None, 3 * HOUR, False),
        ("2h", 3 * HOUR, False),
    ],
)
def test_the_idle_time_of_the_plan_is_over(machine: Fake, idle: object, since: float | None, *, over: bool) -> None:
    """Then the machine tries to end, every five minutes; without a limit, or a valid one, it never does."""
    write(machine.root, "var/lib/bedplate/document.json", {"version": 1, "node": {"idle": idle}})
    write(machine.root, "run/bedplate/idle.json", {"time": NOW, "idle_since": None if since is None else NOW - since})
    assert is_over(machine, NOW) is over
    (machine.root / "run/bedplate/idle.json").unlink()
    assert not is_over(machine, NOW)


def test_a_machine_that_would_only_stop_stays(machine: Fake, capsys: Printed) -> None:
    """An earlier version has launched it, with another shutdown behaviour: its disks would be paid for."""
    write(machine.root, "usr/local/lib/bedplate/bootstrap", "give_back_name() {")
    end_unused(machine, NOW)
    assert (machine.ends, len(_instances())) == (False, 2)
    assert "an earlier version has launched it" in capsys.readouterr().err


def test_a_detached_machine_ends(machine: Fake) -> None:
    """Another user of the role, or a person, has detached it: nothing else would end it."""
    own = (machine.root / "var/lib/bedplate/ready").read_text()
    left = {"AutoScalingGroupName": GROUP, "InstanceIds": [own]}
    _scaling().detach_instances(**left, ShouldDecrementDesiredCapacity=True)
    end_unused(machine, NOW)
    assert machine.ends


def test_a_machine_that_aws_refuses_stays(machine: Fake, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    """Then it is still of its group, which would replace it."""

    def refuse(*_: object, **__: object) -> None:
        raise PartialError("autoscaling: AccessDenied")

    monkeypatch.setattr("bedplate.account.client.AwsClient.call", refuse)
    end_unused(machine, NOW)
    assert not machine.ends
    assert "it stays: autoscaling: AccessDenied" in capsys.readouterr().err


def test_a_machine_that_cannot_reach_aws_stays(machine: Fake, monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    """Its group is unknown, and would replace it; the next look tries again."""

    def fail(*_: object, **__: object) -> None:
        raise EndpointConnectionError(endpoint_url="https://autoscaling.eu-north-1.amazonaws.com")

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", fail)
    end_unused(machine, NOW)
    assert not machine.ends
    assert "it stays: cannot connect to autoscaling" in capsys.readouterr().err


def test_a_machine_can_only_leave_a_group_with_an_idle_time() -> None:
    """It has no right to end an instance; without `idle` it has none to leave either."""
    plan = plan_of(EXAMPLES / "gpu-box.yaml")
    idle = replace(plan, pools=(with_group(plan.pools[0], idle="2h"),))
    actions = {action for statement in permissions(idle, "ssh") for action in statement.actions}
    (leave,) = (statement for statement in permissions(idle, "ssh") if statement.sid == "LeaveOwnGroup")

    assert not [action for action in actions if "Terminate" in action or "SetDesired" in action]
    assert leave.conditions == {
        "StringEquals": {"aws:ResourceTag/bedplate:fleet": ("box",), "aws:ResourceTag/bedplate:group": ("box",)},
        "Null": {"aws:ResourceTag/bedplate:paused": ("true",)},
    }
    permanent = replace(plan, pools=(with_group(plan.pools[0], idle=None),))
    assert "LeaveOwnGroup" not in [statement.sid for statement in permissions(permanent, "ssh")]
    node = pool_node(idle, idle.pools[0], "box-1.eu-north-1", load_catalog())
    assert node.idle == seconds_of("2h")


def test_machines_of_a_fleet_with_a_cluster_end_themselves() -> None:
    """Only those of groups with an idle time have the right to leave."""
    plan = lab_plan()
    ssh = [pool for pool in plan.pools if pool.use.is_ssh]
    nodes = [pool_node(plan, pool, f"{pool.group}-1.{pool.region}", load_catalog()) for pool in ssh]
    assert {(pool.group, node.idle) for pool, node in zip(ssh, nodes, strict=True)} == {
        ("workbench-gpu", seconds_of("2h")),
        ("workbench-cpu", None),
    }
    (leave,) = (statement for statement in permissions(plan, "ssh") if statement.sid == "LeaveOwnGroup")
    assert leave.conditions["StringEquals"]["aws:ResourceTag/bedplate:group"] == ("workbench-gpu",)
