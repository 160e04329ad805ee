"""All faults of a file are told in one pass: none hides another, and none is made up by one before it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.checks.fault import Fault
from bedplate.load import examine

FLEETS = Path(__file__).parents[1] / "data" / "fleets"
BASE = (FLEETS / "base.yaml").read_text(encoding="utf-8")
FaultsOf = Callable[..., tuple[Fault, ...]]


@pytest.fixture
def faults_of(tmp_path: Path) -> FaultsOf:
    """Give the question what is wrong with the base fleet after some replacements."""

    def faults(*edits: tuple[str, str]) -> tuple[Fault, ...]:
        text = BASE
        for old, new in edits:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "fleet.yaml"
        path.write_text(text, encoding="utf-8")
        return examine(path, load_catalog())

    return faults


def told(faults: tuple[Fault, ...]) -> list[tuple[str, str]]:
    """Return code and key of each fault."""
    return [(fault.code, fault.key) for fault in faults]


def test_faults_of_shape_and_of_sense_come_together(faults_of: FaultsOf) -> None:
    """A value that the models refuse does not end the checks of all the others."""
    found = faults_of(
        ("egress: shared", "egress: sharde"), ("p5.48xlarge", "p5.49xlarge"), ("asn: 65011", "asn: 65010")
    )

    assert told(found) == [
        ("E105", "network.egress"),
        ("E245", "sites.attic.gateway.asn"),
        ("E301", "groups.train.types.0"),
    ]


REQUIRED = {
    "version": ("version: 1\n", "version: 2\n", "E601"),
    "name": ("name: lab", "name: Lab", "E410"),
    "account": ('"111122223333"', "111122223333", "E103"),
    "owner": ("infra@lab.example", "[]", "E103"),
    "domain": ("lab.internal", "lab", "E414"),
    "network.supernet": ("10.64.0.0/10", "10.64.0.1/10", "E212"),
    "regions.us-west-2.zones.2": ("us-west-2a, us-west-2b]", "us-west-2a, us-west-2b, 3]", "E103"),
    "sites.cellar.lan": ("192.168.40.0/22", "192.168.40.0", "E211"),
    "sites.cellar.machines.gate.address": ("address: 192.168.40.1}", "address: 192.168.40.x}", "E213"),
    "groups.train.nodes.min": ("min: 0, max: 64", "min: none, max: 64", "E103"),
    "kubernetes.version": ('"1.36"', "1.36", "E103"),
    "people.Ada": ("  ada:", "  Ada:", "E503"),
}


@pytest.mark.parametrize("key", REQUIRED)
def test_a_refused_part_makes_up_no_other_fault(key: str, faults_of: FaultsOf) -> None:
    """What refers to the part finds it declared, and what needs it is not asked."""
    old, new, code = REQUIRED[key]

    found = faults_of((old, new))

    assert told(found) == [(code, key)]


def test_a_file_without_its_required_parts_is_told_each(tmp_path: Path) -> None:
    """Nothing is asked of the parts that stand in for them."""
    path = tmp_path / "fleet.yaml"
    path.write_text("people: {}\n", encoding="utf-8")

    found = examine(path, load_catalog())

    assert {fault.code for fault in found} == {"E102"}
    assert {fault.key for fault in found} == {"version", "name", "account", "owner", "domain", "network", "regions"}


def test_an_item_behind_a_refused_one_keeps_its_own_place(faults_of: FaultsOf) -> None:
    """Keys count the items of the file, not those that are left."""
    found = faults_of(("[{region: us-west-2}, {region: us-east-1}]", "[{region: 3}, {region: eu-west-1}]"))

    assert told(found) == [("E103", "groups.bench.ladder.0.region"), ("E309", "groups.bench.ladder.1.region")]
    assert found[1].column > found[0].column


def test_faults_come_in_the_order_of_the_file(faults_of: FaultsOf) -> None:
    """A reader goes through the file once."""
    found = faults_of(("name: lab", "name: Lab"), ('"580"', "580"), ("us-west-2a, us", "us-west-2x, us"))

    assert [(fault.line, fault.column) for fault in found] == sorted((fault.line, fault.column) for fault in found)
    assert [fault.code for fault in found] == ["E410", "E202", "E103"]


def test_an_unknown_kind_of_store_is_told_without_the_keys_of_another(faults_of: FaultsOf) -> None:
    """Errors of a choice are those of the chosen kind only."""
    found = faults_of(("kind: efs, region: us-west-2", "kind: esf, region: us-west-2"))

    assert told(found) == [("E105", "storage.home.kind")]
    assert found[0].fix == "write efs"


@pytest.mark.parametrize("word", ["{{ 7*7 }}", "${HOME}", "%{x}", "{0.__class__}", "{message}", "{fix}"])
def test_what_looks_like_a_template_stays_literal(word: str, faults_of: FaultsOf) -> None:
    """A value is repeated as it was written, and rendered by nobody."""
    found = faults_of(("name: lab", f"name: '{word}'"))

    assert [fault.code for fault in found] == ["E410"]
    assert word in found[0].message


def test_what_the_plan_refuses_is_told_at_its_place(faults_of: FaultsOf) -> None:
    """A supernet without room is a fault of the file like any other."""
    found = faults_of(("10.64.0.0/10", "10.64.0.0/16"))

    assert [fault.code[:3] for fault in found] == ["E23"]
    assert all(fault.line > 1 for fault in found)


CANARIES = {
    "an AWS key": "AKIAIOSFODNN7EXAMPLE",
    "an AWS secret": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "a GitHub token": "ghp_" + "aB3" * 12,
    "a private key": "-----BEGIN RSA PRIVATE KEY----- MIIEsecretpart",
    "a password": "https://ada:hunter2secret@git.example",
}
PLACES = {
    "a value": ("name: lab", "name: '{}'"),
    "a key": ("name: lab", "name: lab\n'{}': 1"),
    "a reference": ("site: cellar, machine: gate, export: /srv/crate", "site: '{}', machine: gate, export: /srv/crate"),
    "an SSH key": ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJp0", "{} AAAA"),
    "a comment": ("version: 1\n", "version: 1 # {}\n"),
    "a file that is no YAML": ("version: 1\n", "version: 1\nx: '{}' ]\n"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("secret", CANARIES)
def test_a_secret_is_told_and_never_repeated(place: str, secret: str, faults_of: FaultsOf) -> None:
    """No fault holds it, whatever else is wrong with it; one says where it stands."""
    old, new = PLACES[place]

    found = faults_of((old, new.format(CANARIES[secret])))

    assert {"E501", "E502"} & {fault.code for fault in found}
    parts = [part for part in CANARIES[secret].split() if len(part) > 12]
    assert not [fault for fault in found for part in parts if part in repr(fault)]
