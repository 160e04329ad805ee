"""A fault of shape proposes the nearest right value."""

from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.checks.fault import Level
from bedplate.load import examine, load_fleet
from bedplate.plan.fault import PlanFault

BASE = Path(__file__).parents[1] / "data" / "fleets" / "base.yaml"

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
    path.write_text(BASE.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    found = examine(path, load_catalog())

    assert [(told.key, told.fix) for told in found] == [(key, fix)]


@pytest.mark.parametrize("value", ["[1]", "{a: 1}"])
def test_a_list_or_a_mapping_is_named_as_one(value: str, tmp_path: Path) -> None:
    """And not written out in the words of another language."""
    path = tmp_path / "fleet.yaml"
    path.write_text(BASE.read_text(encoding="utf-8").replace("region_size: /16", f"region_size: {value}"))

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
    loaded = load_fleet(BASE, load_catalog())

    told = loaded.placed([PlanFault("E230", "network.supernet", "full", "grow it")])[0]

    assert (told.line, told.column, told.level) == (7, 21, Level.ERROR)
    assert told.file == str(BASE)


def test_a_loaded_fleet_tells_how_many_rules_apply() -> None:
    """Rules about parts that a file does not have are not counted."""
    small = BASE.parents[3] / "examples" / "minimal.yaml"

    counts = [load_fleet(path, load_catalog()).rules for path in (small, BASE)]

    assert 0 < counts[0] < counts[1]
