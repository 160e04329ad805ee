"""The picture of a fleet: well-formed, complete, without overlaps, and self-contained."""

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
    """Return the plan of a fleet with that many regions, one to six zones each, and every kind of resource."""
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
    """Return the first plan of examples/lab.yaml."""
    loaded = load_fleet(ROOT / "examples/lab.yaml", load_catalog())
    return plan_fleet(loaded.fleet, Record({}), load_catalog())


def drawn(plan: FleetPlan) -> ET.Element:
    """Return the parsed picture; malformed XML raises."""
    return ET.fromstring(picture(plan))  # noqa: S314  our own output


def words(plan: FleetPlan) -> str:
    """Return all text of a picture, tooltips included."""
    return "\n".join(drawn(plan).itertext())


@pytest.mark.parametrize("count", range(1, 13))
def test_nothing_overlaps_or_leaves_the_page(count: int) -> None:
    """Text and icons do not overlap in the widest common font, for any number of regions."""
    sheet = page(fleet(count))
    boxes = [mark.box for mark in sheet.marks if isinstance(mark, Text | Icon)]
    whole = Box(0, 0, sheet.width, sheet.height)

    overlaps = [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]

    assert overlaps == []
    assert all(box.lies_in(whole) for box in boxes)


@pytest.mark.parametrize("count", range(1, 13))
def test_no_line_crosses_text(count: int) -> None:
    """Lines pass between the cards and around text."""
    marks = page(fleet(count)).marks
    boxes = [mark.box for mark in marks if isinstance(mark, Text | Icon)]
    lines = [mark.box for mark in marks if isinstance(mark, Line)]

    crossed = [box for box in boxes if any(line.overlaps(box) for line in lines)]

    assert crossed == []


@pytest.mark.parametrize("words", ["", "train", "a" * 250, "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 40])
def test_text_that_is_too_wide_is_cut(words: str) -> None:
    """The cut text fits and ends with an ellipsis."""
    cut = fitted(words, Face.BODY, 100)

    assert width(cut, Face.BODY) <= 100
    assert cut == words or cut.endswith(ELLIPSIS)


@pytest.mark.parametrize("plan", [fleet(1), fleet(5, "peering"), fleet(12), fleet(3, supernet="10.0.0.0/8"), lab()])
def test_the_picture_is_complete(plan: FleetPlan) -> None:
    """It shows every region, zone, site, store and pool by name, and every block."""
    text = words(plan)

    names = [zone.name for region in plan.regions for zone in region.zones]
    names += [item.name for items in (plan.regions, plan.sites, plan.pools, plan.buckets) for item in items]
    names += [store.store for stores in (plan.files, plan.exports) for store in stores]
    assert [name for name in names if name not in text] == []
    assert [str(block) for block in plan.blocks.values() if str(block) not in text] == []


def test_a_picture_is_self_contained() -> None:
    """It references no file, URL or script."""
    root = drawn(lab())

    tags = {element.tag.removeprefix(NAMESPACE) for element in root.iter()}
    attributes = {name for element in root.iter() for name in element.attrib}
    assert tags == {"svg", "title", "desc", "style", "rect", "line", "path", "text"}
    assert not {name for name in attributes if "href" in name or name.startswith("on")}
    assert not re.search(r"url\(|@import|@font-face", picture(lab()))


def test_names_are_escaped() -> None:
    """Markup in a name is shown as text."""
    name = '<script>&"'

    root = drawn(replace(lab(), name=name))

    assert root.find(f".//{NAMESPACE}script") is None
    assert name in "".join(root.itertext())


def test_a_retired_block_is_shown_as_held() -> None:
    """The map shows recorded blocks that no region uses any more."""
    before = fleet(3)
    after = replace(fleet(2), record=before.recorded())

    assert "held for eu-north-1" in words(after)


def test_a_site_card_shows_dialling_dns_and_exports() -> None:
    """The card names the dialling end, the domain with its servers, and the NFS exports."""
    joined = plan_of(DATA / "fleets" / "joined.yaml")
    dialled = with_gateways(joined, dials=Dials.AWS)
    dialled = replace(dialled, sites=tuple(with_settings(site, dns=None) for site in dialled.sites))

    assert {"dials", "cellar.example", "asked of 192.168.40.5 192.168.41.5"} <= set(words(joined).splitlines())
    assert "waits for AWS to dial" in words(dialled)
    assert "cellar.example" not in words(dialled)
    assert {"cellar-home", "NFS on /home", "nas:/srv/home"} <= set(words(lab()).splitlines())


def test_the_control_plane_and_the_gpus_of_a_site_are_shown() -> None:
    """The number of machines of the control plane, and the GPUs of a site's machines by model."""
    text = [line for line in words(lab()).splitlines() if line]

    assert text[text.index("control plane") :][1:3] == ["abc", "3"]
    assert {"8 x titan-x", "4 x titan-x"} <= set(text)


def test_a_fleet_without_links_has_no_lines() -> None:
    """No line is drawn between unconnected regions."""
    apart = replace(fleet(3, "none"), sites=(), tunnels=())

    assert 'class="mesh"' not in picture(apart)
    assert 'class="tunnel"' not in picture(apart)


def test_nothing_of_the_lab_is_cut() -> None:
    """Names of usual length are shown in full."""
    assert ELLIPSIS not in picture(lab())


def test_the_readme_picture_is_current(expect: Expect) -> None:
    """docs/pictures/lab.svg is the output of `bedplate plan --svg`."""
    expect("../../docs/pictures/lab.svg", picture(lab()))
