"""The smoke test in the simulated AWS: its commands run in this process, on stacks that moto has.

Simulated apart from moto: ssh, VPN and cluster, the account's facts, bakes, first boots, copies of buckets, refusals of
EC2, and service-linked roles. `failing` has the error output of commands, by their first words.
"""

import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from bedplate.account.capacity import terminate_machine
from bedplate.account.client import AwsClient, RegionResults, open_client, open_session
from bedplate.account.machines import read_claims, read_machines
from bedplate.cli import run as run_bedplate
from bedplate.cli.options import Terminal
from bedplate.operate import Result, deploy, machines, new_folder, plan_of, recover, smoke
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState
from tests.testlab.engine.lab import KEY
from tests.testlab.rehearsal.engine import SimulatedEngine

ACCOUNT = "210987654321"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/deployer"
# The text is that of an activity of Auto Scaling, from https://repost.aws/knowledge-center/ec2-spot-instance-insufficient-capacity.
PRICE_TOO_LOW = (
    "Your Spot request price of 0.001 is lower than the minimum required Spot request fulfillment price of 0.0367."
)
_SIMULATED = (
    "catalog",
    "node burn-in",
    "image bake",
    "image list",
    "image promote",
    "image record",
    "kube",
    "quotas",
    "ssh",
    "vpn",
)


@dataclass(frozen=True, slots=True)
class _Client(AwsClient):
    """A client that also does what AWS does by itself: copies of objects, and a refused launch of the first rung."""

    def call(self, service: str, region: str, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401
        reply = AwsClient.call(self, service, region, operation, **params)
        if (operation, params.get("Key")) == ("put_object", "smoke"):
            other = {"us-west-2": "us-east-1"}[region]
            copy = {**params, "Bucket": params["Bucket"].replace(region, other)}
            AwsClient.call(self, service, other, operation, **copy)
        if operation == "describe_scaling_activities" and "climb" in params["AutoScalingGroupName"]:
            activity = {"ActivityId": "1", "StatusCode": "Failed", "StartTime": datetime.now(UTC)}
            texts = {"Description": "Launching a new EC2 instance.", "StatusMessage": PRICE_TOO_LOW}
            reply["Activities"] = [{**activity, **texts}, *reply["Activities"]]
        return reply


@dataclass
class SmokeLab:
    """The folder of the fleet, its engine, and the commands that were run."""

    folder: Path
    engine: SimulatedEngine
    failing: Mapping[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float | None
    ) -> tuple[int, str, str]:
        """Run a command in this process, or simulate it; return its status and output."""
        text = " ".join(words)
        self.commands.append(text)
        if seconds is not None and not seconds:
            raise KeyboardInterrupt
        if error := next((error for start, error in self.failing.items() if text.startswith(start)), None):
            return 6, "", error
        output, errors = io.StringIO(), io.StringIO()
        # `clear` because a command must see the keys of the role alone.
        settings = patched_environment(environment)
        streams = contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors)
        with settings, contextlib.chdir(folder), streams[0], streams[1]:
            if text.startswith(_SIMULATED):
                status = self._simulate(text, output)
            else:
                status = run_bedplate(list(words))
                _boot()
        return status, output.getvalue(), errors.getvalue()

    def _simulate(self, text: str, output: io.StringIO) -> int:
        if text == "catalog refresh":
            fleet = Path("fleet.yaml")
            # Without the real refresh neither GPUs nor zones of the account are accepted.
            own = fleet.read_text().replace("g6e.8xlarge", "m7i.large").replace("    fabric: efa\n", "")
            fleet.write_text(f"{own}  E418: the zones are the same in this account\n")
        if text == "image list --json":
            output.write(json.dumps({"images": [{"name": "smoke-worker-x86_64-1"}]}))
        return 0


@contextmanager
def patched_environment(environment: Mapping[str, str]) -> Iterator[None]:
    """Set the environment in this context."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _boot() -> None:
    """Register the lowest free name of each machine in service, as first boots do, and release those of others."""
    plan, client = plan_of(Terminal(Path("fleet.yaml"))), open_client()
    zones = [
        zone for zone in boto3.client("route53").list_hosted_zones()["HostedZones"] if zone["Name"] == f"{plan.domain}."
    ]
    if not zones:
        return
    answers = read_machines(client, plan).successes.values()
    live = {m.instance: m for region in answers for m in region if m.state == "InService"}
    owners = {claim.name: claim.instance for claim in read_claims(client, plan)}
    free = [name for name, instance in owners.items() if instance not in live]
    changes = [_change("DELETE", f"{name}.{plan.domain}", owners.pop(name)) for name in free]
    for machine in (machine for machine in live.values() if machine.name is None):
        numbers = range(1, len(live) + 1)
        names = (f"{machine.group}-{number}.{machine.region}" for number in numbers)
        name = next(name for name in names if name not in owners)
        owners[name] = machine.instance
        changes.append(_change("CREATE", f"{name}.{plan.domain}", machine.instance))
    if changes:
        batch = {"Changes": changes}
        boto3.client("route53").change_resource_record_sets(HostedZoneId=zones[0]["Id"], ChangeBatch=batch)


def _change(action: str, name: str, instance: str) -> dict[str, object]:
    record = {"Name": name, "Type": "TXT", "TTL": 60, "ResourceRecords": [{"Value": f'"{instance}"'}]}
    return {"Action": action, "ResourceRecordSet": record}


def _replace(client: AwsClient, region: str, instance: str, *, replaced: bool) -> str:
    """Replace an instance; moto gives the new one no tags of the group."""
    found = client.call("ec2", region, "describe_instances", InstanceIds=[instance])["Reservations"][0]["Instances"][0]
    tags = [tag for tag in found["Tags"] if not tag["Key"].startswith("aws:")]
    group = terminate_machine(client, region, instance, replaced=replaced)
    query = {"AutoScalingGroupNames": [group]}
    (facts,) = client.call("autoscaling", region, "describe_auto_scaling_groups", **query)["AutoScalingGroups"]
    members = [member["InstanceId"] for member in facts["Instances"]]
    client.call("ec2", region, "create_tags", Resources=members, Tags=tags)
    return group


@contextmanager
def smoke_lab(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[SmokeLab]:
    """Yield an account without anything; the fleet of the test will be in the folder."""
    with running(ACCOUNT) as simulation:
        lab = SmokeLab(folder, SimulatedEngine(folder, SharedState(simulation)))
        answers = {"account": ACCOUNT, "owner": "ada@uni.edu", "person": "ada", "key": KEY}
        none: RegionResults[Any] = RegionResults({}, {})
        for module in (deploy, recover):
            patch.setattr(module, "open_engine", lambda _folder: lab.engine)
        patch.setattr(deploy, "read_quotas", lambda _account, _needs: none)
        patch.setattr(deploy, "service_roles", lambda _plan: {})
        # moto has no default keys of EBS.
        patch.setattr(deploy, "check_volume_keys", lambda _account, _plan: None)
        patch.setattr(deploy, "deliver_to_new_region", lambda *_: None)
        patch.setattr(deploy, "newest_images", lambda _client, places: dict.fromkeys(places, "ami-12c6146b"))
        patch.setattr(machines, "ready_machines", lambda *_: Result((), {}))
        patch.setattr("bedplate.account.capacity.POLL", 0.0)
        patch.setattr(new_folder, "_default", lambda _operator, question, _values, _folder: answers.get(question))
        patch.setattr(smoke, "run_command", lab.run)
        patch.setattr(smoke, "kill_deployment", lambda _folder, _environment: None)
        patch.setattr(smoke, "terminate_machine", _replace)
        patch.setattr(smoke, "open_client", lambda: _Client(open_session()))
        patch.setattr(smoke, "_PAUSE", 0.0)
        patch.setattr(smoke, "_LONGEST", 60.0)
        yield lab
