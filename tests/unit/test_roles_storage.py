"""The role `storage`: mounts, TLS tunnels, exports, buckets, the removal of former mounts, and the mount guard."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from bedplate.plan.mounts import MountKind
from bedplate.plan.stores import BucketPlan
from roles.storage.mounts import (
    EXPORTS,
    FOLDER,
    GANESHA,
    MARK,
    NOTICE,
    SETTINGS,
    SHELL,
    TUNNEL_USER,
    AwsVersion,
    bind_mount,
    client_mount,
    loopback,
    server_of,
    tunnel,
    unit_name,
    version,
)
from roles.storage.mounts import TABLE as BUCKETS_TABLE
from roles.storage.role import (
    TABLE,
    UNITS,
    ReadStorage,
    Storage,
    StorageState,
    move_hidden_homes,
    remove_former,
)
from tests.testlab.fakes.agent import load_program
from tests.testlab.fakes.node import Disk, Recorder, recorded
from tests.testlab.fakes.node_states import CLOUD, HOME, NO_STORAGE, SHARE, play_storage
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
def test_a_unit_name_is_derived_from_its_path(path: str, name: str) -> None:
    """The names are those of systemd-escape; systemd refuses others."""
    assert unit_name(path, "mount") == name


def test_a_mount_is_made_at_the_first_use() -> None:
    """Neither boot nor login waits for a failed server; each use tries again."""
    mount, trigger = client_mount(HOME).units()

    assert "What=nas.cellar.lab.internal:/srv/home\nWhere=/home\nType=nfs4\n" in mount.text
    assert "Requires=bedplate-answers@cellar-home.service" in mount.text
    assert "TimeoutSec=20" in mount.text
    assert "StartLimitIntervalSec=0" in mount.text
    assert "StartLimitIntervalSec=0" in trigger.text
    assert "[Install]" not in mount.text
    assert "WantedBy=remote-fs.target" in trigger.text


def test_a_mount_is_hard_and_nosuid() -> None:
    """Programs wait for a server that restarts; setuid files on the server have no effect."""
    options = {*client_mount(HOME).options.split(",")}

    assert {"hard", "nosuid", "nodev", "vers=4.2", "proto=tcp"} <= options
    assert "noresvport" not in options
    assert not {"soft", "sync"} & options


def test_writes_of_backups_wait_for_the_server() -> None:
    """A lost server then ends the program that writes; without it the kernel holds what it cannot write."""
    assert "sync" in client_mount(replace(HOME, is_synchronous=True)).options.split(",")


def test_efs_is_mounted_through_the_tunnel() -> None:
    """EFS traffic leaves the machine only over TLS."""
    attached = client_mount(CLOUD)

    (mount, _), address = attached.units(), loopback("home")
    assert f"What={address}:/\n" in mount.text
    assert address.startswith("127.")
    assert "Requires=bedplate-efs-home.service" in mount.text
    assert "vers=4.1" in attached.options
    assert "noresvport" in attached.options.split(",")


def test_an_efs_store_is_writable_for_all_users() -> None:
    """AWS creates the top folder for root only; a unit changes its mode after the mount, except for homes."""
    mount, _, opener = client_mount(replace(CLOUD, store="data", path="/data")).units()

    assert f"Wants={opener.name}\n" in mount.text
    assert "Requires=data.mount\nAfter=data.mount\n" in opener.text
    assert "find /data -maxdepth 0 -user root -group root -perm 0755 -exec /usr/bin/chmod 1777 {} +" in opener.text
    assert [attached.permission_unit for attached in map(client_mount, (CLOUD, replace(HOME, path="/data")))] == [
        None,
        None,
    ]


def test_the_tunnel_verifies_the_server() -> None:
    """Stunnel checks the certificate chain and the name of the region's EFS."""
    conf, unit = tunnel(CLOUD)

    server = "home.efs.us-west-2.amazonaws.com"
    assert f"verifyChain = yes\ncheckHost = {server}\n" in conf.text
    assert f"sni = {server}\n" in conf.text
    assert "connect = home.files.us-west-2.lab.internal:2049\n" in conf.text
    assert "sslVersionMin = TLSv1.2" in conf.text
    assert f"User={TUNNEL_USER}\n" in unit.text


def test_a_tunnel_address_depends_only_on_the_store() -> None:
    """Another store does not change the loopback address."""
    addresses = {loopback(name) for name in ("home", "data", "scratch", "results")}

    assert len(addresses) == 4
    assert loopback("home") == loopback("home")


def test_a_local_home_is_moved_before_a_mount_hides_it() -> None:
    """The home of a local account, with its keys, is moved; homes of people are not."""
    names = play_storage(Storage(mounts=(HOME,))).names

    moved = names.index("Move home of ubuntu from /home/ubuntu")
    assert moved < names.index("Start home.automount")
    assert not [name for name in names if "ada" in name]


def test_other_homes_are_not_moved() -> None:
    """A home outside the mount, or with a similar path, stays."""
    homes = {"ubuntu": (1000, "/home/ubuntu"), "worker": (1001, "/home2/worker")}

    assert [change.name for change in move_hidden_homes(["/data"], homes)] == []
    (change,) = move_hidden_homes(["/home"], homes)
    assert change.name == "Move home of ubuntu from /home/ubuntu"
    assert change.commands[0].startswith("install -d -m 755 /var/lib/bedplate/home && ")


def test_the_guard_table_lists_remote_mounts() -> None:
    """The table has all remote mounts; a local share is not in it."""
    disk = play_storage(Storage((HOME, replace(HOME, store="data", path="/data")), (SHARE,))).disk

    assert disk.read(TABLE).splitlines() == [
        "cellar-home /home nas.cellar.lab.internal",
        "data /data nas.cellar.lab.internal",
    ]


@pytest.mark.parametrize("distribution", ["debian-12", "ubuntu-24.04"])
def test_units_are_started_on_both_distributions(distribution: str) -> None:
    """The units have the same names on Debian and Ubuntu."""
    played = play_storage(Storage((CLOUD,), (SHARE,)), distribution)

    assert {
        "Start bedplate-efs-home.service",
        "Start home.automount",
        "Start nfs-server",
        "Mask rpcbind",
    } <= {*played.names}


def test_a_node_without_storage_has_no_operations() -> None:
    """The role reads the state once and changes nothing."""
    assert play_storage(Storage()).names == []


def test_all_units_have_the_mark() -> None:
    """Former units are found by this line."""
    disk = play_storage(Storage((HOME, replace(CLOUD, path="/cloud")), ())).disk

    units = [path for path in disk.entries if path.startswith("/etc/systemd/system/")]
    assert len(units) == 10
    assert {disk.read(path).splitlines()[0] for path in units} == {MARK}


def test_mounts_depend_on_the_platform() -> None:
    """In the cloud a workbench mounts EFS, on a site it mounts from the file server."""
    assert {mount.kind for mount in lab_node("workbench-cpu-1.us-west-2").mounts} == {MountKind.EFS}
    assert {mount.region for mount in lab_node("workbench-cpu-1.us-west-2").mounts} == {"us-west-2"}
    assert {mount.server for mount in lab_node("titan-01.cellar").mounts} == {"nas.cellar.lab.internal"}
    assert {share.mount for share in lab_node("nas.cellar").shares} == {"/home", "/data"}


BUCKETS = (
    BucketPlan("results", "us-west-2", "lab-results-1-us-west-2", None),
    BucketPlan("data-sets", "eu-north-1", "lab-data-sets-1-eu-north-1", None),
)


def test_buckets_are_listed_by_store() -> None:
    """The list has the store's name and the bucket's region, and no credentials."""
    disk = play_storage(Storage(buckets=BUCKETS, region="us-west-2")).disk

    assert disk.read("/etc/bedplate/buckets").splitlines() == [
        "data-sets s3://lab-data-sets-1-eu-north-1 eu-north-1",
        "results s3://lab-results-1-us-west-2 us-west-2",
    ]
    assert "export S3_DATA_SETS=s3://lab-data-sets-1-eu-north-1\n" in disk.read("/etc/profile.d/bedplate-buckets.sh")


def test_the_aws_cli_is_installed_with_hashes() -> None:
    """The pinned version is installed once, with hashes."""
    role = Storage(buckets=BUCKETS, region="us-west-2")
    installed = {AwsVersion.name: (version(),), **NO_STORAGE, ReadStorage.name: None}

    first, second = (
        Recorder(recorded("ubuntu-24.04").but(answers), Disk.of({})).play(role, stages=("install",))
        for answers in ({**installed, AwsVersion.name: None}, installed)
    )

    (_, pip) = first.step(f"Install the AWS CLI {version()}").commands
    assert "--require-hashes" in pip
    assert f"Install the AWS CLI {version()}" not in second.names


def test_the_version_of_the_aws_cli_is_that_of_its_folder(tmp_path: Path) -> None:
    """The version is in the name of the folder of the package's metadata; without it none is installed."""
    command = AwsVersion().command().replace(FOLDER, str(tmp_path))

    def read() -> str:
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.strip()

    assert read() == ""
    (tmp_path / "lib/python3.11/site-packages/awscli-2.30.1.dist-info").mkdir(parents=True)
    assert read() == "2.30.1"


def test_the_notice_lists_folders_and_buckets() -> None:
    """The notice at login shows the folders, and a working command for each store."""
    notice = play_storage(Storage(mounts=(HOME,), buckets=BUCKETS, region="us-west-2")).disk.read(NOTICE)

    assert notice.splitlines()[:4] == [
        "  shared folders: /home",
        "  data sets in S3:",
        "    aws s3 ls $S3_DATA_SETS/  s3://lab-data-sets-1-eu-north-1",
        "    aws s3 ls $S3_RESULTS/    s3://lab-results-1-us-west-2",
    ]


def test_the_notice_mentions_missing_credentials() -> None:
    """A machine of a site has no IAM role; a node without storage has no notice."""
    role = Storage(buckets=BUCKETS, region="us-west-2", holds_role=False)

    assert "with credentials of your own:\n" in play_storage(role).disk.read(NOTICE)
    assert NOTICE not in play_storage(Storage()).disk.entries


def test_former_bucket_files_are_removed() -> None:
    """A variable of a removed bucket could point to a bucket of another owner."""
    state = tuple(f"told:{path}" for path in (NOTICE, SHELL, BUCKETS_TABLE))

    less = play_storage(Storage(mounts=(HOME,)), state=state)
    none = play_storage(Storage(), state=state)

    assert {name for name in less.names if name.startswith("Remove /")} == {
        f"Remove {path}" for path in (SHELL, BUCKETS_TABLE)
    }
    assert {step.name for step in none.steps} == {f"Remove {path}" for path in (NOTICE, SHELL, BUCKETS_TABLE)}


def test_exports_are_limited_to_the_planned_clients() -> None:
    """Root is squashed, and each export has its own id."""
    (exports, settings) = server_of([SHARE], by_kernel=True).files

    line = exports.text.splitlines()[1]
    assert line.startswith("/srv/home 192.168.40.0/22(rw,sync,root_squash,no_subtree_check,sec=sys,fsid=")
    assert "*" not in line
    assert {"vers2=n", "vers3=n", "vers4.0=n"} <= set(settings.text.splitlines())


def test_nfs_ganesha_has_the_same_exports() -> None:
    """In a container nfs-ganesha exports the same shares, over NFSv4, to the same clients."""
    (conf,) = server_of([SHARE, replace(SHARE, store="data", path="/srv/data")], by_kernel=False).files

    assert conf.text.count("Clients = 192.168.40.0/22;") == 2
    assert "Squash = root_squash;" in conf.text
    assert "Access_Type = None;" in conf.text
    assert "Protocols = 4;" in conf.text


def test_a_share_without_clients_is_not_exported() -> None:
    """A line of exports(5) without a client would allow all clients."""
    for by_kernel in (True, False):
        assert "/srv/home" not in server_of([replace(SHARE, clients=())], by_kernel=by_kernel).files[0].text


def test_an_export_id_does_not_depend_on_other_shares() -> None:
    """File handles of clients stay valid."""
    both = server_of([replace(SHARE, store="a", path="/srv/a"), SHARE], by_kernel=True).files[0].text

    assert server_of([SHARE], by_kernel=True).files[0].text.splitlines()[1] in both


def test_a_file_server_has_its_shares_at_the_same_path() -> None:
    """A bind mount gives the file server the same paths as its clients."""
    (unit,) = bind_mount(SHARE).units()

    assert unit.name == "home.mount"
    assert "What=/srv/home\nWhere=/home\nType=none\nOptions=bind" in unit.text
    assert "WantedBy=local-fs.target" in unit.text


def test_the_nfs_server_is_restarted_only_for_its_configuration() -> None:
    """New exports are loaded without a restart."""
    server = server_of([SHARE], by_kernel=True)

    assert server.restart_files == {SETTINGS}
    assert server.reload_commands == {EXPORTS: "exportfs -ra"}


FORMER = StorageState(
    {"home.mount": "/home", "home.automount": "/home", "data.mount": "/data", "data.automount": "/data"},
    {"/home": "nas.cellar.lab.internal:/srv/home", "/data": "nas.cellar.lab.internal:/srv/data"},
)
PLANNED = frozenset({"home.mount", "home.automount"})


def test_a_former_mount_is_removed() -> None:
    """The automount is removed first, then the mount, then the unit files."""
    (change,) = remove_former((client_mount(HOME),), PLANNED, FORMER)

    assert change.name == "Unmount /data"
    order = [word for command in change.commands for word in ("data.automount", "data.mount") if word in command]
    assert order == ["data.automount", "data.automount", "data.mount", "data.mount"]


def test_a_former_mount_in_use_is_reported() -> None:
    """A mount in use is kept, and the operation names its users."""
    (change,) = remove_former(
        (client_mount(HOME),), PLANNED, replace(FORMER, users={"/data": ("python bob", "bash eve")})
    )

    assert change.name == "Keep /data mounted: in use by python bob, bash eve"
    assert change.commands == ("true",)


def test_a_changed_source_is_mounted_when_unused() -> None:
    """A mount with another source is stopped if no program uses it."""
    moved = client_mount(replace(HOME, server="nas-2.cellar.lab.internal"))
    busy = replace(FORMER, users={"/home": ("bash ada",)})

    (free,) = remove_former((moved,), PLANNED | {"data.mount", "data.automount"}, FORMER)
    (used,) = remove_former((moved,), PLANNED | {"data.mount", "data.automount"}, busy)

    assert free.commands == ("timeout 60 systemctl stop home.mount",)
    assert used.name == "Keep the old source of /home: in use by bash ada"


def test_a_configured_node_keeps_its_units() -> None:
    """The planned units, including those of the guard, are not removed."""
    state = StorageState(
        dict.fromkeys(UNITS, "") | dict.fromkeys(PLANNED, "/home"), {"/home": client_mount(HOME).source}
    )

    assert list(remove_former((client_mount(HOME),), PLANNED | {*UNITS}, state)) == []


def test_former_exports_are_stopped() -> None:
    """The export file is removed and the server disabled."""
    for path, service in ((EXPORTS, "nfs-server"), (GANESHA, "nfs-ganesha")):
        (step,) = play_storage(Storage(), state=(f"exports:{path}",)).steps
        assert step.name == f"Stop {service}"
        assert service in step.commands[1]


def test_the_storage_state_is_read_in_one_query() -> None:
    """The upper mount of a path counts; an unused automount does not."""
    lines = (
        "unit:home.mount:/home",
        "unit:bedplate-storage-guard.timer:",
        "user:/home:ada bash",
        "source:/home:autofs:systemd-1",
        "source:/home:nfs4:nas:/srv/home",
        "source:/:ext4:/dev/vda1",
    )

    state = ReadStorage().process(lines)

    assert state.units == {"home.mount": "/home", "bedplate-storage-guard.timer": ""}
    assert state.sources == {"/home": "nas:/srv/home", "/": "/dev/vda1"}
    assert state.describe_users("/home") == "bash ada"
    assert not state.portmapper


NOWHERE = "127.0.0.2"


@pytest.fixture
def guard(tmp_path: Path) -> ModuleType:
    """Return the mount guard with a table and folders of the test; it records the mounts that it would remove."""
    module = load_program("storage/bedplate-storage-guard")
    table = tmp_path / "mounts"
    table.write_text(f"home /home {NOWHERE}\ndata /data {NOWHERE}\n")
    module.__dict__.update(TABLE=str(table), SILENT=str(tmp_path / "silent"), ASIDE=str(tmp_path / "lost"), removed=[])
    module.__dict__["real_remove_mount"] = module.remove_mount
    module.__dict__["remove_mount"] = lambda path, _, why: module.removed.append((path, why))
    module.__dict__["mounted"] = lambda: {"/home"}
    return module


@pytest.fixture
def server(guard: ModuleType) -> Iterator[None]:
    """Run a server that the guard can reach."""
    with socket.create_server((NOWHERE, 0)) as listening:
        guard.__dict__["PORT"] = listening.getsockname()[1]
        yield


@pytest.mark.usefixtures("server")
def test_a_server_that_answers_keeps_its_mounts(guard: ModuleType) -> None:
    """The guard never removes mounts of a server that answers."""
    guard.__dict__["LIMIT"] = 0.0

    guard.watch()
    guard.release()

    assert guard.removed == []


def test_a_failed_name_lookup_is_no_failed_server(guard: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing mounts work without a name server."""

    def nameless(*_: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(guard.socket, "create_connection", nameless)
    guard.__dict__["LIMIT"] = 0.0

    guard.watch()

    assert guard.removed == []


def test_mounts_are_removed_after_the_limit(guard: ModuleType) -> None:
    """A server has LIMIT seconds for a restart; then its mounts are removed."""
    guard.watch()
    before = list(guard.removed)
    guard.__dict__["LIMIT"] = 0.0
    guard.watch()

    assert before == []
    assert guard.removed == [("/home", f"{NOWHERE} has not answered for 0 s")]


def test_an_answer_resets_the_limit(guard: ModuleType) -> None:
    """The time starts again with the next failure."""
    guard.watch()
    with socket.create_server((NOWHERE, 0)) as listening:
        guard.__dict__["PORT"] = listening.getsockname()[1]
        guard.watch()

    assert not (Path(guard.SILENT) / "home").exists()


def test_a_shutdown_removes_mounts_of_failed_servers(guard: ModuleType) -> None:
    """Mounts of a failed server are removed at once; other paths are not touched."""
    guard.release()

    assert [path for path, _ in guard.removed] == ["/home"]


@pytest.fixture
def kernel(guard: ModuleType) -> list[tuple[str, int]]:
    """Restore the guard's `remove_mount`, and return the recorded mount calls, each with its path."""
    calls: list[tuple[str, int]] = []
    mount = lambda _from, to, _kind, how, _data: calls.append((to.decode(), how))  # noqa: E731
    umount = lambda path, how: calls.append((path.decode(), how))  # noqa: E731
    guard.__dict__.update(LIBC=SimpleNamespace(mount=mount, umount2=umount), remove_mount=guard.real_remove_mount)
    return calls


def removed_path(guard: ModuleType) -> str:
    """Return the path of the only removed mount."""
    ((_, path),) = guard.removed_mounts()
    return str(path)


def test_automounts_are_never_removed(guard: ModuleType, kernel: list[tuple[str, int]]) -> None:
    """Without the automount, homes would be created on the local disk."""
    guard.remove_mount("/home", "home", "silent")
    guard.remove_mount("/data", "data", "only the automount exists")

    assert kernel == [(removed_path(guard), guard.MS_BIND), ("/home", guard.MNT_FORCE | guard.MNT_DETACH)]


def test_waiting_programs_get_errors_until_the_server_is_back(guard: ModuleType, kernel: list[tuple[str, int]]) -> None:
    """Programs with open files retry, so errors are sent on each run."""
    guard.remove_mount("/home", "home", "silent")
    path = removed_path(guard)
    del kernel[:]

    guard.watch()
    guard.watch()
    with socket.create_server((NOWHERE, 0)) as listening:
        guard.__dict__["PORT"] = listening.getsockname()[1]
        guard.watch()
    guard.watch()

    assert kernel == [(path, guard.MNT_FORCE)] * 2 + [(path, guard.MNT_DETACH)]


def test_removed_mounts_do_not_block_a_shutdown(guard: ModuleType, kernel: list[tuple[str, int]]) -> None:
    """Removed mounts are detached by force."""
    guard.remove_mount("/home", "home", "silent")
    path = removed_path(guard)
    guard.__dict__["mounted"] = set

    guard.release()

    assert kernel[-1] == (path, guard.MNT_FORCE | guard.MNT_DETACH)
    assert guard.removed_mounts() == []


@pytest.mark.parametrize("store", ["home", "unknown"])
def test_a_mount_is_refused_if_its_server_does_not_answer(
    guard: ModuleType, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount is also refused for an unknown store."""
    monkeypatch.setattr(sys, "argv", ["guard", "answers", store])

    with pytest.raises(SystemExit, match=f"the server of {store} does not answer"):
        guard.main()


@pytest.mark.usefixtures("server")
def test_a_mount_is_allowed_if_its_server_answers(guard: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check exits with code 0."""
    monkeypatch.setattr(sys, "argv", ["guard", "answers", "home"])

    with pytest.raises(SystemExit) as exit_info:
        guard.main()

    assert exit_info.value.code == 0
