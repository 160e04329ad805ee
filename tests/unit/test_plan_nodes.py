"""The plan of each machine: roles, packet filter, mounts, GPUs, account ids, control-plane placement and images."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.plan import FleetPlan, Record
from bedplate.plan.firewall import (
    EXPORTER_PORT,
    GPU_EXPORTER_PORT,
    KUBELET,
    METRICS_PORTS,
    NFS,
    SSH,
    TCP,
    WORKER_PORTS,
    metrics_rules,
)
from bedplate.plan.fleet import (
    GROUP_IDS,
    PEOPLE_IDS,
    Access,
    RegionPlan,
    ZonePlan,
    member_names,
    number_accounts,
    place_members,
)
from bedplate.plan.links import API_PORT, machine_blocks
from bedplate.plan.mounts import MountKind
from bedplate.plan.nodes import (
    OPENVPN,
    NodePlan,
    NodeRole,
    Platform,
    find_node,
    permanent_nodes,
    pool_node,
    pool_nodes,
)
from bedplate.plan.planner import image_parameter, image_places, plan_fleet, required_images, unrecorded_images
from bedplate.plan.reachability import Endpoint, EndpointKind, Flow, endpoints
from bedplate.plan.space import fixed_block
from bedplate.spec import Fleet
from bedplate.spec.network import Interconnect
from bedplate.spec.sites import Clients
from bedplate.spec.text import RESERVED_USERS
from tests.testlab.fleets.policy import is_reachable
from tests.testlab.fleets.random import ADA as KEY
from tests.testlab.fleets.random import fleets
from tests.testlab.fleets.sketch import catalog, cluster, group, laptops, sketch
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of, plan_of_text

LAB = plan_of(EXAMPLES / "lab.yaml")
LAN = LAB.sites[0].networks["cellar"]
# Open to the internet: both ports of OpenVPN, IKE, and ESP.
PUBLIC = {*OPENVPN, ("udp", 500), ("udp", 4500), ("esp", None)}


def _all_nodes(plan: FleetPlan) -> Iterator[NodePlan]:
    yield from permanent_nodes(plan)
    yield from pool_nodes(plan, load_catalog())


def _plan_of(fleet: dict[str, Any]) -> FleetPlan:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fleet.yaml"
        file.write_text(json.dumps(fleet), encoding="utf-8")
        return plan_of(file)


def _node(name: str) -> NodePlan:
    return find_node(LAB, name, load_catalog())


def _admits(node: NodePlan, source: Endpoint, flow: Flow) -> bool:
    return any(
        source.block.subnet_of(rule.block) and rule.protocol in (None, flow.protocol) and rule.port in (None, flow.port)
        for rule in node.firewall_rules
    )


def _endpoint(plan: FleetPlan, node: NodePlan) -> Endpoint:
    """Return the endpoint of a node."""
    permanent = {NodeRole.CONTROL: EndpointKind.CONTROL, NodeRole.HUB: EndpointKind.HUB}
    in_cloud = next((kind for role, kind in permanent.items() if role in node.roles), EndpointKind.NODES)
    kind = EndpointKind.LAN if node.platform is Platform.METAL else in_cloud
    here = [endpoint for endpoint in endpoints(plan) if endpoint.place == node.place]
    candidates = [endpoint for endpoint in here if endpoint.kind is kind]
    return next((endpoint for endpoint in candidates if node.address in (endpoint.address, None)), candidates[0])


@settings(max_examples=25, deadline=None)
@given(fleets())
def test_packet_filters_match_the_policy_in_random_fleets(fleet: dict[str, Any]) -> None:
    """In any fleet only gateways admit the internet, allowed SSH is admitted, and names are unique."""
    plan = _plan_of(fleet)
    nodes = tuple(_all_nodes(plan))

    for node in _kinds(nodes):
        _assert_admits_no_more(plan, node)
        _assert_admits_allowed(plan, node)
        _assert_unique([rule.name for rule in node.firewall_rules])
    _assert_unique([node.name for node in nodes])


def _kinds(nodes: tuple[NodePlan, ...]) -> Iterator[NodePlan]:
    """Yield one machine of each place and set of roles: the others have the same rules."""
    yield from {(node.place, node.roles): node for node in nodes}.values()


def _assert_admits_no_more(plan: FleetPlan, node: NodePlan) -> None:
    own = [*(region.block for region in plan.regions), *(site.networks[site.name] for site in plan.sites)]
    own += [pool.block for pool in plan.laptops]
    # Pods use their own addresses only on their own node.
    own += [plan.pods] if plan.pods and node.roles & {NodeRole.WORKER, NodeRole.CONTROL} else []
    for rule in node.firewall_rules:
        if not any(rule.block.subnet_of(block) for block in own):
            assert (rule.protocol, rule.port) in PUBLIC, (node.name, rule)
            assert node.roles & {NodeRole.LAPTOPS, NodeRole.TUNNELS}, (node.name, rule)


def _assert_admits_allowed(plan: FleetPlan, node: NodePlan) -> None:
    if NodeRole.LAPTOPS in node.roles and node.platform is Platform.CLOUD:
        return  # no SSH into an edge subnet
    target = _endpoint(plan, node)
    for source in endpoints(plan):
        if source.kind in (EndpointKind.LAN, EndpointKind.LAPTOPS) and is_reachable(plan, source, target):
            assert _admits(node, source, Flow(TCP, SSH)), (source.name, node.name)


def _assert_unique(names: list[str]) -> None:
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "roles"),
    [
        ("gate.cellar", {NodeRole.TUNNELS, NodeRole.LAPTOPS}),
        ("nas.cellar", {NodeRole.FILES}),
        ("titan-01.cellar", {NodeRole.WORKER}),
        ("titan-03.cellar", {NodeRole.WORKBENCH}),
        ("control-1.us-west-2", {NodeRole.CONTROL, NodeRole.ROUTER}),
        ("control-2.us-west-2", {NodeRole.CONTROL}),
        ("laptops.us-west-2", {NodeRole.LAPTOPS}),
        ("workbench-gpu-8.us-east-1", {NodeRole.WORKBENCH}),
    ],
)
def test_a_machine_has_the_roles_of_the_file(name: str, roles: set[NodeRole]) -> None:
    """A site's gateway is also its laptop gateway if the file says so."""
    assert _node(name).roles == roles


@pytest.mark.parametrize("name", ["titan-01.cellar.lab.internal", "workbench-cpu-20.us-west-2"])
def test_a_machine_is_found_with_and_without_the_domain(name: str) -> None:
    """The domain of a name is optional."""
    assert _node(name).full_name == f"{name.removesuffix('.lab.internal')}.lab.internal"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("titan-1.cellar", "write titan-01.cellar"),
        ("workbench-gpu-9.us-west-2", "write workbench-gpu-N.us-west-2, with N from 1 to 8"),
        (
            "workbench-gpu-1",
            "in us-east-1, us-west-2, with names such as workbench-gpu-1.us-east-1",
        ),
        ("train-1.us-east-1", "machines of train are named after their instances: use --group train"),
        ("workbench-cpu-21.us-west-2", "write workbench-cpu-N.us-west-2, with N from 1 to 20"),
        ("zz", "`bedplate node list` shows all machines"),
        ("box-1.us-west-2", "`bedplate node list` shows all machines"),
        ("workbench-gpu", "workbench-gpu is a group"),
    ],
)
def test_an_unknown_machine_is_refused(name: str, fix: str) -> None:
    """The fix names the nearest machine or the valid numbers, never a machine of another group."""
    with pytest.raises(InputError, match="no machine named") as caught:
        _node(name)

    assert fix in caught.value.fix


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_people_log_in_to_workbenches_only(file: Path) -> None:
    """Others than administrators log in to workbenches, get tokens from members and hub, and have no key elsewhere."""
    expected = {NodeRole.WORKBENCH: Access.LOGIN, NodeRole.CONTROL: Access.TOKENS, NodeRole.HUB: Access.TOKENS}
    for node in _all_nodes(plan_of(file)):
        access = next((access for role, access in expected.items() if role in node.roles), None)
        for person in node.accounts.people:
            assert person.access is (Access.LOGIN if person.admin else access or Access.NONE), node.name
            assert bool(person.keys) is (person.access is not Access.NONE), node.name


def test_a_machine_may_have_a_driver_branch_of_its_own() -> None:
    """`driver` of a group or of a site's machine replaces that of the fleet, on machines with GPUs only."""
    text = (EXAMPLES / "lab.yaml").read_text()
    for old, new in {
        'driver: "580"': "driver: '595'",
        "count: 4}, use: ": "count: 4}, driver: '580', use: ",
        "idle: 2h": "driver: '580'",
    }.items():
        text = text.replace(old, new)
    plan = plan_of_text(text)

    names = ("titan-01.cellar", "workbench-gpu-1.us-west-2", "nas.cellar")
    assert [find_node(plan, name, load_catalog()).driver for name in names] == ["580", "580", None]


def test_machines_of_a_site_mount_its_exports() -> None:
    """They mount by the file server's name; the file server mounts nothing itself."""
    mounts = {mount.path: (mount.kind, mount.server) for mount in _node("titan-01.cellar").mounts}

    server = "nas.cellar.lab.internal"
    assert mounts == {"/home": (MountKind.NFS, server), "/data": (MountKind.NFS, server)}
    assert _node("nas.cellar").mounts == ()
    assert [share.path for share in _node("nas.cellar").shares] == ["/srv/home", "/srv/data"]


def test_a_site_exports_to_its_machines_only() -> None:
    """Neither the export nor port 2049 is open to other addresses of the LAN."""
    nas = _node("nas.cellar")
    clients = {"192.168.40.21", "192.168.40.22", "192.168.40.23"}

    assert [set(share.clients) for share in nas.shares] == [clients, clients]
    assert {str(rule.block) for rule in nas.firewall_rules if rule.port == NFS} == {
        f"{client}/32" for client in clients
    }


def test_a_site_exports_to_its_lan_if_enabled() -> None:
    """`clients: lan` of one store opens its export and the port, and no other export."""
    exports = tuple(
        replace(export, clients=Clients.LAN if export.store == "cellar-data" else export.clients)
        for export in LAB.exports
    )
    nas = find_node(replace(LAB, exports=exports), "nas.cellar", load_catalog())

    clients = {share.store: share.clients for share in nas.shares}
    assert clients["cellar-data"] == ("192.168.40.0/22",)
    assert "192.168.40.0/22" not in clients["cellar-home"]
    assert LAN in [rule.block for rule in nas.firewall_rules if rule.port == NFS]


@pytest.mark.parametrize("name", ["titan-01.cellar", "titan-03.cellar", "workbench-gpu-1.us-west-2"])
def test_other_hosts_of_a_lan_reach_ssh_only(name: str) -> None:
    """Workbenches and workers open all ports to each other; at a site by address."""
    firewall_rules = _node(name).firewall_rules
    open_to = [rule.block for rule in firewall_rules if rule.port is None and rule.block.overlaps(LAN)]

    assert {str(block) for block in open_to} == {f"192.168.40.{last}/32" for last in (21, 22, 23)}
    assert {rule.port for rule in firewall_rules if rule.block == LAN} == {SSH}


def test_the_control_plane_admits_workers() -> None:
    """VXLAN and the kubelet's port are open to node subnets, and at a site to its workers' addresses."""
    for _, protocol, port in WORKER_PORTS:
        blocks = [
            rule.block
            for rule in _node("control-1.us-west-2").firewall_rules
            if (rule.protocol, rule.port) == (protocol, port)
        ]

        for zone in (zone for region in LAB.regions for zone in region.zones):
            assert any(zone.nodes.subnet_of(block) for block in blocks)
            assert not any(zone.edge.overlaps(block) for block in blocks)
        assert {str(block) for block in blocks if block.overlaps(LAN)} == {"192.168.40.21/32", "192.168.40.22/32"}


def test_ec2_machines_mount_efs_and_use_a_near_bucket() -> None:
    """A machine reads the bucket in its region, else the store's first one."""
    node = _node("workbench-gpu-1.us-east-1")

    assert [mount.server for mount in node.mounts] == ["home.files.us-west-2.lab.internal"]
    assert {(bucket.store, bucket.region) for bucket in node.buckets} == {
        ("datasets", "us-east-1"),
        ("results", "us-west-2"),
    }


@pytest.mark.parametrize("name", ["gate.cellar", "control-1.us-west-2", "laptops.us-west-2"])
def test_service_machines_mount_nothing(name: str) -> None:
    """Gateways and the control plane keep working if a file server is down."""
    assert (_node(name).mounts, _node(name).buckets) == ((), ())


def test_a_machine_knows_every_fixed_address() -> None:
    """Fixed addresses are in /etc/hosts, so they resolve without a name server."""
    hosts = _node("workbench-cpu-1.us-west-2").hosts

    assert hosts["titan-01.cellar.lab.internal"] == (IPv4Address("192.168.40.21"),)
    assert hosts["control-1.us-west-2.lab.internal"] == (LAB.addresses["control-1.us-west-2"],)


@pytest.mark.parametrize(
    "name",
    [
        "gate.cellar",
        "nas.cellar",
        "titan-01.cellar",
        "workbench-cpu-1.us-west-2",
        "control-1.us-west-2",
        "hub.us-west-2",
    ],
)
def test_only_the_hub_reads_metrics(name: str) -> None:
    """Metrics name people, laptops and runs: the packet filter of each machine has one rule for its exporter."""
    assert LAB.hub
    rules = [rule.block for rule in _node(name).firewall_rules if rule.port == EXPORTER_PORT]

    assert rules == [IPv4Network(LAB.hub.address)]
    assert _node(name).is_observed


def test_without_a_hub_nobody_reads_metrics() -> None:
    """No rule opens an exporter in a fleet without a hub."""
    nodes = (*_all_nodes(plan_of(EXAMPLES / "gpu-box.yaml")), *_all_nodes(plan_of(EXAMPLES / "minimal.yaml")))

    assert nodes
    assert not [rule for node in nodes for rule in node.firewall_rules if rule.port in {*METRICS_PORTS, KUBELET}]
    assert not any(node.is_observed for node in nodes)


@pytest.mark.parametrize("name", ["titan-01.cellar", "titan-03.cellar", "workbench-gpu-1.us-west-2", "nas.cellar"])
def test_the_exporter_of_gpus_is_open_where_gpus_are(name: str) -> None:
    """A machine without GPUs has no rule for their exporter."""
    node = _node(name)

    assert bool(node.gpus) == any(rule.port == GPU_EXPORTER_PORT for rule in node.firewall_rules)


def test_the_hub_reads_metrics_where_a_network_path_leads() -> None:
    """Without a connection between regions, machines of the others admit no hub, and the hub gets no metrics."""
    alone = replace(LAB, interconnect=Interconnect.NONE)
    others = {region.name: [*metrics_rules(alone, region.name, EXPORTER_PORT)] for region in alone.regions}

    assert {name: bool(rules) for name, rules in others.items()} == {
        region.name: region.name == "us-west-2" for region in alone.regions
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("titan-01.cellar", [(None, None)]),
        ("control-2.us-west-2", [(TCP, API_PORT)]),
        ("titan-03.cellar", []),
        ("gate.cellar", []),
    ],
)
def test_pods_are_admitted_on_their_own_node(name: str, expected: list[tuple[str | None, int | None]]) -> None:
    """Pods have full access to their worker and API access to the control plane."""
    rules = [(rule.protocol, rule.port) for rule in _node(name).firewall_rules if rule.block == LAB.pods]

    assert rules == expected


def test_gpus_come_from_the_file_or_the_first_type() -> None:
    """A site's machine has the GPUs of the file, an EC2 machine those of its pool's first type."""
    titan, bench, plain = (_node(name).gpus for name in ("titan-01.cellar", "workbench-gpu-1.us-west-2", "nas.cellar"))

    assert titan
    assert (titan.model, titan.count) == ("titan-x", 4)
    assert bench
    assert bench.count == 1
    assert plain is None


def test_a_fabric_comes_from_the_pool() -> None:
    """GPUs alone are no fabric, and types without GPUs may have EFA."""
    nodes = {pool.group: pool_node(LAB, pool, f"x.{pool.region}", load_catalog()) for pool in LAB.pools}

    assert {group for group, node in nodes.items() if node.fabric} == {"train"}


EMPTY = Record({})


def lab(*names: str, **groups: list[str]) -> Fleet:
    """Return a fleet of these people, some with groups."""
    people: dict[str, Any] = {name: {"keys": (KEY,)} for name in names}
    return sketch(
        people=people | {name: {"keys": (KEY,), "groups": tuple(member_of)} for name, member_of in groups.items()}
    )


def recorded(*fleets: Fleet) -> Record:
    """Return the record after these fleets, one after the other."""
    record = EMPTY
    for fleet in fleets:
        record = plan_fleet(fleet, record, catalog()).recorded()
    return record


def test_ids_follow_the_order_of_the_file() -> None:
    """A first plan assigns ids in the order of the file; groups in the order of their first mention."""
    accounts = number_accounts(lab("ada", bob=["vision", "speech"], eve=["speech", "robots"]), EMPTY)

    assert accounts.uids == {"ada": 20000, "bob": 20001, "eve": 20002}
    assert accounts.groups == {"vision": 50000, "speech": 50001, "robots": 50002}
    assert accounts.departed == {}


def test_a_new_person_changes_no_id() -> None:
    """Files belong to numeric ids, so recorded ids never change."""
    record = recorded(lab("bob", "eve"))

    accounts = number_accounts(lab("ada", "bob", "eve"), record)

    assert accounts.uids == {"ada": 20002, "bob": 20000, "eve": 20001}


def test_a_returning_person_has_the_old_id() -> None:
    """Removed people keep their id in the lock; it is never assigned to others."""
    record = recorded(lab("ada", "bob", eve=["vision"]), lab("ada"), lab("ada", carl=["speech"]))

    accounts = number_accounts(lab("ada", carl=["speech"], bob=["vision"]), record)

    assert accounts.uids == {"ada": 20000, "carl": 20003, "bob": 20001}
    assert accounts.groups == {"speech": 50001, "vision": 50000}
    assert (accounts.departed, accounts.past_groups) == ({"eve": 20002}, {})


def test_an_empty_group_is_remembered() -> None:
    """A group without members stays recorded, and nodes remove its old members."""
    accounts = number_accounts(lab(bob=["speech"]), recorded(lab(bob=["vision"])))

    assert (accounts.groups, accounts.past_groups) == ({"speech": 50001}, {"vision": 50000})


def test_ids_are_unique_over_all_files() -> None:
    """Ids are never reused over any number of changes of the file."""
    record = recorded(*(lab(f"p{n}", q=[f"g{n}"]) for n in range(20)))

    assert len({*record.people.values(), *record.groups.values()}) == len(record.people) + len(record.groups) == 41


def test_the_last_id_can_be_assigned() -> None:
    """The last id of each range is assigned; the next name is refused."""
    record = Record({}, people={"ada": PEOPLE_IDS[-2]}, groups={"vision": GROUP_IDS[-2]})

    accounts = number_accounts(lab(eve=["speech"]), record)

    assert (accounts.uids, accounts.groups) == ({"eve": PEOPLE_IDS[-1]}, {"speech": GROUP_IDS[-1]})


@pytest.mark.parametrize(
    "name", ["video", "render", "docker", "systemd-journal", "users", "prometheus", "sugroup", "frr"]
)
def test_names_of_system_accounts_are_reserved(name: str) -> None:
    """A person must not have the name of an account that a package creates."""
    assert name in RESERVED_USERS


ZONES = tuple(
    ZonePlan(f"us-west-2{letter}", IPv4Network(f"10.64.{n}.0/24"), IPv4Network(f"10.64.{32 * (n + 1)}.0/19"))
    for n, letter in enumerate("abc")
)
ZONE_NAMES = tuple(zone.name for zone in ZONES)
HOME = RegionPlan("us-west-2", home=True, block=IPv4Network("10.64.0.0/16"), zones=ZONES)


def test_members_are_spread_over_all_zones() -> None:
    """No zone has more members than necessary, so the quorum survives the loss of a zone."""
    members = place_members(HOME, member_names(5, HOME.name), {}, ZONE_NAMES)

    assert [member.zone[-1] for member in members] == ["a", "b", "c", "a", "b"]
    assert [str(member.address) for member in members[::3]] == ["10.64.32.16", "10.64.32.17"]


@pytest.mark.parametrize(("offering", "zones"), [("ac", "aca"), ("b", "bbb"), ("", "abc")])
def test_members_are_placed_where_their_type_is_offered(offering: str, zones: str) -> None:
    """Zones that do not offer the type are used only if none does."""
    members = place_members(HOME, member_names(3, HOME.name), {}, [f"us-west-2{letter}" for letter in offering])

    assert "".join(member.zone[-1] for member in members) == zones


def test_a_new_zone_moves_no_member() -> None:
    """Recorded members stay, even if another distribution would be more even."""
    narrow = RegionPlan(HOME.name, home=True, block=HOME.block, zones=ZONES[:1])
    recorded_addresses = {
        member.name: member.address for member in place_members(narrow, member_names(3, HOME.name), {}, ZONE_NAMES)
    }

    members = place_members(HOME, member_names(5, HOME.name), recorded_addresses, ZONE_NAMES)

    assert {member.name: member.address for member in members[:3]} == recorded_addresses
    assert [member.zone[-1] for member in members[3:]] == ["b", "c"]


def test_a_member_leaves_a_removed_zone() -> None:
    """It gets a new address in a remaining zone; its old address is not reused."""
    recorded_addresses = {
        member.name: member.address for member in place_members(HOME, member_names(3, HOME.name), {}, ZONE_NAMES)
    }
    shrunk = RegionPlan(HOME.name, home=True, block=HOME.block, zones=ZONES[1:])

    members = place_members(shrunk, member_names(3, HOME.name), recorded_addresses, ZONE_NAMES)

    assert members[0].zone == "us-west-2b"
    assert members[0].address not in recorded_addresses.values()


def test_fixed_addresses_avoid_those_reserved_by_aws() -> None:
    """AWS reserves the first four addresses and the last address of a subnet."""
    assert fixed_block(ZONES[0].nodes) == IPv4Network("10.64.32.16/28")
    assert IPv4Address("10.64.32.3") not in fixed_block(ZONES[0].nodes)


WEST: dict[str, object] = {"region": "us-west-2", "zone": "us-west-2a"}
EAST: dict[str, object] = {"region": "us-east-1"}


def test_image_places_are_those_of_machines() -> None:
    """Pools of both architectures, the control plane and laptop gateways count, each place once."""
    groups = {"arm": group(WEST, EAST, types=("m7g.large",)), "gpu": group(EAST)}
    gateways = laptops({"region": "eu-north-1"})
    plan = plan_fleet(sketch(groups=groups, vpn=gateways, kubernetes=cluster()), Record({}), load_catalog())

    assert image_places(plan, load_catalog()) == (
        "eu-north-1/x86_64",
        "us-east-1/arm64",
        "us-east-1/x86_64",
        "us-west-2/arm64",
        "us-west-2/x86_64",
    )


def test_a_fleet_without_machines_needs_no_image() -> None:
    """A fleet with networks only has no image place."""
    assert image_places(plan_fleet(sketch(), Record({}), load_catalog()), load_catalog()) == ()


def test_a_recorded_image_is_not_looked_up_again() -> None:
    """Only the architecture without a recorded image is missing."""
    record = Record({}, images={"us-west-2/x86_64": "ami-0000000000000000a"})
    groups = {"arm": group(WEST, types=("m7g.large",)), "gpu": group(WEST)}

    plan = plan_fleet(sketch(groups=groups), record, load_catalog())

    assert unrecorded_images(plan, load_catalog()) == ("us-west-2/arm64",)


def test_each_architecture_has_its_ssm_parameter() -> None:
    """Canonical's name of x86_64 is amd64."""
    assert "/24.04/stable/current/amd64/" in image_parameter("x86_64")
    assert "/24.04/stable/current/arm64/" in image_parameter("arm64")


def test_similar_types_require_recorded_images() -> None:
    """Auto Scaling accepts no SSM parameter with instance requirements; other groups work without a record."""
    similar = group(WEST, EAST, types=("c7i.4xlarge",), similar=True)
    groups = {"sim": similar, "arm": group(WEST, types=("m7g.large",))}
    record = Record({}, images={"us-west-2/x86_64": "ami-0000000000000000a"})

    plan = plan_fleet(sketch(groups=groups), record, load_catalog())

    assert required_images(plan, load_catalog()) == ("us-east-1/x86_64",)


def test_machines_for_runs_of_a_place_reach_each_other() -> None:
    """The agents and processes of one run connect to any port; the packet filter of each admits the others."""
    plan = lab_plan()
    nodes = [*permanent_nodes(plan), *pool_nodes(plan, plan.catalog)]
    machines = [node for node in nodes if NodeRole.WORKBENCH in node.roles]

    assert machines
    for node in machines:
        admitted = [rule.block for rule in node.firewall_rules if rule.protocol is None and rule.port is None]
        place = node.name.partition(".")[2]
        blocks = [block for _, block in machine_blocks(plan, place)]
        assert blocks
        assert all(any(block.subnet_of(known) for known in admitted) for block in blocks), node.name
