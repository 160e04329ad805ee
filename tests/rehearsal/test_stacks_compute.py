"""Auto Scaling groups and templates of pools in each market, and the control plane."""

import gzip
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pulumi
import pytest

from bedplate.catalog import load_catalog
from bedplate.operate.rehearsal import waves
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal.rehearse import Phase, Report, rehearse
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, run
from bedplate.rehearsal.state import Entry
from bedplate.spec.network import Egress
from tests.conftest import Expect
from tests.testlab.fleets.sketch import BOUGHT, cluster, group, sketch
from tests.testlab.rehearsal.programs import EXAMPLES, EXPORTS, Declared, declared, declared_of, plan_of

Inputs = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    """Give the inputs of each resource of the larger example's regions, by type and name."""
    stacks = declared_of(EXAMPLES / "lab.yaml")
    return {
        f"{entry.type.rpartition(':')[2]} {entry.name}": dict(entry.inputs)
        for entries in stacks.values()
        for entry in entries
    }


def test_one_on_demand_type_needs_no_mixed_instances_policy(inputs: Inputs) -> None:
    """The group launches the type in its template."""
    group = inputs["Group lab-workbench-cpu-us-west-2"]

    assert "mixedInstancesPolicy" not in group
    assert inputs["LaunchTemplate lab-workbench-cpu-us-west-2"]["instanceType"] == "m7i.4xlarge"


def test_spot_uses_the_price_capacity_optimized_strategy(inputs: Inputs) -> None:
    """Nothing is on demand, and capacity rebalancing replaces instances before an interruption."""
    group = inputs["Group lab-sim-us-west-2-spot"]

    distribution = group["mixedInstancesPolicy"]["instancesDistribution"]
    assert distribution["spotAllocationStrategy"] == "price-capacity-optimized"
    assert distribution["onDemandPercentageAboveBaseCapacity"] == 0
    assert group["capacityRebalance"] is True


def test_on_demand_types_have_the_order_of_the_file(inputs: Inputs) -> None:
    """Auto Scaling launches the first type with capacity."""
    policy = inputs["Group lab-sim-us-west-2"]["mixedInstancesPolicy"]

    types = [override["instanceType"] for override in policy["launchTemplate"]["overrides"]]
    assert types == ["c7i.24xlarge", "m7i.24xlarge", "c6i.24xlarge"]
    assert policy["instancesDistribution"]["onDemandAllocationStrategy"] == "prioritized"


def test_a_reservation_is_targeted_by_id(inputs: Inputs) -> None:
    """Only the pool of its rung uses it."""
    reservations = {
        name: resource["capacityReservationSpecification"]["capacityReservationTarget"]["capacityReservationId"]
        for name, resource in inputs.items()
        if "capacityReservationSpecification" in resource
    }

    assert list(reservations.values()) == ["cr-0123456789abcdef0"]
    assert "train-us-west-2b" in next(iter(reservations))


def test_a_group_has_a_template_version_number(inputs: Inputs) -> None:
    """With $Latest a new version would not change the group."""
    versions = [resource["launchTemplate"] for resource in inputs.values() if "launchTemplate" in resource]

    assert versions
    assert not [template for template in versions if template["version"] in ("$Latest", "$Default")]


def test_instances_on_a_fabric_are_protected_from_scale_in(inputs: Inputs) -> None:
    """No other groups are protected; AZRebalance is suspended in all groups."""
    single = ("Group lab-laptops", "Group lab-control-", "Group lab-hub")
    all_groups = {name: group for name, group in inputs.items() if name.startswith("Group ")}
    groups = {name: group for name, group in all_groups.items() if not name.startswith(single)}

    assert {name for name, group in groups.items() if group["protectFromScaleIn"]} == {
        name for name in groups if name.startswith("Group lab-train-")
    }
    assert all(group["suspendedProcesses"] == ["AZRebalance"] for group in groups.values())


def test_groups_have_45_minutes_to_terminate_instances() -> None:
    """Large instances take longer to terminate than the provider's default timeout of 10 minutes."""
    plan = plan_of(EXAMPLES / "lab.yaml")
    stack = next(stack for wave in waves(plan) for stack in wave if stack.name == "lab.us-west-2")
    timeouts: dict[str, tuple[str | None, str | None]] = {}

    def record(args: pulumi.ResourceTransformationArgs) -> None:
        if args.type_ == "aws:autoscaling/group:Group":
            custom = args.opts.custom_timeouts or pulumi.CustomTimeouts()
            timeouts[args.name] = (custom.update, custom.delete)

    def program() -> None:
        pulumi.runtime.register_stack_transformation(record)
        stack.program()

    with running(plan.account) as simulation:
        world = SharedState(simulation, exports={f"organization/bedplate/{plan.name}.shared": EXPORTS})
        result = run(replace(stack, program=program), world, preview=True)

    assert not result.failures
    assert {"lab-laptops", "lab-control-1", "lab-sim-us-west-2"} <= timeouts.keys()
    assert set(timeouts.values()) == {("45m", "45m")}


HERE = "us-west-2a"
IMAGE = "ami-0123456789abcdef0"
PLACEMENT = "aws:ec2/placementGroup:PlacementGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def _plan() -> FleetPlan:
    """Return a fleet with groups of each use, with and without a fabric, with a ladder of all markets."""
    ladder = [{**rung, "zone": HERE} for rung in BOUGHT.values()]
    fabric = {"types": ("p4d.24xlarge",), "fabric": "efa", "disk": 400, "disk_throughput": 500}
    groups = {
        f"{use}-{word}": group(*ladder, use=use, nodes={"min": 0, "max": 4}, **parts)
        for use in ("ssh", "kubernetes")
        for word, parts in (("plain", {"types": ("g6.4xlarge",)}), ("fabric", fabric))
    }
    fleet = sketch({"us-west-2": (HERE,)}, groups=groups, kubernetes=cluster())
    return plan_fleet(fleet, Record({}, images={"us-west-2/x86_64": IMAGE}), load_catalog())


@pytest.fixture(scope="module")
def report() -> Report:
    """Return the rehearsal of the stack of the region."""
    plan = _plan()
    return rehearse(plan.account, waves(plan, ("us-west-2",)))


@pytest.fixture(scope="module")
def created(report: Report) -> dict[str, list[Entry]]:
    """Return the created resources by type."""
    stack = next(candidate for candidate in report.stacks if candidate.name == "lab.us-west-2")
    by_type: dict[str, list[Entry]] = {}
    for entry in stack.runs[Phase.CREATE].snapshot.entries.values():
        by_type.setdefault(entry.type, []).append(entry)
    return by_type


def test_every_market_fabric_and_use_rehearses(report: Report) -> None:
    """All 16 combinations are created, a second run changes nothing, and no call is refused."""
    assert not [failure for stack in report.stacks for failure in stack.failures]
    assert report.ok


def test_templates_are_as_expected(created: dict[str, list[Entry]], expect: Expect) -> None:
    """The settings of each template that depend on market, fabric or use."""
    pools = [entry for entry in created[TEMPLATE] if entry.name != "lab-laptops"]

    expect("stacks/templates.txt", "\n".join(_lines(entry) for entry in sorted(pools, key=lambda pool: pool.name)))


def test_only_efa_pools_without_reservation_have_a_placement_group(created: dict[str, list[Entry]]) -> None:
    """One for each on-demand and spot pool; capacity blocks and reservations exclude placement groups."""
    names = {entry.name for entry in created[PLACEMENT]}

    assert names == {f"lab-{use}-fabric-{HERE}{end}" for use in ("ssh", "kubernetes") for end in ("", "-spot")}
    assert {entry.inputs["strategy"] for entry in created[PLACEMENT]} == {"cluster"}


def _lines(entry: Entry) -> str:
    inputs: dict[str, Any] = dict(entry.inputs)
    interfaces = [
        f"{item.get('networkCardIndex', 0)}/{item['deviceIndex']} {item.get('interfaceType', 'interface')}"
        for item in inputs["networkInterfaces"]
    ]
    disk = inputs["blockDeviceMappings"][0]["ebs"]
    target = inputs.get("capacityReservationSpecification", {}).get("capacityReservationTarget", {})
    lines = {
        "image": inputs["imageId"],
        "type": inputs["instanceType"],
        "hops": inputs["metadataOptions"]["httpPutResponseHopLimit"],
        "disk": f"{disk['volumeSize']} GiB, {disk['throughput']} MiB/s, {disk['iops']} a second",
        "interfaces": ", ".join(interfaces),
        "placement": inputs.get("placement", {}).get("groupName", "-"),
        "market": inputs.get("instanceMarketOptions", {}).get("marketType", "-"),
        "reservation": target.get("capacityReservationId", "-"),
        "tagged": ", ".join(item["resourceType"] for item in inputs["tagSpecifications"]),
    }
    return "\n".join((entry.name, *(f"  {key:<12} {value}" for key, value in lines.items()), ""))


LAB = plan_of(EXAMPLES / "lab.yaml")
HOME = "lab.us-west-2"
MEMBERS = ("lab-control-1", "lab-control-2", "lab-control-3")
KEPT = {**{name: f"{name}-etcd" for name in MEMBERS}, "lab-hub": "lab-hub-records"}
EVERYTHING = ("-1", None, None)


@pytest.fixture(scope="module")
def stacks() -> Declared:
    """Return the declared resources of the lab example."""
    return declared(LAB)


def _named_resources(stacks: Declared, kind: str, stack: str = HOME) -> dict[str, Entry]:
    return {entry.name: entry for entry in stacks[stack] if entry.type.endswith(f":{kind}")}


def _ingress_rules(stacks: Declared, group: str) -> dict[str, dict[str, Any]]:
    rules = _named_resources(stacks, "SecurityGroupIngressRule")
    return {name.removeprefix(f"{group}-"): dict(rule.inputs) for name, rule in rules.items() if name.startswith(group)}


def test_each_member_has_its_planned_zone_and_address(stacks: Declared) -> None:
    """One member in each zone of the home region, with the address in the lock."""
    assert LAB.control_plane
    interfaces, groups = _named_resources(stacks, "NetworkInterface"), _named_resources(stacks, "Group")

    placements = {
        name: (groups[name].inputs["availabilityZones"], interfaces[name].inputs["privateIps"]) for name in MEMBERS
    }

    members = LAB.control_plane.members
    expected = {name: ([member.zone], [str(member.address)]) for name, member in zip(MEMBERS, members, strict=True)}
    assert placements == expected


def test_members_are_replaced_one_by_one(stacks: Declared) -> None:
    """Each group has one instance; the old one ends first, because address and volume have one user at a time."""
    groups = _named_resources(stacks, "Group")

    for name in KEPT:
        assert (groups[name].inputs["minSize"], groups[name].inputs["maxSize"]) == (1, 1)
        policy = groups[name].inputs["instanceMaintenancePolicy"]
        assert policy == {"minHealthyPercentage": 0, "maxHealthyPercentage": 100}


def test_a_member_is_in_service_after_it_reports_ready(stacks: Declared) -> None:
    """The hook applies to the first instance of the group and to all later ones."""
    hooks = _named_resources(stacks, "LifecycleHook")

    for name in KEPT:
        (first,) = _named_resources(stacks, "Group")[name].inputs["initialLifecycleHooks"]
        assert (first["name"], first["defaultResult"]) == ("ready", "ABANDON")
        assert hooks[f"{name}-ready"].inputs["heartbeatTimeout"] == first["heartbeatTimeout"]


def test_groups_without_egress_have_no_hooks() -> None:
    """Instances that cannot report would be terminated by the hook. A laptop gateway has a public address."""
    stacks = declared(replace(LAB, egress=Egress.NONE))

    hooks = [entry.name for entries in stacks.values() for entry in entries if entry.type.endswith("LifecycleHook")]
    assert hooks == ["lab-laptops-ready"]


def test_the_volume_of_kept_data_is_retained(stacks: Declared) -> None:
    """The volume is encrypted, in the zone of its machine, protected and retained."""
    groups, volumes = _named_resources(stacks, "Group"), _named_resources(stacks, "Volume")

    for name, kept in KEPT.items():
        volume = volumes[kept]
        assert volume.inputs["availabilityZone"] == groups[name].inputs["availabilityZones"][0]
        assert (volume.inputs["encrypted"], volume.inputs["type"]) == (True, "gp3")
        assert (volume.protect, volume.retain) == (True, True)


def test_fixed_addresses_are_reserved(stacks: Declared) -> None:
    """The second /28 of each node subnet, in every region, before the first instance."""
    for region in LAB.regions:
        reservations = _named_resources(stacks, "SubnetCidrReservation", f"lab.{region.name}")
        blocks = {reservation.inputs["cidrBlock"] for reservation in reservations.values()}

        assert {reservation.inputs["reservationType"] for reservation in reservations.values()} == {"explicit"}
        assert blocks == {str([*zone.nodes.subnets(new_prefix=28)][1]) for zone in region.zones}
        for pool in _named_resources(stacks, "Group", f"lab.{region.name}").values():
            subnets_of = pool.property_dependencies.get("vpcZoneIdentifiers", ())
            assert {reservation.urn for reservation in reservations.values()}.issuperset(subnets_of)
    assert LAB.control_plane
    assert all(str(member.address).endswith(".16") for member in LAB.control_plane.members)


def test_the_hub_is_behind_one_name_and_one_port(stacks: Declared) -> None:
    """Laptops and sites: 22 and 443; nodes: 443. Its name and that of its machine have its address."""
    ports = {
        name: (rule["ipProtocol"], rule.get("fromPort"), rule.get("toPort"))
        for name, rule in _ingress_rules(stacks, "lab-hub").items()
    }
    assert {ports[name] for name in ports if name.startswith("ssh-from-")} == {("tcp", 22, 22)}
    assert {ports[name] for name in ports if name.startswith("hub-from-")} == {("tcp", 443, 443)}
    assert {name.partition("-")[0] for name in ports} == {"ssh", "hub"}
    sources = {"nodes", "nodes-us-east-1-17", "site-cellar", "laptops-cellar"}
    assert {f"hub-from-{source}" for source in sources} <= set(ports)
    records = {entry.inputs["name"]: entry.inputs for entry in _named_resources(stacks, "Record").values()}
    assert records["hub.lab.internal"]["records"] == records["hub.us-west-2.lab.internal"]["records"] == ["10.64.32.17"]


def test_backups_of_the_hub_expire_except_its_files(stacks: Declared) -> None:
    """Dumps are complete, so 35 days of them are enough; each file of a run is copied once."""
    rules = _named_resources(stacks, "BucketLifecycleConfiguration")["lab-hub"].inputs["rules"]

    days = {rule["filter"]["prefix"]: rule["expiration"].get("days") for rule in rules}
    assert days == {"": None, "dumps/": 35}
    assert rules[0]["noncurrentVersionExpiration"] == {"noncurrentDays": 30}


def test_the_control_plane_accepts_only_planned_ports(stacks: Declared) -> None:
    """Laptops and sites: 22 and 6443; nodes: 6443; workers: VXLAN and kubelet; members: all ports."""
    rules = _ingress_rules(stacks, "lab-control")

    ports = {name: (rule["ipProtocol"], rule.get("fromPort"), rule.get("toPort")) for name, rule in rules.items()}
    assert ports.pop("from-control") == EVERYTHING
    assert {ports[name] for name in ports if name.startswith("ssh-from-")} == {("tcp", 22, 22)}
    assert {ports[name] for name in ports if name.startswith("api-from-")} == {("tcp", 6443, 6443)}
    sources = {name.partition("-from-")[2].split("-")[0] for name in ports if name.startswith("ssh-")}
    assert sources == {"laptops", "site"}
    for name, flow in (("overlay", ("udp", 8472, 8472)), ("kubelet", ("tcp", 10250, 10250))):
        sources = {key.partition("-from-")[2] for key in ports if key.startswith(name)}
        assert {ports[key] for key in ports if key.startswith(name)} == {flow}
        assert {"nodes", "site-cellar", "nodes-us-east-1-17"} <= sources
    assert {name.partition("-")[0] for name in ports} == {"ssh", "api", "overlay", "kubelet", "metrics"}


def test_nodes_accept_the_control_plane(stacks: Declared) -> None:
    """The API server connects to kubelets and webhooks on any port."""
    rule = _ingress_rules(stacks, "lab-nodes")["all-from-control"]

    assert (rule["ipProtocol"], rule.get("fromPort")) == ("-1", None)


def test_the_api_name_has_the_addresses_of_all_members(stacks: Declared) -> None:
    """Clients try all addresses; the TTL of 60 s removes an old one quickly."""
    entries = _named_resources(stacks, "Record", "lab.us-west-2").values()
    records = {entry.inputs["name"]: entry.inputs for entry in entries}

    api = records["kubernetes.lab.internal"]
    assert (api["records"], api["ttl"]) == (["10.64.32.16", "10.64.64.16", "10.64.96.16"], 60)
    assert records["control-2.us-west-2.lab.internal"]["records"] == ["10.64.64.16"]


def test_a_fleet_without_a_cluster_has_no_control_plane() -> None:
    """No stack declares a resource of it."""
    stacks = declared(replace(LAB, control_plane=None))

    assert not [entry.urn for entries in stacks.values() for entry in entries if "control" in entry.name]


@pytest.fixture(scope="module")
def home_resources() -> tuple[Entry, ...]:
    """Return the deployed resources of a home region with a control plane and no pools."""
    plan = replace(LAB, pools=(), files=(), buckets=(), laptops=(), sites=(), regions=(LAB.home,))
    with running(plan.account) as simulation:
        world = SharedState(simulation)
        runs = [run(stack, world) for wave in waves(plan) for stack in wave]
    assert not [failure for result in runs for failure in result.failures]
    return tuple(entry for result in runs for entry in result.snapshot.entries.values())


def test_the_script_of_a_member_has_its_volume_id(home_resources: tuple[Entry, ...]) -> None:
    """A volume retained from an earlier stack may have the same tags, so the script needs the id."""
    volumes = {entry.name: entry.ident for entry in home_resources if entry.type.endswith(":Volume")}
    templates = {entry.name: entry for entry in home_resources if entry.type.endswith(":LaunchTemplate")}

    for name, kept in KEPT.items():
        script = gzip.decompress(b64decode(templates[name].inputs["userData"])).decode()
        assert f"readonly VOLUME={volumes[kept]}\n" in script
        assert f"readonly SCALING_GROUP={name}\n" in script
