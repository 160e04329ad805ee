"""Mounts that would be in each other's way on one machine, and paths that the machine needs for itself."""

import pytest

from tests.support.fleets import told


def codes(*stores: dict[str, str]) -> list[tuple[str, str]]:
    """Return code and key of what is told about a fleet's storage."""
    regions = {name: {"network": f"10.{number}.0.0/16"} for number, name in enumerate(("us-west-2", "us-east-1"), 64)}
    machines = {"nas": {"address": "192.168.40.20"}, "box": {"address": "192.168.40.21"}}
    site = {"lan": "192.168.40.0/24", "machines": machines}
    fleet = {"version": 1, "name": "lab", "storage": {f"s{number}": store for number, store in enumerate(stores)}}
    found = told({**fleet, "regions": regions, "sites": {"cellar": site, "attic": {**site, "lan": "192.168.41.0/24"}}})
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
