"""What the role `storage` makes of mounts: units that wait for nobody, tunnels, a guard."""

import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from bedplate.plan.fleet import BucketPlan
from bedplate.plan.nodes import MountKind
from roles.storage.exports import EXPORTS, GANESHA, SETTINGS, server_of
from roles.storage.mounts import MARK, NOTICE, SHELL, loopback, mounted, shared, tunnel, unit_name, version
from roles.storage.mounts import TABLE as MOUNTS_TABLE
from roles.storage.role import TABLE, UNITS, ReadStorage, Found, Storage, gone, move_hidden_homes
from tests.testlab.fakes.agent import load_program
from tests.testlab.fakes.node import Disk, Recorder, recorded
from tests.testlab.fakes.node_states import CLOUD, FOUND, HOME, NOTHING, SHARE, play_storage
from tests.testlab.fleets.variants import lab_node


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
    names = play_storage(Storage(mounts=(HOME,))).names

    moved = names.index("Home of ubuntu beside /home/ubuntu")
    assert moved < names.index("home.automount runs")
    assert not [name for name in names if "ada" in name]


def test_a_home_that_no_mount_hides_stays() -> None:
    """Nor does one that only begins alike."""
    homes = {"ubuntu": (1000, "/home/ubuntu"), "worker": (1001, "/home2/worker")}

    assert [due.name for due in move_hidden_homes(["/data"], homes)] == []
    (due,) = move_hidden_homes(["/home"], homes)
    assert due.name == "Home of ubuntu beside /home/ubuntu"
    assert due.commands[0].startswith("install -d -m 755 /var/lib/bedplate/home && ")


def test_the_guard_looks_after_every_mount_and_nothing_else() -> None:
    """A share of one's own needs none."""
    disk = play_storage(Storage((HOME, replace(HOME, store="data", path="/data")), (SHARE,))).disk

    assert disk.read(TABLE).splitlines() == [
        "cellar-home /home nas.cellar.lab.internal",
        "data /data nas.cellar.lab.internal",
    ]


@pytest.mark.parametrize("distribution", ["debian-12", "ubuntu-24.04"])
def test_both_distributions_have_what_the_role_starts(distribution: str) -> None:
    """Packages and units are called alike on both."""
    done = play_storage(Storage((CLOUD,), (SHARE,)), distribution)

    assert {"bedplate-efs-home.service runs", "home.automount runs", "nfs-server runs", "Mask rpcbind"} <= {
        *done.names
    }


def test_a_node_without_storage_is_left_alone() -> None:
    """It is asked one question, for what it had before."""
    assert play_storage(Storage()).names == []


def test_every_unit_of_ours_says_so() -> None:
    """By it they are found when they are to go."""
    disk = play_storage(Storage((HOME, replace(CLOUD, path="/cloud")), ())).disk

    units = [path for path in disk.entries if path.startswith("/etc/systemd/system/")]
    assert len(units) == 10
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
    disk = play_storage(Storage(buckets=BUCKETS, region="us-west-2")).disk

    assert disk.read("/etc/bedplate/buckets").splitlines() == [
        "data-sets s3://lab-data-sets-1-eu-north-1 eu-north-1",
        "results s3://lab-results-1-us-west-2 us-west-2",
    ]
    assert "export S3_DATA_SETS=s3://lab-data-sets-1-eu-north-1\n" in disk.read("/etc/profile.d/bedplate-buckets.sh")


def test_the_command_line_of_aws_comes_by_its_sums() -> None:
    """Of one version on every node, once; what is there is not fetched again."""
    wanted = Storage(buckets=BUCKETS, region="us-west-2")
    folder = "/opt/bedplate-aws/lib/python3.11/site-packages"
    there = {"roles.storage.mounts.AwsVersion": (f"{folder}/awscli-{version()}.dist-info",), **NOTHING, FOUND: None}

    fresh, again = (
        Recorder(recorded("ubuntu-24.04").but(answers), Disk.of({})).play(wanted, stages=("install",))
        for answers in ({**there, "roles.storage.mounts.AwsVersion": None}, there)
    )

    (_, pip) = fresh.step(f"AWS's command line {version()}").commands
    assert "--require-hashes" in pip
    assert f"AWS's command line {version()}" not in again.names


def test_who_logs_in_reads_how_data_sets_are_had() -> None:
    """Beside the message of the day: the folders, and a command for each store that works as it stands."""
    told = play_storage(Storage(mounts=(HOME,), buckets=BUCKETS, region="us-west-2")).disk.read(NOTICE)

    assert told.splitlines()[:4] == [
        "  shared folders: /home",
        "  data sets in S3:",
        "    aws s3 ls $S3_DATA_SETS/  s3://lab-data-sets-1-eu-north-1",
        "    aws s3 ls $S3_RESULTS/    s3://lab-results-1-us-west-2",
    ]


def test_who_logs_in_where_no_role_is_reads_that_too() -> None:
    """A site's machine is lent nothing by AWS; one that shares nothing says nothing."""
    lent = Storage(buckets=BUCKETS, region="us-west-2", holds_role=False)

    assert "with credentials of your own:\n" in play_storage(lent).disk.read(NOTICE)
    assert NOTICE not in play_storage(Storage()).disk.entries


def test_a_list_that_left_the_file_goes() -> None:
    """A variable for a bucket that is no more would send people to nobody's, or to somebody's."""
    found = tuple(f"told:{path}" for path in (NOTICE, SHELL, MOUNTS_TABLE))

    less = play_storage(Storage(mounts=(HOME,)), found=found)
    none = play_storage(Storage(), found=found)

    assert {name for name in less.names if name.startswith("No /")} == {
        f"No {p} any more" for p in (SHELL, MOUNTS_TABLE)
    }
    assert {step.name for step in none.steps} == {f"No {path} any more" for path in (NOTICE, SHELL, MOUNTS_TABLE)}


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


def test_a_share_without_clients_is_not_exported() -> None:
    """A line of exports(5) without a client would open the folder to everybody."""
    for by_kernel in (True, False):
        assert "/srv/home" not in server_of([replace(SHARE, clients=())], by_kernel=by_kernel).files[0].text


def test_another_share_moves_no_id() -> None:
    """Handles that clients hold stay good."""
    both = server_of([replace(SHARE, store="a", path="/srv/a"), SHARE], by_kernel=True).files[0].text

    assert server_of([SHARE], by_kernel=True).files[0].text.splitlines()[1] in both


def test_what_a_machine_exports_it_has_at_the_same_path() -> None:
    """A person's home is theirs on the file server too."""
    (unit,) = shared(SHARE).units()

    assert unit.name == "home.mount"
    assert "What=/srv/home\nWhere=/home\nType=none\nOptions=bind" in unit.text
    assert "WantedBy=local-fs.target" in unit.text


def test_the_server_is_started_anew_for_its_settings_alone() -> None:
    """Its clients would wait; another export it takes in as it runs."""
    server = server_of([SHARE], by_kernel=True)

    assert server.anew == {SETTINGS}
    assert server.told == {EXPORTS: "exportfs -ra"}


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
        (step,) = play_storage(Storage(), found=(f"exports:{path}",)).steps
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

    found = ReadStorage().process(lines)

    assert found.units == {"home.mount": "/home", "bedplate-storage-guard.timer": ""}
    assert found.sources == {"/home": "nas:/srv/home", "/": "/dev/vda1"}
    assert found.describe_users("/home") == "bash ada"
    assert not found.portmapper


NOWHERE = "127.0.0.2"


@pytest.fixture
def guard(tmp_path: Path) -> ModuleType:
    """Give the guard, with a table of one mount and folders of its own; it may take off nothing."""
    module = load_program("storage/bedplate-storage-guard")
    table = tmp_path / "mounts"
    table.write_text(f"home /home {NOWHERE}\ndata /data {NOWHERE}\n")
    module.__dict__.update(TABLE=str(table), SILENT=str(tmp_path / "silent"), ASIDE=str(tmp_path / "lost"), taken=[])
    module.__dict__["really_take_off"] = module.take_off
    module.__dict__["take_off"] = lambda path, _, why: module.taken.append((path, why))
    module.__dict__["mounted"] = lambda: {"/home"}
    return module


@pytest.fixture
def server(guard: ModuleType) -> Iterator[None]:
    """Let somebody answer where the guard asks."""
    with socket.create_server((NOWHERE, 0)) as listening:
        guard.__dict__["PORT"] = listening.getsockname()[1]
        yield


@pytest.mark.usefixtures("server")
def test_a_server_that_answers_keeps_its_mounts(guard: ModuleType) -> None:
    """However often it is asked."""
    guard.__dict__["LIMIT"] = 0.0

    guard.watch()
    guard.release()

    assert guard.taken == []


def test_a_name_that_nobody_answers_is_no_silent_server(guard: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """While names are not answered, what is mounted works on."""

    def nameless(*_: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(guard.socket, "create_connection", nameless)
    guard.__dict__["LIMIT"] = 0.0

    guard.watch()

    assert guard.taken == []


def test_a_silent_server_is_waited_for_until_the_limit(guard: ModuleType) -> None:
    """Whoever restarts a server has minutes for it; after them nobody waits any more."""
    guard.watch()
    before = list(guard.taken)
    guard.__dict__["LIMIT"] = 0.0
    guard.watch()

    assert before == []
    assert guard.taken == [("/home", f"{NOWHERE} has not answered for 0 s")]


def test_a_server_that_came_back_is_forgiven(guard: ModuleType) -> None:
    """The wait begins anew with the next silence."""
    guard.watch()
    with socket.create_server((NOWHERE, 0)) as listening:
        guard.__dict__["PORT"] = listening.getsockname()[1]
        guard.watch()

    assert not (Path(guard.SILENT) / "home").exists()


def test_a_shutdown_waits_for_nobody(guard: ModuleType) -> None:
    """What is mounted of a silent server goes at once; what is not mounted is not touched."""
    guard.release()

    assert [path for path, _ in guard.taken] == ["/home"]


@pytest.fixture
def kernel(guard: ModuleType) -> list[tuple[str, int]]:
    """Give the guard its own `take_off`, and a kernel that notes what it is told about which path."""
    told: list[tuple[str, int]] = []
    mount = lambda _from, to, _kind, how, _data: told.append((to.decode(), how))  # noqa: E731
    umount = lambda path, how: told.append((path.decode(), how))  # noqa: E731
    guard.__dict__.update(LIBC=SimpleNamespace(mount=mount, umount2=umount), take_off=guard.really_take_off)
    return told


def aside(guard: ModuleType) -> str:
    """Return the one path at which a mount stands that was taken off."""
    ((_, path),) = guard.set_aside()
    return str(path)


def test_what_waits_for_the_next_use_is_never_taken_off(guard: ModuleType, kernel: list[tuple[str, int]]) -> None:
    """A mount goes in one blow, and its trigger stays: homes would else be made on the local disk."""
    guard.take_off("/home", "home", "silent")
    guard.take_off("/data", "data", "only its trigger is there")

    assert kernel == [(aside(guard), guard.MS_BIND), ("/home", guard.MNT_FORCE | guard.MNT_DETACH)]


def test_what_was_taken_off_is_told_an_error_until_the_server_is_back(
    guard: ModuleType, kernel: list[tuple[str, int]]
) -> None:
    """Once is not enough: a program with an open file tries again, and no path leads to what it waits for."""
    guard.take_off("/home", "home", "silent")
    kept = aside(guard)
    del kernel[:]

    guard.watch()
    guard.watch()
    with socket.create_server((NOWHERE, 0)) as listening:
        guard.__dict__["PORT"] = listening.getsockname()[1]
        guard.watch()
    guard.watch()

    assert kernel == [(kept, guard.MNT_FORCE)] * 2 + [(kept, guard.MNT_DETACH)]


def test_nothing_that_was_taken_off_holds_up_a_shutdown(guard: ModuleType, kernel: list[tuple[str, int]]) -> None:
    """What stands aside goes for good, by force."""
    guard.take_off("/home", "home", "silent")
    kept = aside(guard)
    guard.__dict__["mounted"] = set

    guard.release()

    assert kernel[-1] == (kept, guard.MNT_FORCE | guard.MNT_DETACH)
    assert guard.set_aside() == []


@pytest.mark.parametrize("store", ["home", "unknown"])
def test_a_mount_is_refused_while_its_server_is_silent(
    guard: ModuleType, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that nobody knows is too."""
    monkeypatch.setattr(sys, "argv", ["guard", "answers", store])

    with pytest.raises(SystemExit, match=f"the server of {store} does not answer"):
        guard.main()


@pytest.mark.usefixtures("server")
def test_a_mount_is_let_through_when_its_server_answers(guard: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """With status 0."""
    monkeypatch.setattr(sys, "argv", ["guard", "answers", "home"])

    with pytest.raises(SystemExit) as done:
        guard.main()

    assert done.value.code == 0
