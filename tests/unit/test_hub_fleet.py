"""`fleet.json`: what the hub publishes of its plan and of instances in moto, and what `bp` on a laptop knows by it."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from bedplate.machine.fleet import publish, report_watch
from bedplate.monitoring.targets import METRICS, TARGETS, watch_files
from bedplate.permissions import HUB, permissions, registration_permissions
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import NodePlan, find_node
from bedplate.plan.published import fleet_document
from bedplate.programs.bp.hub import WRONG, BpError, Hub, Settings
from bedplate.rehearsal.moto import no_preloaded_images
from tests.testlab.fakes.laptop import HOST, TOKEN, FakeHub
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.machines.metrics import free_port
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of_text

REGION, NAME = "us-west-2", "workbench-cpu-1.us-west-2"
KEY, OTHER = (f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{letter * 43}" for letter in "AB")
CONSOLE = "-----BEGIN SSH HOST KEY KEYS-----\n{} root@ip\n-----END SSH HOST KEY KEYS-----\n"


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run with a simulated account that has the fleet's zone, and consoles without a key."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    _console(monkeypatch, "no key")
    with no_preloaded_images(), mock_aws():
        vpc = {"VPCRegion": REGION, "VPCId": "vpc-1"}
        zone = boto3.client("route53").create_hosted_zone(Name="lab.internal", CallerReference="lab", VPC=vpc)
        value = zone["HostedZone"]["Id"].rpartition("/")[2]
        boto3.client("ssm", REGION).put_parameter(Name="/lab/zone", Value=value, Type="SecureString")
        yield


@pytest.fixture
def hub(cloud: None) -> NodePlan:
    """Return the machine of the hub of the lab."""
    return hub_of(lab_plan())


def hub_of(plan: FleetPlan) -> NodePlan:
    """Return the hub's machine, as its document has it."""
    return find_node(plan, f"hub.{REGION}", plan.catalog)


def start(group: str = "workbench-cpu", use: str = "ssh", name: str = "", kind: str = "m7i.4xlarge") -> str:
    """Start an instance with the tags of a pool, which claims a name; return its id."""
    tags = {"bedplate:fleet": "lab", "bedplate:use": use, "bedplate:group": group}
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    started = boto3.client("ec2", REGION).run_instances(
        ImageId="ami-12345678",
        InstanceType=kind,
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": pairs}],
    )
    ident: str = started["Instances"][0]["InstanceId"]
    if name:
        claim(name, ident)
    return ident


def claim(name: str, instance: str) -> None:
    """Write the record of a name, as each machine for people may."""
    route53 = boto3.client("route53")
    zone = route53.list_hosted_zones()["HostedZones"][0]["Id"]
    record = {"Name": f"{name}.lab.internal", "Type": "TXT", "TTL": 60}
    change = {"Action": "UPSERT", "ResourceRecordSet": {**record, "ResourceRecords": [{"Value": f'"{instance}"'}]}}
    route53.change_resource_record_sets(HostedZoneId=zone, ChangeBatch={"Changes": [change]})


def _console(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("moto.ec2.responses.general.SAMPLE_CONSOLE_OUTPUT", text)


def published(node: NodePlan, file: Path) -> dict[str, Any]:
    """Run the program of the timer; return the document."""
    assert node.hub
    publish(node, node.hub.published, file)
    assert file.stat().st_mode & 0o777 == 0o644
    document: dict[str, Any] = json.loads(file.read_text())
    return document


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Mapping[str, Any] | None], Hub]]:
    """Yield a function that lets the hub serve a document, or nothing, and returns the `Hub` of ada's laptop."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("bedplate.programs.bp.hub._COPY_TIMEOUT", 0.5)
    monkeypatch.setattr("bedplate.programs.bp.hub.Hub.new_token", lambda _: TOKEN)
    with FakeHub(tmp_path) as server, ExitStack() as opened:

        def hub_of_laptop(served: Mapping[str, Any] | None, **document: object) -> Hub:
            server.answer("/fleet.json", served or {}, 200 if served else 503)
            names = ("lab", "ada", f"hub.{REGION}.lab.internal", HOST, "127.0.0.1")
            settings = Settings(*names, server.certificate.read_text(), "0.1.0", port=server.server_address[1])
            hub = Hub(replace(settings, document=document))
            opened.callback(hub.close)
            return hub

        yield hub_of_laptop
        opened.close()
        server.shutdown()


def test_the_plan_says_what_it_knows_of_groups_and_sites() -> None:
    """Hardware and list price of the first type; what the plan does not know is null."""
    plan = lab_plan()
    record = replace(plan.record, host_keys={"titan-03.cellar": (KEY,)})
    document = json.loads(json.dumps(fleet_document(replace(plan, record=record))))

    assert (document["schema"], document["fleet"], document["domain"]) == (1, "lab", "lab.internal")
    assert (document["time"], document["ask_above"]) == (None, 200)
    group = document["groups"]["burst"]
    assert (group["types"], group["type"]) == (["g6e.12xlarge", "g5.12xlarge"], "g6e.12xlarge")
    assert (group["gpus"], group["gpu"], group["cpus"], group["max"]) == (4, "l40s", 48, 200)
    assert group["price"] == plan.catalog.price("g6e.12xlarge")
    assert group["gpu_memory_gib"] > 40
    assert (group["kubernetes"], group["jobs"]) == (True, True)
    assert (group["image"], group["rungs"][0], len(group["rungs"])) == (None, "spot in us-west-2", 5)
    assert document["groups"]["train"]["image"].startswith("registry.lab.example/torch@sha256:")
    assert group["regions"] == ["us-west-2", "us-east-1", "eu-north-1"]
    machines = document["machines"]
    known = {"place": "cellar", "address": "192.168.40.23", "host_key": KEY, "gpus": 4, "gpu": "titan-x"}
    unknown = dict.fromkeys(("group", "cpus", "memory_gib", "price", "since"))
    assert machines["titan-03.cellar"] == {**known, **unknown, "ssh": True, "jobs": True}
    assert (machines["titan-01.cellar"]["ssh"], machines["titan-01.cellar"]["host_key"]) == (False, None)
    assert (machines["nas.cellar"]["jobs"], machines["nas.cellar"]["ssh"]) == (False, False)


def test_groups_and_machines_can_be_closed_for_jobs() -> None:
    """`jobs: false` keeps `bp run` away; machines of a group get it from their group."""
    lab = (EXAMPLES / "lab.yaml").read_text().replace("count: 4}, use: ssh}", "count: 4}, use: ssh, jobs: false}")
    document = fleet_document(
        plan_of_text(lab.replace("types: [m7i.4xlarge]", "types: [m7i.4xlarge]\n    jobs: false"))
    )

    assert [name for name, group in document["groups"].items() if not group["jobs"]] == ["workbench-cpu"]
    assert (document["machines"]["titan-03.cellar"]["jobs"], document["machines"]["titan-03.cellar"]["ssh"]) == (
        False,
        True,
    )


def test_the_workers_of_a_site_are_a_group_by_its_name() -> None:
    """With the GPUs of the largest, its image, and its taints; one that is closed for jobs closes it."""
    lab = (
        (EXAMPLES / "lab.yaml")
        .read_text()
        .replace("    train: registry", "    cellar: registry")
        .replace("ask_above: 200", "for: 3d")
    )
    document = json.loads(json.dumps(fleet_document(plan_of_text(lab))))

    site = document["groups"]["cellar"]
    assert (site["site"], site["kubernetes"], site["jobs"], site["max"], site["gpus"]) == ("cellar", True, True, 2, 4)
    assert (site["cpus"], site["price"], site["taints"]) == (None, None, ["nvidia.com/gpu=present:NoSchedule"])
    assert site["image"] == document["images"]["cellar"]
    assert (document["for"], document["groups"]["train"]["site"]) == ("3d", "")
    machine = document["machines"]["titan-01.cellar"]
    assert (machine["ssh"], machine["jobs"], machine["place"]) == (False, True, "cellar")

    closed = lab.replace("count: 4}, use: kubernetes}", "count: 4}, use: kubernetes, jobs: false}", 1)
    assert closed != lab
    assert not fleet_document(plan_of_text(closed))["groups"]["cellar"]["jobs"]


def test_a_type_that_the_catalog_lacks_is_unknown() -> None:
    """Its hardware and price are null, not zero."""
    plan = lab_plan()
    empty = replace(plan.catalog, types=MappingProxyType({}), prices=MappingProxyType({}))
    group = fleet_document(replace(plan, catalog=empty))["groups"]["burst"]

    assert {group[name] for name in ("gpus", "gpu", "gpu_memory_gib", "cpus", "memory_gib", "price")} == {None}


def test_a_new_machine_is_known_to_laptops_with_its_verified_host_key(
    hub: NodePlan, tmp_path: Path, laptop: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has reported its name, and EC2 its console: `bp` then connects with this key, without a new archive."""
    _console(monkeypatch, CONSOLE.format(KEY))
    instance = start(name=NAME)

    bp = laptop(published(hub, tmp_path / "fleet.json"))

    machine = bp.fleet()["machines"][NAME]
    assert (machine["host_key"], machine["instance"], machine["group"]) == (KEY, instance, "workbench-cpu")
    assert (machine["cpus"], machine["memory_gib"], machine["gpus"], machine["ssh"]) == (16, 64, 0, True)
    assert machine["since"] > 1_700_000_000
    words = bp.ssh_words(NAME)
    assert words[-3:] == ("-l", "ada", NAME)
    assert {f"HostName={machine['address']}", f"HostKeyAlias={NAME}.lab.internal"} <= {*words}
    assert "StrictHostKeyChecking=yes" in words
    keys = tmp_path / "cache/bedplate/lab/known_hosts"
    assert f'UserKnownHostsFile="{keys}"' in words
    assert f"{NAME}.lab.internal {KEY}\n" in keys.read_text()


def test_bp_connects_to_no_machine_without_a_verified_host_key(
    hub: NodePlan, tmp_path: Path, laptop: Callable[..., Hub]
) -> None:
    """The machine is named without key, and bp says why; of what people do not log in to it names what they do."""
    start(name=NAME)
    worker = start("train", "kubernetes", kind="p5.48xlarge")

    bp = laptop(published(hub, tmp_path / "fleet.json"))

    assert bp.fleet()["machines"][NAME]["host_key"] is None
    with pytest.raises(BpError, match=f"the host key of {NAME} is not verified"):
        bp.ssh_words(NAME)
    for name in ("workbench-cpu-2.us-west-2", f"train-{worker[-8:]}.us-west-2"):
        with pytest.raises(BpError, match=f"people log in to no machine {name}") as refused:
            bp.ssh_words(name)
        assert (refused.value.code, NAME in refused.value.fix) == (WRONG, True)


def test_a_key_is_that_of_its_instance_and_outlives_the_console(
    hub: NodePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console keeps 64 KiB. The next instance under the name has its own key; an operator may have recorded it."""
    file, plan = tmp_path / "fleet.json", lab_plan()
    _console(monkeypatch, CONSOLE.format(KEY))
    first = start(name=NAME)
    published(hub, file)
    _console(monkeypatch, "rolled over")
    assert published(hub, file)["machines"][NAME]["host_key"] == KEY

    boto3.client("ec2", REGION).terminate_instances(InstanceIds=[first])
    second = start(name=NAME)
    machines = published(hub, file)["machines"]
    assert (machines[NAME]["instance"], machines[NAME]["host_key"]) == (second, None)

    record = replace(plan.record, host_keys={NAME: (OTHER,)}, instances={NAME: second})
    recorded = hub_of(replace(plan, record=record))
    assert published(recorded, file)["machines"][NAME]["host_key"] == OTHER


def test_a_machine_has_no_name_of_another_group(hub: NodePlan, tmp_path: Path) -> None:
    """Each machine for people can write such a record; the machine then has the name of its instance."""
    instance = start(name="workbench-gpu-1.us-west-2")

    machines = published(hub, tmp_path / "fleet.json")["machines"]

    assert "workbench-gpu-1.us-west-2" not in machines
    assert f"workbench-cpu-{instance[-8:]}.us-west-2" in machines


def test_a_type_that_the_plan_lacks_has_no_hardware(hub: NodePlan, tmp_path: Path) -> None:
    """`similar` permits other types: their hardware and price are unknown."""
    start(name=NAME, kind="t3.micro")

    machine = published(hub, tmp_path / "fleet.json")["machines"][NAME]

    assert (machine["cpus"], machine["gpus"], machine["price"]) == (None, None, None)


def test_a_source_that_does_not_answer_keeps_its_part(
    hub: NodePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its time, and a fault: an empty list would look like a fleet without machines."""
    file = tmp_path / "fleet.json"

    def fail(*_: object, **__: object) -> None:
        raise EndpointConnectionError(endpoint_url="https://ssm.us-west-2.amazonaws.com")

    with monkeypatch.context() as away:
        away.setattr("botocore.client.BaseClient._make_api_call", fail)
        unknown = published(hub, file)
    assert unknown["sources"] == {}
    assert "no answer from us-west-2, its machines are unknown: cannot connect" in " ".join(unknown["faults"])
    assert "titan-03.cellar" in unknown["machines"]

    start(name=NAME)
    fresh = published(hub, file)
    monkeypatch.setattr("time.time", lambda: fresh["time"] + 600.0)
    with monkeypatch.context() as away:
        away.setattr("botocore.client.BaseClient._make_api_call", fail)
        old = published(hub, file)

    assert fresh["faults"] == []
    assert old["machines"] == fresh["machines"]
    assert (old["time"], old["sources"]) == (fresh["time"] + 600, fresh["sources"])
    assert any(
        fault.startswith("no answer from us-west-2, its machines are those of before:") for fault in old["faults"]
    )


def test_prometheus_gets_what_ec2_has(hub: NodePlan, tmp_path: Path) -> None:
    """Machines of groups with price and market, and the address of a gateway, which the plan does not know."""
    start(name=NAME)
    tags = [{"Key": "bedplate:fleet", "Value": "lab"}, {"Key": "bedplate:member", "Value": "laptops.us-west-2"}]
    specification = [{"ResourceType": "instance", "Tags": tags}]
    size = {"MinCount": 1, "MaxCount": 1, "InstanceType": "t4g.small", "ImageId": "ami-12345678"}
    boto3.client("ec2", REGION).run_instances(TagSpecifications=specification, **size)
    assert hub.hub

    document = publish(hub, hub.hub.published, tmp_path / "fleet.json", hub.hub.watched)
    files = watch_files(document, hub.hub.watched)

    assert "laptops.us-west-2" not in document["machines"]
    address = document["members"]["laptops.us-west-2"]["address"]
    targets = {entry["labels"]["instance"]: entry for entry in json.loads(files[f"{TARGETS}/node.json"])}
    assert targets["laptops.us-west-2"]["targets"] == [f"{address}:9100"]
    assert targets[NAME]["labels"] == {
        "instance": NAME,
        "place": REGION,
        "group": "workbench-cpu",
        "role": "workbench",
    }
    price = lab_plan().catalog.price("m7i.4xlarge")
    where = f'machine="{NAME}",place="{REGION}",group="workbench-cpu"'
    assert f'bedplate_machine_usd_per_hour{{{where},market="on-demand"}} {price}' in files[METRICS]
    assert f'bedplate_fleet_fault{{place="{REGION}"}} 0' in files[METRICS]


def test_targets_stay_while_ec2_does_not_answer(hub: NodePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of before, members of the fleet too, and a metric says which region is silent."""
    start(name=NAME)
    assert hub.hub
    file, plan = tmp_path / "fleet.json", hub.hub
    before = watch_files(publish(hub, plan.published, file, plan.watched), plan.watched)

    def fail(*_: object, **__: object) -> None:
        raise EndpointConnectionError(endpoint_url="https://ssm.us-west-2.amazonaws.com")

    later = time.time() + 600
    monkeypatch.setattr("time.time", lambda: later)
    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", fail)
    after = watch_files(publish(hub, plan.published, file, plan.watched), plan.watched)

    assert after[f"{TARGETS}/node.json"] == before[f"{TARGETS}/node.json"]
    assert f'bedplate_fleet_fault{{place="{REGION}"}} 1' in after[METRICS]


class _Ready(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        """Answer as a daemon that is ready, or starts."""
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_cloudwatch_hears_each_minute_that_the_fleet_is_watched(
    hub: NodePlan, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only if both daemons are ready: what is missing there is the alarm of the hub."""
    with HTTPServer(("127.0.0.1", 0), _Ready) as daemon:
        Thread(target=daemon.serve_forever, args=(0.05,), daemon=True).start()
        port = daemon.server_address[1]
        report_watch(hub, (port, free_port()))
        assert boto3.client("cloudwatch", REGION).list_metrics()["Metrics"] == []
        assert "CloudWatch does not hear that the fleet is watched" in capsys.readouterr().err
        monkeypatch.setattr(_Ready, "status", 503)
        report_watch(hub, (port,))
        assert f"127.0.0.1:{port} is not ready" in capsys.readouterr().err
        monkeypatch.setattr(_Ready, "status", 200)
        report_watch(hub, (port, port))
        daemon.shutdown()

    (metric,) = boto3.client("cloudwatch", REGION).list_metrics()["Metrics"]
    dimension = {"Name": "AutoScalingGroupName", "Value": "lab-hub"}
    assert metric == {"Namespace": "lab/nodes", "MetricName": "Serving", "Dimensions": [dimension]}


def test_the_hub_may_read_names_and_consoles_of_the_fleet() -> None:
    """One zone, without its records' writes, and consoles of instances with the tag of the fleet."""
    plan = lab_plan()
    (zone,) = registration_permissions(plan, "Z1", HUB)
    (console,) = (item for item in permissions(plan, HUB) if "ec2:GetConsoleOutput" in item.actions)

    assert (zone.actions, zone.resources) == (
        ("route53:ListResourceRecordSets",),
        ("arn:aws:route53:::hostedzone/Z1",),
    )
    assert console.conditions == {"StringEquals": {"aws:ResourceTag/bedplate:fleet": ("lab",)}}


def test_bp_keeps_the_last_copy_and_starts_with_that_of_the_archive(tmp_path: Path, laptop: Callable[..., Hub]) -> None:
    """While the hub does not answer; a document of another version is refused in words."""
    document = {"schema": 1, "fleet": "lab", "domain": "lab.internal", "machines": {}}

    assert laptop(None, **document, time=None).fleet()["time"] is None
    assert laptop({**document, "time": 5}).fleet()["time"] == 5
    assert laptop(None, **document, time=None).fleet()["time"] == 5
    with pytest.raises(BpError, match="of another version"):
        laptop({**document, "schema": 2}).fleet()
