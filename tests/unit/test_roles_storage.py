"""What the role `storage` makes of mounts and exports."""

from dataclasses import replace

import pytest

from bedplate.plan.fleet import BucketPlan
from bedplate.plan.node import Mount, MountKind, Share
from roles.storage.attached import mounted, shared
from roles.storage.buckets import version
from roles.storage.exported import EXPORTS, GANESHA, SETTINGS, server_of
from roles.storage.found import Finding, Found
from roles.storage.gone import gone
from roles.storage.guard import TABLE, UNITS
from roles.storage.hidden import hidden
from roles.storage.role import Storage
from roles.storage.tunnel import loopback, tunnel
from roles.storage.unit import MARK, unit_name
from tests.support.disk import Disk
from tests.support.nodes import lab_node
from tests.support.recorded import Recorded, recorded
from tests.support.recorder import Played, Recorder

HOME = Mount("cellar-home", MountKind.NFS, "nas.cellar.lab.internal", "/srv/home", "/home")
CLOUD = Mount("home", MountKind.EFS, "home.files.us-west-2.lab.internal", "/", "/home", "us-west-2")
SHARE = Share("cellar-home", "/srv/home", "/home", ("192.168.40.0/22",))
FOUND, SERVES, HOMES = (
    "roles.storage.found.Finding",
    "roles.storage.exported.KernelServes",
    "roles.storage.hidden.OwnHomes",
)
NOTHING: dict[str, tuple[str, ...] | None] = {
    "roles.running.States": None,
    SERVES: ("yes",),
    HOMES: ("root:0:/root", "ubuntu:1000:/home/ubuntu", "ada:20000:/home/ada"),
    "roles.shipped.Marks": None,
}


def played(role: Storage, distribution: str = "debian-12", found: tuple[str, ...] = ("portmapper:",)) -> Played:
    """Run the role's last two stages on a node that has nothing of it but what was found."""
    table: Recorded = recorded(distribution).but({**NOTHING, FOUND: found})
    return Recorder(table, Disk.of({})).play(role, stages=("configure", "activate"))


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


def test_exports_are_for_the_plans_blocks_and_root_is_nobody() -> None:
    """Whatever address else asks is refused; each has an id of its own name."""
    (exports, settings) = server_of([SHARE], by_kernel=True).files

    line = exports.text.splitlines()[1]
    assert line.startswith("/srv/home 192.168.40.0/22(rw,sync,root_squash,no_subtree_check,sec=sys,fsid=")
    assert "*" not in line
    assert {"vers2=n", "vers3=n", "vers4.0=n"} <= set(settings.text.splitlines())


def test_without_the_kernels_server_another_says_the_same() -> None:
    """In a container: by version 4 alone, for the same blocks, root nobody; everybody else nothing."""
    (conf,) = server_of([SHARE, replace(SHARE, store="data", path="/srv/data")], by_kernel=False).files

    assert conf.text.count("Clients = 192.168.40.0/22;") == 2
    assert "Squash = root_squash;" in conf.text
    assert "Access_Type = None;" in conf.text
    assert "Protocols = 4;" in conf.text


def test_another_share_moves_no_id() -> None:
    """Handles that clients hold stay good."""
    both = server_of([replace(SHARE, store="a", path="/srv/a"), SHARE], by_kernel=True).files[0].text

    assert server_of([SHARE], by_kernel=True).files[0].text.splitlines()[1] in both


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


def test_what_a_machine_exports_it_has_at_the_same_path() -> None:
    """A person's home is theirs on the file server too."""
    (unit,) = shared(SHARE).units()

    assert unit.name == "home.mount"
    assert "What=/srv/home\nWhere=/home\nType=none\nOptions=bind" in unit.text
    assert "WantedBy=local-fs.target" in unit.text


def test_the_guard_looks_after_every_mount_and_nothing_else() -> None:
    """A share of one's own needs none."""
    disk = played(Storage((HOME, replace(HOME, store="data", path="/data")), (SHARE,))).disk

    assert disk.read(TABLE).splitlines() == [
        "cellar-home /home nas.cellar.lab.internal",
        "data /data nas.cellar.lab.internal",
    ]


def test_the_server_is_started_anew_for_its_settings_alone() -> None:
    """Its clients would wait; another export it takes in as it runs."""
    server = server_of([SHARE], by_kernel=True)

    assert server.anew == {SETTINGS}
    assert server.told == {EXPORTS: "exportfs -ra"}


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


LEFT = Found(
    {"home.mount": "/home", "home.automount": "/home", "data.mount": "/data", "data.automount": "/data"},
    {"/home": "nas.cellar.lab.internal:/srv/home", "/data": "nas.cellar.lab.internal:/srv/data"},
)
WANTED = frozenset({"home.mount", "home.automount"})


def test_a_mount_that_left_the_file_goes() -> None:
    """What would mount it again first, then the mount, then their files."""
    (due,) = gone((mounted(HOME),), WANTED, LEFT)

    assert due.name == "No /data any more"
    order = [word for command in due.commands for word in ("data.automount", "data.mount") if word in command]
    assert order == ["data.automount", "data.automount", "data.mount", "data.mount"]


def test_a_mount_in_use_stays_and_who_uses_it_is_told() -> None:
    """No job loses its files; the apply after its end takes it off."""
    (due,) = gone((mounted(HOME),), WANTED, replace(LEFT, users={"/data": ("python bob", "bash eve")}))

    assert due.name == "/data is to go, and stays while it is used by python bob, bash eve"
    assert due.commands == ("true",)


def test_a_path_with_another_server_is_mounted_anew() -> None:
    """Once nobody uses the old one."""
    moved = mounted(replace(HOME, server="nas-2.cellar.lab.internal"))
    busy = replace(LEFT, users={"/home": ("bash ada",)})

    (free,) = gone((moved,), WANTED | {"data.mount", "data.automount"}, LEFT)
    (used,) = gone((moved,), WANTED | {"data.mount", "data.automount"}, busy)

    assert free.commands == ("timeout 60 systemctl stop home.mount",)
    assert used.name.endswith("once it is not used any more by bash ada")


def test_a_node_that_is_as_planned_has_nothing_to_lose() -> None:
    """The guard's own units are wanted too."""
    found = Found(dict.fromkeys(UNITS, "") | dict.fromkeys(WANTED, "/home"), {"/home": mounted(HOME).source})

    assert list(gone((mounted(HOME),), WANTED | {*UNITS}, found)) == []


def test_exports_that_left_the_file_end() -> None:
    """With the server, whichever it was."""
    for path, service in ((EXPORTS, "nfs-server"), (GANESHA, "nfs-ganesha")):
        (step,) = played(Storage(), found=(f"exports:{path}",)).steps
        assert step.name == "Nothing is exported any more"
        assert service in step.commands[1]


def test_what_a_node_has_is_read_from_one_answer() -> None:
    """The uppermost mount of a path counts, and what only waits for its first use is none."""
    lines = (
        "unit:home.mount:/home",
        "unit:bedplate-storage-guard.timer:",
        "user:/home:ada bash",
        "source:/home:autofs:systemd-1",
        "source:/home:nfs4:nas:/srv/home",
        "source:/:ext4:/dev/vda1",
    )

    found = Finding().process(lines)

    assert found.units == {"home.mount": "/home", "bedplate-storage-guard.timer": ""}
    assert found.sources == {"/home": "nas:/srv/home", "/": "/dev/vda1"}
    assert found.told_users("/home") == "bash ada"
    assert not found.portmapper


def test_every_unit_of_ours_says_so() -> None:
    """By it they are found when they are to go."""
    disk = played(Storage((HOME, replace(CLOUD, path="/cloud")), ())).disk

    units = [path for path in disk.entries if path.startswith("/etc/systemd/system/")]
    assert len(units) == 9
    assert {disk.read(path).splitlines()[0] for path in units} == {MARK}


def test_a_workbench_of_the_cloud_mounts_by_tls_and_one_of_a_site_by_its_server() -> None:
    """As the plan of the lab has it."""
    assert {mount.kind for mount in lab_node("workbench-cpu-1.us-west-2").mounts} == {MountKind.EFS}
    assert {mount.region for mount in lab_node("workbench-cpu-1.us-west-2").mounts} == {"us-west-2"}
    assert {mount.server for mount in lab_node("titan-01.cellar").mounts} == {"nas.cellar.lab.internal"}
    assert {share.mount for share in lab_node("nas.cellar").shares} == {"/home", "/data"}


BUCKETS = (
    BucketPlan("results", "us-west-2", "lab-results-1-us-west-2", None),
    BucketPlan("data-sets", "eu-north-1", "lab-data-sets-1-eu-north-1", None),
)


def test_a_node_knows_the_buckets_that_it_reads() -> None:
    """By the store's name, with the region that each is in; no credential is written down."""
    disk = played(Storage(buckets=BUCKETS, region="us-west-2")).disk

    assert disk.read("/etc/bedplate/buckets").splitlines() == [
        "data-sets s3://lab-data-sets-1-eu-north-1 eu-north-1",
        "results s3://lab-results-1-us-west-2 us-west-2",
    ]
    assert "export S3_DATA_SETS=s3://lab-data-sets-1-eu-north-1\n" in disk.read("/etc/profile.d/bedplate-buckets.sh")


def test_the_command_line_of_aws_comes_by_its_sums() -> None:
    """Of one version on every node, once; what is there is not fetched again."""
    wanted = Storage(buckets=BUCKETS, region="us-west-2")
    folder = "/opt/bedplate-aws/lib/python3.11/site-packages"
    there = {"roles.storage.buckets.AwsVersion": (f"{folder}/awscli-{version()}.dist-info",), **NOTHING, FOUND: None}

    fresh, again = (
        Recorder(recorded("ubuntu-24.04").but(answers), Disk.of({})).play(wanted, stages=("install",))
        for answers in ({**there, "roles.storage.buckets.AwsVersion": None}, there)
    )

    (_, pip) = fresh.step(f"AWS's command line {version()}").commands
    assert "--require-hashes" in pip
    assert f"AWS's command line {version()}" not in again.names
