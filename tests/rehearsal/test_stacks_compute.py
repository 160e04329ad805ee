"""What a pool asks of AWS, market by market."""

from base64 import b64decode
from dataclasses import replace
from typing import Any

import pulumi
import pytest

from bedplate.catalog import load_catalog
from bedplate.cli.stacks import waves
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal.rehearse import Phase, Report, rehearse
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import World, run
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


def test_one_type_on_demand_needs_no_policy(inputs: Inputs) -> None:
    """The group launches its template's type."""
    group = inputs["Group lab-workbench-cpu-us-west-2"]

    assert "mixedInstancesPolicy" not in group
    assert inputs["LaunchTemplate lab-workbench-cpu-us-west-2"]["instanceType"] == "m7i.4xlarge"


def test_spot_is_bought_where_it_lasts_and_costs_little(inputs: Inputs) -> None:
    """Nothing is on demand, and a machine about to be taken is replaced beforehand."""
    group = inputs["Group lab-sim-us-west-2-spot"]

    bought = group["mixedInstancesPolicy"]["instancesDistribution"]
    assert bought["spotAllocationStrategy"] == "price-capacity-optimized"
    assert bought["onDemandPercentageAboveBaseCapacity"] == 0
    assert group["capacityRebalance"] is True


def test_types_are_tried_in_the_order_of_the_file(inputs: Inputs) -> None:
    """On demand, the first type that has capacity is taken."""
    policy = inputs["Group lab-sim-us-west-2"]["mixedInstancesPolicy"]

    types = [one["instanceType"] for one in policy["launchTemplate"]["overrides"]]
    assert types == ["c7i.24xlarge", "m7i.24xlarge", "c6i.24xlarge"]
    assert policy["instancesDistribution"]["onDemandAllocationStrategy"] == "prioritized"


def test_a_reservation_is_aimed_at_by_its_id(inputs: Inputs) -> None:
    """Only the pool of that rung may use it."""
    aimed = {
        name: each["capacityReservationSpecification"]["capacityReservationTarget"]["capacityReservationId"]
        for name, each in inputs.items()
        if "capacityReservationSpecification" in each
    }

    assert list(aimed.values()) == ["cr-0123456789abcdef0"]
    assert "train-us-west-2b" in next(iter(aimed))


def test_a_group_follows_its_template_by_number(inputs: Inputs) -> None:
    """With $Latest a new version would be no change of the group, and no machine would be renewed."""
    versions = [each["launchTemplate"] for each in inputs.values() if "launchTemplate" in each]

    assert versions
    assert not [one for one in versions if one["version"] in ("$Latest", "$Default")]


def test_a_training_job_is_never_scaled_away(inputs: Inputs) -> None:
    """Machines on the fabric are protected; zones are never balanced by ending what runs."""
    lone = ("Group lab-laptops", "Group lab-control-")
    named = {name: each for name, each in inputs.items() if name.startswith("Group ")}
    groups = {name: each for name, each in named.items() if not name.startswith(lone)}

    assert {name for name, each in groups.items() if each["protectFromScaleIn"]} == {
        name for name in groups if name.startswith("Group lab-train-")
    }
    assert all(each["suspendedProcesses"] == ["AZRebalance"] for each in groups.values())


def test_groups_have_45_minutes_to_end_their_machines() -> None:
    """Large instances take longer to terminate than the provider's default timeout of 10 minutes."""
    plan = plan_of(EXAMPLES / "lab.yaml")
    stack = next(stack for wave in waves(plan) for stack in wave if stack.name == "lab.us-west-2")
    timeouts: dict[str, tuple[str | None, str | None]] = {}

    def note(args: pulumi.ResourceTransformationArgs) -> None:
        if args.type_ == "aws:autoscaling/group:Group":
            given = args.opts.custom_timeouts or pulumi.CustomTimeouts()
            timeouts[args.name] = (given.update, given.delete)

    def program() -> None:
        pulumi.runtime.register_stack_transformation(note)
        stack.program()

    with running(plan.account) as simulation:
        world = World(simulation, exports={f"organization/bedplate/{plan.name}.shared": EXPORTS})
        done = run(replace(stack, program=program), world, preview=True)

    assert not done.failures
    assert {"lab-laptops", "lab-control-1", "lab-sim-us-west-2"} <= timeouts.keys()
    assert set(timeouts.values()) == {("45m", "45m")}


HERE = "us-west-2a"
IMAGE = "ami-0123456789abcdef0"
PLACEMENT = "aws:ec2/placementGroup:PlacementGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def _plan() -> FleetPlan:
    """Return a fleet whose groups are a use with or without a fabric, each over a ladder of all markets."""
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
    """Create the region's stack, run it again, and destroy it."""
    plan = _plan()
    return rehearse(plan.account, waves(plan, ("us-west-2",)))


@pytest.fixture(scope="module")
def made(report: Report) -> dict[str, list[Entry]]:
    """Give what was made, by type."""
    stack = next(one for one in report.stacks if one.name == "lab.us-west-2")
    found: dict[str, list[Entry]] = {}
    for entry in stack.runs[Phase.CREATE].snapshot.entries.values():
        found.setdefault(entry.type, []).append(entry)
    return found


def test_every_market_fabric_and_use_rehearses(report: Report) -> None:
    """All sixteen are made, a second run changes nothing, and nothing is refused."""
    assert not [failure for stack in report.stacks for failure in stack.failures]
    assert report.ok


def test_what_a_template_asks_for_is_known(made: dict[str, list[Entry]], expect: Expect) -> None:
    """How each pool's machines start, in a line for each thing that its market, fabric or use decides."""
    pools = [entry for entry in made[TEMPLATE] if entry.name != "lab-laptops"]

    expect("stacks/templates.txt", "\n".join(_lines(entry) for entry in sorted(pools, key=lambda one: one.name)))


def test_only_what_may_be_placed_has_a_placement_group(made: dict[str, list[Entry]]) -> None:
    """On the fabric, on demand and on spot, one for each pool; a block takes none, a reservation only its own."""
    names = {entry.name for entry in made[PLACEMENT]}

    assert names == {f"lab-{use}-fabric-{HERE}{end}" for use in ("ssh", "kubernetes") for end in ("", "-spot")}
    assert {entry.inputs["strategy"] for entry in made[PLACEMENT]} == {"cluster"}


def _lines(entry: Entry) -> str:
    inputs: dict[str, Any] = dict(entry.inputs)
    nics = [
        f"{one.get('networkCardIndex', 0)}/{one['deviceIndex']} {one.get('interfaceType', 'interface')}"
        for one in inputs["networkInterfaces"]
    ]
    disk = inputs["blockDeviceMappings"][0]["ebs"]
    target = inputs.get("capacityReservationSpecification", {}).get("capacityReservationTarget", {})
    told = {
        "image": inputs["imageId"],
        "type": inputs["instanceType"],
        "hops": inputs["metadataOptions"]["httpPutResponseHopLimit"],
        "disk": f"{disk['volumeSize']} GiB, {disk['throughput']} MiB/s, {disk['iops']} a second",
        "interfaces": ", ".join(nics),
        "placement": inputs.get("placement", {}).get("groupName", "-"),
        "market": inputs.get("instanceMarketOptions", {}).get("marketType", "-"),
        "reservation": target.get("capacityReservationId", "-"),
        "tagged": ", ".join(one["resourceType"] for one in inputs["tagSpecifications"]),
    }
    return "\n".join((entry.name, *(f"  {key:<12} {value}" for key, value in told.items()), ""))


LAB = plan_of(EXAMPLES / "lab.yaml")
HOME = "lab.us-west-2"
MEMBERS = ("lab-control-1", "lab-control-2", "lab-control-3")
EVERYTHING = ("-1", None, None)


@pytest.fixture(scope="module")
def stacks() -> Declared:
    """Give what the stacks of the larger example declare."""
    return declared(LAB)


def _made(stacks: Declared, kind: str, stack: str = HOME) -> dict[str, Entry]:
    return {entry.name: entry for entry in stacks[stack] if entry.type.endswith(f":{kind}")}


def _doors(stacks: Declared, group: str) -> dict[str, dict[str, Any]]:
    rules = _made(stacks, "SecurityGroupIngressRule")
    return {name.removeprefix(f"{group}-"): dict(one.inputs) for name, one in rules.items() if name.startswith(group)}


def test_each_member_stands_at_its_address_in_its_zone(stacks: Declared) -> None:
    """One machine in each zone of home, at the address that the lock remembers."""
    assert LAB.control_plane
    interfaces, groups = _made(stacks, "NetworkInterface"), _made(stacks, "Group")

    stands = {
        name: (groups[name].inputs["availabilityZones"], interfaces[name].inputs["privateIps"]) for name in MEMBERS
    }

    members = LAB.control_plane.members
    wanted = {name: ([one.zone], [str(one.address)]) for name, one in zip(MEMBERS, members, strict=True)}
    assert stands == wanted


def test_a_member_is_replaced_by_itself(stacks: Declared) -> None:
    """One machine a group, the old one ended first: address and volume serve one at a time."""
    groups = _made(stacks, "Group")

    for name in MEMBERS:
        assert (groups[name].inputs["minSize"], groups[name].inputs["maxSize"]) == (1, 1)
        policy = groups[name].inputs["instanceMaintenancePolicy"]
        assert policy == {"minHealthyPercentage": 0, "maxHealthyPercentage": 100}


def test_a_member_is_in_service_once_it_reports(stacks: Declared) -> None:
    """Its group waits for the last step of its first boot, for the first machine and for every later one."""
    hooks = _made(stacks, "LifecycleHook")

    for name in MEMBERS:
        (first,) = _made(stacks, "Group")[name].inputs["initialLifecycleHooks"]
        assert (first["name"], first["defaultResult"]) == ("ready", "ABANDON")
        assert hooks[f"{name}-ready"].inputs["heartbeatTimeout"] == first["heartbeatTimeout"]


def test_nobody_waits_for_machines_that_cannot_report() -> None:
    """Without a way to AWS a hook would end every machine, again and again."""
    stacks = declared(replace(LAB, egress=Egress.NONE))

    assert not [entry.urn for entries in stacks.values() for entry in entries if entry.type.endswith("LifecycleHook")]


def test_etcds_volume_outlives_machine_and_stack(stacks: Declared) -> None:
    """It is encrypted, in the machine's zone, protected and retained."""
    groups, volumes = _made(stacks, "Group"), _made(stacks, "Volume")

    for name in MEMBERS:
        volume = volumes[f"{name}-etcd"]
        assert volume.inputs["availabilityZone"] == groups[name].inputs["availabilityZones"][0]
        assert (volume.inputs["encrypted"], volume.inputs["type"]) == (True, "gp3")
        assert (volume.protect, volume.retain) == (True, True)


def test_aws_hands_out_none_of_the_fixed_addresses(stacks: Declared) -> None:
    """The second sixteen of each nodes subnet, in every region."""
    for region in LAB.regions:
        kept = _made(stacks, "SubnetCidrReservation", f"lab.{region.name}")
        blocks = {one.inputs["cidrBlock"] for one in kept.values()}

        assert {one.inputs["reservationType"] for one in kept.values()} == {"explicit"}
        assert blocks == {str([*zone.nodes.subnets(new_prefix=28)][1]) for zone in region.zones}
    assert LAB.control_plane
    assert all(str(member.address).endswith(".16") for member in LAB.control_plane.members)


def test_only_what_needs_the_control_plane_reaches_it(stacks: Declared) -> None:
    """Laptops and sites: 22 and 6443; nodes: 6443; workers: VXLAN and kubelet; members among themselves: everything."""
    rules = _doors(stacks, "lab-control")

    ports = {name: (one["ipProtocol"], one.get("fromPort"), one.get("toPort")) for name, one in rules.items()}
    assert ports.pop("from-control") == EVERYTHING
    assert {ports[name] for name in ports if name.startswith("ssh-from-")} == {("tcp", 22, 22)}
    assert {ports[name] for name in ports if name.startswith("api-from-")} == {("tcp", 6443, 6443)}
    whom = {name.partition("-from-")[2].split("-")[0] for name in ports if name.startswith("ssh-")}
    assert whom == {"laptops", "site"}
    for name, flow in (("overlay", ("udp", 8472, 8472)), ("kubelet", ("tcp", 10250, 10250))):
        from_whom = {key.partition("-from-")[2] for key in ports if key.startswith(name)}
        assert {ports[key] for key in ports if key.startswith(name)} == {flow}
        assert {"nodes", "site-cellar", "nodes-us-east-1-17"} <= from_whom
    assert {name.partition("-")[0] for name in ports} == {"ssh", "api", "overlay", "kubelet"}


def test_nodes_let_the_control_plane_in(stacks: Declared) -> None:
    """The API server calls kubelets and webhooks on whatever port they listen."""
    rule = _doors(stacks, "lab-nodes")["all-from-control"]

    assert (rule["ipProtocol"], rule.get("fromPort")) == ("-1", None)


def test_the_api_has_one_name_for_all_its_machines(stacks: Declared) -> None:
    """Clients dial every address, and forget one that is gone within a minute."""
    records = {one.inputs["name"]: one.inputs for one in _made(stacks, "Record", "lab.links").values()}

    api = records["kubernetes.lab.internal"]
    assert (api["records"], api["ttl"]) == (["10.64.32.16", "10.64.64.16", "10.64.96.16"], 60)
    assert records["control-2.us-west-2.lab.internal"]["records"] == ["10.64.64.16"]


def test_a_fleet_without_a_cluster_has_no_control_plane() -> None:
    """Nothing of it is declared, in any stack."""
    stacks = declared(replace(LAB, control_plane=None))

    assert not [entry.urn for entries in stacks.values() for entry in entries if "control" in entry.name]


@pytest.fixture(scope="module")
def stacks_control_plane_made() -> tuple[Entry, ...]:
    """Give what a home region with a control plane and no pools holds once it is made."""
    plan = replace(LAB, pools=(), files=(), buckets=(), laptops=(), sites=(), regions=(LAB.home,))
    with running(plan.account) as simulation:
        world = World(simulation)
        runs = [run(stack, world) for wave in waves(plan) for stack in wave]
    assert not [failure for done in runs for failure in done.failures]
    return tuple(entry for done in runs for entry in done.snapshot.entries.values())


def test_a_member_is_told_its_own_volume(stacks_control_plane_made: tuple[Entry, ...]) -> None:
    """By its id: a stack that is made again finds two volumes with one tag, and means its own."""
    volumes = {entry.name: entry.ident for entry in stacks_control_plane_made if entry.type.endswith(":Volume")}
    templates = {entry.name: entry for entry in stacks_control_plane_made if entry.type.endswith(":LaunchTemplate")}

    for name in MEMBERS:
        script = b64decode(templates[name].inputs["userData"]).decode()
        assert f"readonly VOLUME={volumes[f'{name}-etcd']}\n" in script
        assert f"readonly SCALING_GROUP={name}\n" in script
