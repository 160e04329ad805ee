"""One pass reports all faults of a file: no fault hides another, and none is a consequence of another."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.load import examine, load_fleet
from bedplate.plan.faults import SUPERNET_EXHAUSTED
from bedplate.rules import Fault, Level, fault

FLEETS = Path(__file__).parents[1] / "data" / "fleets"
BASE = (FLEETS / "base.yaml").read_text(encoding="utf-8")
FaultsOf = Callable[..., tuple[Fault, ...]]


@pytest.fixture
def faults_of(tmp_path: Path) -> FaultsOf:
    """Return a function that checks the base fleet after some replacements."""

    def faults(*edits: tuple[str, str]) -> tuple[Fault, ...]:
        text = BASE
        for old, new in edits:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "fleet.yaml"
        path.write_text(text, encoding="utf-8")
        return examine(path, load_catalog())

    return faults


def codes_and_keys(faults: tuple[Fault, ...]) -> list[tuple[str, str]]:
    """Return code and key of each fault."""
    return [(fault.code, fault.key) for fault in faults]


def test_validation_errors_and_checks_are_reported_together(faults_of: FaultsOf) -> None:
    """A rejected value does not prevent the checks of the rest."""
    faults = faults_of(
        ("egress: shared", "egress: sharde"), ("p5.48xlarge", "p5.49xlarge"), ("asn: 65011", "asn: 65010")
    )

    assert codes_and_keys(faults) == [
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
def test_a_rejected_value_has_no_other_consequence(key: str, faults_of: FaultsOf) -> None:
    """References to it are valid, and checks that need it do not run."""
    old, new, code = REQUIRED[key]

    faults = faults_of((old, new))

    assert codes_and_keys(faults) == [(code, key)]


def test_every_missing_required_key_is_reported(tmp_path: Path) -> None:
    """Checks do not report faults of their placeholders."""
    path = tmp_path / "fleet.yaml"
    path.write_text("people: {}\n", encoding="utf-8")

    faults = examine(path, load_catalog())

    assert {fault.code for fault in faults} == {"E102"}
    assert {fault.key for fault in faults} == {"version", "name", "account", "owner", "domain", "network", "regions"}


def test_an_item_after_a_rejected_one_keeps_its_index(faults_of: FaultsOf) -> None:
    """The index in a key counts the items of the file."""
    faults = faults_of(("[{region: us-west-2}, {region: us-east-1}]", "[{region: 3}, {region: eu-west-1}]"))

    assert codes_and_keys(faults) == [
        ("E103", "groups.bench.ladder.0.region"),
        ("E309", "groups.bench.ladder.1.region"),
    ]
    assert faults[1].column > faults[0].column


def test_faults_are_in_the_order_of_the_file(faults_of: FaultsOf) -> None:
    """Readers go through the file once."""
    faults = faults_of(("name: lab", "name: Lab"), ('"580"', "580"), ("us-west-2a, us", "us-west-2x, us"))

    assert [(fault.line, fault.column) for fault in faults] == sorted((fault.line, fault.column) for fault in faults)
    assert [fault.code for fault in faults] == ["E410", "E202", "E103"]


def test_an_unknown_kind_of_store_is_one_fault(faults_of: FaultsOf) -> None:
    """Its keys are not compared with those of the other kinds."""
    faults = faults_of(("kind: efs, region: us-west-2", "kind: esf, region: us-west-2"))

    assert codes_and_keys(faults) == [("E105", "storage.home.kind")]
    assert faults[0].fix == "write efs"


@pytest.mark.parametrize("word", ["{{ 7*7 }}", "${HOME}", "%{x}", "{0.__class__}", "{message}", "{fix}"])
def test_a_message_shows_template_syntax_literally(word: str, faults_of: FaultsOf) -> None:
    """Nothing expands a value of the file."""
    faults = faults_of(("name: lab", f"name: '{word}'"))

    assert [fault.code for fault in faults] == ["E410"]
    assert word in faults[0].message


def test_faults_of_the_plan_have_a_position(faults_of: FaultsOf) -> None:
    """A supernet that is too small is reported at its line."""
    few_pods = [(f"max: {count}}}", "max: 1}") for count in (8, 64)]
    faults = faults_of(("10.64.0.0/10", "10.64.0.0/16"), *few_pods)

    assert [fault.code[:3] for fault in faults] == ["E23"]
    assert all(fault.line > 1 for fault in faults)


SECRETS = {
    "an AWS key": "AKIAIOSFODNN7EXAMPLE",
    "an AWS secret": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "a GitHub token": "ghp_" + "aB3" * 12,
    "a private key": "-----BEGIN RSA PRIVATE KEY----- MIIEsecretpart",
    "a webhook of Slack": "https://hooks.slack.com/services/T024BE7LD/B0secretpart",
    "a webhook of Mattermost": "https://chat.lab.example/hooks/secretpart1234567",
    "a password": "https://ada:hunter2secret@git.example",
}
PLACES = {
    "a value": ("name: lab", "name: '{}'"),
    "a key": ("name: lab", "name: lab\n'{}': 1"),
    "a reference": ("site: cellar, machine: gate, export: /srv/crate", "site: '{}', machine: gate, export: /srv/crate"),
    "an SSH key": ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJp0", "{} AAAA"),
    "a comment": ("version: 1\n", "version: 1 # {}\n"),
    "a file that is not YAML": ("version: 1\n", "version: 1\nx: '{}' ]\n"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_reported_and_not_shown(place: str, secret: str, faults_of: FaultsOf) -> None:
    """No fault contains a part of it."""
    old, new = PLACES[place]

    faults = faults_of((old, new.format(SECRETS[secret])))

    assert {"E501", "E502"} & {fault.code for fault in faults}
    parts = [part for part in SECRETS[secret].split() if len(part) > 12]
    assert not [fault for fault in faults for part in parts if part in repr(fault)]


@pytest.mark.parametrize("value", ["[1]", "{a: 1}"])
def test_a_message_does_not_show_a_list_or_mapping(value: str, faults_of: FaultsOf) -> None:
    """The message says "a list" or "a mapping" instead."""
    (fault,) = faults_of(("region_size: /16", f"region_size: {value}"))

    assert fault.message.startswith(("a list is not a prefix length", "a mapping is not a prefix length"))


@pytest.mark.parametrize("text", ["- a\n- b\n", "lab\n", "7\n"])
def test_a_file_must_be_a_mapping(text: str, tmp_path: Path) -> None:
    """There is one fault, because nothing can be checked."""
    path = tmp_path / "fleet.yaml"
    path.write_text(text, encoding="utf-8")

    faults = examine(path, load_catalog())

    assert [(fault.code, fault.line) for fault in faults] == [("E103", 1)]


def test_a_loaded_fleet_locates_faults_of_its_plan() -> None:
    """Each fault gets the position of its key, and the level of its rule."""
    path = FLEETS / "base.yaml"
    loaded = load_fleet(path, load_catalog())

    (placed,) = loaded.placed([fault(SUPERNET_EXHAUSTED, "network.supernet", "full", "grow it")])

    assert (placed.line, placed.column, placed.level) == (7, 21, Level.ERROR)
    assert placed.file == str(path)


def test_a_loaded_fleet_counts_applicable_rules() -> None:
    """Rules about sections that the file does not have are not counted."""
    small = Path(__file__).parents[2] / "examples" / "minimal.yaml"

    counts = [load_fleet(path, load_catalog()).rules for path in (small, FLEETS / "base.yaml")]

    assert 0 < counts[0] < counts[1]
