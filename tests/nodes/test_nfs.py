"""NFS between two nodes with their own kernels: ownership, access, and a lost server.

Both run User Mode Linux (tests/testlab/machines/user_mode.py), which is several times slower, because this machine's
kernel may lack NFS. Roles that do not need the kernel are applied before. test_homes.py tests the client with
nfs-ganesha, and is faster.
"""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from bedplate.compliance.settings import ETAB, unplanned_exports
from roles.storage.mounts import EXPORTS
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.gateways import (
    SERVER,
    WORKBENCH,
    boot_client,
    mount_refusal,
    mounted_types,
    node_lab_with_kernels,
    roles_of,
    try_as_client_root,
    write_on_both,
)
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import apply_roles
from tests.testlab.machines.user_mode import user_mode
from tests.testlab.network.netlab import until

pytestmark = pytest.mark.nightly

GUARD, TIMER = "/usr/local/sbin/bedplate-storage-guard", "bedplate-storage-guard.timer"
# An address of the LAN that is not in the plan.
UNPLANNED = "192.168.40.99"
# Seconds without an answer until the guard removes a mount in these tests; without the guard, mounts wait forever.
LIMIT = 15
PATIENCE = 240


@pytest.fixture(scope="module")
def node_lab() -> Iterator[NodeLab]:
    """Yield a node lab whose nodes can switch to their own kernels."""
    with node_lab_with_kernels() as opened:
        yield opened


@pytest.fixture(scope="module")
def pair(node_lab: NodeLab) -> tuple[Node, Node]:
    """Return the file server and a client with their own kernels; roles that need NFS are applied there."""
    people, serving = roles_of(lab_node(SERVER))
    node_lab.boot(SERVER, str(lab_node(SERVER).address))
    apply_roles(node_lab, SERVER, people)
    nas = node_lab.move(SERVER, user_mode)
    workbench = boot_client(nas, node_lab)
    workbench = node_lab.move(WORKBENCH, user_mode)
    nas.machine.wait()
    apply_roles(node_lab, SERVER, serving)
    workbench.machine.wait()
    return nas, workbench


@pytest.fixture(scope="module")
def nas(pair: tuple[Node, Node]) -> Node:
    """Return the file server."""
    return pair[0]


@pytest.fixture(scope="module")
def workbench(pair: tuple[Node, Node]) -> Node:
    """Return the client."""
    return pair[1]


def state(node: Node, unit: str) -> str:
    """Return the ActiveState of a unit."""
    return node.run(f"systemctl show --property=ActiveState --value {unit}").strip()


def seconds_of(node: Node, unit: str) -> float:
    """Return the seconds for which a unit was active."""
    times = ("ActiveEnterTimestampMonotonic", "InactiveEnterTimestampMonotonic")
    began, ended = (int(node.run(f"systemctl show --property={time} --value {unit}")) for time in times)
    return (ended - began) / 1e6


def test_kernel_server_listens_on_one_port(nas: Node) -> None:
    """The kernel's NFS server listens on port 2049 only; only sshd and the node's own resolver listen besides it."""
    sockets = nas.run("ss --no-header --listening --tcp --udp --numeric").splitlines()
    addresses = (line.split()[4].rpartition(":") for line in sockets)

    assert {port for address, _, port in addresses if not address.startswith("127.0.0.5")} == {"22", "2049"}
    assert "nfsd" in nas.run("cat /proc/filesystems")


def test_file_has_the_same_owner_on_all_nodes(nas: Node, workbench: Node) -> None:
    """A file in a home has the same owner and content on client and server, and other people cannot read it."""
    file = write_on_both(nas, workbench)

    assert file.on_server == [f"{file.uid} {file.uid} 600"] * 2
    assert file.on_client == [file.uid, file.uid, "from bench", "from server"]
    assert "Permission denied" in file.error_for_grace


def test_client_root_is_nobody_on_the_server(nas: Node, workbench: Node) -> None:
    """The root of a client writes as nobody, and can neither change owners nor read homes."""
    owner, refusals = try_as_client_root(nas, workbench)

    assert owner == "nobody"
    assert all(refusals)


def test_another_host_of_the_lan_cannot_mount(node_lab: NodeLab, nas: Node, workbench: Node) -> None:
    """A client with an address outside the plan is refused; with its own address it can mount."""
    mount = "mount -t nfs4 -o vers=4.2,retry=0 nas.cellar.lab.internal:/srv/data /mnt && umount /mnt"
    (wire,) = node_lab.workstation.host.run("ip", "-o", "route", "show", str(workbench.address)).split("dev ")[1:]
    node_lab.workstation.host.run(
        "ip", "route", "add", UNPLANNED, "dev", wire.split()[0], "src", str(node_lab.workstation.address)
    )
    workbench.run("systemctl stop home.mount data.mount")
    workbench.run(f"ip address add {UNPLANNED}/32 dev eth0")
    workbench.run(f"ip route add {nas.address} via {node_lab.workstation.address} src {UNPLANNED}")

    with pytest.raises(CommandError, match="access denied by server"):
        workbench.run(mount)
    workbench.run(f"ip route delete {nas.address}; ip address delete {UNPLANNED}/32 dev eth0")

    workbench.run(mount)


def test_manual_export_is_detected(nas: Node) -> None:
    """The compliance rule finds a manual export in the kernel's table, and accepts the planned exports."""
    planned, before = nas.run(f"cat {EXPORTS}"), nas.run(f"cat {ETAB}")

    nas.run("exportfs -i '*:/srv/data'")
    by_hand = nas.run(f"cat {ETAB}")
    nas.run("exportfs -r")

    assert "/srv/data" in before
    assert unplanned_exports(before, planned) == []
    assert unplanned_exports(by_hand, planned) == ["/srv/data to *"]
    assert unplanned_exports(nas.run(f"cat {ETAB}"), planned) == []


def test_unprivileged_ports_cannot_mount(nas: Node, workbench: Node) -> None:
    """The server refuses mounts from unprivileged ports, which any program could use."""
    assert mount_refusal("noresvport", nas, workbench)
    assert not mount_refusal("resvport", nas, workbench)


def test_waiting_for_a_lost_server_ends_with_an_error(nas: Node, workbench: Node) -> None:
    """Hard mounts wait; the guard ends the wait after its limit, and the next use mounts again."""
    workbench.run("su --login ada --command 'echo kept > ~/before'; ls /data")
    shorter = f"sed -i 's/^LIMIT = 300.0$/LIMIT = {LIMIT}.0/' {GUARD}; grep -qx 'LIMIT = {LIMIT}.0' {GUARD}"
    workbench.run(f"systemctl stop {TIMER}; {shorter}")
    nas.cut()
    try:
        workbench.run("systemd-run --quiet --unit=waits sh -c 'cat /home/ada/before /home/ada/*'")
        workbench.run(f"systemctl start {TIMER}")
        until(lambda: state(workbench, "waits") != "active", PATIENCE, "the command still waits", every=1)
        login = workbench.run("su --login ada --command 'echo a shell' 2>/dev/null || true", PATIENCE)
    finally:
        nas.heal()

    assert state(workbench, "waits") == "failed"
    assert seconds_of(workbench, "waits") >= LIMIT
    assert "a shell" in login
    assert workbench.run("su --login ada --command 'cat ~/before'").strip() == "kept"
    assert mounted_types(workbench, "/home") == ["autofs", "nfs4"]


def test_shutdown_does_not_wait_for_a_lost_server(nas: Node, workbench: Node) -> None:
    """A node shuts down although the server of a mount in use is lost."""
    workbench.run("ls /data /home")
    assert mounted_types(workbench, "/data") == mounted_types(workbench, "/home") == ["autofs", "nfs4"]
    nas.cut()
    try:
        workbench.run("systemd-run --quiet sh -c 'echo lost > /data/lost'")
        with suppress(CommandError):  # the connection may end before the answer
            workbench.run("systemctl poweroff --no-block")
        until(lambda: not workbench.machine.runs, PATIENCE, "the node did not shut down", every=0.5)
    finally:
        nas.heal()
