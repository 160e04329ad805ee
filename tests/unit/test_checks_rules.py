"""Names that certificates of gateways bear, of sites that are joined to each other."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.checks.context import Context, Declared
from bedplate.checks.regions import check_addresses
from bedplate.load import FleetFaults, examine, load_fleet
from bedplate.plan import Record, plan_fleet
from tests.conftest import DATA
from tests.testlab.fleets.random import told as random_told
from tests.testlab.fleets.sketch import group, sketch
from vpn.certificates import Subject, Use

BASE = (DATA / "fleets" / "base.yaml").read_text()
# Its gateways of laptops are left out: those of sites have names of their own.
JOINED = BASE.replace("  laptops: {gateways: [{region: us-west-2}, {site: cellar}], pool: /22}\n", "  {tunnels}\n")
LONGEST = "a" * 40 + ".internal"


def _faults(folder: Path, domain: str, auth: str) -> set[tuple[str, str]]:
    file = folder / "fleet.yaml"
    text = JOINED.replace("{tunnels}", f"tunnels: {{auth: {auth}}}").replace(
        "asn: 65010}", "asn: 65010, joins: [attic]}"
    )
    file.write_text(text.replace("lab.internal", domain))
    return {(each.code, each.key) for each in examine(file, load_catalog())}


@pytest.mark.parametrize(
    ("domain", "auth", "told"),
    [
        (LONGEST, "certificates", set()),
        (f"a{LONGEST}", "certificates", {("E618", "sites.cellar.gateway")}),
        (f"aa{LONGEST}", "certificates", {("E618", "sites.cellar.gateway"), ("E618", "sites.attic.gateway")}),
        (f"aa{LONGEST}", "psk", set()),
    ],
    ids=["fits", "one-too-long", "both-too-long", "keys"],
)
def test_joined_sites_have_names_that_fit_a_certificate(
    domain: str, auth: str, told: set[tuple[str, str]], tmp_path: Path
) -> None:
    """Both ends, whichever says the joint; nobody has a certificate where they have keys."""
    assert _faults(tmp_path, domain, auth) == told


def test_the_check_and_the_certificate_agree() -> None:
    """What the check lets through is a subject: 64 characters, the longest there is."""
    assert len(Subject(f"tunnels.cellar.{LONGEST}", Use.PEER).name) == 64


CHECKS_IMAGE_BASE = (Path(__file__).parents[1] / "data" / "fleets" / "base.yaml").read_text(encoding="utf-8")
WEST, EAST = {"us-west-2/x86_64": "ami-0123456789abcdef0"}, {"us-east-1/x86_64": "ami-0123456789abcdef1"}


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    """Give the base fleet, as a file."""
    path = tmp_path / "fleet.yaml"
    path.write_text(CHECKS_IMAGE_BASE, encoding="utf-8")
    return path


def told(path: Path, images: dict[str, str]) -> list[tuple[str, str]]:
    """Return code and key of what is wrong with a file beside a lock with these images."""
    return [(one.code, one.key) for one in examine(path, load_catalog(), Record({}, images=images))]


@pytest.mark.parametrize("images", [{}, WEST | EAST])
def test_none_and_all_are_fine(fleet_file: Path, images: dict[str, str]) -> None:
    """Before anything is baked, all machines start from Canonical's image."""
    assert told(fleet_file, images) == []


def test_a_region_without_an_image_is_told_at_each_rung(fleet_file: Path) -> None:
    """The rungs of two groups lead to us-east-1."""
    assert told(fleet_file, WEST) == [("E349", "groups.bench.ladder.1"), ("E349", "groups.train.ladder.1")]


def test_a_home_without_an_image_is_told_at_the_control_plane(fleet_file: Path) -> None:
    """Its machines start from images too."""
    assert ("E349", "kubernetes.control_plane") in told(fleet_file, EAST)


def test_an_image_of_another_architecture_is_none(fleet_file: Path) -> None:
    """An x86 image does not start on Graviton."""
    fleet_file.write_text(CHECKS_IMAGE_BASE.replace("[g6.4xlarge]", "[g5g.4xlarge]"), encoding="utf-8")

    assert ("E349", "groups.bench.ladder.0") in told(fleet_file, WEST | EAST)


def test_it_may_be_allowed(fleet_file: Path) -> None:
    """And the exception is not told as one that nothing needs, where no lock is looked at."""
    fleet_file.write_text(
        CHECKS_IMAGE_BASE.replace("version: 1", "version: 1\nallow: {E349: until the bake}"), encoding="utf-8"
    )

    assert told(fleet_file, WEST) == told(fleet_file, {}) == []


def test_no_command_acts_on_such_a_plan(fleet_file: Path) -> None:
    """What every command asks of a plan refuses it, with its place."""
    loaded = load_fleet(fleet_file, load_catalog())
    plan = plan_fleet(loaded.fleet, Record({}, images=WEST), load_catalog())

    with pytest.raises(FleetFaults, match=r"the lock has no image for x86_64 in us-east-1: us-west-2/x86_64 alone"):
        loaded.judge(plan, load_catalog())


def codes(*stores: dict[str, str]) -> list[tuple[str, str]]:
    """Return code and key of what is told about a fleet's storage."""
    regions = {name: {"network": f"10.{number}.0.0/16"} for number, name in enumerate(("us-west-2", "us-east-1"), 64)}
    machines = {"nas": {"address": "192.168.40.20"}, "box": {"address": "192.168.40.21"}}
    site = {"lan": "192.168.40.0/24", "machines": machines}
    fleet = {"version": 1, "name": "lab", "storage": {f"s{number}": store for number, store in enumerate(stores)}}
    found = random_told(
        {**fleet, "regions": regions, "sites": {"cellar": site, "attic": {**site, "lan": "192.168.41.0/24"}}}
    )
    return [(one.code, one.key) for one in found if one.key.startswith("storage.") and one.code.startswith("E4")]


def efs(mount: str, region: str = "us-west-2") -> dict[str, str]:
    """Return a store of the cloud."""
    return {"kind": "efs", "region": region, "mount": mount}


def nfs(mount: str, export: str = "/tank", machine: str = "nas", site: str = "cellar") -> dict[str, str]:
    """Return a store of a site."""
    return {"kind": "nfs", "site": site, "machine": machine, "export": export, "mount": mount}


def test_a_path_is_the_mount_point_of_one_store_of_the_cloud() -> None:
    """Whatever the regions of two are: each machine of the cloud mounts both."""
    assert codes(efs("/home"), efs("/home", "us-east-1")) == [("E403", "storage.s1.mount")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(efs("/data"), efs("/data/sets", "us-east-1"), id="cloud"),
        pytest.param(nfs("/data"), nfs("/data/sets/small", "/pool"), id="site"),
        pytest.param(nfs("/vault", "/srv/vault", "box"), nfs("/srv"), id="hides an export"),
        pytest.param(nfs("/vault", "/srv/vault", "box"), nfs("/srv/vault"), id="hides an export itself"),
    ],
)
def test_no_mount_lies_in_another_or_over_an_export(first: dict[str, str], second: dict[str, str]) -> None:
    """It would wait for the other's server, and a machine would export what it mounted."""
    assert codes(first, second) == [("E416", "storage.s1.mount")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(efs("/data"), nfs("/data/sets"), id="cloud and site"),
        pytest.param(nfs("/data"), nfs("/data", site="attic"), id="two sites"),
        pytest.param(nfs("/data"), nfs("/database", "/pool"), id="a longer name"),
        pytest.param(nfs("/tank/a", "/tank/a"), nfs("/tank/b", "/tank/b"), id="where it is exported"),
    ],
)
def test_mounts_that_no_machine_has_together_are_fine(first: dict[str, str], second: dict[str, str]) -> None:
    """Machines of a site mount the site's stores alone, and those that export mount none of their own."""
    assert codes(first, second) == []


@pytest.mark.parametrize(
    "path",
    ["/var/lib/dpkg", "/var/spool", "/opt", "/opt/uv", "/opt/bedplate-aws/v2", "/snap", "/scratch", "/usr/local"],
)
def test_the_machines_own_folders_are_no_mount_points(path: str) -> None:
    """What packages, bedplate and the machine itself keep there would be gone."""
    assert codes(efs(path)) == [("E404", "storage.s0.mount")]


@pytest.mark.parametrize("path", ["/opt/tools", "/variable", "/srv/var", "/mnt/scratch"])
def test_folders_of_the_labs_own_are_mount_points(path: str) -> None:
    """Names that are only like the system's are the lab's to give."""
    assert codes(efs(path)) == []


ZONE = "us-west-2a"


def checks_room_told(*ladder: dict[str, Any], most: int) -> list[str]:
    """Return the codes of what is told of one group, in a region of two zones with 486 addresses for machines each."""
    fleet = sketch(
        {"us-west-2": (ZONE, "us-west-2b")},
        blocks={"us-west-2": "10.64.0.0/20"},
        groups={"train": group(*ladder, types=["p5.48xlarge"], nodes={"min": 0, "max": most})},
    )
    declared = Declared(fleet.model_dump(exclude_unset=True))
    return [fault.code for fault in check_addresses(Context(fleet, load_catalog(), declared, date(2026, 11, 21)))]


def held(number: int, machines: int) -> dict[str, Any]:
    """Return a rung over a reservation of so many machines in the one zone."""
    name = f"cr-0123456789abcdef{number}"
    rung = {"region": "us-west-2", "market": "reservation", "reservation": name, "zone": ZONE}
    return {**rung, "reserved": machines}


def test_reservations_in_one_zone_add_up() -> None:
    """Both may be full at once."""
    assert checks_room_told(held(0, 300), held(1, 300), most=600) == ["E348"]
    assert checks_room_told(held(0, 200), held(1, 200), most=600) == []


def test_pools_of_one_group_share_its_maximum() -> None:
    """On demand and on spot in the same zones, they never hold more than the group may have, spread over both."""
    both = {"region": "us-west-2"}, {"region": "us-west-2", "market": "spot"}

    assert checks_room_told(*both, most=900) == []
    assert checks_room_told(*both, most=1000) == ["E348"]
