"""The role `storage` on booted nodes whose server is present, lost, or an impostor.

This machine's kernel may lack NFS, so these tests cover everything except the mount itself; test_nfs.py tests mounts.
"""

from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from bedplate.plan.mounts import Mount, MountKind
from roles.hardened.firewall import ruleset
from roles.storage.mounts import loopback
from roles.storage.role import Storage
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.container import CommandError, call
from tests.testlab.machines.gateways import SERVER, WORKBENCH, boot_client, boot_file_server, roles_of
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import apply_roles
from tests.testlab.network.netlab import until
from tests.testlab.run import need_program

EFS = Mount("cloud", MountKind.EFS, "cloud.files.us-west-2.lab.internal", "/", "/cloud", "us-west-2")
FAR = "192.168.40.9"
# Seconds until a person without a home gets a shell; a hanging server would take minutes.
LOGIN_SECONDS = 30.0


@pytest.fixture(scope="module")
def nas(node_lab: NodeLab) -> Node:
    """Return the booted file server."""
    return boot_file_server(node_lab)


@pytest.fixture(scope="module")
def workbench(node_lab: NodeLab, nas: Node) -> Node:
    """Return a booted client of the file server."""
    return boot_client(nas, node_lab)


def ports(node: Node) -> set[str]:
    """Return the TCP ports with listeners, without those of systemd-resolved on a loopback address."""
    sockets = node.run("ss --no-header --listening --tcp --numeric 'not src 127.0.0.0/8'").splitlines()
    return {line.split()[3].rpartition(":")[2] for line in sockets}


def seconds_of_login(node: Node) -> float:
    """Return the seconds until a login of a person whose home is not reachable."""
    started = monotonic()
    node.run("su --login ada --command true || true", seconds=120)
    return monotonic() - started


def test_a_second_apply_changes_nothing(node_lab: NodeLab, nas: Node, workbench: Node) -> None:
    """A second apply changes nothing on server and client."""
    assert apply_roles(node_lab, nas.name, *roles_of(lab_node(SERVER))) == []
    assert apply_roles(node_lab, workbench.name, *roles_of(lab_node(WORKBENCH))) == []


def test_server_listens_on_one_port(nas: Node) -> None:
    """The file server listens on port 2049 and SSH only."""
    until(lambda: "2049" in ports(nas), 30, "the server does not listen", every=0.2)

    assert ports(nas) == {"22", "2049"}


def test_homes_belong_to_people_on_the_server(nas: Node) -> None:
    """Homes exist on the server before the first login, under the clients' path too, and belong to their people."""
    modes = nas.run("stat --format='%u %a' /srv/home/ada /home/ada").splitlines()

    assert modes == [f"{lab_node(SERVER).accounts.uids['ada']} 700"] * 2


def test_first_account_works_while_homes_are_mounted(workbench: Node) -> None:
    """The first account can log in although the mount of /home hides its former home."""
    done = workbench.ssh("pwd; sudo --non-interactive id --user")

    assert done.stdout.split() == ["/var/lib/bedplate/home/ubuntu", "0"]


@pytest.mark.nightly
def test_boot_does_not_wait_for_a_lost_server(nas: Node, workbench: Node) -> None:
    """A node shuts down, boots and accepts logins without its file server."""
    nas.cut()
    started = monotonic()
    try:
        workbench.restart()
        seconds = monotonic() - started
        login = seconds_of_login(workbench)
    finally:
        nas.heal()

    states = workbench.run("systemctl show --property=ActiveState --value home.automount data.automount").split()
    assert states == ["active", "active"]
    assert seconds < 120
    assert login < LOGIN_SECONDS


@pytest.mark.nightly
def test_use_of_a_lost_server_fails_each_time(nas: Node, workbench: Node) -> None:
    """Each use of a mount fails soon while the server is lost, and the automount stays active."""
    nas.cut()
    try:
        for _ in range(7):
            with pytest.raises(CommandError, match="No such device"):
                workbench.run("ls /data", seconds=60)
    finally:
        nas.heal()

    assert workbench.run("systemctl is-active data.automount").strip() == "active"
    assert workbench.run("/usr/local/sbin/bedplate-storage-guard answers cellar-data && echo yes").strip() == "yes"


@pytest.mark.nightly
def test_renamed_mount_replaces_the_old_one(node_lab: NodeLab, workbench: Node) -> None:
    """A renamed mount replaces the old one, which stays while a process uses it; the apply names the process."""
    plan = lab_node(WORKBENCH)
    moved = Storage(tuple(replace(mount, path="/sets") if mount.path == "/data" else mount for mount in plan.mounts))
    workbench.run("systemctl stop data.automount; mount -t tmpfs tmpfs /data")
    workbench.run("systemd-run --quiet --collect --unit=uses --working-directory=/data sleep 900")

    while_used = apply_roles(node_lab, workbench.name, moved)
    workbench.run("systemctl stop uses; umount /data")
    unused = apply_roles(node_lab, workbench.name, moved)
    again = apply_roles(node_lab, workbench.name, moved)
    back = apply_roles(node_lab, workbench.name, *roles_of(plan))

    assert "Keep /data mounted: in use by sleep root" in while_used
    assert "Start sets.automount" in while_used
    assert unused == ["Unmount /data"]
    assert again == []
    assert {"Write the mount unit of /data", "Unmount /sets", "Start data.automount"} <= {*back}


def test_people_can_write_to_an_aws_store(node_lab: NodeLab) -> None:
    """The root folder of a new AWS store becomes writable for people; a mode that someone set stays."""
    node = node_lab.boot("open", "192.168.40.62")
    node.run(f"echo '{FAR} {EFS.server}' >> /etc/hosts")
    apply_roles(node_lab, node.name, Storage((EFS,)))
    node.run("systemctl stop cloud.automount; mount -t tmpfs -o mode=755 tmpfs /cloud")

    modes = []
    for mode in ("755", "750"):
        node.run(f"chmod {mode} /cloud; systemctl start bedplate-commons-cloud")
        modes.append(node.run("stat --format=%a /cloud").strip())
    assert modes == ["1777", "750"]


class TlsServer:
    """A TLS server that sends a short text; its certificate has a name of the test's choice."""

    def __init__(self, node: Node, folder: Path) -> None:
        self._node = node
        self._folder = folder
        folder.mkdir()
        self._make("ca", "/CN=Test authority", "-x509", "-days", "2")
        self.authority = folder / "ca.pem"

    def start(self, name: str) -> None:
        """Restart the server with a certificate for a name."""
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


READ_TEXT = """
import socket, time
for _ in range(100):
    try:
        print(socket.create_connection(("{near}", 2049), 15).recv(20).decode())
        break
    except ConnectionRefusedError:
        time.sleep(0.2)
"""


def text_through_tunnel(node: Node) -> str:
    """Return the text that the server sends through the tunnel, once the tunnel listens; empty if it is refused."""
    try:
        return node.run(f"python3 - << 'EOF'\n{READ_TEXT.format(near=loopback(EFS.store))}EOF\n").strip()
    except CommandError as error:
        return "" if "Connection reset" in str(error) else str(error)


def test_efs_tunnel_verifies_the_server(node_lab: NodeLab) -> None:
    """The tunnel reads from EFS through the packet filter, but not from another name or an untrusted certificate."""
    need_program("openssl")
    node = node_lab.boot("titan-09.cellar", FAR)
    plan = lab_node("workbench-gpu-1.us-west-2")
    apply_roles(node_lab, node.name, Storage((EFS,)))
    (node.root / "root/filter.nft").write_text(ruleset(plan.firewall_rules, plan.roles))
    node.run("nft --file /root/filter.nft")
    server = TlsServer(node, node_lab.folder / "far")
    node.run(f"echo '127.0.0.1 {EFS.server}' >> /etc/hosts")

    server.start("*.efs.us-west-2.amazonaws.com")
    untrusted = text_through_tunnel(node)
    (node.root / "usr/local/share/ca-certificates/far.crt").write_text(server.authority.read_text())
    node.run("update-ca-certificates; systemctl restart bedplate-efs-cloud")
    trusted = text_through_tunnel(node)
    server.start("*.efs.eu-north-1.amazonaws.com")
    wrong_name = text_through_tunnel(node)

    assert (untrusted, trusted, wrong_name) == ("", "well met", "")
