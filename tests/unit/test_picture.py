"""The picture of a fleet and the plot of a simulation: well-formed, complete, to scale, and self-contained."""

import re
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from math import ceil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bedplate.capacity.simulator import Frame
from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.picture.page import picture
from bedplate.picture.timeline import timeline
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
SVG = "{http://www.w3.org/2000/svg}"
HTML = "{http://www.w3.org/1999/xhtml}"


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
    elements = tuple(drawn(plan).iter())
    return "\n".join(
        [*(element.text or "" for element in elements), *(element.get("title", "") for element in elements)]
    )


def with_class(root: ET.Element, name: str) -> list[ET.Element]:
    """Return the elements with a CSS class."""
    return [element for element in root.iter() if name in element.get("class", "").split()]


def style(element: ET.Element, name: str) -> int:
    """Return the number in a CSS declaration of an element."""
    found = re.search(rf"(?:^|;){name}:([0-9]+)(px)?(;|$)", element.get("style", ""))
    assert found is not None, element.attrib
    return int(found[1])


@pytest.mark.parametrize("count", range(1, 13))
def test_the_page_has_room_for_all_rows(count: int) -> None:
    """Heights follow from the rows that are drawn: 20 pixels each, with the spaces of the template; none is cut off."""
    root = drawn(fleet(count))

    tiers = with_class(root, "tier")
    for tier in tiers:
        heights = []
        for card in tier:
            tables, bars, rows = (len(with_class(card, name)) for name in ("table", "bar", "row"))
            heights.append(20 + 20 * rows + 8 + 30 * bars + 21 * (tables - 2))
        assert style(tier, "height") == max(heights)
    cards = sum(style(tier, "height") + style(tier, "margin-top") for tier in tiers)
    bars = sum(style(bar, "height") for band in with_class(root, "band") for bar in with_class(band, "bar"))
    rungs = sum(max(2, ceil(len(ladder) / 4)) * 20 for ladder in with_class(root, "rungs"))
    captions = sum(ceil(len(captions) / 3) * 20 for captions in with_class(root, "captions"))
    spaces = 180 + 3 * 54 + 6 * len(with_class(root, "band")) + 14 * len(with_class(root, "ladder"))
    assert int(root.attrib["height"]) == cards + bars + rungs + captions + spaces


@pytest.mark.parametrize("plan", [fleet(3), fleet(3, supernet="10.0.0.0/8"), lab()])
def test_blocks_are_to_scale(plan: FleetPlan) -> None:
    """The shares of a bar, from its first address on, are the numbers of addresses of blocks and between them."""
    root = drawn(plan)
    bands = [band for band in with_class(root, "band") if with_class(band, "bar")]
    map_starts = [int(IPv4Address(band[0].text or "")) for band in bands]
    starts = [*map_starts, *(int(region.block.network_address) for region in plan.regions)]

    drawn_blocks = []
    for bar, start in zip(with_class(root, "bar"), starts, strict=True):
        address = start
        for part in bar:
            if "title" in part.attrib:
                network = IPv4Network(part.attrib["title"].rpartition(" ")[2])
                drawn_blocks.append((network, address, style(part, "flex")))
            address += style(part, "flex")
    assert drawn_blocks == [(block, int(block.network_address), block.num_addresses) for block, _, _ in drawn_blocks]
    assert {block for block, _, _ in drawn_blocks} >= {zone.nodes for region in plan.regions for zone in region.zones}


def test_the_same_plan_gives_the_same_bytes() -> None:
    """No clock, random number or order of a set is in the picture."""
    assert picture(fleet(5)) == picture(fleet(5))


def test_text_that_may_be_cut_has_a_tooltip() -> None:
    """CSS cuts long text, and its tooltip has all of it."""
    spans = {element.text: element.get("title") for element in drawn(fleet(3)).iter(f"{HTML}span")}

    assert spans["EFS on " + "/home" * 40] == "EFS on " + "/home" * 40


@pytest.mark.parametrize("plan", [fleet(1), fleet(5, "peering"), fleet(12), fleet(3, supernet="10.0.0.0/8"), lab()])
def test_the_picture_is_complete(plan: FleetPlan) -> None:
    """The picture shows every region, zone, site, store and pool by name, and every block."""
    text = words(plan)

    names = [zone.name for region in plan.regions for zone in region.zones]
    names += [item.name for items in (plan.regions, plan.sites, plan.pools, plan.buckets) for item in items]
    names += [store.store for stores in (plan.files, plan.exports) for store in stores]
    assert [name for name in names if name not in text] == []
    assert [str(block) for block in plan.blocks.values() if str(block) not in text] == []


def test_a_picture_is_self_contained() -> None:
    """The picture references no file, URL or script."""
    root = drawn(lab())

    html = {HTML + name for name in ("div", "h1", "h2", "i", "span")}
    svg = {SVG + name for name in ("svg", "title", "desc", "style", "rect", "path", "text", "switch", "foreignObject")}
    assert {element.tag for element in root.iter()} == html | svg
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not {name for name in attributes if "href" in name or name.startswith("on")}
    assert not re.search(r"url\(|@import|@font-face", picture(lab()))


def test_names_are_escaped() -> None:
    """Markup in a name is shown as text."""
    name = '<script>&"'

    root = drawn(replace(lab(), name=name))

    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert name in "".join(root.itertext())


def test_viewers_without_html_in_svg_show_a_hint() -> None:
    """Such viewers take the second branch of the switch, which says what to do."""
    branches = drawn(lab()).findall(f"{SVG}switch/*")

    assert [branch.tag for branch in branches] == [f"{SVG}foreignObject", f"{SVG}text"]
    assert branches[0].get("requiredExtensions") == "http://www.w3.org/1999/xhtml"
    assert "open the file in a browser" in (branches[1].text or "")


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

    assert with_class(drawn(apart), "mesh") == []
    assert with_class(drawn(apart), "path") == []
    assert len(with_class(drawn(fleet(3)), "mesh")) == 4


def test_the_readme_picture_is_current(expect: Expect) -> None:
    """docs/pictures/lab.svg is the output of `bedplate plan --svg`."""
    expect("../../docs/pictures/lab.svg", picture(lab()))


def frames(*rows: tuple[Mapping[str, int], int, int]) -> list[Frame]:
    """Return frames of a minute each, from machines by pool, and the pods that wait and run."""
    return [
        Frame(60.0 * at, machines, booting=0, pending=pending, running=running, pending_gpus=0, running_gpus=0)
        for at, (machines, pending, running) in enumerate(rows)
    ]


def test_a_plot_shows_pools_with_machines_and_pods() -> None:
    """Areas of pools lie on each other up to the most machines; text is escaped; the time axis has hours."""
    plot = timeline("<a> & b", frames(({"x": 1, "y": 0, "z": 0}, 5, 0), ({"x": 1, "y": 3, "z": 0}, 0, 5)))

    root = ET.fromstring(plot)  # noqa: S314  our own output
    shown = [element.text for element in root.iter(f"{SVG}text")]
    polygons = [element.attrib["points"].split() for element in root.iter(f"{SVG}polygon")]
    assert {"<a> & b", "4", "2", "5", "0:00"} <= set(shown)
    assert polygons == [
        ["0.0,142.5", "792.0,142.5", "792.0,190.0", "0.0,190.0"],
        ["0.0,142.5", "792.0,142.5", "792.0,0.0", "792.0,142.5", "0.0,142.5"],
    ]
    assert [tspan.tail.strip() for tspan in root.iter(f"{SVG}tspan") if tspan.tail] == ["x", "y", "running", "waiting"]


def test_a_plot_without_machines_is_empty() -> None:
    """A simulation in which nothing starts has a plot too."""
    root = ET.fromstring(timeline("none", frames(({"x": 0}, 0, 0))))  # noqa: S314  our own output

    assert list(root.iter(f"{SVG}polygon")) == []
