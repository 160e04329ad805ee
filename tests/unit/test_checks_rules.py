"""Checks of certificate names, recorded images, mount points, and addresses in a zone."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.checks.diagnostics import Context, Declared
from bedplate.checks.groups import check_known_type
from bedplate.checks.regions import check_addresses
from bedplate.load import FleetFaults, examine, load_fleet
from bedplate.plan import Record
from tests.conftest import DATA
from tests.testlab.fleets.random import find_faults as faults_of
from tests.testlab.fleets.sketch import group, sketch
from vpn.certificates import Subject, Use

BASE = (DATA / "fleets" / "base.yaml").read_text()
# Without laptop gateways, which have certificates too.
CONNECTED = BASE.replace("  laptops: {gateways: [{region: us-west-2}, {site: cellar}], pool: /22}\n", "  {tunnels}\n")
LONGEST = "a" * 40 + ".internal"


def certificate_faults(folder: Path, domain: str, auth: str) -> set[tuple[str, str]]:
    """Return code and key of the faults of a fleet with two connected sites in this domain."""
    file = folder / "fleet.yaml"
    text = CONNECTED.replace("{tunnels}", f"tunnels: {{auth: {auth}}}").replace(
        "asn: 65010}", "asn: 65010, joins: [attic]}"
    )
    file.write_text(text.replace("lab.internal", domain))
    return {(fault.code, fault.key) for fault in examine(file, load_catalog())}


@pytest.mark.parametrize(
    ("domain", "auth", "faults"),
    [
        (LONGEST, "certificates", set()),
        (f"a{LONGEST}", "certificates", {("E618", "sites.cellar.gateway")}),
        (f"aa{LONGEST}", "certificates", {("E618", "sites.cellar.gateway"), ("E618", "sites.attic.gateway")}),
        (f"aa{LONGEST}", "psk", set()),
    ],
    ids=["fits", "one-too-long", "both-too-long", "keys"],
)
def test_names_of_connected_sites_must_fit_a_certificate(
    domain: str, auth: str, faults: set[tuple[str, str]], tmp_path: Path
) -> None:
    """The rule applies to both sites of a connection, and not to pre-shared keys."""
    assert certificate_faults(tmp_path, domain, auth) == faults


def test_the_longest_accepted_name_is_a_valid_subject() -> None:
    """The name has 64 characters, the maximum of a common name."""
    assert len(Subject(f"tunnels.cellar.{LONGEST}", Use.PEER).name) == 64


WEST, EAST = {"us-west-2/x86_64": "ami-0123456789abcdef0"}, {"us-east-1/x86_64": "ami-0123456789abcdef1"}


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    """Return the path of the base fleet, as a file of its own."""
    path = tmp_path / "fleet.yaml"
    path.write_text(BASE, encoding="utf-8")
    return path


def faults_with_images(path: Path, images: dict[str, str]) -> list[tuple[str, str]]:
    """Return code and key of the faults of a file whose lock has these images."""
    return [(fault.code, fault.key) for fault in examine(path, load_catalog(), Record({}, images=images))]


@pytest.mark.parametrize("images", [{}, WEST | EAST])
def test_a_lock_has_either_no_images_or_all(fleet_file: Path, images: dict[str, str]) -> None:
    """Without recorded images, all machines start from Canonical's image."""
    assert faults_with_images(fleet_file, images) == []


def test_a_region_without_an_image_is_reported_at_each_rung(fleet_file: Path) -> None:
    """Two groups have a rung in us-east-1."""
    faults = faults_with_images(fleet_file, WEST)

    assert faults == [("E349", "groups.bench.ladder.1"), ("E349", "groups.train.ladder.1")]


def test_a_home_region_without_an_image_is_reported_at_the_control_plane(fleet_file: Path) -> None:
    """Machines of the control plane start from the image too."""
    assert ("E349", "kubernetes.control_plane") in faults_with_images(fleet_file, EAST)


def test_an_image_must_have_the_architecture_of_the_type(fleet_file: Path) -> None:
    """An x86_64 image does not start on Graviton."""
    fleet_file.write_text(BASE.replace("[g6.4xlarge]", "[g5g.4xlarge]"), encoding="utf-8")

    assert ("E349", "groups.bench.ladder.0") in faults_with_images(fleet_file, WEST | EAST)


def test_a_missing_image_may_be_allowed(fleet_file: Path) -> None:
    """Without a lock, the exception is not reported as unused."""
    fleet_file.write_text(BASE.replace("allow: {", "allow: {E349: until the bake, "), encoding="utf-8")

    assert faults_with_images(fleet_file, WEST) == faults_with_images(fleet_file, {}) == []


def test_commands_refuse_a_plan_without_an_image(fleet_file: Path) -> None:
    """Every command gets its plan from the loaded fleet, which raises the faults of the plan."""
    loaded = load_fleet(fleet_file, load_catalog())

    with pytest.raises(FleetFaults, match=r"fleet.lock has no image for x86_64 in us-east-1, only us-west-2/x86_64"):
        loaded.plan(Record({}, images=WEST))


def storage_faults(*stores: dict[str, str]) -> list[tuple[str, str]]:
    """Return code and key of the faults of a fleet's storage."""
    regions = {name: {"network": f"10.{number}.0.0/16"} for number, name in enumerate(("us-west-2", "us-east-1"), 64)}
    machines = {"nas": {"address": "192.168.40.20"}, "box": {"address": "192.168.40.21"}}
    site = {"lan": "192.168.40.0/24", "machines": machines}
    fleet = {"version": 1, "name": "lab", "storage": {f"s{number}": store for number, store in enumerate(stores)}}
    faults = faults_of(
        {**fleet, "regions": regions, "sites": {"cellar": site, "attic": {**site, "lan": "192.168.41.0/24"}}}
    )
    return [(fault.code, fault.key) for fault in faults if fault.key.startswith("storage.") and fault.code[:2] == "E4"]


def efs(mount: str, region: str = "us-west-2") -> dict[str, str]:
    """Return an EFS store."""
    return {"kind": "efs", "region": region, "mount": mount}


def nfs(mount: str, export: str = "/tank", machine: str = "nas", site: str = "cellar") -> dict[str, str]:
    """Return an NFS store."""
    return {"kind": "nfs", "site": site, "machine": machine, "export": export, "mount": mount}


def test_two_efs_stores_cannot_share_a_mount_point() -> None:
    """Every cloud machine mounts both, even from different regions."""
    assert storage_faults(efs("/home"), efs("/home", "us-east-1")) == [("E403", "storage.s1.mount")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(efs("/data"), efs("/data/sets", "us-east-1"), id="cloud"),
        pytest.param(nfs("/data"), nfs("/data/sets/small", "/pool"), id="site"),
        pytest.param(nfs("/vault", "/srv/vault", "box"), nfs("/srv"), id="hides an export"),
        pytest.param(nfs("/vault", "/srv/vault", "box"), nfs("/srv/vault"), id="hides an export itself"),
    ],
)
def test_a_mount_is_not_nested_and_hides_no_export(first: dict[str, str], second: dict[str, str]) -> None:
    """A nested mount waits for the outer one; a mount over an export would be exported."""
    assert storage_faults(first, second) == [("E416", "storage.s1.mount")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(efs("/data"), nfs("/data/sets"), id="cloud and site"),
        pytest.param(nfs("/data"), nfs("/data", site="attic"), id="two sites"),
        pytest.param(nfs("/data"), nfs("/database", "/pool"), id="a longer name"),
        pytest.param(nfs("/tank/a", "/tank/a"), nfs("/tank/b", "/tank/b"), id="where it is exported"),
    ],
)
def test_mounts_on_different_machines_do_not_conflict(first: dict[str, str], second: dict[str, str]) -> None:
    """Machines of a site mount only stores of the site, and do not mount their own exports."""
    assert storage_faults(first, second) == []


@pytest.mark.parametrize(
    "path",
    ["/var/lib/dpkg", "/var/spool", "/opt", "/opt/uv", "/opt/bedplate-aws/v2", "/snap", "/scratch", "/usr/local"],
)
def test_system_folders_cannot_be_mount_points(path: str) -> None:
    """A mount would hide files of packages, bedplate or the system."""
    assert storage_faults(efs(path)) == [("E404", "storage.s0.mount")]


@pytest.mark.parametrize("path", ["/opt/tools", "/variable", "/srv/var", "/mnt/scratch"])
def test_other_folders_may_be_mount_points(path: str) -> None:
    """Names that only resemble system folders are allowed."""
    assert storage_faults(efs(path)) == []


ZONE = "us-west-2a"


def address_faults(*ladder: dict[str, Any], most: int) -> list[str]:
    """Return the codes for one group in a region with two zones, each with 486 addresses for machines."""
    fleet = sketch(
        {"us-west-2": (ZONE, "us-west-2b")},
        blocks={"us-west-2": "10.64.0.0/20"},
        groups={"train": group(*ladder, types=["p5.48xlarge"], nodes={"min": 0, "max": most})},
    )
    declared = Declared(fleet.model_dump(exclude_unset=True))
    return [fault.code for fault in check_addresses(Context(fleet, load_catalog(), declared, date(2026, 11, 21)))]


def reservation(number: int, machines: int) -> dict[str, Any]:
    """Return a rung with a reservation of this many machines in one zone."""
    name = f"cr-0123456789abcdef{number}"
    rung = {"region": "us-west-2", "market": "reservation", "reservation": name, "zone": ZONE}
    return {**rung, "reserved": machines}


def test_reservations_in_one_zone_add_up() -> None:
    """Both may be full at the same time."""
    assert address_faults(reservation(0, 300), reservation(1, 300), most=600) == ["E348"]
    assert address_faults(reservation(0, 200), reservation(1, 200), most=600) == []


def test_pools_of_a_group_share_its_maximum() -> None:
    """An on-demand and a spot pool in the same zones never exceed it together."""
    both = {"region": "us-west-2"}, {"region": "us-west-2", "market": "spot"}

    assert address_faults(*both, most=900) == []
    assert address_faults(*both, most=1000) == ["E348"]


@pytest.mark.parametrize(
    ("name", "near"), [("p5en.24xlarge", "p5en.48xlarge"), ("p5.49xlarge", "p5.48xlarge"), ("m7ii.large", "m7i.large")]
)
def test_an_unknown_type_is_corrected_within_its_family(name: str, near: str) -> None:
    """A known family has its own sizes only; an unknown one gets the nearest name."""
    (fault,) = check_known_type(load_catalog(), "types", name)

    assert fault.fix.startswith(f"write {near} (")
