"""The first hour of tests/engine/test_first_hour.py with replayed events of that run, and machines in moto."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from bedplate.cli.options import Terminal
from bedplate.operate import plan_of
from tests.conftest import DATA
from tests.testlab.engine.command import simulated_account
from tests.testlab.engine.first_hour import MACHINE, first_hour, simulate_machines
from tests.testlab.engine.folder import HISTORY, REPLAY, make_folder, resources
from tests.testlab.engine.lab import REGION, init_fleet
from tests.testlab.fakes.scaling import ScalingCloud
from tests.testlab.machines.sshd import running_server
from tests.unit.test_deploy import DATA_KEY, GROUP, VPC


@pytest.fixture
def new_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a fleet folder, the current one; its stacks exist after the first operation of `pulumi`."""
    states = {"box.shared": resources("box.shared", "aws:iam/role:Role")}
    group = {"urn": f"urn:pulumi:box::bedplate::{GROUP}::box-box", "type": GROUP, "id": f"box-box-{REGION}"}
    states |= {f"box.{REGION}": [*resources(f"box.{REGION}", VPC, DATA_KEY), group]}
    files = {f"{stack}.json": {"version": 3, "deployment": {"resources": state}} for stack, state in states.items()}
    rows = [{"name": stack, "current": False, "resourceCount": len(state)} for stack, state in states.items()]
    texts = {
        name: json.dumps(document) for name, document in {**files, "stacks.json": rows, "history.json": HISTORY}.items()
    }
    texts |= {"run.jsonl": (DATA / "engine/first-hour.jsonl").read_text()}
    (tmp_path / "engine").mkdir()
    new = REPLAY.replace("cat stacks.json", "[ -e calls ] && cat stacks.json || echo '[]'")
    make_folder(tmp_path / "engine", monkeypatch, new, texts)
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///unused")
    with simulated_account():
        init_fleet(tmp_path / "box", "gpu-box", monkeypatch)
        yield tmp_path


def launch() -> None:
    """Create what the stacks create of machines: the group, a laptop gateway, and the zone of names."""
    ScalingCloud(plan_of(Terminal(Path("fleet.yaml")))).deploy()
    tags = [{"Key": "bedplate:fleet", "Value": "box"}, {"Key": "Name", "Value": "box-laptops"}]
    boto3.client("ec2", REGION).run_instances(
        ImageId="ami-12c6146b",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    boto3.client("route53", REGION).create_hosted_zone(
        Name="box.internal",
        CallerReference="box",
        HostedZoneConfig={"PrivateZone": True, "Comment": ""},
        VPC={"VPCRegion": REGION, "VPCId": "vpc-1"},
    )


def test_from_nothing_to_a_shell_and_back(
    new_fleet: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`init`, `up`, `ssh`, `person invite` and `destroy`: as a new operator runs them."""
    launch()

    def call(service: str, operation: str, **params: object) -> Any:  # noqa: ANN401  boto3's own
        return getattr(boto3.client(service, REGION), operation)(**params)

    with running_server(new_fleet) as server:
        applies = simulate_machines(new_fleet / "bin", server, call, monkeypatch)
        first_hour(server, capfd)
    assert applies.machines == [MACHINE]
    calls = (new_fleet / "engine/calls").read_text().splitlines()
    assert calls == ["up box.shared", f"up box.{REGION}", f"destroy box.{REGION}", "destroy box.shared"]
