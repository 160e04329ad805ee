"""Values of two places that must agree: users of units and of the packet filter, ports of listeners and of the plan."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.permissions import node_kinds
from bedplate.plan import FleetPlan
from bedplate.plan.firewall import (
    BGP,
    DNS,
    EXPORTER_PORT,
    GPU_EXPORTER_PORT,
    HTTPS,
    IKE,
    KUBELET,
    NFS,
    OVERLAY,
    SSH,
    WORKER_PORTS,
)
from bedplate.plan.fleet import Access
from bedplate.plan.links import API_PORT
from bedplate.plan.nodes import OPENVPN, NodePlan, NodeRole, Platform, permanent_nodes, pool_node, pool_nodes
from roles.base import file_text
from roles.catalog import names_of
from roles.hardened.firewall import METADATA, MOUNTERS, emergency_ruleset, ruleset
from roles.hardened.logins import settings
from roles.storage.mounts import TUNNEL_UID, TUNNEL_USER, tunnel
from roles.storage.role import Storage
from tests.testlab.fakes.node import Disk, Recorder, recorded
from tests.testlab.fakes.node_states import CLOUD, NO_STORAGE
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from tests.testlab.run import ROOT, page_text

# Units with another user than root, and why the packet filter needs no exception for them.
OTHER_USERS = {
    "roles/hub/bedplate-hub-alerts.service": "the unit refuses link-local addresses, and it sends to people",
    "roles/hub/bedplate-hub-sweep.service": "the unit refuses link-local addresses, and it sends to people",
    "roles/hub/bedplate-hub.service": "the program has no network",
    "roles/storage/tunnel.service.j2": "the filter admits it to file servers",
    "roles/mlflow/mlflow.service": "it has no network",
    "vpn/laptops/daemon.service.j2": "OpenVPN sends to laptops",
    "vpn/laptops/dns.service.j2": "dnsmasq sends to the resolver of the VPC",
}


def _units() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each unit of services."""
    for path in sorted(path for folder in ("roles", "vpn", "images") for path in (ROOT / folder).rglob("*.service*")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_units_of_other_users_need_no_more_than_the_filter_admits() -> None:
    """A unit with another user reaches neither the metadata service nor file servers: a new one must be judged."""
    found = {name for name, text in _units() if re.search(r"^(User=|DynamicUser=yes)", text, re.MULTILINE)}

    assert found == set(OTHER_USERS)


def test_the_filter_admits_the_user_of_the_tunnels() -> None:
    """The unit, the account on the machine and both rules of the packet filter name the same user."""
    (user,) = re.findall(r"^User=(.+)$", tunnel(CLOUD)[1].text, re.MULTILINE)
    table = recorded("debian-12").but(NO_STORAGE)
    commands = Recorder(table, Disk.of({})).play(Storage((CLOUD,)), stages=("install",)).commands
    (created,) = [command for command in commands if command.startswith("useradd") and command.endswith(f" {user}")]
    rule = f"tcp dport {NFS} meta skuid != {{ {MOUNTERS} }}"

    assert user == TUNNEL_USER
    assert re.findall(r"--uid (\d+)", created) == [str(TUNNEL_UID)] == MOUNTERS.split(", ")[1:]
    assert all(rule in text for text in (ruleset((), frozenset()), emergency_ruleset(())))


@pytest.mark.parametrize(
    ("port", "text", "pattern"),
    [
        (SSH, settings(frozenset()), r"^Port (\d+)$"),
        (NFS, tunnel(CLOUD)[0].text, r"^(?:accept|connect) = \S+:(\d+)$"),
        (NFS, file_text("storage/ganesha.conf.j2"), r"NFS_Port = (\d+);"),
        (API_PORT, file_text("control/bedplate-member"), r"(?:--server|curl).*https://\$\(address\):(\d+)"),
    ],
    ids=["sshd", "tunnel", "ganesha", "member"],
)
def test_listeners_have_the_ports_of_the_plan(port: int, text: str, pattern: str) -> None:
    """A port in a configuration is the port that the plan opens."""
    assert {int(found) for found in re.findall(pattern, text, re.MULTILINE)} == {port}


# The ports on which each role listens.
LISTENERS: Mapping[str, frozenset[int]] = {
    "hardened": frozenset({SSH}),
    "storage": frozenset({NFS}),
    "control": frozenset({API_PORT}),
    "kubernetes": frozenset({OVERLAY, *(port for _, _, port in WORKER_PORTS)}),
    "openvpn": frozenset({DNS, *(port for _, port in OPENVPN)}),
    "guard": frozenset({*IKE, BGP}),
    "hub": frozenset({HTTPS}),
    "monitoring": frozenset({EXPORTER_PORT}),
    "nvidia": frozenset({GPU_EXPORTER_PORT}),
}


def _all_nodes(plan: FleetPlan) -> Iterator[NodePlan]:
    yield from (*permanent_nodes(plan), *pool_nodes(plan, load_catalog()))
    for pool in plan.pools:
        yield pool_node(plan, pool, f"{pool.group}.{pool.region}", load_catalog())


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_open_port_has_a_listener(file: Path) -> None:
    """The packet filter of a machine opens only ports on which one of its roles listens."""
    for node in _all_nodes(plan_of(file)):
        listening = {port for role in names_of(node) for port in LISTENERS.get(role, ())}
        opened = {rule.port for rule in node.firewall_rules if rule.port is not None}
        # A worker of a site has its role once the cluster exists.
        later = set() if node.cluster else {OVERLAY, KUBELET}
        assert opened - listening <= later, node.name


def test_the_addresses_of_the_metadata_service_are_those_that_programs_ask() -> None:
    """Each program of the roles that reads the metadata service uses an address that the filter guards."""
    sources = ("roles/kubernetes/ecr-credentials", "roles/kubernetes/kubelet-settings", "bedplate/nodes/bootstrap.sh")
    asked = {found for name in sources for found in re.findall(r"http://(169\.254[.\d]+)", (ROOT / name).read_text())}

    assert asked
    assert all(any(f" {address}," in match for match in METADATA) for address in asked)


def _kind(node: NodePlan) -> str:
    """Return the name of a machine's kind in docs/machines.md."""
    place = "region" if node.platform is Platform.CLOUD else "site"
    kinds = {NodeRole.WORKBENCH: f"workbench of a {place}", NodeRole.WORKER: f"worker of a {place}"}
    kinds |= {NodeRole.CONTROL: "control plane member", NodeRole.HUB: f"hub of a {place}"}
    return next((name for role, name in kinds.items() if role in node.roles), f"{_OTHERS[place]} of a {place}")


_OTHERS = {"region": "gateway", "site": "other machine"}
_LOGINS = {Access.LOGIN: "shell", Access.TOKENS: "a token", Access.NONE: "none"}


def _rights(node: NodePlan, plan: FleetPlan) -> tuple[str, str, str]:
    """Return what the plan gives to people without administration: login, role in AWS, and who gets that role."""
    access = {person.access for person in node.accounts.people if not person.admin}
    role = {"workbench": "ssh", "worker": "kubernetes", "gateway": "gateway"}.get(_kind(node).split()[0], node.host)
    guarded = METADATA[0] + " meta skuid != 0" in ruleset(node.firewall_rules, node.roles, node.pod_rules)
    assert len(access) == 1
    if node.platform is Platform.METAL:
        return _LOGINS[access.pop()], "none", ""
    assert role in node_kinds(plan)
    name = re.sub(r"^control-\d+$", "control-N", role)
    return _LOGINS[access.pop()], f"`{name}`", "root" if guarded else "every user"


def test_the_page_says_who_may_do_what() -> None:
    """For each kind of machine in the examples, docs/machines.md has the login of people and the role in AWS."""
    rows = [line.split("|")[1:-1] for line in page_text("machines.md").splitlines() if line.startswith("| ")]
    page = {name.strip(): tuple(cell.strip() for cell in cells[:3]) for name, *cells in rows}
    plans = [plan_of(file) for file in sorted(EXAMPLES.glob("*.yaml"))]
    nodes = [(plan, node) for plan in plans if len(plan.accounts.people) > 1 for node in _all_nodes(plan)]

    wrong = {node.name: (page.get(_kind(node)), _rights(node, plan)) for plan, node in nodes}
    assert {name: pair for name, pair in wrong.items() if pair[0] != pair[1]} == {}
    assert {_kind(node) for _, node in nodes} == {name for name, cells in page.items() if cells[0] in _LOGINS.values()}
