"""What every stack owes its operator: tags, nothing public, data that stays, machines that keep their keys."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli.stacks import waves
from bedplate.graph.audit.document import graph_of
from bedplate.graph.audit.run import audit
from bedplate.graph.reach import Fabric, Packet, read_fabric, trip
from bedplate.graph.reach.fabric import Stand
from bedplate.plan import Record, plan_fleet
from bedplate.plan.cost import standing
from bedplate.plan.quotas import needs
from bedplate.plan.reachability import Kind, spots
from bedplate.rehearsal import schema
from bedplate.rehearsal.rehearse import Phase
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import World, graph, run
from bedplate.rehearsal.state import Entry
from bedplate.spec.network import Egress
from tests.conftest import DATA, Expect
from tests.testlab.fleets.sketch import ZONES, cluster, group, laptops, sketch
from tests.testlab.rehearsal.live import report_of
from tests.testlab.rehearsal.programs import EXAMPLES, Declared, declared, declared_of, plan_of

KEPT = {
    "aws:ebs/volume:Volume",
    "aws:efs/backupPolicy:BackupPolicy",
    "aws:efs/fileSystem:FileSystem",
    "aws:efs/fileSystemPolicy:FileSystemPolicy",
    "aws:kms/alias:Alias",
    "aws:kms/key:Key",
    "aws:s3/bucket:Bucket",
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
    "aws:s3/bucketPolicy:BucketPolicy",
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "aws:s3/bucketVersioning:BucketVersioning",
}
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:autoscaling/group:Group"


@pytest.fixture(scope="module")
def stacks() -> Declared:
    """Give what the stacks of the larger example declare."""
    return declared_of(EXAMPLES / "lab.yaml")


# The one thing of a region that the world may dial.
GATEWAY = "lab-laptops"
# Machines of which there is one, at an address of their own: they are of no pool.
LONE = (GATEWAY, "lab-control-")


def _made(stacks: Declared, *types: str) -> Iterator[Entry]:
    for entries in stacks.values():
        yield from (entry for entry in entries if entry.is_in_cloud and (not types or entry.type in types))


def _pools(stacks: Declared, of: str) -> Iterator[Entry]:
    yield from (entry for entry in _made(stacks, of) if not entry.name.startswith(LONE))


def test_everything_that_can_carry_tags_has_a_name(stacks: Declared) -> None:
    """What has no Name tag is a mere id in AWS's console and on its bill."""
    taggable = [entry for entry in _made(stacks) if "tags" in schema.inputs(entry.type)]

    unnamed = [entry.urn for entry in taggable if entry.type != GROUP and not entry.inputs["tags"].get("Name")]

    assert not unnamed


def test_a_provider_tags_what_it_makes_with_fleet_stack_and_owner(stacks: Declared) -> None:
    """Whose a resource is, is never left to whoever writes the resource down."""
    providers = {name: entry for name, entries in stacks.items() for entry in entries if entry.is_provider}

    for name, provider in providers.items():
        tags = {"bedplate:fleet": "lab", "bedplate:stack": name, "owner": "research-infra@lab.example"}
        assert json.loads(provider.inputs["defaultTags"]) == {"tags": tags}
        assert json.loads(provider.inputs["allowedAccountIds"]) == ["111122223333"]


def test_every_resource_has_an_explicit_provider(stacks: Declared) -> None:
    """A default provider would take region and account from whoever runs the program."""
    assert not [entry.urn for entry in _made(stacks) if "::default" in entry.provider or not entry.provider]


def test_machines_are_tagged_by_group_and_template_alike(stacks: Declared) -> None:
    """No provider's default tags reach what an Auto Scaling group launches."""
    wanted = {"Name", "bedplate:fleet", "bedplate:stack", "bedplate:group", "bedplate:pool", "bedplate:use", "owner"}

    for group in _pools(stacks, GROUP):
        assert {tag["key"] for tag in group.inputs["tags"] if tag["propagateAtLaunch"]} == wanted
    for template in _pools(stacks, TEMPLATE):
        kinds = {one["resourceType"]: set(one["tags"]) for one in template.inputs["tagSpecifications"]}
        request = ["spot-instances-request"] if template.name.endswith("-spot") else []
        assert kinds == dict.fromkeys(("instance", "network-interface", "volume", *request), wanted)


def test_no_machine_gets_a_public_address(stacks: Declared) -> None:
    """Only NAT gateways and the laptops' gateway have one: nodes are reached over the VPN."""
    for subnet in _made(stacks, "aws:ec2/subnet:Subnet"):
        assert subnet.inputs["mapPublicIpOnLaunch"] is False
    for template in _pools(stacks, TEMPLATE):
        nics = template.inputs["networkInterfaces"]
        # Beside others, an interface takes no word on it, and its subnet gives none.
        assert [one.get("associatePublicIpAddress") for one in nics] == (["false"] if len(nics) == 1 else [None] * 33)
    assert all(entry.name.endswith(("-nat", GATEWAY)) for entry in _made(stacks, "aws:ec2/eip:Eip"))


def test_nothing_lets_the_internet_in(stacks: Declared) -> None:
    """A rule admits the group itself, or a block of the fleet's own; the world gets to the laptops' gateway alone."""
    rules = list(_made(stacks, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"))

    fleets = [rule for rule in rules if not rule.name.startswith(GATEWAY)]
    blocks = [rule.inputs["cidrIpv4"] for rule in fleets if "referencedSecurityGroupId" not in rule.inputs]

    assert blocks
    assert all(block.startswith(("10.", "192.168.")) and int(block.split("/")[1]) >= 16 for block in blocks)


def test_data_outlives_its_stack(stacks: Declared) -> None:
    """File systems, keys by their names, buckets and what guards them are protected and retained; nothing else is."""
    kept = {entry.type for entry in _made(stacks) if entry.protect and entry.retain}
    either = {entry.type for entry in _made(stacks) if entry.protect or entry.retain}

    assert kept == either == KEPT
    assert all(entry.protect for entry in _made(stacks, *KEPT))


def test_instance_metadata_needs_a_token_from_the_machine_itself(stacks: Declared) -> None:
    """Neither a forwarded request nor a pod may fetch the node's credentials; people's own containers may."""
    for template in _made(stacks, TEMPLATE):
        options = template.inputs["metadataOptions"]
        hops = 2 if template.name.startswith("lab-workbench") else 1
        assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", hops)


def test_root_volumes_are_encrypted_gp3_of_the_groups_size(stacks: Declared) -> None:
    """The file's `disk` is the size of the root volume."""
    disks = [one["ebs"] for each in _made(stacks, TEMPLATE) for one in each.inputs["blockDeviceMappings"]]

    assert {(disk["encrypted"], disk["volumeType"]) for disk in disks} == {("true", "gp3")}
    assert {disk["volumeSize"] for disk in disks} == {16, 50, 100, 500}


def test_whoever_scales_a_pool_owns_its_desired_capacity(stacks: Declared) -> None:
    """A deployment must not undo what an autoscaler did."""
    assert not [group.urn for group in _made(stacks, GROUP) if "desiredCapacity" in group.inputs]


def test_a_boundary_holds_every_role() -> None:
    """An account that demands a boundary refuses the one role that lacks it."""
    arn = "arn:aws:iam::111122223333:policy/bound"
    plan = replace(plan_of(EXAMPLES / "minimal.yaml"), boundary=arn)

    roles = [entry for entries in declared(plan).values() for entry in entries if entry.type == "aws:iam/role:Role"]

    assert roles
    assert {role.inputs.get("permissionsBoundary") for role in roles} == {arn}


def test_somebody_is_told_before_the_budget_is_spent() -> None:
    """Of money spent and of money foreseen, at the address of the file."""
    plan = replace(plan_of(EXAMPLES / "minimal.yaml"), budget=(5000, "infra@lab.example"))

    (budget,) = (entry for entry in declared(plan)["solo.shared"] if entry.type == "aws:budgets/budget:Budget")

    told = {(one["notificationType"], one["threshold"]) for one in budget.inputs["notifications"]}
    assert told == {("ACTUAL", 80), ("FORECASTED", 100), ("ACTUAL", 100)}
    assert all(one["subscriberEmailAddresses"] == ["infra@lab.example"] for one in budget.inputs["notifications"])


FILES = (EXAMPLES / "lab.yaml", EXAMPLES / "minimal.yaml", DATA / "fleets" / "joined.yaml")


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def stacks_golden_stacks(request: pytest.FixtureRequest) -> Declared:
    """Give what the stacks of each file in turn declare."""
    return declared_of(request.param)


def test_no_resource_is_renamed_unawares(stacks_golden_stacks: Declared, expect: Expect) -> None:
    """Types, parents and names of every resource are those that fleets have today."""
    for name, entries in stacks_golden_stacks.items():
        lines = sorted(entry.urn.partition("::")[2].partition("::")[2] for entry in entries)

        expect(f"stacks/{name}.txt", "\n".join(lines) + "\n")


ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
ROOT = Path(__file__).parents[2]
FLEETS = ("examples/lab.yaml", "examples/minimal.yaml", "tests/data/fleets/joined.yaml")
# What each thing that is paid for is made by; one resource of a peering is an attachment at both ends.
MADE_BY: Mapping[str, Mapping[str, int]] = {
    "alarm": {"aws:cloudwatch/metricAlarm:MetricAlarm": 1},
    "hosted-zone": {"aws:route53/zone:Zone": 1},
    "interface-endpoint": {"interfaces": 1},
    "key": {"aws:kms/key:Key": 1},
    "nat-gateway": {"aws:ec2/natGateway:NatGateway": 1},
    "public-address": {"aws:ec2/eip:Eip": 1},
    "resolver-address": {"aws:route53/resolverEndpoint:ResolverEndpoint": 2},
    "secret": {"aws:secretsmanager/secret:Secret": 1},
    "transit-attachment": {
        "aws:ec2transitgateway/vpcAttachment:VpcAttachment": 1,
        "aws:ec2transitgateway/peeringAttachment:PeeringAttachment": 2,
        "aws:ec2/vpnConnection:VpnConnection": 1,
    },
    "vpn-connection": {"aws:ec2/vpnConnection:VpnConnection": 1},
}


@cache
def held(fleet: str) -> Counter[str]:
    """Return how many resources of each type all stacks of a fleet declare; of endpoints, how many interfaces."""
    every = [entry for entries in declared_of(ROOT / fleet).values() for entry in entries]
    interfaces = sum(len(entry.inputs.get("subnetIds", ())) for entry in every if entry.type == ENDPOINT)
    return Counter(entry.type for entry in every) + Counter({"interfaces": interfaces})


@pytest.mark.parametrize("rate", MADE_BY)
@pytest.mark.parametrize("fleet", FLEETS)
def test_the_bill_counts_what_the_stacks_declare(fleet: str, rate: str) -> None:
    """A thing that is made and not counted is a surprise at the end of the month."""
    counted = sum(each.count for each in standing(plan_of(ROOT / fleet)) if each.rate == rate)

    assert counted == sum(held(fleet)[token] * each for token, each in MADE_BY[rate].items())


@pytest.mark.parametrize("fleet", FLEETS)
def test_the_largest_security_group_is_known(fleet: str) -> None:
    """A group that is full refuses whoever comes next, long after the file was judged."""
    plan = plan_of(ROOT / fleet)
    wanted = {need.region: need.most for need in needs(plan, load_catalog()) if need.quota.name.startswith("rules")}

    found = {
        region.name: max(
            Counter(
                entry.parent
                for entry in declared_of(ROOT / fleet)[f"{plan.name}.{region.name}"]
                if entry.type == "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
            ).values()
        )
        for region in plan.regions
    }
    assert found == wanted


LAB = plan_of(EXAMPLES / "lab.yaml")
SOLO = plan_of(EXAMPLES / "minimal.yaml")
TOLD = "infra@lab.example"
ALARM = "aws:cloudwatch/metricAlarm:MetricAlarm"

NAT = "aws:ec2/natGateway:NatGateway"
TOPIC = "aws:sns/topic:Topic"
SUBSCRIPTION = "aws:sns/topicSubscription:TopicSubscription"


def _named(stacks: Declared, kind: str) -> dict[tuple[str, str], Entry]:
    return {(stack, one.name): one for stack, entries in stacks.items() for one in entries if one.type == kind}


def _statements(text: str) -> Mapping[str, Any]:
    return {statement["Sid"]: statement for statement in json.loads(text)["Statement"]}


@pytest.mark.parametrize(("watched", "suffix"), [(GROUP, "-short"), (NAT, "-ports")])
def test_each_group_and_each_nat_gateway_has_its_alarm(watched: str, suffix: str, stacks: Declared) -> None:
    """None is forgotten, the gateways of laptops included, and no alarm watches nothing."""
    names = {(stack, f"{name}{suffix}") for stack, name in _named(stacks, watched)}

    assert names
    assert names == {key for key in _named(stacks, ALARM) if key[1].endswith(suffix)}


def test_a_group_is_watched_by_metrics_that_it_collects(stacks: Declared) -> None:
    """A group collects no metrics unless it is told to, and an alarm on none never rings."""
    queries = [query for one in _named(stacks, ALARM).values() for query in one.inputs.get("metricQueries", ())]
    watched = {query["metric"]["metricName"] for query in queries if "metric" in query}

    assert watched == {"GroupDesiredCapacity", "GroupInServiceInstances"}
    assert all(watched <= set(group.inputs["enabledMetrics"]) for group in _named(stacks, GROUP).values())


def test_no_alarm_without_a_nat_gateway() -> None:
    """Where nodes stay inside, no port can run out."""
    stacks = declared(replace(SOLO, egress=Egress.NONE))

    assert not [name for _, name in _named(stacks, ALARM) if name.endswith("-ports")]


def test_only_cloudwatch_for_this_account_may_ring(stacks: Declared) -> None:
    """The topic, and the key that encrypts what goes through it, trust the service for one account alone."""
    topics = _named(stacks, TOPIC)

    assert {stack for stack, _ in topics} == {f"lab.{region.name}" for region in LAB.regions}
    for (stack, name), topic in topics.items():
        key = _named(stacks, "aws:kms/key:Key")[stack, name]
        for ring in (_statements(topic.inputs["policy"])["Ring"], _statements(key.inputs["policy"])["RingEncrypted"]):
            assert ring["Principal"] == {"Service": ["cloudwatch.amazonaws.com"]}
            assert ring["Condition"] == {"StringEquals": {"aws:SourceAccount": [LAB.account]}}


def test_nobody_is_told_unless_named(stacks: Declared) -> None:
    """Alarms stand all the same; somebody named is told in each region."""
    told = _named(declared(replace(LAB, alarms=TOLD)), SUBSCRIPTION)

    assert not _named(stacks, SUBSCRIPTION)
    assert {stack for stack, _ in told} == {f"lab.{region.name}" for region in LAB.regions}
    assert all((one.inputs["protocol"], one.inputs["endpoint"]) == ("email", TOLD) for one in told.values())


def test_every_alarm_rings_the_topic_of_its_own_region() -> None:
    """Tunnels' alarms too, which `links` makes: CloudWatch reaches no topic of another region."""
    report = report_of("two sites")

    made = [one for stack in report.stacks for one in stack.runs[Phase.CREATE].snapshot.entries.values()]
    rung = {one.name: one.inputs["alarmActions"] + one.inputs["okActions"] for one in made if one.type == ALARM}
    topics = {one.outputs["arn"].split(":")[3]: one.outputs["arn"] for one in made if one.type == TOPIC}
    assert len(topics) == 2
    for region, topic in topics.items():
        assert rung[f"lab-cellar-{region}-tunnel-down"] == [topic, topic]
    assert all(len(set(rings)) == 1 and rings[0] in topics.values() for rings in rung.values())


WEST, EAST = "us-west-2", "us-east-1"
PLAN = plan_fleet(
    sketch(
        {name: ZONES[name][:1] for name in (WEST, EAST)},
        groups={"box": group({"region": WEST}, {"region": EAST}, types=("m7i.xlarge",))},
        storage={"home": {"kind": "efs", "region": WEST, "mount": "/home"}},
        vpn=laptops({"region": WEST}),
        kubernetes=cluster(),
    ),
    Record({}),
    load_catalog(),
)
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
Graph = list[Mapping[str, Any]]


@pytest.fixture(scope="module")
def made() -> Graph:
    """Give the resources of all stacks, as they exist in the simulated AWS."""
    with running(PLAN.account) as simulation:
        world = World(simulation)
        assert not [failure for wave in waves(PLAN) for stack in wave for failure in run(stack, world).failures]
        return [node for snapshot in world.snapshots.values() for node in graph(snapshot.entries.values())]


@pytest.fixture(scope="module")
def fabric(made: Graph) -> Fabric:
    """Give the network of these resources."""
    return read_fabric(made)


def target_of(fabric: Fabric) -> Stand:
    """Return the mount target."""
    (target,) = (stand for stand in fabric.stands.values() if stand.name == "lab-home-us-west-2a")
    return target


def mount_from(fabric: Fabric, source: int) -> Packet:
    """Return the first packet of a client of NFS."""
    return Packet(source, target_of(fabric).address or 0, "tcp", 2049)


def test_nodes_of_every_region_mount(fabric: Fabric) -> None:
    """From any subnet of nodes, NFS to the mount target is answered."""
    for spot in (spot for spot in spots(PLAN) if spot.kind is Kind.NODES):
        found = trip(fabric, mount_from(fabric, int(spot.address)))

        assert found.answered, (spot.name, found.out.end)


def test_edge_and_control_plane_do_not(fabric: Fabric) -> None:
    """The laptops' gateway, members of the control plane, and any address of an edge subnet are refused."""
    machines = [each for each in fabric.stands.values() if each.name in ("lab-laptops", "lab-control-1")]
    edges = [int(spot.address) for spot in spots(PLAN) if spot.kind is Kind.EDGE]
    assert (len(machines), len(edges)) == (2, 2)

    for source in (each.address or 0 for each in machines):
        end = trip(fabric, mount_from(fabric, source)).out.end
        assert end == "no security group of lab-home-us-west-2a in lab-us-west-2a-nodes allows it inbound"
    for source in edges:
        assert not fabric.lets_in(target_of(fabric), mount_from(fabric, source))


def test_the_audit_finds_an_edge_that_mounts(made: Graph) -> None:
    """The stacks break no rule; a rule for the whole region's block breaks S403."""
    wide = {"ipProtocol": "tcp", "fromPort": 2049, "toPort": 2049, "cidrIpv4": str(PLAN.home.block)}
    (storage,) = (str(node["id"]) for node in made if node["urn"].endswith("::lab-storage"))
    planted = {"urn": "planted", "type": INGRESS, "id": "sgr-0", "inputs": {**wide, "securityGroupId": storage}}

    assert not [fault for fault in audit(graph_of(made, "here")) if fault.code == "S403"]
    found = [fault for fault in audit(graph_of([*made, planted], "here")) if fault.code == "S403"]
    assert [fault.urn for fault in found] == ["planted"]
