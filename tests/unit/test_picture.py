"""The picture of a fleet: well-formed, whole, without overlap, and closed in itself."""

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.picture import picture
from bedplate.picture.page import page
from bedplate.picture.svg import ELLIPSIS, Box, Face, Icon, Line, Text, fitted, width
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.spec.sites import Dials
from tests.conftest import DATA, Expect
from tests.testlab.fleets.sketch import cluster, group, laptops, sketch
from tests.testlab.fleets.variants import with_gateways, with_settings
from tests.testlab.rehearsal.programs import plan_of

ROOT = Path(__file__).parents[2]
REGIONS = (
    *("us-west-2", "us-east-1", "eu-north-1", "ap-southeast-2", "ap-northeast-1", "eu-central-1"),
    *("sa-east-1", "ca-central-1", "us-east-2", "eu-west-1", "ap-south-1", "me-central-1"),
)
NAMESPACE = "{http://www.w3.org/2000/svg}"


def fleet(count: int, interconnect: str = "transit", supernet: str = "10.64.0.0/10") -> FleetPlan:
    """Return the plan of a fleet of that many regions, with one to six zones each, and something of everything."""
    names = REGIONS[:count]
    rungs = [{"region": name, "market": "spot" if number % 3 else "on-demand"} for number, name in enumerate(names)]
    block = {"region": names[0], "market": "capacity-block", "reservation": "cr-0123456789abcdef0"}
    declared = sketch(
        {name: [name + zone for zone in "abcdef"[: 1 + number * 5 % 6]] for number, name in enumerate(names)},
        sites={"cellar": "192.168.40.0/22", "attic": "192.168.80.0/22"},
        network={"interconnect": interconnect, "supernet": supernet},
        groups={
            "train": group(*rungs, use="kubernetes", fabric="efa"),
            "a-group-with-the-longest-of-name": group(
                *rungs, types=["c7i.24xlarge"] * 7, use="kubernetes", fabric="efa"
            ),
            "block": group({**block, "zone": f"{names[0]}a"}),
        },
        storage={
            "home": {"kind": "efs", "region": names[0], "mount": "/home" * 40},
            "vault": {"kind": "nfs", "site": "attic", "machine": "gate", "export": "/srv" * 40, "mount": "/v" * 80},
            "sets": {"kind": "s3", "regions": names, "expire_days": 30},
        },
        kubernetes=cluster(),
        vpn=laptops(*({"region": name} for name in names), {"site": "attic"}),
    )
    return plan_fleet(declared, Record({}), load_catalog())


def lab() -> FleetPlan:
    """Return the plan of examples/lab.yaml as a first run makes it."""
    loaded = load_fleet(ROOT / "examples/lab.yaml", load_catalog())
    return plan_fleet(loaded.fleet, Record({}), load_catalog())


def drawn(plan: FleetPlan) -> ET.Element:
    """Return the root of a picture; what is not well-formed raises."""
    return ET.fromstring(picture(plan))  # noqa: S314  our own text, which this judges


def words(plan: FleetPlan) -> str:
    """Return all words of a picture, those that a pointer finds among them."""
    return "\n".join(drawn(plan).itertext())


@pytest.mark.parametrize("count", range(1, 13))
def test_nothing_overlaps_and_nothing_leaves_the_page(count: int) -> None:
    """Words and signs keep apart in the widest of common fonts, for every number of regions."""
    sheet = page(fleet(count))
    boxes = [mark.box for mark in sheet.marks if isinstance(mark, Text | Icon)]
    whole = Box(0, 0, sheet.width, sheet.height)

    clashes = [(one, other) for one, other in combinations(boxes, 2) if one.overlaps(other)]

    assert clashes == []
    assert all(box.lies_in(whole) for box in boxes)


@pytest.mark.parametrize("count", range(1, 13))
def test_no_line_crosses_a_word(count: int) -> None:
    """Rails, taps and trunks pass between the cards and around what is written."""
    marks = page(fleet(count)).marks
    boxes = [mark.box for mark in marks if isinstance(mark, Text | Icon)]
    lines = [mark.box for mark in marks if isinstance(mark, Line)]

    crossed = [box for box in boxes if any(line.overlaps(box) for line in lines)]

    assert crossed == []


@pytest.mark.parametrize("words", ["", "train", "a" * 250, "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 40])
def test_words_that_are_too_wide_are_cut(words: str) -> None:
    """What is left fits, and tells that something is missing."""
    cut = fitted(words, Face.BODY, 100)

    assert width(cut, Face.BODY) <= 100
    assert cut == words or cut.endswith(ELLIPSIS)


@pytest.mark.parametrize("plan", [fleet(1), fleet(5, "peering"), fleet(12), fleet(3, supernet="10.0.0.0/8"), lab()])
def test_all_of_the_plan_appears(plan: FleetPlan) -> None:
    """Every region, zone, site, store and pool by its name, and every block of the fleet by its addresses."""
    told = words(plan)

    names = [zone.name for region in plan.regions for zone in region.zones]
    names += [one.name for many in (plan.regions, plan.sites, plan.pools, plan.buckets) for one in many]
    names += [store.store for many in (plan.files, plan.exports) for store in many]
    assert [name for name in names if name not in told] == []
    assert [str(block) for block in plan.blocks.values() if str(block) not in told] == []


def test_a_picture_is_closed_in_itself() -> None:
    """It names no file, no address and no script, so that it shows the same wherever it is put."""
    root = drawn(lab())

    tags = {element.tag.removeprefix(NAMESPACE) for element in root.iter()}
    attributes = {name for element in root.iter() for name in element.attrib}
    assert tags == {"svg", "title", "desc", "style", "rect", "line", "path", "text"}
    assert not {name for name in attributes if "href" in name or name.startswith("on")}
    assert not re.search(r"url\(|@import|@font-face", picture(lab()))


def test_a_name_with_markup_is_words() -> None:
    """What a name holds is escaped, never obeyed."""
    name = '<script>&"'

    root = drawn(replace(lab(), name=name))

    assert root.find(f".//{NAMESPACE}script") is None
    assert name in "".join(root.itertext())


def test_a_block_that_left_the_file_is_shown_as_held() -> None:
    """The map tells what nobody else may have, although no region has it any more."""
    before = fleet(3)
    after = replace(fleet(2), record=before.recorded())

    assert "held for eu-north-1" in words(after)


def test_a_site_says_who_dials_and_whose_names_it_knows() -> None:
    """Which end opens the tunnels, what the machines export, and the domain that is asked for there."""
    joined = plan_of(DATA / "fleets" / "joined.yaml")
    dialled = with_gateways(joined, dials=Dials.AWS)
    dialled = replace(dialled, sites=tuple(with_settings(site, dns=None) for site in dialled.sites))

    assert {"dials", "cellar.example", "asked of 192.168.40.5 192.168.41.5"} <= set(words(joined).splitlines())
    assert "waits for AWS to dial" in words(dialled)
    assert "cellar.example" not in words(dialled)
    assert {"cellar-home", "NFS on /home", "nas:/srv/home"} <= set(words(lab()).splitlines())


def test_a_fleet_without_links_has_no_lines() -> None:
    """Nothing is drawn between regions that are not tied together."""
    apart = replace(fleet(3, "none"), sites=(), tunnels=())

    assert 'class="mesh"' not in picture(apart)
    assert 'class="tunnel"' not in picture(apart)


def test_nothing_of_the_lab_is_cut() -> None:
    """Names and facts of a usual length are told whole."""
    assert ELLIPSIS not in picture(lab())


def test_the_picture_in_the_readme_is_that_of_the_lab(expect: Expect) -> None:
    """What a newcomer sees first is what `bedplate plan --svg` draws today."""
    expect("../../docs/pictures/lab.svg", picture(lab()))
