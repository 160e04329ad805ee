"""`bedplate node trust`: a host key is recorded only if the operator or AWS confirms its fingerprint."""

import os
from pathlib import Path
from typing import Any

import pytest

from bedplate.cli import run
from bedplate.lock import read_lock, record_host_keys
from bedplate.nodes.host_keys import fingerprint
from tests.testlab.fakes.aws import ACCOUNT, StubbedSession

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJp0bDmcH2ZKkXlPGrRCxKqFZbZ2G6jvYlUFfEyH0Bqw"
# What `ssh-keygen -r` makes of them.
SSHFP = {
    KEY: "4 2 f83898df0bef57a4ee24985ba598ac17fccb0c0d333cc4af1dd92be14bc23aa5",
    OTHER: "4 2 12c6b7504590c89be333e5508085ec20912ab63a4766531965062e5b9a3dc33d",
}
NAME = "workbench-cpu-2.us-west-2"
HOME = "us-west-2"
REST = {"IsTruncated": False, "MaxItems": "100"}

INSTANCE, FORMER = "i-0000000000000000b", "i-0000000000000000f"
ADDRESS = "10.64.33.7"
POOL = "lab-workbench-cpu-us-west-2"


@pytest.fixture
def offering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of keys that a fake ssh-keyscan finds at any address; it logs the addresses."""
    program, offered = tmp_path / "bin/ssh-keyscan", tmp_path / "offered"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >>{offered}.asked\ncat {offered}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    offered.write_text(f"192.168.40.21 {KEY}\n")
    return offered


pytestmark = pytest.mark.usefixtures("here")


def _known() -> dict[str, tuple[str, ...]]:
    return dict(read_lock(Path("fleet.lock"), "lab").host_keys)


def test_a_key_is_recorded_when_its_fingerprint_is_the_one_that_was_read(offering: Path) -> None:
    """Only the key with that fingerprint."""
    offering.write_text(f"x {KEY}\nx {OTHER}\n")

    assert run(["node", "trust", "titan-01.cellar", fingerprint(KEY)]) == 0

    assert _known() == {"titan-01.cellar": (KEY,)}


@pytest.fixture
def ssh(offering: Path) -> Path:
    """Return the folder of a fake ssh that writes the offered keys as ssh does; it logs its arguments."""
    program = offering.parent / "bin/ssh"
    program.write_text(
        f'#!/bin/sh\necho "$*" >{offering}.asked\n'
        f'for word; do case $word in UserKnownHostsFile=*) cat {offering} >"${{word#*=}}";; esac; done\nexit 255\n'
    )
    program.chmod(0o755)
    return offering


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--address", "127.0.0.1:2222"], ["-p 2222 127.0.0.1"]),
        (["--address", "[::1]:2222"], ["-p 2222 ::1"]),
        (["--address", "::1"], [" ::1"]),
        (["--ssh-config", "own"], ["-F own ", "PreferredAuthentications=none", "-- titan-01.cellar true"]),
        (["--ssh-config", "own", "--address", "gate:2222"], ["-F own ", "-p 2222 -- gate true"]),
    ],
)
def test_a_key_can_be_read_through_a_forwarded_port_or_a_proxy(options: list[str], words: list[str], ssh: Path) -> None:
    """Before there is a VPN, Session Manager leads to a gateway."""
    Path("own").touch()

    assert run(["node", "trust", "titan-01.cellar", fingerprint(KEY), *options]) == 0

    command = Path(f"{ssh}.asked").read_text().strip()
    assert [word for word in words if word not in command] == []
    assert _known() == {"titan-01.cellar": (KEY,)}


@pytest.mark.parametrize("options", [["--ssh-config", "own"], ["--address", "gate:2222"]])
def test_another_way_to_a_machine_requires_a_fingerprint(
    options: list[str], ssh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """AWS confirms a key at the address that it knows only."""
    assert run(["node", "trust", NAME, *options]) == 2

    assert f"{options[0]} requires a fingerprint" in capsys.readouterr().err


def test_another_key_is_refused_and_nothing_recorded(offering: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 3: another host answers."""
    assert run(["node", "trust", "titan-01.cellar", fingerprint(OTHER)]) == 3

    assert "offers the host key" in capsys.readouterr().err
    assert not Path("fleet.lock").exists()


def test_a_recorded_key_gives_way_only_when_that_is_said(offering: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A reinstalled machine requires --replace."""
    record_host_keys(Path("fleet.lock"), "lab", "titan-01.cellar", (OTHER,), replace_known=False)

    assert run(["node", "trust", "titan-01", fingerprint(KEY)]) == 2
    refused = capsys.readouterr().err
    kept = _known()
    assert run(["node", "trust", "titan-01", fingerprint(KEY), "--replace"]) == 0

    assert "--replace" in refused
    assert kept == {"titan-01.cellar": (OTHER,)}
    assert _known() == {"titan-01.cellar": (KEY,)}


def test_a_machine_that_offers_nothing_is_told(offering: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The machine can be off."""
    offering.write_text("")

    assert run(["node", "trust", "titan-01.cellar", fingerprint(KEY)]) == 6
    assert "offers no Ed25519 host key" in capsys.readouterr().err


def _zone(account: StubbedSession, *told: dict[str, str], ids: tuple[str, ...] = ("Z1",)) -> None:
    """Prepare the records of the zone: by name, then by type. Public zones are ignored."""
    about = {"Name": "lab.internal.", "CallerReference": "c"}
    private = [{"Id": f"/hostedzone/{each}", **about, "Config": {"PrivateZone": True}} for each in ids]
    public = {"Id": "/hostedzone/Z9", **about, "Config": {"PrivateZone": False}}
    listed = {"HostedZones": [*private, public], **REST}
    account.answers("route53", HOME, "list_hosted_zones_by_name", listed, DNSName="lab.internal")
    records: list[dict[str, Any]] = [
        {"Name": f"{each['name']}.lab.internal.", "Type": kind, "ResourceRecords": [{"Value": value}]}
        for each in told
        for kind, value in each.items()
        if kind != "name"
    ]
    answer = {"ResourceRecordSets": records, **REST}
    for each in ids:
        account.answers("route53", HOME, "list_resource_record_sets", answer, HostedZoneId=each)


def _record(key: str, name: str = NAME, instance: str = INSTANCE) -> dict[str, str]:
    return {"name": name, "A": ADDRESS, "TXT": f'"{instance}"', "SSHFP": SSHFP[key]}


def _members(account: StubbedSession, *instances: str, state: str = "InService", address: str = ADDRESS) -> None:
    """Prepare the instances of the group and their address."""
    members = [
        {
            "InstanceId": each,
            "AvailabilityZone": f"{HOME}a",
            "LifecycleState": state,
            "HealthStatus": "Healthy",
            "ProtectedFromScaleIn": False,
        }
        for each in instances
    ]
    group = {
        "AutoScalingGroupName": POOL,
        "MinSize": 1,
        "MaxSize": 20,
        "DesiredCapacity": 2,
        "DefaultCooldown": 300,
        "AvailabilityZones": [f"{HOME}a"],
        "HealthCheckType": "EC2",
        "CreatedTime": "2026-11-21T00:00:00Z",
        "Instances": members,
    }
    reply = {"AutoScalingGroups": [group]}
    account.answers("autoscaling", HOME, "describe_auto_scaling_groups", reply, AutoScalingGroupNames=[POOL])
    if instances:
        wanted = [{"Name": "instance-id", "Values": list(instances)}]
        _instances(account, wanted, *({"InstanceId": each, "PrivateIpAddress": address} for each in instances))


def _existing(account: StubbedSession, instance: str, *, is_there: bool) -> None:
    """Prepare whether an instance has terminated."""
    states = ["pending", "running", "shutting-down", "stopping", "stopped"]
    wanted = [{"Name": "instance-id", "Values": [instance]}, {"Name": "instance-state-name", "Values": states}]
    _instances(account, wanted, *([{"InstanceId": instance}] if is_there else []))


def _instances(account: StubbedSession, wanted: list[dict[str, Any]], *found: dict[str, str]) -> None:
    booked = [{"Instances": list(found)}] if found else []
    account.answers("ec2", HOME, "describe_instances", {"Reservations": booked}, Filters=wanted)


def _asked(offering: Path) -> list[str]:
    """Return the scanned addresses."""
    noted = offering.parent / "offered.asked"
    return [line.split()[-1] for line in noted.read_text().splitlines()] if noted.exists() else []


def test_a_key_that_aws_tells_and_the_machine_offers_is_recorded(account: StubbedSession, offering: Path) -> None:
    """The address from EC2 is scanned; the lock gets the key and the instance id."""
    _zone(account, _record(KEY), _record(OTHER, "workbench-cpu-3.us-west-2"))
    _members(account, INSTANCE)

    assert run(["node", "trust", NAME]) == 0

    assert _known() == {NAME: (KEY,)}
    assert dict(read_lock(Path("fleet.lock"), "lab").instances) == {NAME: INSTANCE}
    assert _asked(offering) == [ADDRESS]


# By what is wrong: the group's members and their state, the A record, the exit status, and what is said.
UNCONFIRMED = {
    "another instance": ((FORMER,), "InService", ADDRESS, 3, f"names {INSTANCE}, which is no instance of"),
    "no instance": ((), "InService", ADDRESS, 3, "no instance of workbench-cpu in us-west-2"),
    "another address": ((INSTANCE,), "InService", "203.0.113.66", 3, f"but {INSTANCE} has {ADDRESS}"),
    "not in service": ((INSTANCE,), "Pending:Wait", ADDRESS, 6, "is not in service: Pending:Wait"),
}


@pytest.mark.parametrize("case", UNCONFIRMED)
@pytest.mark.parametrize("which", [[NAME], ["--group", "workbench-cpu"]], ids=["one", "group"])
def test_records_that_ec2_does_not_confirm_are_refused(
    which: list[str], case: str, account: StubbedSession, offering: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any process on a machine can write them. No other address than that of the instance is scanned."""
    members, state, address, status, says = UNCONFIRMED[case]
    _zone(account, {**_record(KEY), "A": address})
    _members(account, *members, state=state)

    assert run(["node", "trust", *which]) == status

    assert says in capsys.readouterr().err
    assert _asked(offering) == []
    assert not Path("fleet.lock").exists()


@pytest.mark.parametrize("former", [None, FORMER, INSTANCE], ids=["unknown", "running", "itself"])
@pytest.mark.usefixtures("offering")
def test_a_recorded_key_is_not_replaced_unasked(
    former: str | None, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless its instance has terminated, or with --replace."""
    record_host_keys(Path("fleet.lock"), "lab", NAME, (OTHER,), former, replace_known=False)
    _zone(account, _record(KEY))
    _members(account, INSTANCE)
    if former:
        _existing(account, former, is_there=True)
    assert run(["node", "trust", NAME]) == 3
    kept, told = _known(), capsys.readouterr().err

    account.belongs_to(ACCOUNT, HOME)
    _zone(account, _record(KEY))
    _members(account, INSTANCE)
    assert run(["node", "trust", NAME, "--replace"]) == 0

    assert kept == {NAME: (OTHER,)}
    assert "--replace" in told
    assert _known() == {NAME: (KEY,)}


def test_an_address_is_named_with_a_fingerprint_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a fingerprint the address comes from EC2."""
    assert run(["node", "trust", NAME, "--address", "203.0.113.66"]) == 2

    assert "--address requires a fingerprint" in capsys.readouterr().err


def test_another_key_than_aws_tells_is_refused(
    account: StubbedSession, offering: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another host answers, whatever keys it offers."""
    offering.write_text(f"x {OTHER}\n")
    _zone(account, _record(KEY))
    _members(account, INSTANCE)

    assert run(["node", "trust", NAME]) == 3

    told = capsys.readouterr().err
    assert f"{NAME} offers the host key {fingerprint(OTHER)}, expected {fingerprint(KEY)}" in told
    assert not Path("fleet.lock").exists()


@pytest.mark.parametrize(
    "sshfp",
    ["", "4 1 " + "0" * 40, "1 2 " + SSHFP[KEY][4:], SSHFP[KEY][:-2]],
    ids=["none", "sha-1", "rsa", "short"],
)
def test_what_aws_does_not_tell_is_not_trusted(
    sshfp: str, account: StubbedSession, offering: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing, weaker or different fingerprint in the zone is refused."""
    _zone(account, {**_record(KEY), "SSHFP": sshfp})

    assert run(["node", "trust", NAME]) == 6

    assert "has published no host key" in capsys.readouterr().err
    assert _asked(offering) == []
    assert not Path("fleet.lock").exists()


def test_a_name_that_nobody_has_is_told(account: StubbedSession, capsys: pytest.CaptureFixture[str]) -> None:
    """The machine may not have started."""
    _zone(account, _record(KEY, "workbench-cpu-3.us-west-2"))

    assert run(["node", "trust", NAME]) == 6

    assert f"no running machine is named {NAME}" in capsys.readouterr().err


def test_a_name_in_two_zones_is_nobodys(
    account: StubbedSession, offering: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is unknown which zone is the fleet's."""
    _zone(account, _record(KEY), ids=("Z1", "Z2"))

    assert run(["node", "trust", NAME]) == 6

    assert f"two private zones have records of {NAME}" in capsys.readouterr().err
    assert _asked(offering) == []


@pytest.mark.usefixtures("offering")
def test_the_key_of_a_machine_that_is_gone_gives_way(
    account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """The instance of the recorded key has terminated; the output names both keys."""
    record_host_keys(Path("fleet.lock"), "lab", NAME, (OTHER,), FORMER, replace_known=False)
    _zone(account, _record(KEY))
    _members(account, INSTANCE)
    _existing(account, FORMER, is_there=False)

    assert run(["node", "trust", NAME]) == 0

    assert _known() == {NAME: (KEY,)}
    assert f"{NAME} has host key {fingerprint(KEY)}, replacing {fingerprint(OTHER)}" in capsys.readouterr().out


@pytest.mark.usefixtures("offering")
def test_a_groups_machines_are_taken_together(account: StubbedSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Machines with a wrong key are named and do not stop the others."""
    others = ("workbench-cpu-3.us-west-2", "workbench-gpu-1.us-west-2")
    _zone(account, _record(KEY), _record(OTHER, others[0], FORMER), _record(KEY, others[1]))
    _members(account, INSTANCE, FORMER)

    assert run(["node", "trust", "--group", "workbench-cpu"]) == 3

    told = capsys.readouterr()
    assert _known() == {NAME: (KEY,)}
    assert [line.split()[3] for line in told.out.splitlines()] == [NAME]
    assert f"{others[0]}: offers the host key" in told.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "no machine selected"),
        (["titan-01.cellar"], "bedplate node trust titan-01.cellar SHA256:..."),
        (["control-1.us-west-2"], "AWS does not know the host key of control-1.us-west-2"),
        (["--group", "trian"], "write train"),
        (["--group", "train"], "machines of train have no names"),
        ([NAME, "--group", "workbench-cpu"], "exclude each other"),
    ],
    ids=["nobody", "site", "control", "group", "workers", "both"],
)
def test_what_aws_cannot_tell_is_refused_before_it_is_asked(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, with an alternative."""
    assert run(["node", "trust", *arguments]) == 2
    assert told in capsys.readouterr().err
