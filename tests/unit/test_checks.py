"""Every rule of the catalogue has an example that breaks it and one beside it that does not."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.catalog import load_catalog
from bedplate.checks.catalogue import RULES
from bedplate.checks.diagnostics import Fault, Level
from bedplate.checks.people import secrets_in
from bedplate.load import examine
from bedplate.plan.record import PLAN_RULES

FLEETS = Path(__file__).parents[1] / "data" / "fleets"
BASE = (FLEETS / "base.yaml").read_text(encoding="utf-8")
Edit = Mapping[str, str]
FaultsOf = Callable[[Edit], tuple[Fault, ...]]

EXAMPLES: dict[str, dict[str, Any]] = {
    code: example
    for path in sorted((FLEETS / "rules").glob("*.yaml"))
    for code, example in YAML(typ="safe").load(path).items()
}
# Rules whose examples are no edit of a text: files that cannot be opened or are too long (test_load_source,
# test_load_limits), strong and weak RSA keys (test_spec_sshkey), what the plan refuses (test_plan_faults), and
# a lock that is none (test_cli_check), or that lacks an image (test_checks_image).
_FILES = {"E001", "E002", "E003", "E004", "E005", "E006", "E012", "E013", "E020"}
ELSEWHERE = {*_FILES, "E290", "E349", "E510", *PLAN_RULES}


def edited(edit: Edit) -> str:
    """Return the base fleet after the edit, which must change something."""
    text = BASE
    for old, new in edit.items():
        assert old in text
        text = text.replace(old, new) if old else new
    return text


@pytest.fixture
def faults_of(tmp_path: Path) -> FaultsOf:
    """Give the question what is wrong with an edit of the base fleet."""

    def faults(edit: Edit) -> tuple[Fault, ...]:
        path = tmp_path / "fleet.yaml"
        path.write_text(edited(edit), encoding="utf-8")
        return examine(path, load_catalog())

    return faults


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_edit_that_breaks_a_rule_is_told_at_its_key(code: str, faults_of: FaultsOf) -> None:
    """The planted defect is found, at the key where it stands, in words that name it."""
    example = EXAMPLES[code]

    found = {told.key: told for told in faults_of(example["bad"]) if told.code == code}

    assert example["key"] in found
    assert example["says"] in found[example["key"]].message
    assert found[example["key"]].level is RULES[code].level
    assert found[example["key"]].fix


@pytest.mark.parametrize("code", [code for code in EXAMPLES if "good" in EXAMPLES[code]])
def test_the_nearest_right_edit_is_accepted(code: str, faults_of: FaultsOf) -> None:
    """The good twin of a defect passes every check."""
    found = faults_of(EXAMPLES[code]["good"])

    assert [told for told in found if told.level is Level.ERROR or told.code == code] == []


def test_the_base_fleet_has_no_fault(faults_of: FaultsOf) -> None:
    """What the examples are edits of is itself the good twin of every rule."""
    assert faults_of({"version: 1": "version: 1"}) == ()


def test_every_rule_has_an_example() -> None:
    """A rule that nothing was seen to break, or that is not in the catalogue, is no rule."""
    assert set(EXAMPLES) | ELSEWHERE == set(RULES)
    assert set(EXAMPLES).isdisjoint(ELSEWHERE)


CHECKS_DETAILS_BASE = (Path(__file__).parents[1] / "data" / "fleets" / "base.yaml").read_text(encoding="utf-8")
_HELD = "reservation: cr-0123456789abcdef0, zone: us-west-2b"
_SITE_RUNG = "{region: us-east-1, market: on-demand}"
_DOOR = "[192.168.60.1]"
_SEVEN = f"[{', '.join(f'192.168.60.{host}' for host in range(1, 8))}]"

# By what it shows: the edit of the base fleet, and the codes and keys that it must give.
EDITS: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "two homes": ("us-east-1: {zones", "us-east-1: {home: true, zones", [("E206", "regions.us-east-1.home")]),
    "a rung in a zone elsewhere": (
        "market: on-demand}", "market: on-demand, zone: us-west-2a}", [("E203", "groups.train.ladder.1.zone")],
    ),
    "a control plane not offered at home": (
        "type: m7i.xlarge", "type: m4.xlarge", [],
    ),
    "a control plane of no type": ("type: m7i.xlarge", "type: m7i.huge", [("E301", "kubernetes.control_plane.type")]),
    "a bucket name that S3 keeps": ("  data:", "  data--x-s3:", []),
    "a fleet name that S3 keeps": ("name: lab", "name: xn--lab", [("E401", "storage.data")]),
    "services larger than Kubernetes takes": ("services: /20", "services: /11", [("E227", "kubernetes.services")]),
    "pods larger than the supernet": ("services: /20", "pods: /9", [("E227", "kubernetes.pods")]),
    "a supernet with no room for services": ("10.64.0.0/10", "10.64.0.0/24",
                                             [("E227", "vpn.laptops.pool"), ("E227", "kubernetes.services")]),
    "a region as large as the supernet": ("region_size: /16", "region_size: /9", [("E225", "network.region_size")]),
    "a gateway in no place": ("{site: cellar}]", "{}]", [("E608", "vpn.laptops.gateways.1")]),
    "a gateway on no site": ("{site: cellar}]", "{site: moon}]", [("E406", "vpn.laptops.gateways.1.site")]),
    "a store in no region": ("efs, region: us-west-2", "efs, region: eu-west-3", [("E309", "storage.home.region")]),
    "a region in capitals": ("  us-east-1: {zones", "  US-EAST-1: {zones", [("E106", "regions.US-EAST-1")]),
    "a misspelt region": ("  us-east-1: {zones: [us-east-1a, us-east-1b]", "  us-esat-1: {zones: [us-esat-1a]",
                          [("E201", "regions.us-esat-1")]),
    "a site with a transit gateway's number": ("asn: 65011", "asn: 4200000001", [("E244", "sites.attic.gateway.asn")]),
    "a site that waits for AWS to dial": ("asn: 65011", "asn: 65011, dials: aws", []),
    "a site in the supernet": ("192.168.60.", "10.70.0.", []),
    "a site's domain beside the fleet's": (
        "  attic:\n", f"  attic:\n    dns: {{domain: lab.example, servers: {_DOOR}}}\n", [],
    ),
    "a site's domain that is the fleet's": (
        "  attic:\n", f"  attic:\n    dns: {{domain: lab.internal, servers: {_DOOR}}}\n",
        [("E249", "sites.attic.dns.domain")],
    ),
    "a site's domain that is AWS's": (
        "  attic:\n", f"  attic:\n    dns: {{domain: us-west-2.compute.internal, servers: {_DOOR}}}\n",
        [("E249", "sites.attic.dns.domain")],
    ),
    "a site that answers for a public domain of AWS": (
        "  attic:\n", f"  attic:\n    dns: {{domain: s3.amazonaws.com, servers: {_DOOR}}}\n",
        [("E249", "sites.attic.dns.domain")],
    ),
    "a name server on another LAN": (
        "  attic:\n", "  attic:\n    dns: {domain: attic.example, servers: [192.168.40.1]}\n",
        [("E240", "sites.attic.dns.servers.0")],
    ),
    "a name server at the end of the LAN": (
        "  attic:\n", "  attic:\n    dns: {domain: attic.example, servers: [192.168.60.255]}\n",
        [("E241", "sites.attic.dns.servers.0")],
    ),
    "a site without any name server": (
        "  attic:\n", "  attic:\n    dns: {domain: attic.example, servers: []}\n",
        [("E108", "sites.attic.dns.servers")],
    ),
    "more name servers than a rule takes": (
        "  attic:\n", f"  attic:\n    dns: {{domain: attic.example, servers: {_SEVEN}}}\n",
        [("E107", "sites.attic.dns.servers")],
    ),
    "an endpoint of a service that bedplate makes none of": (
        "egress: shared", "egress: shared, endpoints: [s3]", [("E105", "network.endpoints.0")],
    ),
    "readers by a pattern": (
        "expire_days: 365", "expire_days: 365, readers: ['arn:aws:iam::111122223333:role/*']",
        [("E106", "storage.data.readers.0")],
    ),
    "sites of one LAN": ("192.168.60.", "192.168.41.", [("E226", "sites.attic.lan")]),
    "the whole internet": ("10.64.0.0/10", "0.0.0.0/0", [("E220", "network.supernet")]),
    "a supernet with docker's range": ("10.64.0.0/10", "172.16.0.0/12", []),
    "an ARM type among others": ("[g6.4xlarge]", "[g6.4xlarge, g5g.4xlarge]", [("E305", "groups.bench.types.1")]),
    "a worker without a group": ("use: kubernetes}", "use: ssh}", []),
    "a reservation given twice alike": (
        _SITE_RUNG,
        f"{{region: us-west-2, market: capacity-block, {_HELD}, ends: '2027-01-31T11:30:00Z'}}", [],
    ),
    "a rung of another price": (
        "[{region: us-west-2}, {region: us-east-1}]",
        "[{region: us-west-2, market: spot}, {region: us-west-2, market: spot, max_price: 2}]",
        [("E308", "groups.bench.ladder.1")],
    ),
    "a zone at a better price than its region's": (
        "[{region: us-west-2}, {region: us-east-1}]",
        "[{region: us-west-2, market: spot, max_price: 1}, {region: us-west-2, market: spot, zone: us-west-2a}]", [],
    ),
    "a reservation of two types": (
        "{region: us-west-2}, {region: us-east-1}]",
        "{region: us-west-2, market: reservation, reservation: cr-0123456789abcdef0, zone: us-west-2b}]",
        [("E345", "groups.train.ladder.0.reservation")],
    ),
    "a size of nothing": (_SITE_RUNG, "{region: us-east-1, reserved: 4}", [("E312", "groups.train.ladder.1.reserved")]),
    "a block that has ended": (
        "market: reservation,", "market: capacity-block, ends: '2026-11-20T11:30:00Z',",
        [("E329", "groups.train.ladder.0.ends")],
    ),
    "a block that ends badly": (
        "market: reservation,", "market: capacity-block, ends: tomorrow,", [("E318", "groups.train.ladder.0.ends")],
    ),
    "an expiry that is none": (
        "expires: permanent", "expires: never", [("E318", "groups.bench.expires")],
    ),
    "likeness on a fabric": (
        "fabric: efa", "fabric: efa\n    similar: true", [("E324", "groups.train.similar")],
    ),
    "a part of a GPU": ("[g6.4xlarge]", "[g6f.4xlarge, g6.4xlarge]",
                        [("E322", "groups.bench.types.1")]),
    "as many as the subnets hold": (
        "nodes: {min: 1, max: 8}", "nodes: {min: 1000, max: 1000}", [],
    ),
    "a maximum that nothing holds": (
        f"{_HELD}}}\n      - {_SITE_RUNG}\n", f"{_HELD}, reserved: 4}}\n",
        [("W352", "groups.train.nodes.max")],
    ),
    "hours for machines on a fabric": ("fabric: efa", "schedule: {start: '07:00', stop: '20:00'}\n    fabric: efa",
                                       [("E331", "groups.train.schedule")]),
    "hours in place of an expiry": (
        "expires: permanent", "schedule: {start: '07:00', stop: '20:00', zone: UTC}", [],
    ),
    "a label of the drivers": (
        "fabric: efa", "fabric: efa\n    labels: {nvidia.com/gpu.product: H100}",
        [("E337", "groups.train.labels.nvidia.com/gpu.product")],
    ),
    "a taint of Kubernetes": (
        "fabric: efa", "fabric: efa\n    taints: ['node.kubernetes.io/x:NoSchedule']",
        [("E337", "groups.train.taints.0")],
    ),
    "taints on machines for people": (
        "disk: 500", "taints: ['x:NoSchedule']", [("E338", "groups.bench.taints")],
    ),
    "more labels than tags": (
        "fabric: efa", f"fabric: efa\n    labels: {{{', '.join(f'k{n}: v' for n in range(29))}}}",
        [("E339", "groups.train.labels")],
    ),
    "as many labels as tags": (
        "fabric: efa", f"fabric: efa\n    labels: {{{', '.join(f'k{n}: v' for n in range(28))}}}", [],
    ),
    "a driver for no GPU": ('driver: "580"', "driver: '595'", []),
    "a kubelet four versions behind": (
        "base: ubuntu-24.04", "base: ubuntu-24.04, kubernetes: '1.32'",
        [("E607", "image.kubernetes"), ("W616", "image.kubernetes")],
    ),
    "a version before the catalogue's first": ('"1.36"', "'1.20'", [("W616", "kubernetes.version")]),
    "a domain that leaves no room for machines": (
        "domain: lab.internal", f"domain: {'.'.join(['a' * 59] * 4)}",
        [("E248", "groups.bench"), ("E618", "vpn.laptops.gateways.0"), ("E618", "vpn.laptops.gateways.1")],
    ),
    "a fabric on a size without it": (
        "[p5.48xlarge]", "[g6.4xlarge]",
        [("E306", "groups.train.types.0")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_gives_exactly_its_faults(what: str, tmp_path: Path) -> None:
    """No fault more, none less."""
    old, new, faults = EDITS[what]
    path = tmp_path / "fleet.yaml"
    assert old in CHECKS_DETAILS_BASE
    path.write_text(CHECKS_DETAILS_BASE.replace(old, new), encoding="utf-8")

    found = examine(path, load_catalog())

    assert [(told.code, told.key) for told in found] == faults


@pytest.mark.parametrize(
    ("own", "cellar", "told"),
    [
        ("lab.corp.example", "corp.example", "the fleet's own domain lab.corp.example lies in corp.example"),
        ("lab.internal", "attic.example", "attic.example is the domain of cellar too"),
        ("lab.internal", "sub.attic.example", ""),
    ],
)
def test_a_domain_is_asked_of_one_place(own: str, cellar: str, told: str, tmp_path: Path) -> None:
    """A site's domain takes in neither the fleet's nor another site's; one below another is asked by itself."""
    path = tmp_path / "fleet.yaml"
    text = CHECKS_DETAILS_BASE.replace("domain: lab.internal", f"domain: {own}")
    for site, domain, server in (("cellar", cellar, "192.168.40.1"), ("attic", "attic.example", "192.168.60.1")):
        text = text.replace(f"  {site}:\n", f"  {site}:\n    dns: {{domain: {domain}, servers: [{server}]}}\n")
    path.write_text(text, encoding="utf-8")

    found = examine(path, load_catalog())

    assert [(fault.code, fault.message) for fault in found] == ([("E249", told)] if told else [])


# By what it shows: the edit of the base fleet, the code, and the way out that its first fault names.
WAYS = {
    "a size without the fabric": ("[p5.48xlarge]", "[g6.4xlarge]", "E306", "write g6.8xlarge, or drop fabric"),
    "a type that the zones lack": (
        "[p5.48xlarge]", "[p6-b200.48xlarge]", "E302",
        "use us-east-1c, or write p5en.48xlarge or g7e.48xlarge",
    ),
    "a branch that is mended no more": ('"580"', "'570'", "W614", "write '580', mended until 2028-08-31"),
    "a time zone of another spelling": (
        "expires: permanent", "schedule: {start: '07:00', stop: '20:00', zone: Europe/Zuerich}", "E333",
        "write Europe/Zurich",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WAYS)
def test_the_way_out_is_named(what: str, tmp_path: Path) -> None:
    """What can be typed instead, or where it can be had."""
    old, new, code, fix = WAYS[what]
    path = tmp_path / "fleet.yaml"
    assert old in CHECKS_DETAILS_BASE
    path.write_text(CHECKS_DETAILS_BASE.replace(old, new), encoding="utf-8")

    found = next(told for told in examine(path, load_catalog()) if told.code == code)

    assert found.fix == fix


PEERING = "laptops at the gateway in us-west-2 reach us-west-2 alone"
ALONE = "nothing leads from us-east-1 to another region, without a gateway of laptops"
NO_POOL = "laptops at the gateway in us-west-2 and attic and cellar do not reach each other"


@pytest.mark.parametrize(
    ("interconnect", "told"), [("peering", [PEERING, NO_POOL]), ("none", [ALONE, NO_POOL]), ("transit", [])]
)
def test_what_goes_missing_without_transit_is_told_whole(interconnect: str, told: list[str], tmp_path: Path) -> None:
    """Between regions, and between a region's laptops and the sites; from site to site a private gateway leads too."""
    path = tmp_path / "fleet.yaml"
    path.write_text(CHECKS_DETAILS_BASE.replace("egress: shared", f"interconnect: {interconnect}"), encoding="utf-8")

    messages = [fault.message for fault in examine(path, load_catalog()) if fault.code == "W208"]

    assert [part.split(":")[0] for message in messages for part in message.split("; ")] == told


_BOTH = ("[{region: us-west-2}, {site: cellar}]", "[{region: us-west-2}, {region: us-east-1}, {site: cellar}]")


@pytest.mark.parametrize(("gateways", "codes"), [(_BOTH, {"W208"}), (("", ""), {"W208", "E342"})], ids=["two", "one"])
def test_gateways_join_the_regions_that_have_one(gateways: tuple[str, str], codes: set[str], tmp_path: Path) -> None:
    """Workers reach a control plane by them, and nobody is told that such a region stays alone; one joins nothing."""
    path = tmp_path / "fleet.yaml"
    path.write_text(
        CHECKS_DETAILS_BASE.replace("egress: shared", "interconnect: none").replace(*gateways), encoding="utf-8"
    )

    found = [fault for fault in examine(path, load_catalog()) if fault.code in {"W208", "E342"}]

    assert {fault.code for fault in found} == codes
    assert any(ALONE in fault.message for fault in found) is ("E342" in codes)


# Made of the issuers' marks and of letters without meaning.
SECRETS = {
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "a PuTTY key": "PuTTY-User-Key-File-3: ssh-ed25519",
    "an OpenVPN static key": "-----BEGIN OpenVPN Static key V1-----",
    "an age key": "AGE-SECRET-KEY-1QQQQQQQQ",
    "an AWS access key": "AKIAIOSFODNN7EXAMPLE",
    "an AWS session key": "ASIAIOSFODNN7EXAMPLE",
    "an AWS secret access key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "a GitHub token": "ghp_" + "aB3" * 12,
    "a GitLab token": "glpat-" + "aB3-_" * 4,
    "a Slack token": "xoxb-1234567890-ab",
    "a Hugging Face token": "hf_" + "aB" * 17,
    "an API key": "sk-" + "aB3" * 8,
    "a Google API key": "AIza" + "aB3-_" * 7,
    "an npm token": "npm_" + "aB3" * 12,
    "a PyPI token": "pypi-" + "aB3" * 8,
    "a Pulumi token": "pul-" + "0af3" * 10,
    "a JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2ln",
    "a password in an address": "postgres://ada:hunter2@db.lab.internal/x",
}
HARMLESS = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl ada@laptop",
    "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIA== ada@token",
    "sk-ecdsa-sha2-nistp256@openssh.com AAAA ada@token",
    "sk-learn-benchmarks-on-cpu-machines",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "https://lab.example:8443/ada@x",
    "cr-0123456789abcdef0",
    "AKIA",
)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_known_by_its_mark(kind: str) -> None:
    """Wherever it stands in a text; its kind is told, with where it starts."""
    found = list(secrets_in(f"key: {SECRETS[kind]} end"))

    assert kind in {secret.kind for secret in found}
    assert all(secret.start >= 5 for secret in found)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    """Public keys, hashes, names and addresses belong in a fleet file."""
    assert list(secrets_in(text)) == []
