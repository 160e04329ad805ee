"""NFS between two machines whose kernels have it: who owns what, who is let in, and a server that is lost.

This machine's kernel has no NFS: both get kernels of their own (tests/testlab/machines/user_mode.py), which are several
times slower. What needs no such kernel is applied before. test_homes.py shows, quicker, what is a client's matter
alone, with the other server.
"""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from bedplate.compliance.settings import ETAB, unplanned_exports
from roles.storage.exports import EXPORTS
from tests.testlab.fleets.variants import lab_node
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.gateways import (
    BENCH,
    SERVER,
    client_of,
    kinds,
    mounted_by,
    roles_of,
    stand_with_kernels,
    taken_from_root,
    written_on_both,
)
from tests.testlab.machines.operator import deployed
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.machines.user_mode import user_mode
from tests.testlab.network.netlab import until

pytestmark = pytest.mark.nightly

GUARD, TIMER = "/usr/local/sbin/bedplate-storage-guard", "bedplate-storage-guard.timer"
# A host of the LAN that is no machine of the plan.
STRANGER = "192.168.40.99"
# Seconds of silence after which the guard takes a mount off, here; without it, the mount waits for ever.
LIMIT = 15
PATIENCE = 240


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    """Give a stand whose machines may move to kernels of their own."""
    with stand_with_kernels() as opened:
        yield opened


@pytest.fixture(scope="module")
def pair(stand: Stand) -> tuple[Node, Node]:
    """Give the file server and a machine that mounts from it, on their kernels; what asks for NFS is applied there."""
    people, serving = roles_of(lab_node(SERVER))
    stand.boot(SERVER, str(lab_node(SERVER).address))
    deployed(stand, SERVER, people)
    nas = stand.move(SERVER, user_mode)
    bench = client_of(nas, stand)
    bench = stand.move(BENCH, user_mode)
    nas.machine.wait()
    deployed(stand, SERVER, serving)
    bench.machine.wait()
    return nas, bench


@pytest.fixture(scope="module")
def nas(pair: tuple[Node, Node]) -> Node:
    """Give the file server."""
    return pair[0]


@pytest.fixture(scope="module")
def bench(pair: tuple[Node, Node]) -> Node:
    """Give a machine that mounts from it."""
    return pair[1]


def state(node: Node, unit: str) -> str:
    """Return what systemd says of a unit."""
    return node.run(f"systemctl show --property=ActiveState --value {unit}").strip()


def seconds_of(node: Node, unit: str) -> float:
    """Return how long a unit was active before it ended."""
    times = ("ActiveEnterTimestampMonotonic", "InactiveEnterTimestampMonotonic")
    began, ended = (int(node.run(f"systemctl show --property={each} --value {unit}")) for each in times)
    return (ended - began) / 1e6


def test_the_kernel_serves_at_one_port_alone(nas: Node) -> None:
    """Its helpers listen for no version that is not served."""
    sockets = nas.run("ss --no-header --listening --tcp --udp --numeric").splitlines()

    assert {line.split()[4].rpartition(":")[2] for line in sockets} == {"22", "2049"}
    assert "nfsd" in nas.run("cat /proc/filesystems")


def test_a_file_is_its_owners_on_every_machine(nas: Node, bench: Node) -> None:
    """What a person writes at home on the one is theirs, with the same id, on the other, and nobody else's."""
    kept = written_on_both(nas, bench)

    assert kept.there == [f"{kept.uid} {kept.uid} 600"] * 2
    assert kept.here == [kept.uid, kept.uid, "from bench", "from server"]
    assert "Permission denied" in kept.to_grace


def test_root_of_a_client_is_nobody_on_the_server(nas: Node, bench: Node) -> None:
    """It owns nothing there, gives nothing away, and reads nobody's home."""
    owner, refusals = taken_from_root(nas, bench)

    assert owner == "nobody"
    assert all(refusals)


def test_another_host_of_the_lan_cannot_mount(stand: Stand, nas: Node, bench: Node) -> None:
    """The same machine is refused at an address of the LAN that the plan does not name; at its own it mounts."""
    mount = "mount -t nfs4 -o vers=4.2,retry=0 nas.cellar.lab.internal:/srv/data /mnt && umount /mnt"
    (wire,) = stand.desk.host.run("ip", "-o", "route", "show", str(bench.address)).split("dev ")[1:]
    stand.desk.host.run("ip", "route", "add", STRANGER, "dev", wire.split()[0], "src", str(stand.desk.address))
    bench.run("systemctl stop home.mount data.mount")
    bench.run(f"ip address add {STRANGER}/32 dev eth0")
    bench.run(f"ip route add {nas.address} via {stand.desk.address} src {STRANGER}")

    with pytest.raises(CommandError, match="access denied by server"):
        bench.run(mount)
    bench.run(f"ip route delete {nas.address}; ip address delete {STRANGER}/32 dev eth0")

    bench.run(mount)


def test_what_is_exported_by_hand_is_seen(nas: Node) -> None:
    """No file tells of it; the kernel's own table does, in which the plan's exports are as they are written."""
    ours, before = nas.run(f"cat {EXPORTS}"), nas.run(f"cat {ETAB}")

    nas.run("exportfs -i '*:/srv/data'")
    by_hand = nas.run(f"cat {ETAB}")
    nas.run("exportfs -r")

    assert "/srv/data" in before
    assert unplanned_exports(before, ours) == []
    assert unplanned_exports(by_hand, ours) == ["/srv/data to *"]
    assert unplanned_exports(nas.run(f"cat {ETAB}"), ours) == []


def test_a_port_that_any_program_may_have_gets_nothing(nas: Node, bench: Node) -> None:
    """By such a port anybody would be whom he likes."""
    assert mounted_by("noresvport", nas, bench)
    assert not mounted_by("resvport", nas, bench)


def test_what_waits_for_a_lost_server_is_told_an_error_after_the_limit(nas: Node, bench: Node) -> None:
    """A use waits, for mounts are hard; the guard, its limit shortened here, ends that; the next use mounts anew."""
    bench.run("su --login ada --command 'echo kept > ~/before'; ls /data")
    shorter = f"sed -i 's/^LIMIT = 300.0$/LIMIT = {LIMIT}.0/' {GUARD}; grep -qx 'LIMIT = {LIMIT}.0' {GUARD}"
    bench.run(f"systemctl stop {TIMER}; {shorter}")
    nas.cut()
    try:
        bench.run("systemd-run --quiet --unit=waits sh -c 'cat /home/ada/before /home/ada/*'")
        bench.run(f"systemctl start {TIMER}")
        until(lambda: state(bench, "waits") != "active", PATIENCE, "what waits goes on", every=1)
        login = bench.run("su --login ada --command 'echo a shell' 2>/dev/null || true", PATIENCE)
    finally:
        nas.heal()

    assert state(bench, "waits") == "failed"
    assert seconds_of(bench, "waits") >= LIMIT
    assert "a shell" in login
    assert bench.run("su --login ada --command 'cat ~/before'").strip() == "kept"
    assert kinds(bench, "/home") == ["autofs", "nfs4"]


def test_a_shutdown_does_not_wait_for_a_lost_server(nas: Node, bench: Node) -> None:
    """Though it is mounted, and written to."""
    bench.run("ls /data /home")
    assert kinds(bench, "/data") == kinds(bench, "/home") == ["autofs", "nfs4"]
    nas.cut()
    try:
        bench.run("systemd-run --quiet sh -c 'echo lost > /data/lost'")
        with suppress(CommandError):  # the line may end before the answer
            bench.run("systemctl poweroff --no-block")
        until(lambda: not bench.machine.runs, PATIENCE, "the machine is down", every=0.5)
    finally:
        nas.heal()
