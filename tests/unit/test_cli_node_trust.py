"""`bedplate node trust`: a host key is recorded only if the operator names its fingerprint, or AWS reads it."""

import os
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import ANY

from bedplate.cli import run
from bedplate.lock import read_lock, record_host_keys
from bedplate.nodes.host_keys import fingerprint
from tests.testlab.fakes.aws import ACCOUNT, StubbedSession
from tests.testlab.fakes.instances import (
    HOME,
    INSTANCE,
    console,
    console_output,
    existing,
    group_members,
    instances,
    name_zone,
)

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJp0bDmcH2ZKkXlPGrRCxKqFZbZ2G6jvYlUFfEyH0Bqw"
NAME = "workbench-cpu-2.us-west-2"

FORMER = "i-0000000000000000f"
COMMAND = "00000000-0000-4000-8000-000000000000"


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
    """AWS reads a key from the instance that it knows only."""
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


OWNER = (NAME, INSTANCE)


def _agent(account: StubbedSession, *replies: dict[str, str]) -> None:
    """Prepare Run Command's replies; without any, the agent is not connected."""
    if not replies:
        account.refuses("ssm", HOME, "send_command", "InvalidInstanceId")
        return
    account.answers(
        "ssm",
        HOME,
        "send_command",
        {"Command": {"CommandId": COMMAND}},
        InstanceIds=[INSTANCE],
        DocumentName="AWS-RunShellScript",
        TimeoutSeconds=30,
        Parameters={"commands": ["cat /etc/ssh/ssh_host_ed25519_key.pub"]},
    )
    account.refuses("ssm", HOME, "get_command_invocation", "InvocationDoesNotExist")
    for reply in replies:
        account.answers("ssm", HOME, "get_command_invocation", reply, CommandId=COMMAND, InstanceId=INSTANCE)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bedplate.account.session._PAUSE", 0)


def test_a_key_on_the_console_is_recorded(account: StubbedSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Only root writes to the console. The lock gets the key and the instance id; the newest key counts."""
    name_zone(account, OWNER, ("workbench-cpu-3.us-west-2", FORMER))
    group_members(account, INSTANCE)
    console(account, KEY, before=f"-----BEGIN SSH HOST KEY KEYS-----\n{OTHER}\n-----END SSH HOST KEY KEYS-----\n")

    assert run(["node", "trust", NAME]) == 0

    assert _known() == {NAME: (KEY,)}
    assert dict(read_lock(Path("fleet.lock"), "lab").instances) == {NAME: INSTANCE}
    assert "(read from its console)" in capsys.readouterr().out


@pytest.mark.parametrize("owner", [OWNER, None], ids=["registered", "new"])
def test_an_instance_id_stands_for_its_machine(
    owner: tuple[str, str] | None, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its key is recorded under its own name; without one the message has the name that other commands accept."""
    for region in ("us-east-1", "eu-north-1"):
        nothing: dict[str, object] = {"AutoScalingGroups": []}
        account.answers("autoscaling", region, "describe_auto_scaling_groups", nothing, AutoScalingGroupNames=ANY)
    for _ in range(2 if owner else 1):
        name_zone(account, *([owner] if owner else []))
        group_members(account, INSTANCE, group_names=ANY)
    if owner:
        account.belongs_to(ACCOUNT, HOME)
        console(account, KEY)

    assert run(["node", "trust", INSTANCE]) == (0 if owner else 6)

    assert _known() == ({NAME: (KEY,)} if owner else {})
    if owner is None:
        assert f"`bedplate node logs workbench-cpu-{INSTANCE[-8:]}.us-west-2`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "console",
    [
        "",
        f"-----BEGIN SSH HOST KEY KEYS-----\n[   99.1] {OTHER}\n-----END SSH HOST KEY KEYS-----\n",
        f"[   99.1] -----BEGIN SSH HOST KEY KEYS-----\n{OTHER}\n[   99.1] -----END SSH HOST KEY KEYS-----\n",
        f"-----BEGIN SSH HOST KEY KEYS-----\n{OTHER[:-2]}\n-----END SSH HOST KEY KEYS-----\n",
    ],
    ids=["overwritten", "kernel key", "kernel block", "cut"],
)
def test_without_a_key_on_the_console_a_workbench_is_not_trusted(
    console: str, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its users could fill the console, and answer Run Command with the rights of the machine's role."""
    name_zone(account, OWNER)
    group_members(account, INSTANCE)
    console_output(account, console)

    assert run(["node", "trust", NAME]) == 6

    output = capsys.readouterr().err
    assert f"the console of {NAME} ({INSTANCE}) has no host key" in output
    assert "EC2 serial console" in output
    assert not Path("fleet.lock").exists()


GATEWAY = "laptops.us-west-2"


def _gateway(account: StubbedSession) -> None:
    """Prepare the answer about the running gateway of laptops."""
    found = [{"Instances": [{"InstanceId": INSTANCE, "State": {"Name": "running"}}]}]
    account.answers("ec2", HOME, "describe_instances", {"Reservations": found}, Filters=ANY)


def test_without_a_key_on_the_console_the_agent_of_a_gateway_reads_it(
    account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """People have no account there, so nobody else could answer instead of the agent."""
    _gateway(account)
    console_output(account, "")
    _agent(account, {"Status": "InProgress"}, {"Status": "Success", "StandardOutputContent": f"{KEY} root@box\n"})

    assert run(["node", "trust", GATEWAY]) == 0

    assert _known() == {GATEWAY: (KEY,)}
    assert "(read from its Systems Manager agent)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("replies", "says"),
    [
        ((), f"{GATEWAY} ({INSTANCE}) is not connected to Systems Manager"),
        (({"Status": "Failed", "StandardOutputContent": ""},), "has not returned its host key"),
    ],
    ids=["not connected", "failed"],
)
def test_a_machine_whose_key_aws_cannot_read_is_reported(
    replies: tuple[dict[str, str], ...], says: str, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6, with the next step; nothing is recorded."""
    _gateway(account)
    account.refuses("ec2", HOME, "get_console_output", "UnsupportedOperation")
    _agent(account, *replies)

    assert run(["node", "trust", GATEWAY]) == 6

    output = capsys.readouterr().err
    assert says in output
    assert "fix  " in output
    assert not Path("fleet.lock").exists()


# By what is wrong: the group's members and their state, the exit status, and the message.
UNCONFIRMED = {
    "another instance": ((FORMER,), "InService", 3, f"names {INSTANCE}, which is no instance of"),
    "no instance": ((), "InService", 3, "no instance of workbench-cpu in us-west-2"),
    "not in service": ((INSTANCE,), "Pending:Wait", 6, "is not in service: Pending:Wait"),
}


@pytest.mark.parametrize("case", UNCONFIRMED)
@pytest.mark.parametrize("which", [[NAME], ["--group", "workbench-cpu"]], ids=["one", "group"])
def test_records_that_ec2_does_not_confirm_are_refused(
    which: list[str], case: str, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any process on a machine can write them. No key of another instance is read."""
    members, state, status, says = UNCONFIRMED[case]
    name_zone(account, OWNER)
    group_members(account, *members, state=state)

    assert run(["node", "trust", *which]) == status

    assert says in capsys.readouterr().err
    assert not Path("fleet.lock").exists()


@pytest.mark.parametrize("former", [None, FORMER, INSTANCE], ids=["unknown", "running", "itself"])
def test_a_recorded_key_is_not_replaced_unasked(
    former: str | None, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless its instance has terminated, or with --replace."""
    record_host_keys(Path("fleet.lock"), "lab", NAME, (OTHER,), former, replace_known=False)
    name_zone(account, OWNER)
    group_members(account, INSTANCE)
    console(account, KEY)
    if former:
        existing(account, former, is_there=True)
    assert run(["node", "trust", NAME]) == 3
    kept, errors = _known(), capsys.readouterr().err

    account.belongs_to(ACCOUNT, HOME)
    name_zone(account, OWNER)
    group_members(account, INSTANCE)
    console(account, KEY)
    assert run(["node", "trust", NAME, "--replace"]) == 0

    assert kept == {NAME: (OTHER,)}
    assert "--replace" in errors
    assert _known() == {NAME: (KEY,)}


def test_the_key_of_a_terminated_instance_is_replaced(
    account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output names both keys."""
    record_host_keys(Path("fleet.lock"), "lab", NAME, (OTHER,), FORMER, replace_known=False)
    name_zone(account, OWNER)
    group_members(account, INSTANCE)
    console(account, KEY)
    existing(account, FORMER, is_there=False)

    assert run(["node", "trust", NAME]) == 0

    assert _known() == {NAME: (KEY,)}
    assert f"{NAME} has host key {fingerprint(KEY)}, replacing {fingerprint(OTHER)}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("laptops.us-west-2", {"Name": "tag:Name", "Values": ["lab-laptops"]}),
        ("control-1.us-west-2", {"Name": "tag:bedplate:member", "Values": ["control-1.us-west-2"]}),
    ],
    ids=["gateway", "control"],
)
def test_a_permanent_machine_is_found_by_its_tags(name: str, tag: dict[str, Any], account: StubbedSession) -> None:
    """Of two instances, the running one counts: its group replaces the other."""
    states = ["pending", "running", "shutting-down", "stopping", "stopped"]
    filters: list[dict[str, Any]] = [
        {"Name": "tag:bedplate:fleet", "Values": ["lab"]},
        tag,
        {"Name": "instance-state-name", "Values": states},
    ]
    states_of = ((FORMER, "shutting-down"), (INSTANCE, "running"))
    descriptions = [{"InstanceId": instance, "State": {"Name": state}} for instance, state in states_of]
    instances(account, filters, *descriptions)
    console(account, KEY)

    assert run(["node", "trust", name]) == 0

    assert _known() == {name: (KEY,)}


@pytest.mark.parametrize(
    ("descriptions", "says"),
    [
        ([], "AWS has no instance of laptops.us-west-2"),
        ([{"InstanceId": INSTANCE, "State": {"Name": "stopped"}}], "start it: `aws ec2 start-instances"),
    ],
    ids=["none", "stopped"],
)
def test_a_permanent_machine_that_does_not_run_is_reported(
    descriptions: list[dict[str, Any]], says: str, account: StubbedSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 6, with the command that starts it."""
    booked = [{"Instances": descriptions}] if descriptions else []
    account.answers("ec2", HOME, "describe_instances", {"Reservations": booked}, Filters=ANY)

    assert run(["node", "trust", "laptops.us-west-2"]) == 6

    assert says in capsys.readouterr().err


def test_an_address_is_named_with_a_fingerprint_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a fingerprint AWS reads the key."""
    assert run(["node", "trust", NAME, "--address", "203.0.113.66"]) == 2

    assert "--address requires a fingerprint" in capsys.readouterr().err


def test_a_name_that_nobody_has_is_told(account: StubbedSession, capsys: pytest.CaptureFixture[str]) -> None:
    """The machine may not have started."""
    name_zone(account, ("workbench-cpu-3.us-west-2", INSTANCE))

    assert run(["node", "trust", NAME]) == 6

    assert f"no running machine is named {NAME}" in capsys.readouterr().err


def test_a_name_in_two_zones_is_nobodys(account: StubbedSession, capsys: pytest.CaptureFixture[str]) -> None:
    """It is unknown which zone is the fleet's."""
    name_zone(account, OWNER, ids=("Z1", "Z2"))

    assert run(["node", "trust", NAME]) == 6

    assert f"two private zones have records of {NAME}" in capsys.readouterr().err


def test_a_groups_machines_are_taken_together(account: StubbedSession, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine that fails is named and does not stop the others. A name of another group is not recorded."""
    others = ("workbench-cpu-3.us-west-2", "workbench-gpu-1.us-west-2")
    name_zone(account, OWNER, (others[0], "i-0000000000000000c"), (others[1], INSTANCE))
    group_members(account, INSTANCE, FORMER)
    console(account, KEY)

    assert run(["node", "trust", "--group", "workbench-cpu"]) == 3

    output = capsys.readouterr()
    assert _known() == {NAME: (KEY,)}
    assert [line.split()[3] for line in output.out.splitlines()] == [NAME]
    assert f"{others[0]}: the TXT record" in output.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no machine selected"),
        (["titan-01.cellar"], "bedplate node trust titan-01.cellar SHA256:..."),
        (["--group", "trian"], "write train"),
        (["--group", "train"], "machines of train have no names"),
        ([NAME, "--group", "workbench-cpu"], "exclude each other"),
    ],
    ids=["nobody", "site", "group", "workers", "both"],
)
def test_what_aws_cannot_tell_is_refused_before_it_is_asked(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, with an alternative."""
    assert run(["node", "trust", *arguments]) == 2
    assert message in capsys.readouterr().err
