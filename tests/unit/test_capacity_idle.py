"""Machines for people that end themselves: what `capacity` says about them, and that the controller ends none."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from bedplate.capacity.observation import Machine, Observation, Pool
from bedplate.capacity.planner import Memory, decide
from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.errors import PartialError
from bedplate.plan.capacity import capacity_document, capacity_plan, read_capacity_document
from tests.testlab.fakes.scaling import ScalingCloud
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

NOW, HOUR = 1_795_410_000.0, 3600.0
GROUP = "box-box-eu-north-1"
BUCKET = "box-nodes-123456789012-eu-north-1"
Printed = pytest.CaptureFixture[str]


def test_the_controller_leaves_machines_for_people_alone() -> None:
    """They are no nodes, so they would seem to be late. A plan of an earlier version still has their pools."""
    older = read_capacity_document(
        capacity_document(capacity_plan(lab_plan(), load_catalog(), lab_plan().pools)), "plan"
    )
    assert {pool.group for pool in older.pools if pool.is_ssh} == {"workbench-cpu", "workbench-gpu"}
    pools = tuple(
        Pool(pool.name, pool.group, pool.rung, pool.region, pool.zones, 0, 8, 1, is_ssh=pool.is_ssh, idle=pool.idle)
        for pool in older.pools
        if pool.is_ssh
    )
    machines = tuple(Machine(f"i-{pool.name}", pool.name, pool.zones[0], NOW - 9 * HOUR, ready=True) for pool in pools)

    assert decide(Observation(NOW, machines=machines, pools=pools), Memory())[0].actions == ()
    workers = tuple(replace(pool, is_ssh=False) for pool in pools)
    assert decide(Observation(NOW, machines=machines, pools=workers), Memory())[0].actions


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScalingCloud]:
    """Yield the deployed gpu-box with an idle time and two machines, of which one is the minimum."""
    text = (EXAMPLES / "gpu-box.yaml").read_text(encoding="utf-8").replace("111122223333", "123456789012")
    text = text.replace("{min: 1, max: 1}", "{min: 1, max: 2}\n    idle: 2h")
    (tmp_path / "fleet.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("LOGNAME", "ada")
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


def test_an_invalid_report_is_no_report(cloud: ScalingCloud, report: Callable[..., None], capsys: Printed) -> None:
    """A user of a machine may write any text there: the use of this machine is unknown, that of the others is shown."""
    assert not cloud.requests
    hostile, other = _instances()
    report(other, 1)
    report(hostile, None, b'{"time": "soon"}')

    assert run(["capacity", "explain", "box"]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"{hostile} in eu-north-1[ab]: its use is unknown: no report\.", printed)
    assert re.search(rf"{other} in eu-north-1[ab]: idle for 1 h; it ends in 1 h\.", printed)


@pytest.mark.usefixtures("report")
def test_without_a_bucket_the_use_is_unknown(cloud: ScalingCloud, capsys: Printed) -> None:
    """A region that was deployed before it had the bucket has no reports."""
    boto3.client("s3", "eu-north-1").delete_bucket(Bucket=BUCKET)

    assert run(["capacity", "explain", "box"]) == 0
    assert capsys.readouterr().out.count("its use is unknown: no report.") == len(_instances())
    assert not [name for name in cloud.requests if "terminate" in str(name)]


@pytest.mark.usefixtures("cloud")
def test_reports_that_cannot_be_read_are_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    """`status` names machines that it knows to be unused only, so it must say that it knows of none."""

    def refuse(*_: object) -> None:
        raise PartialError("s3: access denied")

    monkeypatch.setattr("bedplate.account.bundle.RegionStore.use_reports", refuse)
    for command in (["status"], ["explain", "box"]):
        assert run(["capacity", *command]) == 0
        assert "warning: unknown use of machines: eu-north-1: s3: access denied" in capsys.readouterr().out


def test_a_machine_out_of_service_stays(cloud: ScalingCloud, report: Callable[..., None], capsys: Printed) -> None:
    """It does not leave its group itself, for example in standby."""
    cloud.booting.add(GROUP)
    report(_instances()[0], 3)
    assert run(["capacity", "status"]) == 0
    assert "idle for 3 h; it stays: it is not in service." in capsys.readouterr().out


def test_a_report_of_another_name_does_not_count(
    cloud: ScalingCloud, report: Callable[..., None], capsys: Printed
) -> None:
    """A machine may write any key below its own id, and an old report says nothing about now."""
    first, second = _instances()
    report(first, 3, file="z/idle.json")
    report(second, 3)
    cloud.time += 1200

    assert run(["capacity", "explain", "box"]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"{first} in eu-north-1[ab]: its use is unknown: no report\.", printed)
    assert re.search(rf"{second} in eu-north-1[ab]: its use is unknown: its last report is of \d\d:\d\d", printed)


def test_the_idle_time_is_explained(cloud: ScalingCloud, report: Callable[..., None], capsys: Printed) -> None:
    """How long each machine is unused and when it ends, or why it is kept."""
    assert not cloud.requests
    first, second = _instances()
    report(first, 2)
    assert run(["capacity", "status"]) == 0
    assert "idle for 2 h; it ends now." in capsys.readouterr().out
    report(first, 3)
    assert run(["capacity", "status"]) == 0
    assert "idle for 3 h; it could not end: `journalctl -u bedplate-idle` there says why." in capsys.readouterr().out
    assert run(["capacity", "pause", "box"]) == 0
    assert run(["capacity", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["idle_since"] == {first: cloud.time - 3 * HOUR}
    assert run(["capacity", "status"]) == 0
    assert "idle for 3 h; it stays: ada has paused its group." in capsys.readouterr().out
    assert run(["capacity", "resume", "box"]) == 0

    report(first, 4 / 3)
    capsys.readouterr()
    assert run(["capacity", "status"]) == 0
    assert re.search(rf"{first} in eu-north-1[ab]: idle for 1 h 20 min; it ends in 40 min\.", capsys.readouterr().out)
    assert run(["capacity", "explain", "box"]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"{second} in eu-north-1[ab]: its use is unknown: no report\.", printed)
    assert "Next" not in printed
    report(second, None)
    assert run(["capacity", "explain", "box"]) == 0
    assert re.search(rf"{second} in eu-north-1[ab]: in use\.", capsys.readouterr().out)


def test_a_fleet_without_workers_has_no_controller(cloud: ScalingCloud, capsys: Printed) -> None:
    """The message says what ends its machines; without an idle time there is nothing to pause either."""
    assert not cloud.requests
    assert run(["capacity", "run", "--once"]) == 2
    assert "machines for SSH end themselves after the `idle` of their group" in capsys.readouterr().err
    file = Path("fleet.yaml")
    file.write_text(re.sub(r"\n    idle: .*", "", file.read_text(encoding="utf-8")), encoding="utf-8")

    assert run(["capacity", "pause"]) == 2
    assert "no group of the fleet file has `use: kubernetes` or `idle`" in capsys.readouterr().err
