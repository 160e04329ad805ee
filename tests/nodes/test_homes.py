"""A workbench with its own kernel: NFS homes, disk quotas and the kernel's audit.

The kernel is User Mode Linux (tests/testlab/machines/user_mode.py), because this machine's kernel may lack NFS and
quotas. The file server runs nfs-ganesha; test_nfs.py tests the kernel's NFS server.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.nodes import find_node
from roles.base import ManagedFile
from roles.hardened import role
from roles.workbench.role import UNIT, Scratch
from tests.testlab.machines.container import CommandError
from tests.testlab.machines.defects import Rule, Where, defects_at
from tests.testlab.machines.gateways import (
    WORKBENCH,
    as_person,
    boot_client,
    boot_file_server,
    mount_refusal,
    mounted_types,
    node_lab_with_kernels,
    try_as_client_root,
    write_on_both,
)
from tests.testlab.machines.lab import FAILED, FleetFolder, check_defects, make_fleet_folder
from tests.testlab.machines.layers import RELEASE
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.user_mode import user_mode
from tests.testlab.network.netlab import until
from tests.testlab.rehearsal.programs import plan_of

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        RELEASE != "bookworm",
        reason="nfs-ganesha of Debian 13 exports no tmpfs, and its User Mode Linux does not start on Debian 12",
    ),
]

MIB = 1 << 20
DISKS = ("/dev/disk/by-id/test-a", "/dev/disk/by-id/test-b")
# Links of scratch disks; udev is disabled, because it takes half of the boot time.
LINKS = "".join(f"L {name} - - - - /dev/ubd{letter}\n" for name, letter in zip(DISKS, "bc", strict=True))
GUARD, TIMER = "/usr/local/sbin/bedplate-storage-guard", "bedplate-storage-guard.timer"
# Seconds without an answer until the guard removes a mount in these tests, and the timeout of what follows.
LIMIT, PATIENCE = 15, 300
# Enters a home, waits for a signal file, and accesses the server twice.
STUBBORN = "cd /home/ada; touch /tmp/there; until [ -e /run/go ]; do sleep 0.2; done; [ -e 1 ]; [ -e 2 ]; exit 7"
_DEFECTS = defects_at(Where.KERNEL)


@pytest.fixture(scope="module")
def node_lab() -> Iterator[NodeLab]:
    """Yield a node lab whose nodes can switch to their own kernels."""
    with node_lab_with_kernels() as opened:
        yield opened


@pytest.fixture(scope="module")
def nas(node_lab: NodeLab) -> Node:
    """Return the booted file server."""
    return boot_file_server(node_lab)


@pytest.fixture(scope="module")
def lab(node_lab: NodeLab) -> FleetFolder:
    """Return an operator's folder whose fleet file has the scratch disks of the workbench."""
    folder = make_fleet_folder(node_lab, node_lab.folder)
    folder.edit(r"(titan-03: .*use: ssh)\}", rf"\1, scratch: [{', '.join(DISKS)}]}}")
    return folder


@pytest.fixture(scope="module")
def workbench(node_lab: NodeLab, nas: Node, lab: FleetFolder) -> Node:
    """Return a workbench with its own kernel, whose boot has started the services of the roles."""
    booted = boot_client(nas, node_lab)
    plan = find_node(plan_of(lab.fleet), WORKBENCH, load_catalog())
    scratch = Scratch(plan.accounts.people, plan.scratch)
    audit = role.audit_files(booted.run("uname -m").strip())
    for file in (ManagedFile("Disks", "/etc/tmpfiles.d/disks.conf", LINKS), *scratch.files, *audit):
        place(booted, file)
    booted.run(f"systemctl enable {UNIT} auditd")
    moved = node_lab.move(WORKBENCH, partial(user_mode, disks=tuple(blank(node_lab.folder / name) for name in "ab")))
    moved.machine.wait()
    return moved


@pytest.fixture(scope="module")
def rule_outcomes(workbench: Node, lab: FleetFolder, tmp_path_factory: pytest.TempPathFactory) -> dict[Rule, str]:
    """Return the outcome of each rule about the kernel or scratch disks, with its defect."""
    return check_defects(lab, workbench, _DEFECTS, tmp_path_factory.mktemp("defects"))


def place(node: Node, file: ManagedFile) -> None:
    """Write a file to a node, as a role does."""
    path = node.root / file.path.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(file.text)
    path.chmod(int(file.mode, 8))


def filling(person: str, mib: int) -> str:
    """Return the command that writes MiB to a person's scratch folder."""
    return as_person(person, f"dd if=/dev/zero of=/scratch/{person}/big bs=1M count={mib}")


def blank(path: Path) -> Path:
    """Create an empty disk image of 128 MiB."""
    with path.open("wb") as stream:
        stream.truncate(128 * MIB)
    return path


def test_mount_happens_on_first_use(workbench: Node) -> None:
    """Storage is mounted on its first use, with NFS 4.2."""
    before = mounted_types(workbench, "/data")
    workbench.run("ls /data")
    after = mounted_types(workbench, "/data")
    options = workbench.run("grep ' /data nfs4 ' /proc/mounts")

    assert (before, after) == (["autofs"], ["autofs", "nfs4"])
    assert {"vers=4.2", "hard"} <= set(options.split()[3].split(","))


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


def test_unprivileged_ports_cannot_mount(nas: Node, workbench: Node) -> None:
    """The server refuses mounts from unprivileged ports, which any program could use."""
    assert mount_refusal("noresvport", nas, workbench)
    assert not mount_refusal("resvport", nas, workbench)


def test_process_in_a_lost_mount_gets_errors(nas: Node, workbench: Node) -> None:
    """A process in a folder of a lost server gets errors instead of a hang, and the home is back with the server."""
    workbench.run(f"systemctl stop {TIMER}; sed -i 's/^LIMIT = 300.0$/LIMIT = {LIMIT}.0/' {GUARD}")
    workbench.run(as_person("ada", "echo kept > before"))
    workbench.run(f"systemd-run --quiet --uid=ada --unit=stubborn sh -c '{STUBBORN}'")
    until(
        lambda: workbench.run("ls /tmp/there || true") != "", PATIENCE, "the process did not enter the home", every=0.5
    )
    nas.cut()
    try:
        workbench.run(f"touch /run/go; systemctl start {TIMER}")
        until(
            lambda: "failed" in workbench.run("systemctl is-active stubborn || true"),
            PATIENCE,
            "the process still hangs",
            every=2,
        )
        state = workbench.run("systemctl show --property=ExecMainStatus --value stubborn; cat /proc/mounts")
    finally:
        nas.heal()

    assert state.startswith("7\n")
    assert " /home nfs4 " not in state
    assert workbench.run(as_person("ada", "cat before")).strip() == "kept"


def test_scratch_is_created_at_boot(workbench: Node) -> None:
    """Both scratch disks form one mounted file system, with a private folder for each person."""
    size = int(workbench.run("df --output=size --block-size=1M /scratch | tail -n 1"))

    assert mounted_types(workbench, "/scratch") == ["ext4"]
    assert size > 128
    assert workbench.run("stat --format='%U %a' /scratch/ada").strip() == "ada 700"


def test_person_cannot_fill_scratch(workbench: Node) -> None:
    """The kernel limits each person to half of scratch, and others can still write."""
    with pytest.raises(CommandError, match="Disk quota exceeded"):
        workbench.run(filling("ada", 200))
    workbench.run(filling("grace", 60))


@pytest.mark.parametrize("rule", _DEFECTS, ids="-".join)
def test_rule_detects_its_defect(rule: Rule, rule_outcomes: dict[Rule, str]) -> None:
    """The rule passes on a node with its own kernel and disks, and fails with its defect."""
    assert rule_outcomes[rule] == FAILED
