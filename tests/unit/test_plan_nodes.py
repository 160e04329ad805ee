"""Every machine of a fleet as roles configure it: names, duties, doors, mounts."""

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
from bedplate.plan.firewall import NFS, SSH, TCP, WORKER_PORTS
from bedplate.plan.fleet import GROUP_IDS, PEOPLE_IDS, RegionPlan, ZonePlan, fixed_block, number_accounts, place_members
from bedplate.plan.links import API_PORT
from bedplate.plan.nodes import (
    EXPORTER_PORT,
    OPENVPN,
    Duty,
    Ground,
    MountKind,
    NodePlan,
    node_of,
    pool_nodes,
    standing_nodes,
)
from bedplate.plan.planner import image_parameter, image_places, indispensable_images, plan_fleet, unrecorded_images
from bedplate.plan.reachability import Flow, Kind, Spot, reaches, spots
from bedplate.spec import Fleet
from bedplate.spec.sites import Clients
from bedplate.spec.text import RESERVED_USERS
from tests.testlab.fleets.random import ADA as KEY
from tests.testlab.fleets.random import fleets
from tests.testlab.fleets.sketch import catalog, cluster, group, laptops, sketch
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")
LAN = LAB.sites[0].lan
# What anybody may knock at: both ports of OpenVPN, IKE, and ESP.
OPEN = {*OPENVPN, ("udp", 500), ("udp", 4500), ("esp", None)}


def _every(plan: FleetPlan) -> Iterator[NodePlan]:
    yield from standing_nodes(plan)
    yield from pool_nodes(plan, load_catalog())


def _plan_of(fleet: dict[str, Any]) -> FleetPlan:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fleet.yaml"
        file.write_text(json.dumps(fleet), encoding="utf-8")
        return plan_of(file)


def _node(name: str) -> NodePlan:
    return node_of(LAB, name, load_catalog())


def _lets_in(node: NodePlan, source: Spot, flow: Flow) -> bool:
    return any(
        source.block.subnet_of(rule.block) and rule.protocol in (None, flow.protocol) and rule.port in (None, flow.port)
        for rule in node.doors
    )


def _spot(plan: FleetPlan, node: NodePlan) -> Spot:
    """Return the spot that a node stands on."""
    kinds = {Ground.METAL: (Kind.LAN,), Ground.CLOUD: (Kind.CONTROL,) if Duty.CONTROL in node.duties else (Kind.NODES,)}
    found = [spot for spot in spots(plan) if spot.place == node.place and spot.kind in kinds[node.ground]]
    return next((spot for spot in found if node.address in (spot.address, None)), found[0])


@settings(max_examples=25, deadline=None)
@given(fleets())
def test_doors_are_as_wide_as_intended_and_names_are_single(fleet: dict[str, Any]) -> None:
    """In any fleet: strangers knock at gateways alone, whoever is to log in can, and no name means two things."""
    plan = _plan_of(fleet)
    nodes = tuple(_every(plan))

    for node in _kinds(nodes):
        _assert_not_too_wide(plan, node)
        _assert_wide_enough(plan, node)
        _assert_single([rule.name for rule in node.doors])
    _assert_single([node.name for node in nodes])


def _kinds(nodes: tuple[NodePlan, ...]) -> Iterator[NodePlan]:
    """Yield one machine of each place and set of duties: the others have the same doors."""
    yield from {(node.place, node.duties): node for node in nodes}.values()


def _assert_not_too_wide(plan: FleetPlan, node: NodePlan) -> None:
    own = [*(region.block for region in plan.regions), *(site.lan for site in plan.sites)]
    own += [pool.block for pool in plan.laptops]
    # Pods come by their own addresses only where they run.
    own += [plan.pods] if plan.pods and node.duties & {Duty.WORKER, Duty.CONTROL} else []
    for rule in node.doors:
        if not any(rule.block.subnet_of(block) for block in own):
            assert (rule.protocol, rule.port) in OPEN, (node.name, rule)
            assert node.duties & {Duty.LAPTOPS, Duty.TUNNELS}, (node.name, rule)


def _assert_wide_enough(plan: FleetPlan, node: NodePlan) -> None:
    if Duty.LAPTOPS in node.duties and node.ground is Ground.CLOUD:
        return  # it stands at the edge, to which nobody is meant to come
    target = _spot(plan, node)
    for source in spots(plan):
        if source.kind in (Kind.LAN, Kind.LAPTOPS) and reaches(plan, source, target):
            assert _lets_in(node, source, Flow(TCP, SSH)), (source.name, node.name)


def _assert_single(names: list[str]) -> None:
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "duties"),
    [
        ("gate.cellar", {Duty.TUNNELS, Duty.LAPTOPS}),
        ("nas.cellar", {Duty.FILES}),
        ("titan-01.cellar", {Duty.WORKER}),
        ("titan-03.cellar", {Duty.WORKBENCH}),
        ("control-2.us-west-2", {Duty.CONTROL}),
        ("laptops.us-west-2", {Duty.LAPTOPS}),
        ("workbench-gpu-8.us-east-1", {Duty.WORKBENCH}),
    ],
)
def test_a_machine_does_what_the_file_says(name: str, duties: set[Duty]) -> None:
    """The gateway of a site is also its laptops', where the file has them dial in there."""
    assert _node(name).duties == duties


@pytest.mark.parametrize("name", ["titan-01.cellar.lab.internal", "workbench-cpu-20.us-west-2"])
def test_a_machine_is_found_with_and_without_the_domain(name: str) -> None:
    """As an operator writes it."""
    assert _node(name).full_name == f"{name.removesuffix('.lab.internal')}.lab.internal"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("titan-1.cellar", "write titan-01.cellar"),
        ("workbench-gpu-9.us-west-2", "workbench-gpu has 1 to 8 in us-west-2"),
        ("workbench-gpu-1", "workbench-gpu has machines in us-east-1, us-west-2, named as workbench-gpu-1.us-east-1"),
        ("train-1.us-east-1", "machines of train go by EC2's names: --group train"),
        ("workbench-cpu-21.us-west-2", "workbench-cpu has 1 to 20 in us-west-2"),
        ("zz", "list"),
    ],
)
def test_a_machine_that_there_is_not_is_refused_with_the_nearest(name: str, fix: str) -> None:
    """A slip of the finger never means another machine, and a number too high no machine of another group."""
    with pytest.raises(InputError, match="is no machine") as refused:
        _node(name)

    assert fix in refused.value.fix


def test_machines_of_a_site_mount_the_sites_own_folders() -> None:
    """By the name of the file server, which mounts nothing of its own."""
    found = {mount.path: (mount.kind, mount.server) for mount in _node("titan-01.cellar").mounts}

    server = "nas.cellar.lab.internal"
    assert found == {"/home": (MountKind.NFS, server), "/data": (MountKind.NFS, server)}
    assert _node("nas.cellar").mounts == ()
    assert [share.path for share in _node("nas.cellar").shares] == ["/srv/home", "/srv/data"]


def test_a_site_exports_to_its_machines_that_mount() -> None:
    """Neither the export nor port 2049 is open to another address of the LAN."""
    nas = _node("nas.cellar")
    clients = {"192.168.40.21", "192.168.40.22", "192.168.40.23"}

    assert [set(share.clients) for share in nas.shares] == [clients, clients]
    assert {str(rule.block) for rule in nas.doors if rule.port == NFS} == {f"{client}/32" for client in clients}


def test_a_site_exports_to_its_lan_where_the_file_says_so() -> None:
    """`clients: lan` of one store opens that export and the port, and no other export."""
    exports = tuple(
        replace(each, clients=Clients.LAN if each.store == "cellar-data" else each.clients) for each in LAB.exports
    )
    nas = node_of(replace(LAB, exports=exports), "nas.cellar", load_catalog())

    clients = {share.store: share.clients for share in nas.shares}
    assert clients["cellar-data"] == ("192.168.40.0/22",)
    assert "192.168.40.0/22" not in clients["cellar-home"]
    assert LAN in [rule.block for rule in nas.doors if rule.port == NFS]


@pytest.mark.parametrize("name", ["titan-01.cellar", "titan-03.cellar", "workbench-gpu-1.us-west-2"])
def test_other_hosts_of_a_lan_reach_ssh_and_metrics_only(name: str) -> None:
    """Machines that compute open every port to each other, at a site by their own addresses."""
    doors = _node(name).doors
    open_to = [rule.block for rule in doors if rule.port is None and rule.block.overlaps(LAN)]

    assert {str(block) for block in open_to} == {f"192.168.40.{last}/32" for last in (21, 22, 23)}
    assert {rule.port for rule in doors if rule.block == LAN} == {SSH, EXPORTER_PORT}


def test_members_admit_pods_and_metrics_from_workers() -> None:
    """VXLAN and the kubelet's port are open to blocks of nodes, and at a site to its workers' addresses."""
    for _, protocol, port in WORKER_PORTS:
        blocks = [
            rule.block for rule in _node("control-1.us-west-2").doors if (rule.protocol, rule.port) == (protocol, port)
        ]

        for zone in (zone for region in LAB.regions for zone in region.zones):
            assert any(zone.nodes.subnet_of(block) for block in blocks)
            assert not any(zone.edge.overlaps(block) for block in blocks)
        assert {str(block) for block in blocks if block.overlaps(LAN)} == {"192.168.40.21/32", "192.168.40.22/32"}


def test_machines_of_the_cloud_mount_efs_and_read_their_own_regions_bucket() -> None:
    """A store's first region serves where it has no bucket."""
    node = _node("workbench-gpu-1.us-east-1")

    assert [mount.server for mount in node.mounts] == ["home.files.us-west-2.lab.internal"]
    assert {(bucket.store, bucket.region) for bucket in node.buckets} == {
        ("datasets", "us-east-1"),
        ("results", "us-west-2"),
    }


@pytest.mark.parametrize("name", ["gate.cellar", "control-1.us-west-2", "laptops.us-west-2"])
def test_what_serves_alone_mounts_nothing(name: str) -> None:
    """A gateway goes on when the file server is gone."""
    assert (_node(name).mounts, _node(name).buckets) == ((), ())


def test_a_machine_knows_every_fixed_address_by_its_whole_name() -> None:
    """They are found also while no name server is."""
    hosts = _node("workbench-cpu-1.us-west-2").hosts

    assert hosts["titan-01.cellar.lab.internal"] == IPv4Address("192.168.40.21")
    assert hosts["control-1.us-west-2.lab.internal"] == LAB.addresses["control-1.us-west-2"]


def test_metrics_are_read_from_within_the_fleet() -> None:
    """Not by laptops."""
    blocks = {rule.block for rule in _node("titan-01.cellar").doors if rule.port == EXPORTER_PORT}

    assert blocks
    assert not any(pool.block.overlaps(block) for pool in LAB.laptops for block in blocks)


@pytest.mark.parametrize(
    ("name", "doors"),
    [
        ("titan-01.cellar", [(None, None)]),
        ("control-2.us-west-2", [(TCP, API_PORT)]),
        ("titan-03.cellar", []),
        ("gate.cellar", []),
    ],
)
def test_pods_come_in_where_they_run(name: str, doors: list[tuple[str | None, int | None]]) -> None:
    """Everything on a worker, the API on the control plane, nothing elsewhere."""
    found = [(rule.protocol, rule.port) for rule in _node(name).doors if rule.block == LAB.pods]

    assert found == doors


def test_gpus_are_those_of_the_file_or_of_the_first_type() -> None:
    """The driver hangs on them."""
    titan, bench, plain = (_node(name).gpus for name in ("titan-01.cellar", "workbench-gpu-1.us-west-2", "nas.cellar"))

    assert titan
    assert (titan.model, titan.count) == ("titan-x", 4)
    assert bench
    assert bench.count == 1
    assert plain is None


NOBODY = Record({})


def lab(*names: str, **groups: list[str]) -> Fleet:
    """Return a fleet of these people, and of those in groups."""
    people: dict[str, Any] = {name: {"keys": (KEY,)} for name in names}
    return sketch(people=people | {name: {"keys": (KEY,), "groups": tuple(told)} for name, told in groups.items()})


def recorded(*fleets: Fleet) -> Record:
    """Return what the lock holds after these fleets were recorded one after the other."""
    record = NOBODY
    for fleet in fleets:
        record = plan_fleet(fleet, record, catalog()).recorded()
    return record


def test_people_are_numbered_in_the_order_of_the_file() -> None:
    """A first plan gives ids from the first on, groups by where they are named first."""
    given = number_accounts(lab("ada", bob=["vision", "speech"], eve=["speech", "robots"]), NOBODY)

    assert given.uids == {"ada": 20000, "bob": 20001, "eve": 20002}
    assert given.groups == {"vision": 50000, "speech": 50001, "robots": 50002}
    assert given.departed == {}


def test_somebody_who_comes_first_in_the_file_moves_nobody() -> None:
    """Files belong to numbers."""
    record = recorded(lab("bob", "eve"))

    given = number_accounts(lab("ada", "bob", "eve"), record)

    assert given.uids == {"ada": 20002, "bob": 20000, "eve": 20001}


def test_who_left_and_returns_has_the_old_id() -> None:
    """Their files are still theirs, and nobody had the id meanwhile."""
    record = recorded(lab("ada", "bob", eve=["vision"]), lab("ada"), lab("ada", carl=["speech"]))

    given = number_accounts(lab("ada", carl=["speech"], bob=["vision"]), record)

    assert given.uids == {"ada": 20000, "carl": 20003, "bob": 20001}
    assert given.groups == {"speech": 50001, "vision": 50000}
    assert (given.departed, given.past_groups) == ({"eve": 20002}, {})


def test_a_group_that_nobody_is_in_is_remembered() -> None:
    """Its files are still about, and its members must go from it."""
    given = number_accounts(lab(bob=["speech"]), recorded(lab(bob=["vision"])))

    assert (given.groups, given.past_groups) == ({"speech": 50001}, {"vision": 50000})


def test_no_id_is_anybody_elses() -> None:
    """Over any number of files, also where the last of the ids goes."""
    record = recorded(*(lab(f"p{n}", q=[f"g{n}"]) for n in range(20)))

    assert len({*record.people.values(), *record.groups.values()}) == len(record.people) + len(record.groups) == 41


def test_the_last_id_is_given() -> None:
    """Only what comes after it is refused."""
    record = Record({}, people={"ada": PEOPLE_IDS[-2]}, groups={"vision": GROUP_IDS[-2]})

    given = number_accounts(lab(eve=["speech"]), record)

    assert (given.uids, given.groups) == ({"eve": PEOPLE_IDS[-1]}, {"speech": GROUP_IDS[-1]})


@pytest.mark.parametrize(
    "name", ["video", "render", "docker", "systemd-journal", "users", "prometheus", "sugroup", "frr"]
)
def test_nobody_is_called_like_what_packages_make(name: str) -> None:
    """A node would have one name with two ids."""
    assert name in RESERVED_USERS


ZONES = tuple(
    ZonePlan(f"us-west-2{letter}", IPv4Network(f"10.64.{n}.0/24"), IPv4Network(f"10.64.{32 * (n + 1)}.0/19"))
    for n, letter in enumerate("abc")
)
ZONE_NAMES = tuple(zone.name for zone in ZONES)
HOME = RegionPlan("us-west-2", home=True, block=IPv4Network("10.64.0.0/16"), zones=ZONES)


def test_members_stand_in_as_many_zones_as_there_are() -> None:
    """A quorum outlives a zone only when no zone holds more of it than it must."""
    found = place_members(HOME, 5, {}, ZONE_NAMES)

    assert [each.zone[-1] for each in found] == ["a", "b", "c", "a", "b"]
    assert [str(each.address) for each in found[::3]] == ["10.64.32.16", "10.64.32.17"]


@pytest.mark.parametrize(("offering", "stand"), [("ac", "aca"), ("b", "bbb"), ("", "abc")])
def test_members_stand_where_their_type_is_offered(offering: str, stand: str) -> None:
    """A group of one in a zone without its type would try to start its machine for ever."""
    found = place_members(HOME, 3, {}, [f"us-west-2{letter}" for letter in offering])

    assert "".join(each.zone[-1] for each in found) == stand


def test_a_new_zone_moves_no_member() -> None:
    """What the lock knows stays, even where another spread would be more even."""
    narrow = RegionPlan(HOME.name, home=True, block=HOME.block, zones=ZONES[:1])
    known = {each.name: each.address for each in place_members(narrow, 3, {}, ZONE_NAMES)}

    found = place_members(HOME, 5, known, ZONE_NAMES)

    assert {each.name: each.address for each in found[:3]} == known
    assert [each.zone[-1] for each in found[3:]] == ["b", "c"]


def test_a_member_leaves_a_zone_that_the_file_drops() -> None:
    """An address in no subnet of today is of no use; nobody else gets it meanwhile."""
    known = {each.name: each.address for each in place_members(HOME, 3, {}, ZONE_NAMES)}
    shrunk = RegionPlan(HOME.name, home=True, block=HOME.block, zones=ZONES[1:])

    found = place_members(shrunk, 3, known, ZONE_NAMES)

    assert found[0].zone == "us-west-2b"
    assert found[0].address not in known.values()


def test_the_fixed_addresses_are_clear_of_those_that_aws_keeps() -> None:
    """AWS keeps the first four addresses of a subnet, and the last."""
    assert fixed_block(ZONES[0].nodes) == IPv4Network("10.64.32.16/28")
    assert IPv4Address("10.64.32.3") not in fixed_block(ZONES[0].nodes)


WEST: dict[str, object] = {"region": "us-west-2", "zone": "us-west-2a"}
EAST: dict[str, object] = {"region": "us-east-1"}


def test_places_are_where_machines_stand() -> None:
    """Pools of both architectures, the control plane at home, laptop gateways: each once, and no region without."""
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
    """Networks start from nothing."""
    assert image_places(plan_fleet(sketch(), Record({}), load_catalog()), load_catalog()) == ()


def test_what_the_lock_holds_is_not_looked_up_again() -> None:
    """An image of one architecture says nothing of the other."""
    record = Record({}, images={"us-west-2/x86_64": "ami-0000000000000000a"})
    groups = {"arm": group(WEST, types=("m7g.large",)), "gpu": group(WEST)}

    plan = plan_fleet(sketch(groups=groups), record, load_catalog())

    assert unrecorded_images(plan, load_catalog()) == ("us-west-2/arm64",)


def test_each_architecture_has_its_parameter() -> None:
    """Canonical calls x86_64 by another name."""
    assert "/24.04/stable/current/amd64/" in image_parameter("x86_64")
    assert "/24.04/stable/current/arm64/" in image_parameter("arm64")


def test_similar_types_start_from_recorded_images_alone() -> None:
    """Auto Scaling takes no parameter where it chooses types; other groups start without a record."""
    alike = group(WEST, EAST, types=("c7i.4xlarge",), similar=True)
    groups = {"sim": alike, "arm": group(WEST, types=("m7g.large",))}
    record = Record({}, images={"us-west-2/x86_64": "ami-0000000000000000a"})

    plan = plan_fleet(sketch(groups=groups), record, load_catalog())

    assert indispensable_images(plan, load_catalog()) == ("us-east-1/x86_64",)
