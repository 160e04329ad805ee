"""Storage on booted machines whose server is there, gone, or somebody else.

This machine's kernel has no NFS: what is shown here is all but the mount itself, which test_nfs.py shows.
"""

from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from bedplate.plan.nodes import Mount, MountKind
from roles.storage.mounts import loopback
from roles.storage.role import Storage
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.container import CommandError, call
from tests.testlab.machines.gateways import BENCH, SERVER, client_of, file_server, roles_of
from tests.testlab.machines.operator import deployed
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.network.netlab import until
from tests.testlab.run import need_program

EFS = Mount("cloud", MountKind.EFS, "cloud.files.us-west-2.lab.internal", "/", "/cloud", "us-west-2")
FAR = "192.168.40.9"
# What a person waits for a shell whose home is away; a server that hangs would take minutes.
PATIENCE = 30.0


@pytest.fixture(scope="module")
def nas(stand: Stand) -> Node:
    """Give the file server, its folders on a file system of their own: an overlay has no handles."""
    return file_server(stand)


@pytest.fixture(scope="module")
def bench(stand: Stand, nas: Node) -> Node:
    """Give a machine that mounts from it."""
    return client_of(nas, stand)


def ports(node: Node) -> set[str]:
    """Return the ports at which somebody listens."""
    sockets = node.run("ss --no-header --listening --tcp --numeric").splitlines()
    return {line.split()[3].rpartition(":")[2] for line in sockets}


def seconds_of_login(node: Node) -> float:
    """Return how long somebody whose home is away waits for a shell."""
    started = monotonic()
    node.run("su --login ada --command true || true", seconds=120)
    return monotonic() - started


def test_a_second_apply_changes_nothing(stand: Stand, nas: Node, bench: Node) -> None:
    """Neither on the server nor on who mounts from it."""
    assert deployed(stand, nas.name, *roles_of(lab_node(SERVER))) == []
    assert deployed(stand, bench.name, *roles_of(lab_node(BENCH))) == []


def test_the_server_listens_at_one_port_alone(nas: Node) -> None:
    """NFS by version 4 needs no other."""
    until(lambda: "2049" in ports(nas), 30, "the server listens, which it says before it does", every=0.2)

    assert ports(nas) == {"22", "2049"}


def test_homes_on_the_server_are_their_owners_and_at_the_same_path(nas: Node) -> None:
    """Before anybody logged in."""
    told = nas.run("stat --format='%u %a' /srv/home/ada /home/ada").splitlines()

    assert told == [f"{lab_node(SERVER).accounts.uids['ada']} 700"] * 2


def test_whoever_configures_the_node_still_comes_in(bench: Node) -> None:
    """Their keys lie beside what the mount of /home hides."""
    done = bench.ssh("pwd; sudo --non-interactive id --user")

    assert done.stdout.split() == ["/var/lib/bedplate/home/ubuntu", "0"]


def test_a_boot_does_not_wait_for_a_server_that_is_gone(nas: Node, bench: Node) -> None:
    """Nor does a shutdown; the mounts wait for their first use."""
    nas.cut()
    started = monotonic()
    try:
        bench.restart()
        seconds = monotonic() - started
        login = seconds_of_login(bench)
    finally:
        nas.heal()

    told = bench.run("systemctl show --property=ActiveState --value home.automount data.automount").split()
    assert told == ["active", "active"]
    assert seconds < 120
    assert login < PATIENCE


def test_a_use_without_a_server_is_told_soon_however_often(nas: Node, bench: Node) -> None:
    """And none of them is the last that is tried."""
    nas.cut()
    try:
        for _ in range(7):
            with pytest.raises(CommandError, match="No such device"):
                bench.run("ls /data", seconds=60)
    finally:
        nas.heal()

    assert bench.run("systemctl is-active data.automount").strip() == "active"
    assert bench.run("/usr/local/sbin/bedplate-storage-guard answers cellar-data && echo yes").strip() == "yes"


def test_a_renamed_mount_takes_the_old_one_off(stand: Stand, bench: Node) -> None:
    """When nobody uses it; meanwhile the apply says who does."""
    plan = lab_node(BENCH)
    moved = Storage(tuple(replace(each, path="/sets") if each.path == "/data" else each for each in plan.mounts))
    bench.run("systemctl stop data.automount; mount -t tmpfs tmpfs /data")
    bench.run("systemd-run --quiet --collect --unit=uses --working-directory=/data sleep 900")

    used = deployed(stand, bench.name, moved)
    bench.run("systemctl stop uses; umount /data")
    free = deployed(stand, bench.name, moved)
    again = deployed(stand, bench.name, moved)
    back = deployed(stand, bench.name, *roles_of(plan))

    assert "Keep /data mounted: in use by sleep root" in used
    assert "Start sets.automount" in used
    assert free == ["Unmount /data"]
    assert again == []
    assert {"Write the mount unit of /data", "Unmount /sets", "Start data.automount"} <= {*back}


def test_everybody_writes_to_a_store_of_the_cloud_once_it_is_mounted(stand: Stand) -> None:
    """Its top folder is root's alone when AWS makes it; a mode that somebody has given it stays."""
    node = stand.boot("open", "192.168.40.62")
    node.run(f"echo '{FAR} {EFS.server}' >> /etc/hosts")
    deployed(stand, node.name, Storage((EFS,)))
    node.run("systemctl stop cloud.automount; mount -t tmpfs -o mode=755 tmpfs /cloud")

    modes = []
    for mode in ("755", "750"):
        node.run(f"chmod {mode} /cloud; systemctl start bedplate-commons-cloud")
        modes.append(node.run("stat --format=%a /cloud").strip())
    assert modes == ["1777", "750"]


class FarEnd:
    """A server behind TLS that says one word; its certificate is for a name of the test's choosing."""

    def __init__(self, node: Node, folder: Path) -> None:
        self._node = node
        self._folder = folder
        folder.mkdir()
        self._make("ca", "/CN=Test authority", "-x509", "-days", "2")
        self.authority = folder / "ca.pem"

    def proves(self, name: str) -> None:
        """Let it prove itself to be of this name."""
        signed = ("-CA", f"{self._folder}/ca.pem", "-CAkey", f"{self._folder}/ca.key")
        self._make("far", "/CN=far", "-x509", "-days", "2", *signed, "-addext", f"subjectAltName=DNS:{name}")
        both = (self._folder / "far.pem").read_text() + (self._folder / "far.key").read_text()
        (self._node.root / "root/far.pem").write_text(both)
        (self._node.root / "root/far.conf").write_text(
            "foreground=yes\n[far]\naccept=127.0.0.1:2049\ncert=/root/far.pem\nexec=/bin/echo\nexecArgs=echo well met\n"
        )
        self._node.run("systemctl stop far 2>/dev/null || true")
        self._node.run("systemd-run --quiet --collect --unit=far stunnel4 /root/far.conf")

    def _make(self, stem: str, subject: str, *more: str) -> None:
        files = ("-keyout", f"{self._folder}/{stem}.key", "-out", f"{self._folder}/{stem}.pem")
        call("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", subject, *files, *more)


LISTENING = """
import socket, time
for _ in range(100):
    try:
        print(socket.create_connection(("{near}", 2049), 15).recv(20).decode())
        break
    except ConnectionRefusedError:
        time.sleep(0.2)
"""


def said_through_the_tunnel(node: Node) -> str:
    """Return what the far end says to whoever connects at the tunnel's near end, once that listens."""
    try:
        return node.run(f"python3 - << 'EOF'\n{LISTENING.format(near=loopback(EFS.store))}EOF\n").strip()
    except CommandError as error:
        return "" if "Connection reset" in str(error) else str(error)


def test_a_tunnel_speaks_to_the_regions_own_server_alone(stand: Stand) -> None:
    """A certificate of another name, or by an authority that the node does not trust, gets not one byte."""
    need_program("openssl")
    node = stand.boot("titan-09.cellar", FAR)
    deployed(stand, node.name, Storage((EFS,)))
    far = FarEnd(node, stand.folder / "far")
    node.run(f"echo '127.0.0.1 {EFS.server}' >> /etc/hosts")

    far.proves("*.efs.us-west-2.amazonaws.com")
    unknown = said_through_the_tunnel(node)
    (node.root / "usr/local/share/ca-certificates/far.crt").write_text(far.authority.read_text())
    node.run("update-ca-certificates; systemctl restart bedplate-efs-cloud")
    right = said_through_the_tunnel(node)
    far.proves("*.efs.eu-north-1.amazonaws.com")
    wrong = said_through_the_tunnel(node)

    assert (unknown, right, wrong) == ("", "well met", "")
