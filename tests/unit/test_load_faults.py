"""All faults of a file are told in one pass: none hides another, and none is made up by one before it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.checks.diagnostics import Fault, Level
from bedplate.load import examine, load_fleet
from bedplate.plan.record import PlanFault

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


LOAD_ADVICE_BASE = Path(__file__).parents[1] / "data" / "fleets" / "base.yaml"

ADVICE = {
    "an unquoted number": ('driver: "580"', "driver: 580", "image.driver", "quote it: '580'"),
    "an unquoted version": ('version: "1.36"', "version: 1.30", "kubernetes.version", "quote it"),
    "a quoted number": ("disk: 500", "disk: '500'", "groups.bench.disk", "write 500 without quotes"),
    "a number of another form": ("disk: 500", "disk: 5e2", "groups.bench.disk", "write 500"),
    "a fraction": ("disk: 500", "disk: 99.5", "groups.bench.disk", "write a whole number"),
    "no number": ("disk: 500", "disk: .nan", "groups.bench.disk", "write a whole number"),
    "a quoted truth": ("home: true", "home: 'true'", "regions.us-west-2.home", "write true without quotes"),
    "a word for a truth": ("home: true", "home: sure", "regions.us-west-2.home", "write true or false"),
    "a word for a list": ("types: [g6.4xlarge]", "types: g6.4xlarge", "groups.bench.types", "write [g6.4xlarge]"),
    "a list for a mapping": ("nodes: {min: 1, max: 8}", "nodes: [1, 8]", "groups.bench.nodes", "write a mapping"),
    "a mapping for a word": ("name: lab", "name: {a: b}", "name", "write text"),
    "a misspelt key": ("fabric: efa", "fabrik: efa", "groups.train.fabrik", "write fabric"),
    "a misspelt word": ("market: on-demand", "market: on-dmeand", "groups.train.ladder.1.market",
                        "write on-demand"),
    "a misspelt kind": ("kind: nfs, site: cellar, machine: gate, export: /srv/v", "kind: nsf, export: /srv/v",
                        "storage.vault.kind", "write nfs"),
    "no kind": ("kind: efs, ", "", "storage.home", "add kind: efs, s3 or nfs"),
    "no store at all": ("home: {kind: efs, region: us-west-2, mount: /home}", "home: /home", "storage.home",
                        "write a mapping"),
    "an older format": ("version: 1\n", "version: 0\n", "version",
                        "compare the file with examples/minimal.yaml, then write 1"),
    "a quoted format": ("version: 1\n", "version: '1'\n", "version", "write 1"),
    "upper case": ("name: lab", "name: My_Lab", "name", "write my-lab"),
    "a name that AWS keeps": ("name: lab", "name: aws-lab", "name", "write lab"),
    "a path's last slash": ("export: /srv/vault", "export: /srv//vault/", "storage.vault.export", "write /srv/vault"),
    "a number with an underscore": ("max: 64", "max: 1_000", "groups.train.nodes.max",
                                    "where text is wanted, quote it: '1_000'; else write 1000"),
    "a name for a public address": ("public: 8.20.30.40", "public: gate.lab", "sites.cellar.gateway.public",
                                    "write four numbers from 0 to 255, with dots between them"),
    "a word of two meanings": ("name: lab", "name: no", "name",
                               "where text is wanted, quote it: 'no'; else write false"),
    "a reservation of a wrong form": ("cr-0123456789abcdef0", "cr-xyz", "groups.train.ladder.0.reservation",
                                      "write cr-0123456789abcdef0"),
    "too long a name": ("name: lab", "name: the-laboratory-of-everything", "name", "shorten it, as in lab"),
}  # fmt: skip


@pytest.mark.parametrize("slip", ADVICE)
def test_a_slip_of_the_pen_is_told_with_what_was_meant(slip: str, tmp_path: Path) -> None:
    """The fix can be typed as it stands."""
    old, new, key, fix = ADVICE[slip]
    path = tmp_path / "fleet.yaml"
    path.write_text(LOAD_ADVICE_BASE.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    found = examine(path, load_catalog())

    assert [(told.key, told.fix) for told in found] == [(key, fix)]


@pytest.mark.parametrize("value", ["[1]", "{a: 1}"])
def test_a_list_or_a_mapping_is_named_as_one(value: str, tmp_path: Path) -> None:
    """And not written out in the words of another language."""
    path = tmp_path / "fleet.yaml"
    path.write_text(LOAD_ADVICE_BASE.read_text(encoding="utf-8").replace("region_size: /16", f"region_size: {value}"))

    (told,) = examine(path, load_catalog())

    assert told.message.startswith(("a list is no size", "a mapping is no size"))


@pytest.mark.parametrize("text", ["- a\n- b\n", "lab\n", "7\n"])
def test_a_file_that_is_no_mapping_is_told_once(text: str, tmp_path: Path) -> None:
    """There is nothing to check in it."""
    path = tmp_path / "fleet.yaml"
    path.write_text(text, encoding="utf-8")

    found = examine(path, load_catalog())

    assert [(told.code, told.line) for told in found] == [("E103", 1)]


def test_a_loaded_fleet_places_what_its_plan_refuses() -> None:
    """A fault of the plan is told where its key stands, at the level of its rule."""
    loaded = load_fleet(LOAD_ADVICE_BASE, load_catalog())

    told = loaded.placed([PlanFault("E230", "network.supernet", "full", "grow it")])[0]

    assert (told.line, told.column, told.level) == (7, 21, Level.ERROR)
    assert told.file == str(LOAD_ADVICE_BASE)


def test_a_loaded_fleet_tells_how_many_rules_apply() -> None:
    """Rules about parts that a file does not have are not counted."""
    small = LOAD_ADVICE_BASE.parents[3] / "examples" / "minimal.yaml"

    counts = [load_fleet(path, load_catalog()).rules for path in (small, LOAD_ADVICE_BASE)]

    assert 0 < counts[0] < counts[1]
