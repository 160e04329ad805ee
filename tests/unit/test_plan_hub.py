"""The plan of the hub: its address and zone, its machine in a region or at a site, its backups, and who reaches it."""

import json
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from bedplate.catalog import load_catalog
from bedplate.permissions import HUB, permissions
from bedplate.plan import FleetPlan
from bedplate.plan.firewall import EXPORTER_PORT, NFS
from bedplate.plan.node_document import node_document
from bedplate.plan.nodes import NodeRole, Platform, find_node, permanent_nodes
from bedplate.plan.published import fleet_document
from bedplate.plan.reachability import find_endpoint, is_routed
from roles.hardened.firewall import ruleset
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of, plan_of_text
from tests.unit.test_roles_hardened import chain

LAB_TEXT = (EXAMPLES / "lab.yaml").read_text(encoding="utf-8")
LAB = plan_of(EXAMPLES / "lab.yaml")
IN_REGION = "hub: {region: us-west-2}"
# A machine of the site that serves nothing else, with copies on the file server.
AT_SITE = "hub: {site: cellar, machine: vault, backup: copies}"


def plan_with(hub: str, lab: str = LAB_TEXT) -> FleetPlan:
    """Return the plan of a lab with another hub, and with a machine and a store for one at its site."""
    store = "  copies: {kind: nfs, site: cellar, machine: nas, export: /srv/copies, mount: /copies}\n"
    text = lab.replace(IN_REGION, hub).replace("storage:\n", f"storage:\n{store}")
    return plan_of_text(text.replace("    machines:\n", "    machines:\n      vault: {address: 192.168.40.6}\n"))


def test_the_hub_has_an_address_that_no_member_has() -> None:
    """Both are in the part of the subnet that is reserved for fixed addresses, and in the lock."""
    assert LAB.hub
    assert LAB.control_plane

    assert (LAB.hub.node, LAB.hub.zone, str(LAB.hub.address)) == ("hub.us-west-2", "us-west-2a", "10.64.32.17")
    assert LAB.hub.address not in {member.address for member in LAB.control_plane.members}
    assert LAB.recorded().addresses["hub.us-west-2"] == LAB.hub.address


def test_a_recorded_hub_keeps_its_address_and_its_zone() -> None:
    """Its volume is in that zone, and clients know the address."""
    record = replace(LAB.recorded(), addresses={"hub.us-west-2": IPv4Address("10.64.96.21")})

    hub = plan_of(EXAMPLES / "lab.yaml", record).hub

    assert hub
    assert (hub.zone, str(hub.address)) == ("us-west-2c", "10.64.96.21")


@pytest.mark.parametrize(
    ("hub", "name", "platform", "address"),
    [
        (IN_REGION, "hub.us-west-2", Platform.CLOUD, "10.64.32.17"),
        (AT_SITE, "vault.cellar", Platform.METAL, "192.168.40.6"),
    ],
)
def test_one_machine_is_the_hub(hub: str, name: str, platform: Platform, address: str) -> None:
    """Every machine knows its name and address; only its own plan has the rest."""
    plan = plan_with(hub)

    nodes = {node.name: node for node in permanent_nodes(plan)}

    assert [node.name for node in nodes.values() if NodeRole.HUB in node.roles] == [name]
    assert [node.name for node in nodes.values() if node.hub] == [name]
    assert (nodes[name].platform, nodes[name].hub) == (platform, plan.hub)
    assert {node.hosts["hub.lab.internal"] for node in nodes.values()} == {(IPv4Address(address),)}
    assert str(find_endpoint(plan, "hub").address) == address


@pytest.mark.parametrize("hub", [IN_REGION, AT_SITE])
def test_the_hub_admits_https_from_the_fleet_only(hub: str) -> None:
    """Nodes of every region, sites and laptops; packets of pods have the address of their node."""
    plan = plan_with(hub)
    assert plan.hub
    node = find_node(plan, plan.hub.node, load_catalog())

    blocks = [rule.block for rule in node.firewall_rules if rule.port == 443]

    for name in ("us-west-2", "us-east-1", "eu-north-1", "cellar", "laptops.us-west-2", "laptops.cellar"):
        address = find_endpoint(plan, name).address
        assert any(address in block for block in blocks), name
    edge = find_endpoint(plan, "us-west-2a/edge").address
    assert not any(edge in block for block in blocks)
    assert {rule.port for rule in node.firewall_rules} == {22, 443, EXPORTER_PORT}
    # Its own exporter, which it asks by loopback.
    own = [rule.block for rule in node.firewall_rules if rule.port == EXPORTER_PORT]
    assert own == [IPv4Network(plan.hub.address)]


@pytest.mark.parametrize("hub", [IN_REGION, AT_SITE])
def test_the_hub_alone_knows_addresses_of_people(hub: str) -> None:
    """Its program gets them; `fleet.json`, which everybody reads, and other machines do not. Nobody has webhooks."""
    text = LAB_TEXT.replace("grace: {", "grace: {email: grace@lab.example, notify: mail, ")
    text = text.replace("  ada: {", "  ada: {notify: webhook, ")
    plan = plan_with(f"{hub[:-1]}, relay: smtp.lab.example, sender: hub@lab.example}}", text)

    documents = {node.name: node_document(node) for node in permanent_nodes(plan)}

    assert plan.hub
    messages = {"relay": "smtp.lab.example", "sender": "hub@lab.example"}
    people = {"grace": "grace@lab.example", "ada": ""}
    assert plan.hub.messages == {**messages, "people": people, "alerts": ["ada"]}
    assert [name for name, document in documents.items() if "grace@lab.example" in document] == [plan.hub.node]
    assert fleet_document(plan)["notify"] == ["ada", "grace"]
    assert "@lab.example" not in json.dumps(fleet_document(plan))


def test_the_hub_reaches_chats_and_relays() -> None:
    """Routes lead to the internet. Its own packet filter stops no program but one that asks for the role's keys."""
    internet = find_endpoint(LAB, "internet")
    assert is_routed(LAB, find_endpoint(LAB, "hub"), internet)
    output = chain(ruleset((), frozenset({NodeRole.HUB})), "output")

    assert output[0].endswith("policy accept;")
    assert not any(port in rule for rule in output for port in ("443", "587"))
    assert any("169.254.169.254" in rule and rule.endswith("skuid != 0 counter reject") for rule in output)


def test_the_hub_of_a_site_mounts_the_folder_of_its_backups() -> None:
    """The file server admits it for this export, and the hub mounts no data of people."""
    plan = plan_with(AT_SITE)
    hub, nas = (find_node(plan, name, load_catalog()) for name in ("vault.cellar", "nas.cellar"))

    assert [(mount.path, mount.is_synchronous) for mount in hub.mounts] == [("/copies", True)]
    assert {share.store for share in nas.shares if "192.168.40.6" in share.clients} == {"copies"}
    assert [rule.name for rule in nas.firewall_rules if rule.port == NFS and hub.address in rule.block] == [
        "nfs-from-vault.cellar"
    ]


def test_the_hub_of_a_site_has_no_resources_in_aws() -> None:
    """No role, no bucket and no recorded address: the file has the address."""
    plan = plan_with(AT_SITE)
    assert plan.hub

    assert (plan.hub.region, plan.hub.bucket) == (None, None)
    assert "vault.cellar" not in plan.recorded().addresses


def test_the_hub_deletes_nothing_and_reads_only_its_own_backups() -> None:
    """A stolen hub destroys no backup: the bucket keeps versions."""
    own = [
        (statement.actions, statement.resources)
        for statement in permissions(LAB, HUB)
        if any("lab-hub-" in resource for resource in statement.resources)
    ]

    bucket = "arn:aws:s3:::lab-hub-111122223333-us-west-2"
    assert own == [
        (("s3:ListBucket",), (bucket,)),
        (
            ("s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"),
            (f"{bucket}/dumps/hub.us-west-2/*", f"{bucket}/files/hub.us-west-2/*"),
        ),
    ]
    assert not [action for statement in permissions(LAB, HUB) for action in statement.actions if "Delete" in action]
