"""The first hour of the example gpu-box: the commands of its owner, for any `pulumi` and AWS.

The machines of the fleet are one sshd on loopback, which the fake of AWS's session-manager-plugin reaches.
"""

import json
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest
from moto.ssm.responses import SimpleSystemManagerResponse

from bedplate.cli import run
from bedplate.lock import record_endpoints
from bedplate.operate import machines
from tests.testlab.engine.lab import REGION
from tests.testlab.fakes.apply import FakeApply
from tests.testlab.machines.sshd import Server, install_plugin

MACHINE = f"box-1.{REGION}"
_WAITS_FOR_AWS = machines.ready_machines
Call = Callable[..., dict[str, Any]]


def simulate_machines(folder: Path, server: Server, call: Call, monkeypatch: pytest.MonkeyPatch) -> FakeApply:
    """Let instances of moto boot while `up` waits, and Session Manager connect to the server; return the applies.

    `call` calls the simulated AWS: a service, an operation, its parameters.
    """
    console = f"-----BEGIN SSH HOST KEY KEYS-----\n{server.key} root@ip\n-----END SSH HOST KEY KEYS-----\n"
    monkeypatch.setattr("moto.ec2.responses.general.SAMPLE_CONSOLE_OUTPUT", console)
    answer = json.dumps(server.session)
    monkeypatch.setattr(SimpleSystemManagerResponse, "start_session", lambda _self: answer, raising=False)
    for module in ("nodes.host_keys", "operate.login"):
        monkeypatch.setattr(f"bedplate.{module}.connect", lambda _host: None)
    install_plugin(folder, monkeypatch)
    # The simulated account replaced it and restores it first; `monkeypatch` would then bring back the replacement.
    machines.ready_machines = _WAITS_FOR_AWS
    # pip downloads the packages of a bundle.
    monkeypatch.setattr(machines, "deliver_bundle", lambda *_: [])
    clock = SimpleNamespace(monotonic=time.monotonic, time=time.time, sleep=lambda _seconds: _boot(call))
    monkeypatch.setattr(machines, "time", clock)
    applies = FakeApply()
    monkeypatch.setattr("bedplate.operate.apply.run_apply", applies.run)
    return applies


def _boot(call: Call) -> None:
    """Register the name of the machine, as its first boot does."""
    groups = call("autoscaling", "describe_auto_scaling_groups")["AutoScalingGroups"]
    (instance,) = [
        member["InstanceId"]
        for group in groups
        if group["AutoScalingGroupName"].startswith("box-box")
        for member in group["Instances"]
    ]
    (zone,) = call("route53", "list_hosted_zones_by_name", DNSName="box.internal")["HostedZones"]
    values = [{"Value": f'"{instance}"'}]
    record = {"Name": f"{MACHINE}.box.internal", "Type": "TXT", "TTL": 60, "ResourceRecords": values}
    batch = {"Changes": [{"Action": "UPSERT", "ResourceRecordSet": record}]}
    call("route53", "change_resource_record_sets", HostedZoneId=zone["Id"], ChangeBatch=batch)


def first_hour(server: Server, printed: pytest.CaptureFixture[str]) -> None:
    """Run the commands in the new fleet folder, and assert what each prints."""
    lines = output(printed, "up", "--yes")
    assert (finished(lines), lines[-1]) == (["box.shared up", f"box.{REGION} up"], f"{MACHINE}: ready, 0 changed")
    assert output(printed, "ssh", "box", *server.login, "--", "echo $((6 * 7))") == ["42"]

    output(printed, "vpn", "init")
    record_endpoints(Path("fleet.lock"), "box", {REGION: IPv4Address("52.1.2.3")}, {})
    assert any("bob.zip" in line for line in output(printed, "person", "invite", "bob"))
    with ZipFile("bob.zip") as archive:
        assert server.key in archive.read("box/known_hosts").decode()

    lines = output(printed, "destroy", "--yes", "--end-machines")
    ending = f"box in {REGION}: ends 1 running machine (local disks are lost): {MACHINE} (i-"
    assert any(line.startswith(ending) for line in lines)
    assert finished(lines) == [f"box.{REGION} destroy", "box.shared destroy"]
    assert any(line.startswith("kept resources cost") for line in lines)


def finished(lines: list[str]) -> list[str]:
    """Return stack and operation of each result of a deployment."""
    rows = [line.split() for line in lines]
    return [" ".join(row[:2]) for row in rows if row[2:3] == ["done"]]


def output(printed: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Return the stdout of a command."""
    printed.readouterr()
    status = run(arguments)
    lines, errors = printed.readouterr()
    assert status == 0, errors
    return lines.splitlines()
