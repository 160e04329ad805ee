"""`fleet.catalog`: the facts of an account in the fleet folder, before those of the package."""

import json
import re
import shutil
from dataclasses import replace
from datetime import date
from hashlib import sha256
from pathlib import Path

import pytest

from bedplate.catalog import Catalog, load_catalog
from bedplate.catalog.catalog import RegionAnswer, load_chips, read_data_file
from bedplate.catalog.folder import FolderFacts, read_facts, write_facts
from bedplate.catalog.keys import read_keys
from bedplate.catalog.software import EFA_SUM, NVIDIA_KEY_SUM
from bedplate.cli import run
from bedplate.load import load_fleet
from bedplate.load.catalog import fleet_catalog, write_folder_facts
from bedplate.plan import Record
from bedplate.plan.node_document import read_node_document, region_documents
from bedplate.spec.groups import Ring
from roles.catalog import roles_of
from roles.efa.role import Efa
from roles.gate.role import expectations
from roles.nvidia.role import Nvidia
from tests.testlab.rehearsal.programs import EXAMPLES

ACCOUNT, OTHER = "111122223333", "444455556666"
REGIONS = ("us-west-2", "us-east-1", "eu-north-1")
DAY = date(2026, 11, 27)
ROOT = EXAMPLES.parent
KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----\n"


def facts(account: str = ACCOUNT) -> FolderFacts:
    """Return what a refresh of the lab's regions records: everything as in the package, and all checksums confirmed."""
    catalog = load_catalog()
    answers = {}
    for region in REGIONS:
        offers = {name: letters[region] for name, letters in catalog.offers.items() if region in letters}
        answers[region] = RegionAnswer({name: catalog.types[name] for name in offers if name in catalog.types}, offers)
    sums = {EFA_SUM: "1" * 64, NVIDIA_KEY_SUM: sha256(KEY.encode()).hexdigest()}
    sets = {
        name: replace(
            software,
            items={item: replace(software.items[item], value=software.value(item) or value, verified=True)
                   for item, value in sums.items()},
        )
        for name, software in catalog.software.items()
    }  # fmt: skip
    renewed = replace(catalog.keys["docker"], text=KEY, checksum=sha256(KEY.encode()).hexdigest())
    answered = FolderFacts().with_answers(account, answers, catalog.prices, DAY)
    return replace(answered, software=sets, keys={"docker": renewed}, nvidia_key=KEY, addons=catalog.addons)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """Return the example lab in a folder of its own."""
    return Path(shutil.copy(EXAMPLES / "lab.yaml", tmp_path / "fleet.yaml"))


def test_written_facts_are_read_unchanged() -> None:
    """Also keys, whose lines are a section, and without any fact."""
    for written in (facts(), FolderFacts()):
        assert read_facts(write_facts(written)) == written


def test_confirmed_facts_of_the_package_change_nothing() -> None:
    """Facts that are equal to those of the package leave its types, offers and prices as they are."""
    package, catalog = load_catalog(), facts().over(load_catalog())

    assert (catalog.types, catalog.offers, catalog.prices) == (package.types, package.offers, package.prices)
    assert catalog.has_letters_of(ACCOUNT, "us-west-2")
    assert not package.has_letters_of(ACCOUNT, "us-west-2")


def _grown(package: Catalog) -> Catalog:
    return replace(package, types={**package.types, "z9.large": replace(package.types["m7i.large"], name="z9.large")})


def test_newer_facts_of_the_package_are_used_beside_those_of_the_folder() -> None:
    """The folder has facts about its regions only: a later bedplate still adds types and offers of others."""
    package = replace(_grown(load_catalog()), offers={**load_catalog().offers, "z9.large": {"eu-west-1": "a"}})

    catalog = facts().over(package)

    assert "z9.large" in catalog.types
    assert catalog.offered("z9.large", "eu-west-1") == ("eu-west-1a",)


def test_a_second_account_starts_anew() -> None:
    """Its answers replace all those of the first; keys and checksums are the same for every account."""
    answer = {"us-east-1": RegionAnswer({}, {"m7i.large": "f"})}

    second = facts().with_answers(OTHER, answer, {"m7i.large": 1.0}, DAY)

    assert (second.account, second.dates) == (OTHER, {"us-east-1": DAY})
    assert (second.offers, second.prices) == ({"m7i.large": {"us-east-1": "f"}}, {"m7i.large": 1.0})
    assert (second.software, second.keys, second.addons) == (facts().software, facts().keys, facts().addons)


def test_a_later_refresh_keeps_the_other_regions() -> None:
    """Each region has the date of its own answer, and a type that the answer omits is dropped."""
    answer = {"us-east-1": RegionAnswer({}, {})}

    later = facts().with_answers(ACCOUNT, answer, {"m7i.large": 1.0}, date(2027, 1, 2))

    assert later.dates == {**facts().dates, "us-east-1": date(2027, 1, 2)}
    assert later.offers["m7i.large"].keys() == {"us-west-2", "eu-north-1"}
    assert later.prices == {"m7i.large": 1.0}


@pytest.mark.parametrize(("days", "is_taken"), [(365, True), (-365, False)])
def test_the_key_that_ends_later_is_used(days: int, *, is_taken: bool) -> None:
    """A later version of bedplate may ship a newer key than the folder has."""
    shipped = read_keys(read_data_file("keys").rows)["kubernetes"]
    assert shipped.ends
    other = replace(shipped, ends=date.fromordinal(shipped.ends.toordinal() + days), text="other")

    catalog = replace(facts(), keys={"kubernetes": other}).over(replace(load_catalog(), keys={"kubernetes": shipped}))

    assert (catalog.keys["kubernetes"] == other) is is_taken


def test_a_checksum_that_differs_from_the_package_is_not_used() -> None:
    """A later version of bedplate knows another one: somebody must compare it again."""
    changed = replace(facts().software["2026-10"].items[EFA_SUM], value="2" * 64)
    folder = facts().software["2026-10"]
    wrong = replace(facts(), software={"2026-10": replace(folder, items={**folder.items, EFA_SUM: changed})})

    assert wrong.over(load_catalog()).software["2026-10"].checksum(EFA_SUM) == ""
    assert facts().over(load_catalog()).software["2026-10"].checksum(EFA_SUM)


TEXT = write_facts(facts())


@pytest.mark.parametrize(
    ("found", "replaced", "words"),
    [
        pytest.param("# version: 1\n", "# version: 2\n", "has format 2, this bedplate reads 1", id="newer"),
        pytest.param("# version: 1\n", "", "is incomplete: 'version'", id="no version"),
        pytest.param("[instances]\n", "", "was edited", id="no section"),
        pytest.param("[prices]\n", "<<<<<<< HEAD\n[prices]\n", "unfinished merge", id="merge"),
        pytest.param("m7i.large\tx86_64\t2\t", "m7i.large\tx86_64\ttwo\t", "invalid literal", id="a word"),
        pytest.param("m7i.large\tx86_64\t2\t", "m7i.large\tx86_64\t02\t", "was edited", id="another form"),
        pytest.param("\np5.48xlarge\t", "\np5.48xlarge\tnan\t", "too many values", id="cells"),
        pytest.param("\na1.metal\t0.408\n", "\na1.metal\tnan\n", "a price is not a number above 0", id="price"),
        pytest.param("mQ==\n", "mR==\n", "the key of docker has another checksum", id="key"),
        pytest.param("us-east-1=2026-11-27", "us-east-1=2026-27-11", "month must be in", id="date"),
    ],
)
def test_any_other_text_is_refused(found: str, replaced: str, words: str) -> None:
    """Facts that were changed by hand or by a merge are not those of the account."""
    assert found in TEXT

    with pytest.raises(ValueError, match=words):
        read_facts(TEXT.replace(found, replaced, 1))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            TEXT.replace("# version: 1", "# version: 9"),
            "cannot use fleet.catalog: it has format 9, this bedplate reads 1",
        ),
        (TEXT[:5000], "cannot use fleet.catalog: "),
        ("\x00", "cannot use fleet.catalog: the file contains the character U+0000"),
    ],
    ids=["newer", "cut", "binary"],
)
def test_every_command_refuses_an_unusable_file(
    text: str, words: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, with the file and the fix: the facts of the package would give other zones without a word."""
    lab.with_name("fleet.catalog").write_text(text)

    assert run(["check", str(lab)]) == 2
    assert words in capsys.readouterr().out
    assert run(["plan", str(lab)]) == 2
    assert words in capsys.readouterr().err


def test_facts_of_another_account_are_an_error(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their zones are not those of the fleet's account."""
    write_folder_facts(lab, facts(OTHER))

    assert run(["check", str(lab)]) == 2

    assert re.search(rf"E421.*\n.*fleet.catalog has facts of account {OTHER}", capsys.readouterr().out)


def test_everybody_with_the_folder_has_the_same_facts(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy of the folder gives the same zones and prices, in a clone of bedplate that nobody has refreshed."""
    dearer = {**load_catalog().prices, "p5.48xlarge": 1000.0}
    write_folder_facts(lab, replace(facts(), prices=dearer))
    copy = Path(shutil.copytree(lab.parent, tmp_path / "copy"))
    documents = []
    for file in (lab, copy / "fleet.yaml"):
        assert run(["cost", str(file), "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))

    assert documents[0] == documents[1]
    assert documents[0]["prices"]["date"] == "2026-11-27"
    lab.with_name("fleet.catalog").unlink()
    assert run(["cost", str(lab), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hourly"] != documents[0]["hourly"]


def test_a_plan_has_the_facts_with_which_it_was_made() -> None:
    """Only what has no plan reads the facts of the package: other code would contradict the checks of the file."""
    files = (
        file for package in ("bedplate", "images", "roles", "stacks", "vpn") for file in (ROOT / package).rglob("*.py")
    )
    users = {
        file.relative_to(ROOT).as_posix() for file in files if "load_catalog()" in file.read_text(encoding="utf-8")
    }

    before_a_plan = {f"bedplate/operate/{name}.py" for name in ("account", "cluster_objects", "new_folder")}
    graphs_of_others = {"bedplate/operate/reach.py", "bedplate/operate/rehearsal.py"}
    readers = {"bedplate/catalog/catalog.py", "bedplate/load/catalog.py"}
    assert users == before_a_plan | graphs_of_others | readers


def test_a_type_that_only_the_folder_knows_is_planned_and_checked_on_its_machines(lab: Path) -> None:
    """The machines have the code of a bundle, which has no facts: their document says what the type must have."""
    p5 = load_catalog().types["p5.48xlarge"]
    known = facts()
    types, offers = {**known.types, "p9.48xlarge": replace(p5, name="p9.48xlarge", efa=16)}, dict(known.offers)
    offers["p9.48xlarge"] = offers["p5.48xlarge"]
    write_folder_facts(lab, replace(known, types=types, offers=offers))
    lab.write_text(lab.read_text().replace("p5.48xlarge", "p9.48xlarge").replace("p5en.48xlarge", "p9.48xlarge"))
    plan = load_fleet(lab).plan(Record({}))

    pool = next(pool for pool in plan.pools if "p9.48xlarge" in pool.types)
    document = region_documents(plan, pool.region, Ring.STABLE, plan.catalog)[pool.name]

    node = read_node_document(document)
    assert expectations(node, load_chips())["p9.48xlarge"].efa == 16
    assert load_fleet(lab).catalog == fleet_catalog(lab)


def test_machines_get_confirmed_checksums_and_keys_by_their_document(lab: Path) -> None:
    """A bundle is the same for all operators, so what one of them has confirmed is not in it."""
    write_folder_facts(lab, facts())
    plan = load_fleet(lab).plan(Record({}))
    pool = next(pool for pool in plan.pools if pool.fabric)
    document = region_documents(plan, pool.region, pool.group_spec.ring, plan.catalog)[pool.name]
    roles = {type(role): role for role in roles_of(read_node_document(document))}

    efa, nvidia = roles[Efa], roles[Nvidia]
    assert isinstance(efa, Efa)
    assert isinstance(nvidia, Nvidia)
    assert efa.software.checksum(EFA_SUM)
    assert nvidia.tools.is_trusted
    assert nvidia.tools.key == KEY
