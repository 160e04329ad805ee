"""What a workbench needs its kernel for: homes that are people's own on every machine, limits of local disk, an audit.

The kernel is a program (tests/testlab/machines/user_mode.py), for this machine's has neither NFS nor quotas. It mounts
from a file server that has none of its own: nfs-ganesha serves. test_nfs.py shows the kernel's server.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.nodes import node_of
from roles.files import Shipped
from roles.hardened import role
from roles.workbench.scratch import UNIT, Scratch
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.defects import Rule, Where, planted
from tests.testlab.machines.gateways import (
    BENCH,
    by_person,
    client_of,
    file_server,
    kinds,
    mounted_by,
    stand_with_kernels,
    taken_from_root,
    written_on_both,
)
from tests.testlab.machines.lab import FOUND, LabFolder, lab_folder, looked
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.machines.user_mode import user_mode
from tests.testlab.network.netlab import until
from tests.testlab.rehearsal.programs import plan_of

pytestmark = pytest.mark.nightly

MIB = 1 << 20
DISKS = ("/dev/disk/by-id/test-a", "/dev/disk/by-id/test-b")
# There is no udev, which takes half of a boot.
LINKS = "".join(f"L {name} - - - - /dev/ubd{letter}\n" for name, letter in zip(DISKS, "bc", strict=True))
GUARD, TIMER = "/usr/local/sbin/bedplate-storage-guard", "bedplate-storage-guard.timer"
# Seconds of silence after which the guard takes a mount off, here; and how long it may take with all that follows.
LIMIT, PATIENCE = 15, 300
# Enters a home, waits for a word, and asks the server twice in the folder that it has open.
STUBBORN = "cd /home/ada; touch /tmp/there; until [ -e /run/go ]; do sleep 0.2; done; [ -e 1 ]; [ -e 2 ]; exit 7"
_DEFECTS = planted(Where.KERNEL)


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    """Give a stand whose machines may move to kernels of their own."""
    with stand_with_kernels() as opened:
        yield opened


@pytest.fixture(scope="module")
def nas(stand: Stand) -> Node:
    """Give the file server, its folders on a file system of their own: an overlay has no handles."""
    return file_server(stand)


@pytest.fixture(scope="module")
def lab(stand: Stand) -> LabFolder:
    """Give the lab's folder, its file with the workbench's disks."""
    made = lab_folder(stand, stand.folder)
    made.edit(r"(titan-03: .*use: ssh)\}", rf"\1, scratch: [{', '.join(DISKS)}]}}")
    return made


@pytest.fixture(scope="module")
def bench(stand: Stand, nas: Node, lab: LabFolder) -> Node:
    """Give a workbench on its kernel, which has started by itself what the roles left for its boot."""
    booted = client_of(nas, stand)
    plan = node_of(plan_of(lab.fleet), BENCH, load_catalog())
    scratch = Scratch(plan.accounts.people, plan.scratch)
    audit = role.audit_files(booted.run("uname -m").strip())
    for file in (Shipped("Disks", "/etc/tmpfiles.d/disks.conf", LINKS), *scratch.files, *audit):
        place(booted, file)
    booted.run(f"systemctl enable {UNIT} auditd")
    moved = stand.move(BENCH, partial(user_mode, more=tuple(blank(stand.folder / name) for name in "ab")))
    moved.machine.wait()
    return moved


@pytest.fixture(scope="module")
def found(bench: Node, lab: LabFolder, tmp_path_factory: pytest.TempPathFactory) -> dict[Rule, str]:
    """Give what became of each rule about what is a kernel's or a disk's."""
    return looked(lab, bench, _DEFECTS, tmp_path_factory.mktemp("planted"))


def place(node: Node, file: Shipped) -> None:
    """Write a file as the role does."""
    path = node.root / file.path.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(file.text)
    path.chmod(int(file.mode, 8))


def filling(person: str, mib: int) -> str:
    """Return the command by which a person writes so much to scratch."""
    return by_person(person, f"dd if=/dev/zero of=/scratch/{person}/big bs=1M count={mib}")


def blank(path: Path) -> Path:
    """Make a disk of 128 MiB on which there is nothing."""
    with path.open("wb") as stream:
        stream.truncate(128 * MIB)
    return path


def test_a_mount_comes_with_its_first_use(bench: Node) -> None:
    """By version 4.2, and not before."""
    before = kinds(bench, "/data")
    bench.run("ls /data")
    after = kinds(bench, "/data")
    options = bench.run("grep ' /data nfs4 ' /proc/mounts")

    assert (before, after) == (["autofs"], ["autofs", "nfs4"])
    assert {"vers=4.2", "hard"} <= set(options.split()[3].split(","))


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


def test_a_port_that_any_program_may_have_gets_nothing(nas: Node, bench: Node) -> None:
    """By such a port anybody would be whom he likes."""
    assert mounted_by("noresvport", nas, bench)
    assert not mounted_by("resvport", nas, bench)


def test_who_tries_again_at_a_lost_server_is_told_again(nas: Node, bench: Node) -> None:
    """No path leads to what it waits for, and still it goes on; the next use finds the home when the server is back."""
    bench.run(f"systemctl stop {TIMER}; sed -i 's/^LIMIT = 300.0$/LIMIT = {LIMIT}.0/' {GUARD}")
    bench.run(by_person("ada", "echo kept > before"))
    bench.run(f"systemd-run --quiet --uid=ada --unit=stubborn sh -c '{STUBBORN}'")
    until(lambda: bench.run("ls /tmp/there || true") != "", PATIENCE, "it is there", every=0.5)
    nas.cut()
    try:
        bench.run(f"touch /run/go; systemctl start {TIMER}")
        until(lambda: "failed" in bench.run("systemctl is-active stubborn || true"), PATIENCE, "it goes on", every=2)
        told = bench.run("systemctl show --property=ExecMainStatus --value stubborn; cat /proc/mounts")
    finally:
        nas.heal()

    assert told.startswith("7\n")
    assert " /home nfs4 " not in told
    assert bench.run(by_person("ada", "cat before")).strip() == "kept"


def test_scratch_is_made_of_its_disks_at_the_boot(bench: Node) -> None:
    """Both are one, mounted, and everybody has a folder there that is nobody else's."""
    size = int(bench.run("df --output=size --block-size=1M /scratch | tail -n 1"))

    assert kinds(bench, "/scratch") == ["ext4"]
    assert size > 128
    assert bench.run("stat --format='%U %a' /scratch/ada").strip() == "ada 700"


def test_nobody_takes_more_than_half_of_scratch(bench: Node) -> None:
    """The kernel refuses it, and others go on writing."""
    with pytest.raises(CommandError, match="Disk quota exceeded"):
        bench.run(filling("ada", 200))
    bench.run(filling("grace", 60))


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_the_planted_defect_is_found(rule: Rule, found: dict[Rule, str]) -> None:
    """The rule is kept on a machine with a kernel and disks of its own, and violated while its defect stands."""
    assert found[rule] == FOUND
