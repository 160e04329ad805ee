"""Rules for all stacks: tags, no public access, retained data, instance metadata, alarms, costs and quotas."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.graph.audit.document import graph_of
from bedplate.graph.audit.run import audit
from bedplate.graph.reach import Fabric, Packet, read_fabric, trip
from bedplate.graph.reach.fabric import Endpoint
from bedplate.operate.rehearsal import waves
from bedplate.plan import Record, plan_fleet
from bedplate.plan.cost import fixed_resources, quota_needs
from bedplate.plan.reachability import EndpointKind, endpoints
from bedplate.rehearsal import schema
from bedplate.rehearsal.rehearse import Phase
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, graph, run
from bedplate.rehearsal.state import Entry
from bedplate.spec.fleet import Alarms, Budget
from bedplate.spec.network import Egress
from tests.conftest import DATA, Expect
from tests.testlab.fleets.sketch import ZONES, cluster, group, laptops, sketch
from tests.testlab.rehearsal.live import report_of
from tests.testlab.rehearsal.programs import EXAMPLES, Declared, declared, declared_of, plan_of

RETAINED = {
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
    """Return the declared resources of the lab example."""
    return declared_of(EXAMPLES / "lab.yaml")


# The only resource that accepts connections from the internet.
GATEWAY = "lab-laptops"
# Single instances with fixed addresses, which belong to no pool.
SINGLE = (GATEWAY, "lab-control-", "lab-hub")


def _resources(stacks: Declared, *types: str) -> Iterator[Entry]:
    for entries in stacks.values():
        yield from (entry for entry in entries if entry.is_in_cloud and (not types or entry.type in types))


def _pools(stacks: Declared, of: str) -> Iterator[Entry]:
    yield from (entry for entry in _resources(stacks, of) if not entry.name.startswith(SINGLE))


def test_every_taggable_resource_has_a_name(stacks: Declared) -> None:
    """Without a Name tag the console and the bill of AWS show only an id."""
    taggable = [entry for entry in _resources(stacks) if "tags" in schema.inputs(entry.type)]

    unnamed = [entry.urn for entry in taggable if entry.type != GROUP and not entry.inputs["tags"].get("Name")]

    assert not unnamed


def test_every_resource_with_tags_has_its_name_in_the_stack(stacks: Declared) -> None:
    """`bedplate recover` finds a resource by it if a killed run created it without recording its id."""
    taggable = [entry for entry in _resources(stacks) if "tags" in schema.inputs(entry.type) and entry.type != GROUP]

    assert not [entry.urn for entry in taggable if entry.inputs["tags"].get("bedplate:resource") != entry.name]


def test_providers_have_default_tags_of_fleet_stack_and_owner(stacks: Declared) -> None:
    """Default tags do not depend on the author of a resource."""
    providers = {name: entry for name, entries in stacks.items() for entry in entries if entry.is_provider}

    for name, provider in providers.items():
        tags = {"bedplate:fleet": "lab", "bedplate:stack": name, "owner": "research-infra@lab.example"}
        assert json.loads(provider.inputs["defaultTags"]) == {"tags": tags}
        assert json.loads(provider.inputs["allowedAccountIds"]) == ["111122223333"]


def test_every_resource_has_an_explicit_provider(stacks: Declared) -> None:
    """A default provider would use the region and account of the operator."""
    assert not [entry.urn for entry in _resources(stacks) if "::default" in entry.provider or not entry.provider]


def test_groups_and_templates_have_the_same_instance_tags(stacks: Declared) -> None:
    """Default tags of a provider do not reach instances of an Auto Scaling group."""
    required = {"Name", "bedplate:fleet", "bedplate:stack", "bedplate:group", "bedplate:pool", "bedplate:use", "owner"}
    tags_by_pool = {}

    for scaling_group in _pools(stacks, GROUP):
        keys = {tag["key"] for tag in scaling_group.inputs["tags"] if tag["propagateAtLaunch"]}
        assert required <= keys <= required | {"expires"}
        tags_by_pool[scaling_group.name] = keys
    for template in _pools(stacks, TEMPLATE):
        tags = {
            specification["resourceType"]: set(specification["tags"])
            for specification in template.inputs["tagSpecifications"]
        }
        spot = ["spot-instances-request"] if template.name.endswith("-spot") else []
        expected = tags_by_pool[template.name]
        assert tags == dict.fromkeys(("instance", "network-interface", "volume", *spot), expected)


def test_no_node_has_a_public_address(stacks: Declared) -> None:
    """Only NAT gateways and the VPN gateway have one; nodes are reached over the VPN."""
    for subnet in _resources(stacks, "aws:ec2/subnet:Subnet"):
        assert subnet.inputs["mapPublicIpOnLaunch"] is False
    for template in _pools(stacks, TEMPLATE):
        interfaces = template.inputs["networkInterfaces"]
        # With several interfaces the setting is not allowed, and the subnet assigns no public address.
        assert [interface.get("associatePublicIpAddress") for interface in interfaces] == (
            ["false"] if len(interfaces) == 1 else [None] * 33
        )
    assert all(entry.name.endswith(("-nat", GATEWAY)) for entry in _resources(stacks, "aws:ec2/eip:Eip"))


def test_only_the_vpn_gateway_accepts_the_internet(stacks: Declared) -> None:
    """Other rules accept the group itself, or a private block of the fleet."""
    rules = list(_resources(stacks, "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"))

    internal = [rule for rule in rules if not rule.name.startswith(GATEWAY)]
    blocks = [rule.inputs["cidrIpv4"] for rule in internal if "referencedSecurityGroupId" not in rule.inputs]

    assert blocks
    assert all(block.startswith(("10.", "192.168.")) and int(block.split("/")[1]) >= 16 for block in blocks)


def test_data_is_retained(stacks: Declared) -> None:
    """File systems, keys, aliases, buckets and their settings are protected and retained; nothing else is.

    The bucket of public keys holds no data.
    """
    both = {entry.type for entry in _resources(stacks) if entry.protect and entry.retain}
    either = {entry.type for entry in _resources(stacks) if entry.protect or entry.retain}

    assert both == either == RETAINED
    assert {entry.name for entry in _resources(stacks, *RETAINED) if not entry.protect} == {"lab-issuer"}


def test_buckets_delete_markers_without_versions(stacks: Declared) -> None:
    """Replication copies delete markers, which would stay for ever."""
    rules = list(_resources(stacks, "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"))

    assert {rule.name for rule in rules if rule.name.startswith("lab-data")}
    for rule in rules:
        tidy = next(entry for entry in rule.inputs["rules"] if entry["id"] == "tidy")
        assert tidy["expiration"] == {"expiredObjectDeleteMarker": True}, rule.name


def test_instance_metadata_requires_imdsv2(stacks: Declared) -> None:
    """Forwarded requests and pods cannot read the credentials of a node; containers on SSH machines can."""
    for template in _resources(stacks, TEMPLATE):
        options = template.inputs["metadataOptions"]
        hops = 2 if template.name.startswith("lab-workbench") else 1
        assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", hops)


def test_root_volumes_are_encrypted_gp3_with_the_size_in_the_file(stacks: Declared) -> None:
    """`disk` in the fleet file is the size of the root volume."""
    disks = [
        mapping["ebs"]
        for template in _resources(stacks, TEMPLATE)
        for mapping in template.inputs["blockDeviceMappings"]
    ]

    assert {(disk["encrypted"], disk["volumeType"]) for disk in disks} == {("true", "gp3")}
    assert {disk["volumeSize"] for disk in disks} == {16, 50, 100, 500}


def test_deployments_do_not_set_the_desired_capacity(stacks: Declared) -> None:
    """A deployment must not undo changes of an autoscaler."""
    assert not [group.urn for group in _resources(stacks, GROUP) if "desiredCapacity" in group.inputs]


def test_every_role_has_the_permissions_boundary() -> None:
    """An account that requires a boundary refuses roles without it."""
    arn = "arn:aws:iam::111122223333:policy/bound"
    plan = replace(plan_of(EXAMPLES / "minimal.yaml"), boundary=arn)

    roles = [entry for entries in declared(plan).values() for entry in entries if entry.type == "aws:iam/role:Role"]

    assert roles
    assert {role.inputs.get("permissionsBoundary") for role in roles} == {arn}


def test_the_budget_sends_a_mail_before_it_is_spent() -> None:
    """AWS sends it for actual and forecasted cost, to the address in the file."""
    plan = replace(plan_of(EXAMPLES / "minimal.yaml"), budget=Budget(monthly=5000, email="infra@lab.example"))

    (budget,) = (entry for entry in declared(plan)["solo.shared"] if entry.type == "aws:budgets/budget:Budget")

    notifications = {(item["notificationType"], item["threshold"]) for item in budget.inputs["notifications"]}
    assert notifications == {("ACTUAL", 80), ("FORECASTED", 100), ("ACTUAL", 100)}
    assert all(item["subscriberEmailAddresses"] == ["infra@lab.example"] for item in budget.inputs["notifications"])


FILES = (EXAMPLES / "lab.yaml", EXAMPLES / "minimal.yaml", DATA / "fleets" / "joined.yaml")


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def golden_stacks(request: pytest.FixtureRequest) -> Declared:
    """Return the declared resources of each file in turn."""
    return declared_of(request.param)


def test_urns_are_unchanged(golden_stacks: Declared, expect: Expect) -> None:
    """A new type, parent or name would replace the resource in existing fleets."""
    for name, entries in golden_stacks.items():
        lines = sorted(entry.urn.partition("::")[2].partition("::")[2] for entry in entries)

        expect(f"stacks/{name}.txt", "\n".join(lines) + "\n")


ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
ROOT = Path(__file__).parents[2]
FLEETS = ("examples/lab.yaml", "examples/minimal.yaml", "tests/data/fleets/joined.yaml")
# Resources that each rate pays for: one peering is an attachment at both ends.
RESOURCES_OF: Mapping[str, Mapping[str, int]] = {
    "alarm": {"alarm metrics": 1},
    "hosted-zone": {"aws:route53/zone:Zone": 1},
    "interface-endpoint": {"interfaces": 1},
    "key": {"aws:kms/key:Key": 1},
    "nat-gateway": {"aws:ec2/natGateway:NatGateway": 1},
    # A connection has two tunnels.
    "public-address": {"aws:ec2/eip:Eip": 1, "aws:ec2/vpnConnection:VpnConnection": 2},
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
def declared_counts(fleet: str) -> Counter[str]:
    """Return the number of declared resources by type, of interfaces of endpoints, and of metrics of alarms."""
    entries = [entry for resources in declared_of(ROOT / fleet).values() for entry in resources]
    interfaces = sum(len(entry.inputs.get("subnetIds", ())) for entry in entries if entry.type == ENDPOINT)
    queries = [entry.inputs.get("metricQueries", [{"metric": ...}]) for entry in entries if entry.type == ALARM]
    metrics = sum("metric" in query for alarm in queries for query in alarm)
    return Counter(entry.type for entry in entries) + Counter({"interfaces": interfaces, "alarm metrics": metrics})


@pytest.mark.parametrize("rate", RESOURCES_OF)
@pytest.mark.parametrize("fleet", FLEETS)
def test_costs_include_every_declared_resource(fleet: str, rate: str) -> None:
    """The cost estimate counts each paid resource."""
    counted = sum(item.count for item in fixed_resources(plan_of(ROOT / fleet)) if item.rate == rate)

    assert counted == sum(declared_counts(fleet)[token] * item for token, item in RESOURCES_OF[rate].items())


@pytest.mark.parametrize("fleet", FLEETS)
def test_quotas_include_the_largest_security_group(fleet: str) -> None:
    """AWS refuses rules above the quota, in a deployment long after the check of the file."""
    plan = plan_of(ROOT / fleet)
    expected = {
        need.region: need.most for need in quota_needs(plan, load_catalog()) if need.quota.name.startswith("rules")
    }

    largest = {
        region.name: max(
            Counter(
                entry.parent
                for entry in declared_of(ROOT / fleet)[f"{plan.name}.{region.name}"]
                if entry.type == "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
            ).values()
        )
        for region in plan.regions
    }
    assert largest == expected


LAB = plan_of(EXAMPLES / "lab.yaml")
SOLO = plan_of(EXAMPLES / "minimal.yaml")
EMAIL = "infra@lab.example"
ALARM = "aws:cloudwatch/metricAlarm:MetricAlarm"

NAT = "aws:ec2/natGateway:NatGateway"
TOPIC = "aws:sns/topic:Topic"
SUBSCRIPTION = "aws:sns/topicSubscription:TopicSubscription"


def _by_name(stacks: Declared, kind: str) -> dict[tuple[str, str], Entry]:
    return {(stack, entry.name): entry for stack, entries in stacks.items() for entry in entries if entry.type == kind}


def _statements(text: str) -> Mapping[str, Any]:
    return {statement["Sid"]: statement for statement in json.loads(text)["Statement"]}


def test_a_failed_copy_triggers_an_alarm(stacks: Declared) -> None:
    """S3 does not try again, and counts failures only for rules with metrics, in the region of the source."""
    (replication,) = (e for e in stacks["lab.links"] if "bucketReplicationConfig" in e.type)
    alarms = [e.inputs for e in stacks["lab.links"] if e.type == ALARM and e.name.endswith("-failed")]

    assert all(rule["destination"]["metrics"] == {"status": "Enabled"} for rule in replication.inputs["rules"])
    assert {rule["id"] for rule in replication.inputs["rules"]} == {alarm["dimensions"]["RuleId"] for alarm in alarms}
    assert all(":us-west-2:" in alarm["alarmActions"][0] for alarm in alarms)


def test_the_replication_role_trusts_s3_without_a_condition(stacks: Declared) -> None:
    """AWS does not document the condition keys of S3 replication; a missing key would stop all copies."""
    (role,) = (e for e in stacks["lab.shared"] if e.type.endswith(":Role") and e.name == "lab-replication")

    assert "Condition" not in _statements(role.inputs["assumeRolePolicy"])["BeS3"]


@pytest.mark.parametrize(("token", "suffix"), [(GROUP, "-short"), (NAT, "-ports")])
def test_each_group_and_nat_gateway_has_an_alarm(token: str, suffix: str, stacks: Declared) -> None:
    """This includes single instances, and no alarm is without its resource."""
    names = {(stack, f"{name}{suffix}") for stack, name in _by_name(stacks, token)}

    assert names
    assert names == {key for key in _by_name(stacks, ALARM) if key[1].endswith(suffix)}


def test_groups_collect_the_metrics_of_their_alarms(stacks: Declared) -> None:
    """Without enabled metrics an alarm on a group never triggers."""
    queries = [query for alarm in _by_name(stacks, ALARM).values() for query in alarm.inputs.get("metricQueries", ())]
    metrics = {query["metric"]["metricName"] for query in queries if "metric" in query}

    assert metrics == {"GroupDesiredCapacity", "GroupInServiceInstances"}
    assert all(metrics <= set(group.inputs["enabledMetrics"]) for group in _by_name(stacks, GROUP).values())


def test_no_alarm_without_a_nat_gateway() -> None:
    """Without egress there is no NAT gateway to run out of ports."""
    stacks = declared(replace(SOLO, egress=Egress.NONE))

    assert not [name for _, name in _by_name(stacks, ALARM) if name.endswith("-ports")]


def test_only_cloudwatch_of_this_account_may_publish(stacks: Declared) -> None:
    """The topic and its key trust CloudWatch only on behalf of this account."""
    topics = _by_name(stacks, TOPIC)

    assert {stack for stack, _ in topics} == {f"lab.{region.name}" for region in LAB.regions}
    for (stack, name), topic in topics.items():
        key = _by_name(stacks, "aws:kms/key:Key")[stack, name]
        for statement in (
            _statements(topic.inputs["policy"])["Ring"],
            _statements(key.inputs["policy"])["RingEncrypted"],
        ):
            assert statement["Principal"] == {"Service": ["cloudwatch.amazonaws.com"]}
            assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": [LAB.account]}}


def test_alarms_send_mail_only_to_a_configured_address(stacks: Declared) -> None:
    """Each region has a subscription if the fleet file has an address, else none."""
    subscriptions = _by_name(declared(replace(LAB, alarms=Alarms(email=EMAIL))), SUBSCRIPTION)

    assert not _by_name(stacks, SUBSCRIPTION)
    assert {stack for stack, _ in subscriptions} == {f"lab.{region.name}" for region in LAB.regions}
    assert all(
        (subscription.inputs["protocol"], subscription.inputs["endpoint"]) == ("email", EMAIL)
        for subscription in subscriptions.values()
    )


def test_every_alarm_uses_the_topic_of_its_region() -> None:
    """This includes tunnel alarms in `links`: CloudWatch cannot use a topic of another region."""
    report = report_of("two sites")

    entries = [entry for stack in report.stacks for entry in stack.runs[Phase.CREATE].snapshot.entries.values()]
    actions = {
        entry.name: entry.inputs["alarmActions"] + entry.inputs.get("okActions", [])
        for entry in entries
        if entry.type == ALARM
    }
    topics = {entry.outputs["arn"].split(":")[3]: entry.outputs["arn"] for entry in entries if entry.type == TOPIC}
    assert len(topics) == 2
    for region, topic in topics.items():
        assert actions[f"lab-cellar-{region}-tunnel-down"] == [topic, topic]
    assert all(len(set(topic_arns)) == 1 and topic_arns[0] in topics.values() for topic_arns in actions.values())


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
def deployed() -> Graph:
    """Return the deployed resources of all stacks."""
    with running(PLAN.account) as simulation:
        world = SharedState(simulation)
        assert not [failure for wave in waves(PLAN) for stack in wave for failure in run(stack, world).failures]
        return [node for snapshot in world.snapshots.values() for node in graph(snapshot.entries.values())]


@pytest.fixture(scope="module")
def fabric(deployed: Graph) -> Fabric:
    """Return the network of these resources."""
    return read_fabric(deployed)


def target_of(fabric: Fabric) -> Endpoint:
    """Return the mount target."""
    (target,) = (interface for interface in fabric.interfaces.values() if interface.name == "lab-home-us-west-2a")
    return target


def mount_from(fabric: Fabric, source: int) -> Packet:
    """Return the first packet of an NFS client."""
    return Packet(source, target_of(fabric).address or 0, "tcp", 2049)


def test_nodes_of_every_region_can_mount(fabric: Fabric) -> None:
    """NFS from any node subnet reaches the mount target, and back."""
    for spot in (spot for spot in endpoints(PLAN) if spot.kind is EndpointKind.NODES):
        result = trip(fabric, mount_from(fabric, int(spot.address)))

        assert result.answered, (spot.name, result.out.end)


def test_edge_and_control_plane_cannot_mount(fabric: Fabric) -> None:
    """The VPN gateway, control plane members and edge subnets are refused."""
    machines = [machine for machine in fabric.interfaces.values() if machine.name in ("lab-laptops", "lab-control-1")]
    edges = [int(spot.address) for spot in endpoints(PLAN) if spot.kind is EndpointKind.EDGE]
    assert (len(machines), len(edges)) == (2, 2)

    for source in (machine.address or 0 for machine in machines):
        end = trip(fabric, mount_from(fabric, source)).out.end
        assert end == "no security group of lab-home-us-west-2a in lab-us-west-2a-nodes allows it inbound"
    for source in edges:
        assert not fabric.lets_in(target_of(fabric), mount_from(fabric, source))


def test_the_audit_finds_nfs_from_edge_subnets(deployed: Graph) -> None:
    """The stacks pass S108 and S403; a rule for the whole block of a region fails S403."""
    wide = {"ipProtocol": "tcp", "fromPort": 2049, "toPort": 2049, "cidrIpv4": str(PLAN.home.block)}
    (storage,) = (str(node["id"]) for node in deployed if node["urn"].endswith("::lab-storage"))
    defect = {"urn": "defect", "type": INGRESS, "id": "sgr-0", "inputs": {**wide, "securityGroupId": storage}}

    assert not [fault for fault in audit(graph_of(deployed, "here")) if fault.code in ("S108", "S403")]
    faults = [fault for fault in audit(graph_of([*deployed, defect], "here")) if fault.code == "S403"]
    assert [fault.urn for fault in faults] == ["defect"]
