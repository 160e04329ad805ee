"""The idle stop: the rule, the controller in a fleet without a cluster, and what `explain` says about it."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from bedplate.account.client import AwsClient
from bedplate.account.groups import Changed, FleetGroups
from bedplate.capacity.controller import Controller
from bedplate.capacity.observation import Machine, Observation, Pool, Settings, Terminate
from bedplate.capacity.planner import Memory, decide
from bedplate.capacity.protocol import observation_document, parse_observation
from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.operate.capacity_loop import Loop, Outputs
from bedplate.plan.capacity import capacity_plan
from tests.testlab.fakes.hostile import HOSTILE
from tests.testlab.fakes.scaling import ScalingCloud
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

NOW, HOUR = 1_795_410_000.0, 3600.0
BOX = Pool("box-eu-north-1", "box", 0, "eu-north-1", ("eu-north-1a",), 0, 8, 1, is_ssh=True, idle=2 * HOUR)
UNUSED = Machine(
    "i-1", BOX.name, "eu-north-1a", NOW - 9 * HOUR, ready=True, idle_since=NOW - 3 * HOUR, reported=NOW - 60
)
GROUP = "box-box-eu-north-1"
BUCKET = "box-nodes-123456789012-eu-north-1"
Printed = pytest.CaptureFixture[str]


def _ended(*machines: Machine, pool: Pool | None = None, **settings: Any) -> list[str]:  # noqa: ANN401
    pools = (pool or replace(BOX, desired=len(machines)),)
    seen = Observation(NOW, machines=machines, pools=pools, settings=Settings(**settings))
    decision, _ = decide(seen, Memory())
    assert all(isinstance(action, Terminate) and action.decrement for action in decision.actions)
    return [action.machine for action in decision.actions if isinstance(action, Terminate)]


def test_an_unused_machine_is_ended() -> None:
    """After the idle time of its group, without replacement; recorded observations decide the same."""
    seen = Observation(NOW, machines=(UNUSED,), pools=(BOX,))
    assert _ended(UNUSED) == ["i-1"]
    assert decide(parse_observation(json.dumps(observation_document(seen))), Memory()) == decide(seen, Memory())


@pytest.mark.parametrize(
    ("machine", "pool"),
    [
        ({"idle_since": NOW - 1.9 * HOUR}, {}),
        ({"idle_since": None}, {}),
        ({"launched": NOW - HOUR}, {}),
        ({"reported": None}, {}),
        ({"reported": NOW - 901}, {}),
        ({"reported": NOW + 901}, {}),
        ({"ready": False}, {}),
        ({}, {"until": NOW + HOUR}),
        ({}, {"min": 1}),
        ({}, {"idle": None}),
    ],
    ids=[
        "not yet",
        "logged in",
        "just started",
        "no status",
        "old status",
        "status from the future",
        "not in service",
        "started with --for",
        "at the minimum",
        "no idle time",
    ],
)
def test_a_machine_is_kept(machine: dict[str, Any], pool: dict[str, Any]) -> None:
    """Whatever is unknown keeps it: used, started for a time that is not over, without a recent report, needed."""
    assert _ended(replace(UNUSED, **machine), pool=replace(BOX, **pool)) == []


def test_a_paused_group_keeps_its_machines() -> None:
    """`capacity pause` stops the idle stop too."""
    assert _ended(UNUSED, paused=frozenset({"box"})) == []


def test_the_cap_limits_machines_that_end_at_once() -> None:
    """The longest unused end first, and never more than those above the minimum."""
    machines = [replace(UNUSED, id=f"i-{number}", idle_since=NOW - (3 + number) * HOUR) for number in range(6)]

    assert _ended(*machines, cap=0.5) == ["i-5", "i-4", "i-3"]
    assert _ended(*machines, pool=replace(BOX, desired=6, min=4), cap=0.5) == ["i-5", "i-4"]


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScalingCloud]:
    """Yield the deployed gpu-box with an idle time and two machines, of which one is the minimum."""
    text = (EXAMPLES / "gpu-box.yaml").read_text(encoding="utf-8").replace("111122223333", "123456789012")
    text = text.replace("{min: 1, max: 1}", "{min: 1, max: 2}\n    idle: 2h")
    (tmp_path / "fleet.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    with mock_aws():
        cloud = ScalingCloud(plan_of(tmp_path / "fleet.yaml"))
        monkeypatch.setattr("bedplate.account.client.open_session", lambda: cloud)
        monkeypatch.setattr("time.time", lambda: cloud.time)
        cloud.deploy()
        where = {"LocationConstraint": "eu-north-1"}
        boto3.client("s3", "eu-north-1").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=where)
        versions = {"Status": "Enabled"}
        boto3.client("s3", "eu-north-1").put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration=versions)
        boto3.client("autoscaling", "eu-north-1").set_desired_capacity(AutoScalingGroupName=GROUP, DesiredCapacity=2)
        cloud.time += 9 * HOUR
        yield cloud


def _instances() -> list[str]:
    client = boto3.client("autoscaling", "eu-north-1")
    (group,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
    assert group["DesiredCapacity"] == len(group["Instances"])
    return [member["InstanceId"] for member in group["Instances"]]


@pytest.fixture
def report(cloud: ScalingCloud) -> Callable[..., None]:
    """Return a function that writes the report of a machine, unused for some hours or in use."""

    def write(instance: str, hours: float | None, text: bytes = b"", file: str = "idle.json") -> None:
        since = None if hours is None else cloud.time - hours * HOUR
        body = text or json.dumps({"version": 1, "time": cloud.time - 60, "idle_since": since}).encode()
        key = f"status/AROAEXAMPLE:{instance}/{file}"
        boto3.client("s3", "eu-north-1").put_object(Bucket=BUCKET, Key=key, Body=body)

    return write


def test_the_controller_needs_no_cluster(cloud: ScalingCloud, report: Callable[..., None], capsys: Printed) -> None:
    """The controller ends unused machines and logs why; a dry run changes nothing; a useless end is removed."""
    assert not cloud.requests
    scaling = boto3.client("autoscaling", "eu-north-1")
    scaling.put_scheduled_update_group_action(
        AutoScalingGroupName=GROUP, ScheduledActionName=f"{GROUP}-until", DesiredCapacity=1, StartTime="2099-01-01"
    )
    unused, used = _instances()
    report(unused, 3)
    report(used, None)

    assert run(["capacity", "run", "--once", "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["dry_run"]
    assert _instances() == [unused, used]
    assert run(["capacity", "run", "--once"]) == 0

    entry = json.loads(capsys.readouterr().out)
    assert (entry["do"], entry["machine"], "failure" in entry) == ("terminate", unused, False)
    assert entry["reason"] == "unused for 180 minutes: nobody is logged in, and neither CPUs nor GPUs work"
    assert _instances() == [used]
    assert scaling.describe_scheduled_actions()["ScheduledUpdateGroupActions"] == []


def test_an_invalid_report_ends_nothing(
    cloud: ScalingCloud, report: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user of a machine may write any text there: the loop goes on, and ends the other machine."""
    groups = FleetGroups(AwsClient(cloud), capacity_plan(cloud.plan, load_catalog()))
    hostile, other = _instances()
    for text in (*HOSTILE.values(), b'{"time": "soon"}'):
        report(hostile, 3, text or b" ")
        assert decide(groups.observe(cloud.time), Memory())[0].actions == ()
    report(other, 3)
    stopped = threading.Event()
    monkeypatch.setattr("threading.Event", lambda: stopped)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(Loop, "_wait", lambda _: stopped.set())

    entries: list[Mapping[str, object]] = []
    Loop(Controller(groups, decide, Memory()), Outputs(entries.append, pytest.fail)).run()

    assert [entry["machine"] for entry in entries] == [other]
    assert _instances() == [hostile]


@pytest.mark.usefixtures("report")
def test_without_a_bucket_nothing_is_ended(cloud: ScalingCloud, capsys: Printed) -> None:
    """The use of the machines is unknown."""
    assert not cloud.requests
    boto3.client("s3", "eu-north-1").delete_bucket(Bucket=BUCKET)

    assert run(["capacity", "run", "--once"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("hours", [None, 1.0], ids=["in use", "used an hour ago"])
def test_a_false_report_ends_no_machine(
    hours: float | None, cloud: ScalingCloud, report: Callable[..., None], capsys: Printed
) -> None:
    """A user writes with the rights of the machine, but cannot delete what the machine itself has written."""
    used = _instances()[0]
    report(used, hours)
    report(used, 3)
    report(used, 9)
    report(used, 9, file="z/idle.json")

    assert run(["capacity", "run", "--once"]) == 0
    assert capsys.readouterr().out == ""
    assert used in _instances()
    assert not cloud.requests


def test_more_reports_than_a_machine_writes_end_nothing(cloud: ScalingCloud, report: Callable[..., None]) -> None:
    """Other reports could hide the machine's own; without versions in the bucket nothing is known either."""
    groups = FleetGroups(AwsClient(cloud), capacity_plan(cloud.plan, load_catalog()))
    first, second = _instances()
    for _ in range(41):
        report(first, 3)
    versions = {"Status": "Suspended"}
    boto3.client("s3", "eu-north-1").put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration=versions)
    report(second, 3)

    assert [machine.reported for machine in groups.observe(cloud.time).machines] == [None, None]


def test_a_login_right_before_the_end_keeps_the_machine(cloud: ScalingCloud, report: Callable[..., None]) -> None:
    """The report is read again when the machine is about to end."""
    groups = FleetGroups(AwsClient(cloud), capacity_plan(cloud.plan, load_catalog()))
    instance = _instances()[0]
    report(instance, 3)
    seen = groups.observe(cloud.time)
    (action,) = decide(seen, Memory())[0].actions
    report(instance, None)

    with pytest.raises(Changed, match="in use again"):
        groups.terminate(action, seen)  # type: ignore[arg-type]
    assert instance in _instances()


def test_the_idle_time_is_explained(cloud: ScalingCloud, report: Callable[..., None], capsys: Printed) -> None:
    """How long each machine is unused and when it ends, or why it is kept."""
    assert not cloud.requests
    first, second = _instances()
    report(first, 3)
    assert run(["capacity", "explain", "box"]) == 0
    assert f"Next: end the machine {first}: unused for 180 minutes" in capsys.readouterr().out
    assert run(["capacity", "pause", "box"]) == 0
    assert run(["capacity", "status"]) == 0
    assert "idle for 3 h; not ended: box is paused." in capsys.readouterr().out
    assert run(["capacity", "resume", "box"]) == 0

    report(first, 4 / 3)
    capsys.readouterr()
    assert run(["capacity", "status"]) == 0
    assert re.search(rf"{first} in eu-north-1[ab]: idle for 1 h 20 min; it ends in 40 min\.", capsys.readouterr().out)
    assert run(["capacity", "explain", "box"]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"{second} in eu-north-1[ab]: not ended: it has not reported its use\.", printed)
    assert "Next" not in printed


def test_a_fleet_without_idle_groups_has_no_controller(cloud: ScalingCloud, capsys: Printed) -> None:
    """The message names the key that is missing."""
    assert not cloud.requests
    file = Path("fleet.yaml")
    file.write_text(re.sub(r"\n    idle: .*", "", file.read_text(encoding="utf-8")), encoding="utf-8")

    assert run(["capacity", "run", "--once"]) == 2
    assert "add `idle: 2h` to a group with `use: ssh`" in capsys.readouterr().err
