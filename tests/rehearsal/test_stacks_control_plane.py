"""The control plane's machines: where they stand, what outlives them, and who gets to them."""

from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest

from bedplate.cli.waves import waves
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.snapshot import Entry
from bedplate.rehearsal.stack import World, run
from bedplate.spec.network import Egress
from tests.support.declared import EXAMPLES, Declared, declared, plan_of

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
def made() -> tuple[Entry, ...]:
    """Give what a home region with a control plane and no pools holds once it is made."""
    plan = replace(LAB, pools=(), files=(), buckets=(), laptops=(), sites=(), regions=(LAB.home,))
    with running(plan.account) as simulation:
        world = World(simulation)
        runs = [run(stack, world) for wave in waves(plan) for stack in wave]
    assert not [failure for done in runs for failure in done.failures]
    return tuple(entry for done in runs for entry in done.snapshot.entries.values())


def test_a_member_is_told_its_own_volume(made: tuple[Entry, ...]) -> None:
    """By its id: a stack that is made again finds two volumes with one tag, and means its own."""
    volumes = {entry.name: entry.ident for entry in made if entry.type.endswith(":Volume")}
    templates = {entry.name: entry for entry in made if entry.type.endswith(":LaunchTemplate")}

    for name in MEMBERS:
        script = b64decode(templates[name].inputs["userData"]).decode()
        assert f"readonly VOLUME={volumes[f'{name}-etcd']}\n" in script
        assert f"readonly SCALING_GROUP={name}\n" in script
