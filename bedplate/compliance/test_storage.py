"""Rules for nodes with storage: mounts, exports, buckets, and etcd's volume."""

from testinfra.host import Host
from testinfra.modules.file import File

from bedplate.compliance.settings import ETAB, applies_if, applies_to, unit_overrides, unplanned_exports
from bedplate.plan.fleet import PEOPLE_IDS
from bedplate.plan.mounts import MountKind
from bedplate.plan.nodes import NodePlan, NodeRole
from roles.storage.mounts import (
    EXPORTS,
    GANESHA,
    MARK,
    NOTICE,
    TABLE,
    UNIT_FOLDER,
    bind_mount,
    client_mount,
    server_of,
    tunnel,
    variable,
    version,
)
from roles.storage.role import RELEASE, TIMER, UNITS, guard

HAS_MOUNTS = applies_if(lambda node: bool(node.mounts))
HAS_SHARES = applies_if(lambda node: bool(node.shares))
HAS_MOUNTS_OR_SHARES = applies_if(lambda node: bool(node.mounts or node.shares))
LISTS_BUCKETS = applies_if(lambda node: bool(node.buckets) and NodeRole.WORKBENCH in node.roles)
HAS_NOTICE = applies_if(
    lambda node: bool(node.mounts or node.shares or (node.buckets and NodeRole.WORKBENCH in node.roles))
)
HAS_SHARED_AWS_STORE = applies_if(lambda node: any(client_mount(mount).permission_unit for mount in node.mounts))
HAS_EFS = applies_if(lambda node: any(mount.kind is MountKind.EFS for mount in node.mounts))
ETCD = "/var/lib/etcd"


@HAS_MOUNTS
def test_mounts_are_automatic(host: Host, node: NodePlan) -> None:
    """Storage is mounted on first use, so boot and login do not wait for a server."""
    for mount in node.mounts:
        trigger = client_mount(mount).trigger
        state = host.check_output("systemctl show --property=ActiveState,UnitFileState,Where --value %s", trigger)

        assert {*state.split()} == {"active", "enabled", mount.path}


@HAS_MOUNTS
def test_mount_units_match_the_plan(host: Host, node: NodePlan) -> None:
    """Mount units have the source and options of the plan: hard, so no data is lost, and without setuid."""
    for mount in map(client_mount, node.mounts):
        unit = host.file(f"{UNIT_FOLDER}/{mount.mount}")
        text = unit.content_string

        assert f"What={mount.source}\nWhere={mount.path}\n" in text
        assert f"Options={mount.options}\n" in text
        assert (unit.user, unit.mode) == ("root", 0o644)
        assert unit_overrides(host, mount.mount, mount.trigger) == []


@HAS_MOUNTS
def test_mounted_sources_match_the_plan(host: Host, node: NodePlan) -> None:
    """Each mount point has the source of the plan."""
    table = [line.split(" - ") for line in host.check_output("cat /proc/self/mountinfo").splitlines()]
    mounts = {left.split()[4]: right.split() for left, right in table}

    for mount in map(client_mount, node.mounts):
        assert mount.path in mounts, f"nothing is mounted at {mount.path}"
        kind, source = mounts[mount.path][:2]
        assert (kind, source) == ("autofs", "systemd-1") or source == mount.source


@HAS_SHARED_AWS_STORE
def test_shared_aws_stores_are_writable(host: Host, node: NodePlan) -> None:
    """People can write to shared AWS stores, whose root folder belongs to root at first."""
    for mount in map(client_mount, node.mounts):
        for unit in mount.units() if mount.permission_unit else ():
            assert host.file(f"{UNIT_FOLDER}/{unit.name}").content_string == unit.file.text


@HAS_MOUNTS
def test_mounts_check_their_server(host: Host, node: NodePlan) -> None:
    """Each mount first checks its server, so a failed server is reported within seconds."""
    for mount in map(client_mount, node.mounts):
        text = host.file(f"{UNIT_FOLDER}/{mount.mount}").content_string

        assert f"Requires=bedplate-answers@{mount.store}.service" in text
        assert "StartLimitIntervalSec=0" in text


@HAS_MOUNTS
def test_storage_guard_is_running(host: Host, node: NodePlan) -> None:
    """The storage guard checks all mounts every 20 s, and releases them at shutdown."""
    table = host.file("/etc/bedplate/mounts").content_string.splitlines()

    assert {*table} == {f"{mount.store} {mount.path} {mount.server}" for mount in node.mounts}
    assert host.service(TIMER).is_running
    assert host.service(RELEASE).is_running
    for planned in guard(map(client_mount, node.mounts)):
        file = host.file(planned.path)
        assert (file.content_string, f"{file.mode:o}", file.user) == (planned.text, planned.mode, "root"), planned.path
    assert unit_overrides(host, *(unit for unit in UNITS if "@" not in unit)) == []


@HAS_MOUNTS
def test_no_mount_hides_a_local_home(host: Host, node: NodePlan) -> None:
    """No mount hides the home of a local account: administration must work if the server fails."""
    rows = [line.split(":") for line in host.check_output("cat /etc/passwd").splitlines()]
    homes = {name: home for name, _, uid, _, _, home, _ in rows if int(uid) not in PEOPLE_IDS}

    hidden = {name for name, home in homes.items() if any(home.startswith(f"{mount.path}/") for mount in node.mounts)}
    assert hidden == set()


@HAS_EFS
def test_efs_uses_verified_tls(host: Host, node: NodePlan) -> None:
    """EFS mounts use TLS, and verify the certificate and the host name of the region's EFS."""
    for mount in node.mounts:
        conf, unit = tunnel(mount)

        assert host.file(conf.path).content_string == conf.text
        assert host.service(unit.name).is_running
        assert host.service(unit.name).is_enabled


@HAS_SHARES
def test_exports_match_the_plan(host: Host, node: NodePlan) -> None:
    """The file server exports only to the planned networks, and maps root to nobody."""
    planned = [server_of(node.shares, by_kernel=by_kernel) for by_kernel in (True, False)]
    (server,) = (server for server in planned if host.file(server.files[0].path).exists)

    for file in server.files:
        assert host.file(file.path).content_string == file.text
    assert host.service(server.service).is_running
    assert host.service(server.service).is_enabled


@HAS_SHARES
def test_no_other_exports_exist(host: Host) -> None:
    """No other file exports folders, and no second NFS server runs."""
    planned = host.file(EXPORTS)
    exports = host.check_output("cat /etc/exports /etc/exports.d/* 2>/dev/null || true")

    assert unplanned_exports(exports, _text(planned)) == []
    assert not (planned.exists and host.file(GANESHA).exists and host.service("nfs-ganesha").is_running)


@HAS_SHARES
def test_no_manual_exports_exist(host: Host) -> None:
    """The kernel exports nothing that was added with `exportfs`; such exports are in no file."""
    assert unplanned_exports(_text(host.file(ETAB)), _text(host.file(EXPORTS))) == []


def _text(file: File) -> str:
    return str(file.content_string) if file.exists else ""


@HAS_SHARES
def test_shares_are_mounted_on_their_server(host: Host, node: NodePlan) -> None:
    """The file server has its shares under the same paths as its clients."""
    for share in map(bind_mount, node.shares):
        assert host.mount_point(share.path).exists
        ids = [host.check_output("stat -c %%d:%%i %s", path) for path in (share.path, share.source)]
        assert ids[0] == ids[1]


@HAS_MOUNTS_OR_SHARES
def test_rpcbind_is_off(host: Host) -> None:
    """rpcbind is masked and nothing listens on port 111; NFS version 4 does not need it."""
    assert not host.socket("tcp://111").is_listening
    assert host.check_output("systemctl show --property=LoadState --value rpcbind.socket") == "masked"


def test_no_obsolete_mount_units_exist(host: Host, node: NodePlan) -> None:
    """No mount unit remains of a mount that was renamed or removed."""
    units = host.check_output("cd %s && grep -lsxF %s *.mount *.automount || true", UNIT_FOLDER, MARK).split()

    planned = (*map(client_mount, node.mounts), *map(bind_mount, node.shares))
    assert {*units} == {unit.name for entry in planned for unit in entry.units() if "mount" in unit.name}


@HAS_NOTICE
def test_login_message_lists_storage(host: Host, node: NodePlan) -> None:
    """The login message lists shared folders and, for each bucket, a command that lists it."""
    text = host.file(NOTICE).content_string
    expected = [*(mount.path for mount in node.mounts), *(share.mount for share in node.shares)]
    if NodeRole.WORKBENCH in node.roles:
        expected += [f"aws s3 ls ${variable(bucket.store)}/" for bucket in node.buckets]

    missing = [entry for entry in expected if entry not in text]
    assert not missing, f"{NOTICE} does not contain {', '.join(missing)}"


@LISTS_BUCKETS
def test_buckets_need_no_credentials(host: Host, node: NodePlan) -> None:
    """Planned buckets are listed, the AWS CLI has the pinned version, and no credentials are stored."""
    rows = host.file(TABLE).content_string.splitlines()

    assert {*rows} == {f"{bucket.store} s3://{bucket.name} {bucket.region}" for bucket in node.buckets}
    assert host.file("/opt/bedplate-aws/bin/aws").exists
    assert host.check_output("ls -d /opt/bedplate-aws/lib/python3*/site-packages/awscli-*").endswith(
        f"awscli-{version()}.dist-info"
    )
    assert not host.file("/root/.aws/credentials").exists


@applies_to(NodeRole.CONTROL)
def test_etcd_is_on_its_volume(host: Host) -> None:
    """etcd's data is on its EBS volume; boot, kubelet and containerd wait for the mount."""
    fields = host.run("findmnt --fstab --noheadings --mountpoint %s -o SOURCE,OPTIONS", ETCD).stdout.split()
    source, options = fields or ("", "")
    is_volume = source.startswith("/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol")
    assert is_volume, f"no EBS volume at {ETCD} in /etc/fstab"
    assert "nofail" not in options.split(","), f"boot does not wait for {ETCD}: remove nofail in /etc/fstab"

    device = host.run("findmnt --noheadings --mountpoint %s -o SOURCE", ETCD).stdout.strip()
    assert device == host.check_output("readlink -m %s", source), f"{ETCD} is on {device or 'the root disk'}"
    for unit in ("containerd.service", "kubelet.service"):
        properties = host.check_output("systemctl show --property=LoadState,RequiresMountsFor %s", unit)
        assert "LoadState=not-found" in properties or ETCD in properties, f"{unit} does not require the mount of {ETCD}"
