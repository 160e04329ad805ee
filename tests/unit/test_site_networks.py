"""A site with several networks: an office whose desks and servers are two LANs behind one gateway."""

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.load import load_fleet
from bedplate.load.fleet import examine
from bedplate.plan import FleetPlan, plan_fleet
from bedplate.plan.firewall import node_rules
from bedplate.plan.laptops import laptop_gateway_at
from bedplate.plan.links import node_blocks, remote_networks
from bedplate.plan.nodes import find_node
from bedplate.plan.reachability import find_endpoint
from bedplate.plan.record import Record
from bedplate.rules import Level
from tests.testlab.fleets.variants import cellar_gateway
from vpn.sites.files import files_of

DESKS, SERVERS = IPv4Network("192.168.135.0/24"), IPv4Network("192.168.145.0/24")
OFFICE = """version: 1
name: lab
account: '210987654321'
owner: infra@lab.test
domain: lab.internal
network: {supernet: 10.64.0.0/10}
regions: {us-west-2: {home: true, zones: [us-west-2a, us-west-2b]}}
groups:
  box: {use: ssh, types: [m7i.xlarge], nodes: {min: 1, max: 2}, ladder: [{region: us-west-2}]}
storage:
  home: {kind: efs, region: us-west-2, mount: /home}
  vault: {kind: nfs, site: office, machine: titan, export: /srv/vault, mount: /vault, clients: lan}
vpn: {laptops: {gateways: [{region: us-west-2}]}}
people:
  ada: {admin: true, keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIWf215vwmBI2zNzecqhVbLRbuxkKq4oqpkUVYbswznn]}
allow: {W632: no mail here, E418: catalog of the test}
sites:
  office:
    lans: [192.168.135.0/24, 192.168.145.0/24]
    gateway: {machine: gate, public: 93.184.10.9, asn: 65010}
    machines:
      gate: {address: 192.168.135.1}
      titan: {address: 192.168.145.20, use: ssh, gpus: {model: titan-x, count: 4}}
    dns: {domain: office.example, servers: [192.168.145.53]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the fleet file of the office."""
    (tmp_path / "fleet.yaml").write_text(OFFICE, encoding="utf-8")
    return tmp_path / "fleet.yaml"


@pytest.fixture
def plan(file: Path) -> FleetPlan:
    """Return the plan of the office."""
    return plan_fleet(load_fleet(file, load_catalog()).fleet, Record({}), load_catalog())


def _edited(file: Path, old: str, new: str) -> list[str]:
    """Return the code and the key of each fault after an edit."""
    assert OFFICE.count(old) == 1
    file.write_text(OFFICE.replace(old, new), encoding="utf-8")
    return _faults(file)


def _faults(file: Path) -> list[str]:
    faults = examine(file, load_catalog())
    return [f"{fault.code} {fault.key}: {fault.message}" for fault in faults if fault.level is Level.ERROR]


def test_the_site_of_the_documentation_is_valid(file: Path) -> None:
    """docs/fleet-file.md shows a site with several networks."""
    page = (Path(__file__).parents[2] / "docs/fleet-file.md").read_text(encoding="utf-8")
    (site,) = (block for block in page.split("```yaml\n") if block.startswith("sites:\n"))
    file.write_text(OFFICE.partition("sites:\n")[0] + site.partition("```")[0], encoding="utf-8")

    assert _faults(file) == []
    assert len(load_fleet(file, load_catalog()).fleet.sites["office"].networks) == 2


def test_machines_of_a_site_are_in_any_of_its_networks(file: Path) -> None:
    """The gateway, a machine and a name server; an address elsewhere is refused with the networks."""
    assert _edited(file, "name: lab\n", "name: lab\n") == []
    (fault,) = _edited(file, "address: 192.168.145.20", "address: 192.168.155.20")
    assert fault.startswith("E240 sites.office.machines.titan.address: 192.168.155.20 is not on the site's LAN")
    assert fault.endswith("192.168.135.0/24, 192.168.145.0/24")
    assert _edited(file, "address: 192.168.145.20", "address: 192.168.145.255")[0].startswith("E241")


@pytest.mark.parametrize(
    ("lans", "fault"),
    [
        ("lan: 192.168.135.0/24\n    lans: [192.168.145.0/24]", "E257 sites.office: office has `lan` and `lans`"),
        ("lans: [192.168.135.0/24, 192.168.135.128/25]", "E226 sites.office.lans.1"),
        ("lans: [192.168.135.0/24, 10.64.0.0/9]", "E212 sites.office.lans.1"),
        ("lans: [192.168.135.0/24, 10.0.0.0/8, 192.168.145.0/24]", "E226 sites.office.lans.1"),
        ("lans: [192.168.135.0/24, 192.168.145.0/24, 9.9.9.0/24]", "E221 sites.office.lans.2"),
        ("lans: []", "E108 sites.office.lans"),
        ("dns: {domain: o.example, servers: [192.168.1.5]}", "E257 sites.office: office has no network"),
    ],
)
def test_each_network_is_checked(file: Path, lans: str, fault: str) -> None:
    """Overlaps, ranges and the supernet, at the key of the network."""
    text = OFFICE.replace("    dns: {domain: office.example, servers: [192.168.145.53]}\n", "")
    file.write_text(text.replace("lans: [192.168.135.0/24, 192.168.145.0/24]", lans), encoding="utf-8")
    faults = _faults(file)
    assert [text for text in faults if text.startswith(fault)], faults


def test_all_networks_are_announced_routed_and_admitted(plan: FleetPlan) -> None:
    """By the site's gateway, in the routes of the region and of laptops, and in the rules of machines."""
    assert {network.name: network.block for network in remote_networks(plan, "us-west-2")} == {
        "site-office": DESKS,
        "site-office-192-168-145-0": SERVERS,
    }
    gateway = cellar_gateway(plan)
    frr = next(file.text for file in files_of(gateway) if file.path.name == "frr.conf")
    assert [block for block in (DESKS, SERVERS) if f"  network {block}\n" in frr] == [DESKS, SERVERS]
    assert gateway.blocks == (DESKS, SERVERS)
    laptops = laptop_gateway_at(plan, "us-west-2")
    assert laptops
    assert {DESKS, SERVERS} <= set(laptops.routes)
    box = find_node(plan, "box-1.us-west-2", load_catalog())
    assert {rule.block for rule in box.firewall_rules if rule.name.startswith("ssh-from-office")} == {DESKS, SERVERS}
    titan = find_node(plan, "titan.office", load_catalog())
    assert {rule.block for rule in titan.firewall_rules if rule.name.startswith("nfs-from")} == {DESKS, SERVERS}
    ssh = [rule.block for rule in node_rules(plan, plan.home) if rule.name.startswith("ssh-from-site")]
    assert ssh == [DESKS, SERVERS]


def test_reach_knows_both_networks(plan: FleetPlan) -> None:
    """By name, by path, and by an address in it."""
    assert find_endpoint(plan, "office").block == DESKS
    assert find_endpoint(plan, "office-192-168-145-0").block == SERVERS
    assert find_endpoint(plan, "192.168.145.77").place == "office"
    assert plan.addresses["titan.office"] == IPv4Address("192.168.145.20")
    assert [block for _, block in node_blocks(plan, "office")] == [DESKS, SERVERS]


def test_a_second_network_keeps_the_record_of_the_first(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lock with `lan` stays valid with `lans`; another first network would renumber the site."""
    monkeypatch.chdir(file.parent)
    both = "lans: [192.168.135.0/24, 192.168.145.0/24]"
    file.write_text(OFFICE.replace(both, "lan: 192.168.135.0/24").replace("145", "135"), encoding="utf-8")
    assert run(["plan", "--write"]) == 0
    file.write_text(OFFICE, encoding="utf-8")
    assert run(["plan", "--write"]) == 0
    assert "192.168.135.0/24, 192.168.145.0/24" in capsys.readouterr().out

    file.write_text(OFFICE.replace(both, "lans: [192.168.145.0/24, 192.168.135.0/24]"), encoding="utf-8")
    assert run(["plan"]) == 2
    assert "site/office is recorded as 192.168.135.0/24" in capsys.readouterr().err
