"""What the role `storage` makes of mounts: units that wait for nobody, tunnels, a guard."""

from dataclasses import replace

import pytest

from bedplate.plan.node import MountKind
from roles.storage.attached import mounted
from roles.storage.guard import TABLE
from roles.storage.hidden import hidden
from roles.storage.role import Storage
from roles.storage.tunnel import loopback, tunnel
from roles.storage.unit import MARK, unit_name
from tests.support.nodes import lab_node
from tests.support.stored import CLOUD, HOME, SHARE, played


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home", "home.mount"),
        ("/mnt/lab-data", r"mnt-lab\x2ddata.mount"),
        ("/srv/a_b.c", "srv-a_b.c.mount"),
        ("/srv/.hidden", r"srv-\x2ehidden.mount"),
    ],
)
def test_a_unit_is_called_like_its_path(path: str, name: str) -> None:
    """Systemd refuses any other name; these are systemd-escape's own."""
    assert unit_name(path, "mount") == name


def test_a_mount_waits_for_its_first_use_and_for_its_server() -> None:
    """So that neither a boot nor a login hangs on a server that is gone, and the next use tries anew."""
    mount, trigger = mounted(HOME).units()

    assert "What=nas.cellar.lab.internal:/srv/home\nWhere=/home\nType=nfs4\n" in mount.text
    assert "Requires=bedplate-answers@cellar-home.service" in mount.text
    assert "TimeoutSec=20" in mount.text
    assert "StartLimitIntervalSec=0" in mount.text
    assert "StartLimitIntervalSec=0" in trigger.text
    assert "[Install]" not in mount.text
    assert "WantedBy=remote-fs.target" in trigger.text


def test_a_mount_is_hard_and_trusts_no_file_of_the_server() -> None:
    """What runs waits for a server that restarts; a file of root's there makes nobody root here."""
    options = {*mounted(HOME).options.split(",")}

    assert {"hard", "nosuid", "nodev", "vers=4.2", "proto=tcp"} <= options
    assert "noresvport" not in options
    assert "soft" not in options


def test_files_of_the_cloud_are_mounted_through_the_tunnel_alone() -> None:
    """Nothing of them leaves the machine in clear text."""
    at = mounted(CLOUD)

    (mount, _), begins = at.units(), loopback("home")
    assert f"What={begins}:/\n" in mount.text
    assert begins.startswith("127.")
    assert "Requires=bedplate-efs-home.service" in mount.text
    assert "vers=4.1" in at.options
    assert "noresvport" in at.options.split(",")


def test_everybody_writes_to_a_store_of_the_cloud_that_is_not_for_homes() -> None:
    """AWS makes its top folder root's alone; it is opened once it is mounted, as a site's server opens its own."""
    mount, _, opener = mounted(replace(CLOUD, store="data", path="/data")).units()

    assert f"Wants={opener.name}\n" in mount.text
    assert "Requires=data.mount\nAfter=data.mount\n" in opener.text
    assert "find /data -maxdepth 0 -user root -group root -perm 0755 -exec /usr/bin/chmod 1777 {} +" in opener.text
    assert [at.opener for at in map(mounted, (CLOUD, replace(HOME, path="/data")))] == [None, None]


def test_the_tunnel_believes_no_server_but_the_regions_own() -> None:
    """By an authority that the node trusts, and by name."""
    conf, unit = tunnel(CLOUD)

    assert "verifyChain = yes\ncheckHost = home.efs.us-west-2.amazonaws.com\n" in conf.text
    assert "connect = home.files.us-west-2.lab.internal:2049\n" in conf.text
    assert "sslVersionMin = TLSv1.2" in conf.text
    assert "DynamicUser=yes" in unit.text


def test_a_tunnel_begins_where_its_stores_name_says() -> None:
    """Another store moves nobody's."""
    ends = {loopback(name) for name in ("home", "data", "scratch", "results")}

    assert len(ends) == 4
    assert loopback("home") == loopback("home")


def test_whoever_applies_keeps_their_home() -> None:
    """An account of the machine's own, whose keys lie in its home, moves beside what hides it; people's stay."""
    names = played(Storage(mounts=(HOME,))).names

    moved = names.index("Home of ubuntu beside /home/ubuntu")
    assert moved < names.index("home.automount runs")
    assert not [name for name in names if "ada" in name]


def test_a_home_that_no_mount_hides_stays() -> None:
    """Nor does one that only begins alike."""
    homes = {"ubuntu": (1000, "/home/ubuntu"), "worker": (1001, "/home2/worker")}

    assert [due.name for due in hidden(["/data"], homes)] == []
    (due,) = hidden(["/home"], homes)
    assert due.name == "Home of ubuntu beside /home/ubuntu"
    assert due.commands[0].startswith("install -d -m 755 /var/lib/bedplate/home && ")


def test_the_guard_looks_after_every_mount_and_nothing_else() -> None:
    """A share of one's own needs none."""
    disk = played(Storage((HOME, replace(HOME, store="data", path="/data")), (SHARE,))).disk

    assert disk.read(TABLE).splitlines() == [
        "cellar-home /home nas.cellar.lab.internal",
        "data /data nas.cellar.lab.internal",
    ]


@pytest.mark.parametrize("distribution", ["debian-12", "ubuntu-24.04"])
def test_both_distributions_have_what_the_role_starts(distribution: str) -> None:
    """Packages and units are called alike on both."""
    done = played(Storage((CLOUD,), (SHARE,)), distribution)

    assert {"bedplate-efs-home.service runs", "home.automount runs", "nfs-server runs", "No portmapper"} <= {
        *done.names
    }


def test_a_node_without_storage_is_left_alone() -> None:
    """It is asked one question, for what it had before."""
    assert played(Storage()).names == []


def test_every_unit_of_ours_says_so() -> None:
    """By it they are found when they are to go."""
    disk = played(Storage((HOME, replace(CLOUD, path="/cloud")), ())).disk

    units = [path for path in disk.entries if path.startswith("/etc/systemd/system/")]
    assert len(units) == 10
    assert {disk.read(path).splitlines()[0] for path in units} == {MARK}


def test_a_workbench_of_the_cloud_mounts_by_tls_and_one_of_a_site_by_its_server() -> None:
    """As the plan of the lab has it."""
    assert {mount.kind for mount in lab_node("workbench-cpu-1.us-west-2").mounts} == {MountKind.EFS}
    assert {mount.region for mount in lab_node("workbench-cpu-1.us-west-2").mounts} == {"us-west-2"}
    assert {mount.server for mount in lab_node("titan-01.cellar").mounts} == {"nas.cellar.lab.internal"}
    assert {share.mount for share in lab_node("nas.cellar").shares} == {"/home", "/data"}
