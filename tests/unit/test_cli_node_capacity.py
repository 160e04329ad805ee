"""`bedplate node start` and `stop` with Auto Scaling groups in moto, which fail as AWS does."""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from moto import mock_aws

from bedplate.account.client import AwsClient
from bedplate.cli import INTERRUPTED, run
from bedplate.cli.options import Terminal
from bedplate.errors import PartialError
from bedplate.operate import machines
from tests.testlab.fakes.apply import FakeApply
from tests.testlab.fakes.scaling import ScalingCloud
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

WEST, EAST = "lab-workbench-gpu-us-west-2", "lab-workbench-gpu-us-east-1"
NO_CAPACITY = "We currently do not have sufficient g6.4xlarge capacity in the Availability Zone you requested."
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
CONSOLE = f"-----BEGIN SSH HOST KEY KEYS-----\n{KEY} root@ip\n-----END SSH HOST KEY KEYS-----\n"
Printed = pytest.CaptureFixture[str]


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScalingCloud]:
    """Yield the deployed lab, with workbench-gpu off; its fleet file is in the current folder."""
    text = (EXAMPLES / "lab.yaml").read_text(encoding="utf-8").replace("111122223333", "123456789012")
    file = tmp_path / "fleet.yaml"
    file.write_text(text.replace("nodes: {min: 1, max: 8}", "nodes: {min: 0, max: 2}"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGNAME", "ada")
    with mock_aws():
        cloud = ScalingCloud(plan_of(file))
        monkeypatch.setattr("bedplate.account.client.open_session", lambda: cloud)
        clock = SimpleNamespace(time=lambda: cloud.time, sleep=cloud.sleep)
        monkeypatch.setattr("bedplate.operate.nodes.time", clock)
        cloud.deploy()
        yield cloud


def _desired(group: str) -> int:
    client = boto3.client("autoscaling", group.removeprefix("lab-workbench-gpu-"))
    (described,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
    return int(described["DesiredCapacity"])


def _running(capsys: Printed) -> list[dict[str, object]]:
    capsys.readouterr()
    assert run(["node", "list", "--live", "--json"]) == 0
    machines = json.loads(capsys.readouterr().out)["machines"]
    return [machine for machine in machines if machine["group"] == "workbench-gpu"]


def _ends(region: str) -> list[dict[str, object]]:
    actions: list[dict[str, object]] = boto3.client("autoscaling", region).describe_scheduled_actions()[
        "ScheduledUpdateGroupActions"
    ]
    return actions


def _claim(instance: str, name: str) -> None:
    """Register the name of a machine, as its first boot does."""
    client = boto3.client("route53")
    zone = client.create_hosted_zone(
        Name="lab.internal",
        CallerReference="lab",
        HostedZoneConfig={"PrivateZone": True, "Comment": ""},
        VPC={"VPCRegion": "us-west-2", "VPCId": "vpc-1"},
    )["HostedZone"]["Id"]
    record = {"Name": f"{name}.lab.internal", "Type": "TXT", "TTL": 60, "ResourceRecords": [{"Value": f'"{instance}"'}]}
    batch = {"Changes": [{"Action": "CREATE", "ResourceRecordSet": record}]}
    client.change_resource_record_sets(HostedZoneId=zone, ChangeBatch=batch)


def test_a_group_starts_on_its_first_rung(cloud: ScalingCloud, capsys: Printed) -> None:
    """The command for the login is shown, and a second start finds the machine running."""
    assert run(["node", "start", "workbench-gpu"]) == 0
    assert "rung 1, us-west-2 on-demand: launching 1 machine" in capsys.readouterr().err
    (machine,) = _running(capsys)
    _claim(str(machine["instance"]), "workbench-gpu-1.us-west-2")
    assert run(["node", "start", "workbench-gpu"]) == 0

    name = "workbench-gpu-1.us-west-2"
    assert f"machine {name} is running in {machine['zone']}: `bedplate ssh {name}`" in capsys.readouterr().out
    assert cloud.requests == [(WEST, 1)]
    assert (machine["requested_by"], machine["rung"], machine["until"]) == ("ada", 1, None)


def test_a_rung_without_capacity_leads_to_the_next(cloud: ScalingCloud, capsys: Printed) -> None:
    """The first rung is lowered before the second is raised; each step says why."""
    cloud.empty[WEST] = NO_CAPACITY

    assert run(["node", "start", "workbench-gpu"]) == 0

    printed = capsys.readouterr()
    assert "us-west-2a: launch failed: no capacity (InsufficientInstanceCapacity)" in printed.err
    assert "rung 2, us-east-1 on-demand: launching 1 machine (workbench-gpu-us-west-2: no capacity in" in printed.err
    assert "is running in us-east-1" in printed.out
    assert cloud.requests == [(WEST, 1), (WEST, 0), (EAST, 1)]


def test_a_rung_that_is_not_deployed_is_passed(cloud: ScalingCloud, capsys: Printed) -> None:
    """The note has the command that deploys the rung."""
    boto3.client("autoscaling", "us-west-2").delete_auto_scaling_group(AutoScalingGroupName=WEST)

    assert run(["node", "start", "workbench-gpu"]) == 0

    assert "rung 1, us-west-2 on-demand: not deployed: `bedplate up --stack us-west-2`" in capsys.readouterr().err
    assert cloud.requests == [(EAST, 1)]


def test_an_unknown_failure_is_waited_for_and_shown(cloud: ScalingCloud, capsys: Printed) -> None:
    """After five minutes the next rung is tried."""
    cloud.empty[WEST] = "The launch was held back for a reason of AWS."

    assert run(["node", "start", "workbench-gpu"]) == 0

    printed = capsys.readouterr().err
    assert "launch failed: The launch was held back for a reason of AWS." in printed
    assert "no machine after 5 minutes" in printed


def test_a_ladder_without_capacity_ends_with_every_reason(cloud: ScalingCloud, capsys: Printed) -> None:
    """Status 6; no rung goes on trying, so that no machine appears later."""
    cloud.empty |= {WEST: NO_CAPACITY, EAST: "Max spot instance count exceeded."}

    assert run(["node", "start", "workbench-gpu"]) == 6

    printed = capsys.readouterr().err
    assert "rung 1, us-west-2 on-demand: no capacity in us-west-2a" in printed
    assert "rung 2, us-east-1 on-demand: the spot quota is used up (MaxSpotInstanceCountExceeded)" in printed
    assert "0 of 1 machines of workbench-gpu run: no rung has room for 1" in printed
    assert cloud.requests[-2:] == [(EAST, 1), (EAST, 0)]


def test_a_lost_reply_launches_no_second_machine(cloud: ScalingCloud, capsys: Printed) -> None:
    """The command says what AWS goes on with, and continues when it is repeated."""
    cloud.lost.add("set_desired_capacity")

    assert run(["node", "start", "workbench-gpu"]) == 4
    assert "AWS is still launching 1 machine on rung 1, us-west-2 on-demand" in capsys.readouterr().err
    assert run(["node", "start", "workbench-gpu"]) == 0

    assert len(_running(capsys)) == 1


def test_an_interrupted_start_says_what_is_still_launching(cloud: ScalingCloud, capsys: Printed) -> None:
    """Ctrl-C while a machine boots: its instance is named, and its end is already scheduled."""

    def interrupt() -> None:
        cloud.before_sleep = _raise_interrupt

    cloud.booting.add(WEST)
    cloud.before_sleep = interrupt

    assert run(["node", "start", "workbench-gpu", "--for", "8h"]) == INTERRUPTED

    printed = capsys.readouterr().err
    assert "AWS is still launching 1 machine on rung 1, us-west-2 on-demand: i-" in printed
    assert "`bedplate node start workbench-gpu` continues" in printed
    assert [action["DesiredCapacity"] for action in _ends("us-west-2")] == [0]


def _raise_interrupt() -> None:
    raise KeyboardInterrupt


def test_a_machine_that_never_gets_ready_is_waited_for_30_minutes(cloud: ScalingCloud, capsys: Printed) -> None:
    """Status 6, with the end of its console output and the command that ends it."""
    cloud.booting.add(WEST)
    before = cloud.time

    assert run(["node", "start", "workbench-gpu"]) == 6

    printed = capsys.readouterr().err
    assert 1800 <= cloud.time - before < 1900
    assert "not in service after 30 minutes" in printed
    assert "console of i-" in printed
    assert "  | " in printed


def test_a_failed_first_boot_shows_its_console(cloud: ScalingCloud, capsys: Printed) -> None:
    """And the next rung is tried."""
    assert run(["node", "start", "workbench-gpu"]) == 0
    (machine,) = _running(capsys)
    text = "Instance failed to complete user's Lifecycle Action: was abandoned"
    cloud.empty[WEST] = text
    cloud.before_sleep = lambda: cloud.report(WEST, text, machine=str(machine["instance"]))

    assert run(["node", "start", "workbench-gpu", "2"]) == 0

    printed = capsys.readouterr().err
    assert f"console of {machine['instance']}:" in printed
    assert "rung 2, us-east-1 on-demand: launching 1 machine" in printed


def test_machines_end_at_the_time_that_somebody_asked_for(cloud: ScalingCloud, capsys: Printed) -> None:
    """AWS lowers the pool then; a longer start moves the end, one without --for cancels it for good."""
    assert run(["node", "start", "workbench-gpu", "--for", "8h"]) == 0
    assert ", until 20" in capsys.readouterr().out
    (first,) = _ends("us-west-2")
    assert run(["node", "start", "workbench-gpu", "--for", "2d"]) == 0
    (second,) = _ends("us-west-2")
    (machine,) = _running(capsys)
    assert run(["node", "start", "workbench-gpu"]) == 0
    assert "is cancelled: this start has no --for" in capsys.readouterr().err
    assert run(["node", "start", "workbench-gpu", "--for", "8h"]) == 0

    assert "workbench-gpu-us-west-2 has no end" in capsys.readouterr().err
    assert first["DesiredCapacity"] == second["DesiredCapacity"] == 0
    assert second["StartTime"] > first["StartTime"]  # type: ignore[operator]
    assert datetime.fromisoformat(str(machine["until"])) == second["StartTime"].replace(second=0, microsecond=0)  # type: ignore[attr-defined]
    assert _ends("us-west-2") == []
    assert cloud.requests == [(WEST, 1)]


def test_an_earlier_stop_of_the_fleet_file_counts(cloud: ScalingCloud, capsys: Printed) -> None:
    """A note says so, and no end is scheduled, which could raise the pool after that stop."""
    file = Path("fleet.yaml")
    hours = "expires: permanent\n    schedule: {start: '07:00', stop: '20:00'}"
    file.write_text(file.read_text(encoding="utf-8").replace("expires: permanent", hours), encoding="utf-8")

    assert run(["node", "start", "workbench-gpu", "--for", "2d"]) == 0

    assert "note: the fleet file stops workbench-gpu-us-west-2 at" in capsys.readouterr().err
    assert _ends("us-west-2") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workbench-gpu", "9"], "workbench-gpu has at most 2 machines, not 9"),
        (["workbench-gup"], "write workbench-gpu"),
        (["workbench-gpu", "--for", "8"], "write 8h"),
    ],
    ids=["too many", "group", "duration"],
)
def test_an_impossible_start_is_refused(
    arguments: list[str], message: str, cloud: ScalingCloud, capsys: Printed
) -> None:
    """Status 2 with the nearest right value; nothing is changed."""
    assert run(["node", "start", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert cloud.requests == []


def test_a_stopped_machine_is_not_replaced(cloud: ScalingCloud, capsys: Printed) -> None:
    """The desired capacity is lowered with it."""
    run(["node", "start", "workbench-gpu", "2"])
    first, second = _running(capsys)
    _claim(str(first["instance"]), "workbench-gpu-1.us-west-2")

    assert run(["node", "stop", "workbench-gpu-1.us-west-2", "--yes"]) == 0

    printed = capsys.readouterr().out
    assert "started by ada" in printed
    assert "logged in: unknown" in printed
    assert [machine["instance"] for machine in _running(capsys)] == [second["instance"]]
    assert _desired(WEST) == 1


@pytest.mark.parametrize("name", ["gate.cellar", "nas.cellar", "control-1.us-west-2", "laptops.us-west-2"])
def test_a_permanent_machine_is_not_stopped(name: str, cloud: ScalingCloud, capsys: Printed) -> None:
    """Gateways, file servers and the control plane: status 2 before any call."""
    assert run(["node", "stop", name, "--yes"]) == 2
    assert "is a permanent machine" in capsys.readouterr().err


def test_a_machine_at_the_minimum_is_not_stopped(cloud: ScalingCloud, capsys: Printed) -> None:
    """AWS would replace it: the message names the key to change."""
    client = boto3.client("autoscaling", "us-west-2")
    (group,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=["lab-workbench-cpu-us-west-2"])[
        "AutoScalingGroups"
    ]

    assert run(["node", "stop", group["Instances"][0]["InstanceId"], "--yes"]) == 2

    printed = capsys.readouterr().err
    assert "workbench-cpu-us-west-2 is at its minimum of 1" in printed
    assert "lower `groups.workbench-cpu.nodes.min` below 1" in printed


def test_a_stop_without_a_terminal_needs_yes(cloud: ScalingCloud, capsys: Printed) -> None:
    """Nothing is terminated without a confirmation."""
    run(["node", "start", "workbench-gpu"])
    (machine,) = _running(capsys)

    assert run(["node", "stop", str(machine["instance"])]) == 2
    assert len(_running(capsys)) == 1


def test_running_machines_show_age_and_price(cloud: ScalingCloud, capsys: Printed) -> None:
    """The list also says who started them, and until when."""
    run(["node", "start", "workbench-gpu", "--for", "8h"])
    capsys.readouterr()

    assert run(["node", "list", "--live"]) == 0

    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if "workbench-gpu" in line]
    assert row[4:9] == ["InService", "1", "0m", "0.00", "ada"]
    assert row[11:] == ["no", "status", "yet"]


def test_up_waits_for_names_and_records_host_keys(
    cloud: ScalingCloud, applies: FakeApply, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine counts once its first boot has registered its name; AWS reads its host key from its console."""
    monkeypatch.setattr(
        machines, "time", SimpleNamespace(monotonic=lambda: cloud.time, sleep=cloud.sleep, time=time.time)
    )
    monkeypatch.setattr(machines, "_permanent_machines", lambda _plan, _client: ())
    monkeypatch.setattr(machines, "answering", lambda _hosts: frozenset())
    monkeypatch.setattr(machines, "check_plugin", lambda: None)
    monkeypatch.setattr(machines, "deliver_bundle", lambda *_: [])
    monkeypatch.setattr("bedplate.operate.login.answering", lambda _hosts: frozenset())
    monkeypatch.setattr("moto.ec2.responses.general.SAMPLE_CONSOLE_OUTPUT", CONSOLE)
    assert run(["plan", "--write"]) == 0
    names = iter(["workbench-cpu-1.us-west-2"])

    def boot() -> None:
        groups = boto3.client("autoscaling", "us-west-2").describe_auto_scaling_groups()["AutoScalingGroups"]
        (instance,) = [instance["InstanceId"] for group in groups for instance in group["Instances"]]
        _claim(instance, next(names))

    cloud.before_sleep = boot
    assert machines.ready_machines(Terminal(Path("fleet.yaml")), "bedplate up").status == 0

    assert applies.machines == ["workbench-cpu-1.us-west-2"]
    printed = capsys.readouterr()
    assert ") has not registered its name" in printed.err
    assert "workbench-cpu-1.us-west-2: ready" in printed.out
    assert KEY.split()[1] in Path("fleet.lock").read_text(encoding="utf-8")


def _silence(monkeypatch: pytest.MonkeyPatch, region: str) -> None:
    answer = AwsClient.pages

    def pages(client: AwsClient, service: str, place: str, operation: str, **params: object) -> Iterator[object]:
        if (service, place) == ("autoscaling", region):
            raise PartialError("cannot connect to autoscaling over HTTPS")
        return answer(client, service, place, operation, **params)

    monkeypatch.setattr(AwsClient, "pages", pages)


def test_the_rungs_of_a_silent_region_are_passed(
    cloud: ScalingCloud, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start uses the other rungs, and says that the machines of that region are not counted."""
    _silence(monkeypatch, "us-west-2")

    assert run(["node", "start", "workbench-gpu"]) == 0

    assert (
        "rung 1, us-west-2 on-demand: passed, its machines are not counted: cannot connect" in capsys.readouterr().err
    )
    assert cloud.requests == [(EAST, 1)]
