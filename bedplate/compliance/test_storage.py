"""What nodes mount and export: that it is there at its use, never in clear text, and hangs nothing when it is gone."""

from testinfra.host import Host
from testinfra.modules.file import File

from bedplate.compliance.settings import IN_FORCE, altered, beside
from bedplate.compliance.subject import concerns, on_duty
from bedplate.plan.fleet import PEOPLE_IDS
from bedplate.plan.nodes import Duty, MountKind, NodePlan
from roles.storage.exports import EXPORTS, GANESHA, server_of
from roles.storage.mounts import MARK, NOTICE, TABLE, UNIT_FOLDER, mounted, shared, tunnel, variable, version
from roles.storage.role import RELEASE, TIMER, UNITS, guard

MOUNTS = concerns(lambda node: bool(node.mounts))
SHARES = concerns(lambda node: bool(node.shares))
STORES = concerns(lambda node: bool(node.mounts or node.shares))
BUCKETS = concerns(lambda node: bool(node.buckets) and Duty.WORKBENCH in node.duties)
TOLD = concerns(lambda node: bool(node.mounts or node.shares or (node.buckets and Duty.WORKBENCH in node.duties)))
COMMONS = concerns(lambda node: any(mounted(mount).opener for mount in node.mounts))
TUNNELS = concerns(lambda node: any(mount.kind is MountKind.EFS for mount in node.mounts))
ETCD = "/var/lib/etcd"


@MOUNTS
def test_storage_is_mounted_at_its_first_use(host: Host, node: NodePlan) -> None:
    """Neither a boot nor a login waits for a server that nobody needs yet."""
    for mount in node.mounts:
        trigger = mounted(mount).trigger
        told = host.check_output("systemctl show --property=ActiveState,UnitFileState,Where --value %s", trigger)

        assert {*told.split()} == {"active", "enabled", mount.path}


@MOUNTS
def test_storage_comes_from_where_the_plan_says(host: Host, node: NodePlan) -> None:
    """Hard, so that nothing is lost while a server restarts; no file there makes anybody root here."""
    for at in map(mounted, node.mounts):
        unit = host.file(f"{UNIT_FOLDER}/{at.mount}")
        text = unit.content_string

        assert f"What={at.source}\nWhere={at.path}\n" in text
        assert f"Options={at.options}\n" in text
        assert (unit.user, unit.mode) == ("root", 0o644)
        assert altered(host, at.mount, at.trigger) == []


@MOUNTS
def test_nothing_else_is_mounted_in_its_place(host: Host, node: NodePlan) -> None:
    """What is there now is what the plan names, once it is used."""
    table = [line.split(" - ") for line in host.check_output("cat /proc/self/mountinfo").splitlines()]
    there = {left.split()[4]: right.split() for left, right in table}

    for at in map(mounted, node.mounts):
        assert at.path in there, f"nothing is mounted at {at.path}"
        kind, source = there[at.path][:2]
        assert (kind, source) == ("autofs", "systemd-1") or source == at.source


@COMMONS
def test_a_store_of_the_cloud_is_everybodys(host: Host, node: NodePlan) -> None:
    """People write to a store that is not for homes: what AWS makes root's alone is opened when it is mounted."""
    for at in map(mounted, node.mounts):
        for unit in at.units() if at.opener else ():
            assert host.file(f"{UNIT_FOLDER}/{unit.name}").content_string == unit.shipped.text


@MOUNTS
def test_a_mount_asks_its_server_first(host: Host, node: NodePlan) -> None:
    """A server that does not answer is told within seconds, at every use anew."""
    for at in map(mounted, node.mounts):
        text = host.file(f"{UNIT_FOLDER}/{at.mount}").content_string

        assert f"Requires=bedplate-answers@{at.store}.service" in text
        assert "StartLimitIntervalSec=0" in text


@MOUNTS
def test_waiting_for_a_server_has_an_end(host: Host, node: NodePlan) -> None:
    """The guard looks every 20 s, knows every mount, and lets no shutdown hang."""
    table = host.file("/etc/bedplate/mounts").content_string.splitlines()

    assert {*table} == {f"{mount.store} {mount.path} {mount.server}" for mount in node.mounts}
    assert host.service(TIMER).is_running
    assert host.service(RELEASE).is_running
    for file in guard(map(mounted, node.mounts)):
        found = host.file(file.path)
        assert (found.content_string, f"{found.mode:o}", found.user) == (file.text, file.mode, "root"), file.path
    assert altered(host, *(unit for unit in UNITS if "@" not in unit)) == []


@MOUNTS
def test_no_home_of_the_machines_own_is_hidden_by_a_mount(host: Host, node: NodePlan) -> None:
    """Whoever configures the node must not depend on the server that it mounts."""
    rows = [line.split(":") for line in host.check_output("cat /etc/passwd").splitlines()]
    own = {name: home for name, _, uid, _, _, home, _ in rows if int(uid) not in PEOPLE_IDS}

    hidden = {name for name, home in own.items() if any(home.startswith(f"{each.path}/") for each in node.mounts)}
    assert hidden == set()


@TUNNELS
def test_files_of_the_cloud_go_by_tls_to_a_proven_server(host: Host, node: NodePlan) -> None:
    """Verified up to an authority, and by the name of the region's EFS."""
    for mount in node.mounts:
        conf, unit = tunnel(mount)

        assert host.file(conf.path).content_string == conf.text
        assert host.service(unit.name).is_running
        assert host.service(unit.name).is_enabled


@SHARES
def test_exports_are_for_the_plans_blocks_alone(host: Host, node: NodePlan) -> None:
    """Root of a client is nobody, and no other address may mount."""
    wanted = [server_of(node.shares, by_kernel=by_kernel) for by_kernel in (True, False)]
    (by,) = (server for server in wanted if host.file(server.files[0].path).exists)

    for file in by.files:
        assert host.file(file.path).content_string == file.text
    assert host.service(by.service).is_running
    assert host.service(by.service).is_enabled


@SHARES
def test_nothing_is_exported_beside_the_plan(host: Host) -> None:
    """Neither by the kernel's other files, nor by a second server."""
    ours = host.file(EXPORTS)

    assert beside(host.check_output("cat /etc/exports /etc/exports.d/* 2>/dev/null || true"), _text(ours)) == []
    assert not (ours.exists and host.file(GANESHA).exists and host.service("nfs-ganesha").is_running)


@SHARES
def test_nothing_is_exported_by_hand(host: Host) -> None:
    """What the kernel's server was told by a command stands in none of its files, and is open until it starts anew."""
    assert beside(_text(host.file(IN_FORCE)), _text(host.file(EXPORTS))) == []


def _text(file: File) -> str:
    return str(file.content_string) if file.exists else ""


@SHARES
def test_the_file_server_has_its_shares_where_everybody_has_them(host: Host, node: NodePlan) -> None:
    """A person's home is theirs wherever they log in."""
    for at in map(shared, node.shares):
        assert host.mount_point(at.path).exists
        assert host.check_output("stat -c %%d:%%i %s", at.path) == host.check_output("stat -c %%d:%%i %s", at.source)


@STORES
def test_no_portmapper_listens(host: Host) -> None:
    """Version 4 of NFS needs one port, and no other program of its kind."""
    assert not host.socket("tcp://111").is_listening
    assert host.check_output("systemctl show --property=LoadState --value rpcbind.socket") == "masked"


def test_nothing_of_ours_is_left_that_the_plan_does_not_name(host: Host, node: NodePlan) -> None:
    """A mount that was renamed or removed leaves no unit behind."""
    told = host.check_output("cd %s && grep -lsxF %s *.mount *.automount || true", UNIT_FOLDER, MARK).split()

    attached = (*map(mounted, node.mounts), *map(shared, node.shares))
    assert {*told} == {unit.name for at in attached for unit in at.units() if "mount" in unit.name}


@TOLD
def test_whoever_logs_in_reads_what_is_shared(host: Host, node: NodePlan) -> None:
    """The folders, and for each bucket a command that lists it: nobody has to ask where the data is."""
    told = host.file(NOTICE).content_string
    wanted = [*(each.path for each in node.mounts), *(each.mount for each in node.shares)]
    if Duty.WORKBENCH in node.duties:
        wanted += [f"aws s3 ls ${variable(each.store)}/" for each in node.buckets]

    missing = [each for each in wanted if each not in told]
    assert not missing, f"{NOTICE} does not tell of {', '.join(missing)}"


@BUCKETS
def test_the_nodes_buckets_are_known_and_no_credential_is(host: Host, node: NodePlan) -> None:
    """By the list, and by AWS's command line of one version; its role alone says what it may read."""
    rows = host.file(TABLE).content_string.splitlines()

    assert {*rows} == {f"{each.store} s3://{each.name} {each.region}" for each in node.buckets}
    assert host.file("/opt/bedplate-aws/bin/aws").exists
    assert host.check_output("ls -d /opt/bedplate-aws/lib/python3*/site-packages/awscli-*").endswith(
        f"awscli-{version()}.dist-info"
    )
    assert not host.file("/root/.aws/credentials").exists


@on_duty(Duty.CONTROL)
def test_etcd_on_its_volume(host: Host) -> None:
    """Etcd's data is on its EBS volume: boot waits for the mount, and so do kubelet and containerd."""
    words = host.run("findmnt --fstab --noheadings --mountpoint %s -o SOURCE,OPTIONS", ETCD).stdout.split()
    source, options = words or ("", "")
    assert source.startswith("/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol"), f"/etc/fstab: no volume at {ETCD}"
    assert "nofail" not in options.split(","), f"boot does not wait for {ETCD}"

    device = host.run("findmnt --noheadings --mountpoint %s -o SOURCE", ETCD).stdout.strip()
    assert device == host.check_output("readlink -m %s", source), f"{ETCD} is on {device or 'the root disk'}"
    for unit in ("containerd.service", "kubelet.service"):
        told = host.check_output("systemctl show --property=LoadState,RequiresMountsFor %s", unit)
        assert "LoadState=not-found" in told or ETCD in told, f"{unit} does not require the mount of {ETCD}"
