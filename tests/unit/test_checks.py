"""The checks of a fleet file: every rule has an example that violates it, and most have a valid counterpart."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate import checks, load, plan, spec
from bedplate.catalog import load_catalog
from bedplate.checks.catalogue import RULES
from bedplate.checks.people import secrets_in
from bedplate.graph import audit
from bedplate.load import examine
from bedplate.report.rules import ALL_RULES
from bedplate.rules import Fault, Level, rules_of

FLEETS = Path(__file__).parents[1] / "data" / "fleets"
BASE = (FLEETS / "base.yaml").read_text(encoding="utf-8")
Edit = Mapping[str, str]
FaultsOf = Callable[[Edit], tuple[Fault, ...]]

EXAMPLES: dict[str, dict[str, Any]] = {
    code: example
    for path in sorted((FLEETS / "rules").glob("*.yaml"))
    for code, example in YAML(typ="safe").load(path).items()
}
# Rules without an example: unreadable or too large files (test_load_yaml), weak RSA keys (test_spec), faults of the
# plan (test_plan_faults), a damaged lock (test_cli_check), facts of the folder (test_catalog_folder), a lock without an
# image (test_checks_rules), unverified checksums (test_stacks_program), and the ends of keys (test_catalog).
_FILES = {"E001", "E002", "E003", "E004", "E005", "E006", "E012", "E013", "E020"}
_PLAN = {"E230", "E231", "E232", "E233", "E234", "E235", "E236", "E517", "E518"}
ELSEWHERE = {*_FILES, *_PLAN, "E290", "E291", "E349", "E421", "E422", "E510", "W644"}


def edited(edit: Edit) -> str:
    """Return the base fleet after an edit, which must apply."""
    text = BASE
    for old, new in edit.items():
        assert old in text
        text = text.replace(old, new) if old else new
    return text


@pytest.fixture
def faults_of(tmp_path: Path) -> FaultsOf:
    """Return a function that checks the base fleet after an edit."""

    def faults(edit: Edit) -> tuple[Fault, ...]:
        path = tmp_path / "fleet.yaml"
        path.write_text(edited(edit), encoding="utf-8")
        return examine(path, load_catalog())

    return faults


@pytest.mark.parametrize("code", EXAMPLES)
def test_a_violation_is_reported_at_its_key(code: str, faults_of: FaultsOf) -> None:
    """The fault has the key, the message and the level of the rule, and a fix."""
    example = EXAMPLES[code]

    by_key = {fault.key: fault for fault in faults_of(example["bad"]) if fault.code == code}

    assert example["key"] in by_key
    assert example["says"] in by_key[example["key"]].message
    assert by_key[example["key"]].level is RULES[code].level
    assert by_key[example["key"]].fix


@pytest.mark.parametrize("code", [code for code in EXAMPLES if "good" in EXAMPLES[code]])
def test_the_valid_counterpart_is_accepted(code: str, faults_of: FaultsOf) -> None:
    """A similar edit that does not violate the rule has no error."""
    faults = faults_of(EXAMPLES[code]["good"])

    assert [fault for fault in faults if fault.level is Level.ERROR or fault.code == code] == []


def test_the_base_fleet_has_no_fault(faults_of: FaultsOf) -> None:
    """Every fault of an example comes from its edit."""
    assert faults_of({"version: 1": "version: 1"}) == ()


def test_every_rule_has_an_example() -> None:
    """A new rule needs an example in tests/data/fleets/rules."""
    assert set(EXAMPLES) | ELSEWHERE == set(RULES)
    assert set(EXAMPLES).isdisjoint(ELSEWHERE)


_HELD = "reservation: cr-0123456789abcdef0, zone: us-west-2b"
_SITE_RUNG = "{region: us-east-1, market: on-demand}"
_SERVER = "[192.168.60.1]"
_SEVEN = f"[{', '.join(f'192.168.60.{host}' for host in range(1, 8))}]"

# By case: the edit of the base fleet, and the codes and keys of its faults.
EDITS: dict[str, tuple[str, str, list[tuple[str, str]]]] = {
    "two homes": ("us-east-1: {zones", "us-east-1: {home: true, zones", [("E206", "regions.us-east-1.home")]),
    "a rung in a zone of another region": (
        "market: on-demand}", "market: on-demand, zone: us-west-2a}", [("E203", "groups.train.ladder.1.zone")],
    ),
    "a site with the name of the cluster's domain": ("  attic:", "  pods:", [("E207", "sites.pods")]),
    "a control plane not offered at home": (
        "type: m7i.xlarge", "type: m4.xlarge", [],
    ),
    "a misspelt control plane": ("type: m7i.xlarge", "type: m7i.huge", [("E301", "kubernetes.control_plane.type")]),
    "a bucket name that S3 reserves": ("  data:", "  data--x-s3:", []),
    "services larger than Kubernetes takes": ("services: /20", "services: /11", [("E227", "kubernetes.services")]),
    "pods larger than the supernet": ("services: /20", "pods: /9", [("E227", "kubernetes.pods")]),
    "a supernet that is too small for services": ("10.64.0.0/10", "10.64.0.0/24",
                                             [("E227", "vpn.laptops.pool"), ("E227", "kubernetes.services")]),
    "a region as large as the supernet": ("region_size: /16", "region_size: /9", [("E225", "network.region_size")]),
    "a gateway without a place": ("{site: cellar}]", "{}]", [("E608", "vpn.laptops.gateways.1")]),
    "a gateway at an undeclared site": ("{site: cellar}]", "{site: moon}]", [("E406", "vpn.laptops.gateways.1.site")]),
    "a store in no region": ("efs, region: us-west-2", "efs, region: eu-west-3", [("E309", "storage.home.region")]),
    "a region in capitals": ("  us-east-1: {zones", "  US-EAST-1: {zones", [("E106", "regions.US-EAST-1")]),
    "a misspelt region": ("  us-east-1: {zones: [us-east-1a, us-east-1b]", "  us-esat-1: {zones: [us-esat-1a]",
                          [("E201", "regions.us-esat-1")]),
    "a site with a transit gateway's ASN": ("asn: 65011", "asn: 4200000001", [("E244", "sites.attic.gateway.asn")]),
    "a site that AWS dials": ("asn: 65011", "asn: 65011, dials: aws", []),
    "a site in the supernet": ("192.168.60.", "10.70.0.", []),
    "a site's domain next to the fleet's": (
        "  attic:\n", f"  attic:\n    dns: {{domain: lab.example, servers: {_SERVER}}}\n", [],
    ),
    "a site's domain that is the fleet's": (
        "  attic:\n", f"  attic:\n    dns: {{domain: lab.internal, servers: {_SERVER}}}\n",
        [("E249", "sites.attic.dns.domain")],
    ),
    "a site's domain that is AWS's": (
        "  attic:\n", f"  attic:\n    dns: {{domain: us-west-2.compute.internal, servers: {_SERVER}}}\n",
        [("E249", "sites.attic.dns.domain")],
    ),
    "a site that answers for a public domain of AWS": (
        "  attic:\n", f"  attic:\n    dns: {{domain: s3.amazonaws.com, servers: {_SERVER}}}\n",
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
    "a site without a name server": (
        "  attic:\n", "  attic:\n    dns: {domain: attic.example, servers: []}\n",
        [("E108", "sites.attic.dns.servers")],
    ),
    "more name servers than a resolver rule allows": (
        "  attic:\n", f"  attic:\n    dns: {{domain: attic.example, servers: {_SEVEN}}}\n",
        [("E107", "sites.attic.dns.servers")],
    ),
    "a store that is named as the buckets of bundles": ("  data:", "  nodes:", [("E401", "storage.nodes")]),
    "an endpoint of an unsupported service": (
        "egress: shared", "egress: shared, endpoints: [s3]", [("E105", "network.endpoints.0")],
    ),
    "readers with a wildcard": (
        "expire_days: 365", "expire_days: 365, readers: ['arn:aws:iam::111122223333:role/*']",
        [("E106", "storage.data.readers.0")],
    ),
    "two sites with one LAN": ("192.168.60.", "192.168.41.", [("E226", "sites.attic.lan")]),
    "the whole internet": ("10.64.0.0/10", "0.0.0.0/0", [("E220", "network.supernet")]),
    "a supernet that contains Docker's range": ("10.64.0.0/10", "172.16.0.0/12", [("W238", "network.supernet")]),
    "an ARM type among others": ("[g6.4xlarge]", "[g6.4xlarge, g5g.4xlarge]", [("E305", "groups.bench.types.1")]),
    "a worker without a group": ("use: kubernetes}", "use: ssh}", []),
    "the same reservation in two rungs": (
        _SITE_RUNG,
        f"{{region: us-west-2, market: capacity-block, {_HELD}, ends: '2027-01-31T11:30:00Z'}}", [],
    ),
    "two rungs that differ only in price": (
        "[{region: us-west-2}, {region: us-east-1}]",
        "[{region: us-west-2, market: spot}, {region: us-west-2, market: spot, max_price: 2}]",
        [("E308", "groups.bench.ladder.1")],
    ),
    "a zone with a higher price than its region": (
        "[{region: us-west-2}, {region: us-east-1}]",
        "[{region: us-west-2, market: spot, max_price: 1}, {region: us-west-2, market: spot, zone: us-west-2a}]", [],
    ),
    "a reservation of two types": (
        "{region: us-west-2}, {region: us-east-1}]",
        "{region: us-west-2, market: reservation, reservation: cr-0123456789abcdef0, zone: us-west-2b}]",
        [("E345", "groups.train.ladder.0.reservation")],
    ),
    "reserved without a reservation": (
        _SITE_RUNG, "{region: us-east-1, reserved: 4}", [("E312", "groups.train.ladder.1.reserved")],
    ),
    "a block that has ended": (
        "market: reservation,", "market: capacity-block, ends: '2026-11-20T11:30:00Z',",
        [("E329", "groups.train.ladder.0.ends")],
    ),
    "a block with an invalid end": (
        "market: reservation,", "market: capacity-block, ends: tomorrow,", [("E318", "groups.train.ladder.0.ends")],
    ),
    "an invalid expiry": (
        "expires: permanent", "expires: never", [("E318", "groups.bench.expires")],
    ),
    "similar types on a fabric": (
        "fabric: efa", "fabric: efa\n    similar: true", [("E324", "groups.train.similar")],
    ),
    "a part of a GPU": ("[g6.4xlarge]", "[g6f.4xlarge, g6.4xlarge]",
                        [("E354", "groups.bench.types.0"), ("E322", "groups.bench.types.1")]),
    "as many machines as the subnets hold": (
        "nodes: {min: 1, max: 8}", "nodes: {min: 1000, max: 1000}", [],
    ),
    "a maximum above all reservations": (
        f"{_HELD}}}\n      - {_SITE_RUNG}\n", f"{_HELD}, reserved: 4}}\n",
        [("W352", "groups.train.nodes.max")],
    ),
    "a schedule on a fabric": ("fabric: efa", "schedule: {start: '07:00', stop: '20:00'}\n    fabric: efa",
                                       [("E331", "groups.train.schedule")]),
    "a schedule instead of an expiry": (
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
    "taints on SSH machines": (
        "disk: 500", "taints: ['x:NoSchedule']", [("E338", "groups.bench.taints")],
    ),
    "more labels than AWS allows tags": (
        "fabric: efa", f"fabric: efa\n    labels: {{{', '.join(f'k{n}: v' for n in range(29))}}}",
        [("E339", "groups.train.labels")],
    ),
    "as many labels as AWS allows tags": (
        "fabric: efa", f"fabric: efa\n    labels: {{{', '.join(f'k{n}: v' for n in range(28))}}}", [],
    ),
    "a newer driver branch": (
        'driver: "580"', "driver: '595'", [("E612", "sites.cellar.machines.titan.gpus.model")],
    ),
    "a machine with a driver of its own": (
        "model: titan-x, count: 4}", "model: titan-x, count: 4}, driver: '570'",
        [(code, "sites.cellar.machines.titan.driver") for code in ("E622", "W614")],
    ),
    "a GPU that needs closed modules": ("model: titan-x", "model: v100", []),
    "a branch without support": (
        '"580"', "'610'",
        [("E612", "sites.cellar.machines.titan.gpus.model")],
    ),
    "a kubelet four versions behind": (
        "base: ubuntu-24.04", "base: ubuntu-24.04, kubernetes: '1.32'",
        [("E607", "image.kubernetes"), ("W616", "image.kubernetes")],
    ),
    "a version older than the catalog": ('"1.36"', "'1.20'", [("W616", "kubernetes.version")]),
    "a domain that is too long for host names": (
        "domain: lab.internal", f"domain: {'.'.join(['a' * 59] * 4)}",
        [("E248", "groups.bench"), ("E618", "vpn.laptops.gateways.0"), ("E618", "vpn.laptops.gateways.1")],
    ),
    **{
        f"a person named {name}": ("  bob: {", f"  {name}: {{", [("E519", f"people.{name}")])
        for name in ("kube-system", "kueue-system", "people", "com", "cellar", "us-west-2", "__", "_ada", "ada--")
    },
    "a person with the name of a person and more letters": ("  bob: {", "  ada_b: {", []),
    "a fabric on a size without it": (
        "[p5.48xlarge]", "[g6.4xlarge]",
        [("E306", "groups.train.types.0")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EDITS)
def test_an_edit_has_exactly_these_faults(case: str, faults_of: FaultsOf) -> None:
    """No check reports a consequence of another fault."""
    old, new, expected = EDITS[case]

    assert [(fault.code, fault.key) for fault in faults_of({old: new})] == expected


@pytest.mark.parametrize(
    ("fleet_domain", "cellar", "message"),
    [
        ("lab.corp.example", "corp.example", "the fleet's domain lab.corp.example is within corp.example"),
        ("lab.internal", "attic.example", "attic.example is also the domain of cellar"),
        ("lab.internal", "sub.attic.example", ""),
    ],
)
def test_domains_of_sites_do_not_overlap(fleet_domain: str, cellar: str, message: str, tmp_path: Path) -> None:
    """A site's domain is neither the fleet's nor another site's; a subdomain of another site is allowed."""
    path = tmp_path / "fleet.yaml"
    text = BASE.replace("domain: lab.internal", f"domain: {fleet_domain}")
    for site, domain, server in (("cellar", cellar, "192.168.40.1"), ("attic", "attic.example", "192.168.60.1")):
        text = text.replace(f"  {site}:\n", f"  {site}:\n    dns: {{domain: {domain}, servers: [{server}]}}\n")
    path.write_text(text, encoding="utf-8")

    faults = examine(path, load_catalog())

    assert [(fault.code, fault.message) for fault in faults] == ([("E249", message)] if message else [])


# By case: the edit of the base fleet, the code of a fault, and its fix.
FIXES = {
    "a size without the fabric": ("[p5.48xlarge]", "[g6.4xlarge]", "E306", "write g6.8xlarge, or delete fabric"),
    "a type that the zones lack": (
        "[p5.48xlarge]", "[p6-b200.48xlarge]", "E302",
        "use us-east-1c, or write p5en.48xlarge or g7e.48xlarge",
    ),
    "an unsupported driver branch": ('"580"', "'570'", "W614", "write '580', supported until 2028-06-30"),
    "a time zone of another spelling": (
        "expires: permanent", "schedule: {start: '07:00', stop: '20:00', zone: Europe/Zuerich}", "E333",
        "write Europe/Zurich",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FIXES)
def test_the_fix_has_a_valid_value(case: str, faults_of: FaultsOf) -> None:
    """The fix names the nearest valid value, or the place that offers the type."""
    old, new, code, fix = FIXES[case]

    fault = next(fault for fault in faults_of({old: new}) if fault.code == code)

    assert fault.fix == fix


PEERING = "laptops at the gateway in us-west-2 reach only us-west-2"
ISOLATED = "us-east-1 has no connection to other regions"
NO_SITES = "laptops at the gateway in us-west-2 cannot reach attic and cellar"


@pytest.mark.parametrize(
    ("interconnect", "limits"), [("peering", [PEERING, NO_SITES]), ("none", [ISOLATED, NO_SITES]), ("transit", [])]
)
def test_all_limits_without_transit_are_reported(interconnect: str, limits: list[str], faults_of: FaultsOf) -> None:
    """One warning lists missing connections between regions, and between laptops and sites."""
    faults = faults_of({"egress: shared": f"interconnect: {interconnect}"})

    messages = [fault.message for fault in faults if fault.code == "W208"]
    assert [part.split(":")[0] for message in messages for part in message.split("; ")] == limits


_TWO_GATEWAYS = {"[{region: us-west-2}, {site: cellar}]": "[{region: us-west-2}, {region: us-east-1}, {site: cellar}]"}


@pytest.mark.parametrize(("gateways", "codes"), [(_TWO_GATEWAYS, {"W208"}), ({}, {"W208", "E342"})], ids=["two", "one"])
def test_laptop_gateways_connect_their_regions(gateways: Edit, codes: set[str], faults_of: FaultsOf) -> None:
    """With a gateway in both regions, workers reach the control plane; with one gateway they do not."""
    faults = faults_of({"egress: shared": "interconnect: none", **gateways})

    relevant = [fault for fault in faults if fault.code in {"W208", "E342"}]
    assert {fault.code for fault in relevant} == codes
    assert any(ISOLATED in fault.message for fault in relevant) is ("E342" in codes)


# Prefixes of real secrets with meaningless letters.
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
    "a password in a URL": "postgres://ada:hunter2@db.lab.internal/x",
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
def test_a_secret_is_recognized_by_its_pattern(kind: str) -> None:
    """The result has its kind and its position in the text."""
    secrets = list(secrets_in(f"key: {SECRETS[kind]} end"))

    assert kind in {secret.kind for secret in secrets}
    assert all(secret.start >= 5 for secret in secrets)


@pytest.mark.parametrize("text", HARMLESS)
def test_public_text_is_not_a_secret(text: str) -> None:
    """Public keys, hashes, names and URLs may be in a fleet file."""
    assert list(secrets_in(text)) == []


def test_every_rule_is_in_its_catalogue() -> None:
    """A rule of a module that no catalogue lists would have no name; two rules with one code would hide each other."""
    packages = ((package.__path__, f"{package.__name__}.") for package in (spec, plan, checks, load, audit))
    modules = [import_module(module.name) for package in packages for module in walk_packages(*package)]

    rules = set(rules_of(modules))

    assert rules == set(ALL_RULES.values())
    assert len(rules) == len(ALL_RULES)
