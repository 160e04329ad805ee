"""Backups of the hub of a site on an NFS folder of another machine, with the kernels' NFS server and client.

Both machines of examples/office.yaml are emulated by QEMU, because this machine's kernel may lack NFS. PostgreSQL,
rclone and the roles `hub` and `storage` are real; the database has one table instead of MLflow's.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.nodes import NodePlan, find_node
from roles.base import LIBRARY, file_text
from roles.hub.role import BACKUP, hub_role
from roles.postgres.role import Postgres
from roles.storage.mounts import create_folder, server_of
from roles.storage.role import Storage
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.operator import apply_roles
from tests.testlab.machines.virtual import kernel_layers
from tests.testlab.network.netlab import until
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of
from tests.testlab.run import clock_pace, need_program, need_root

pytestmark = pytest.mark.nightly

HUB, SERVER = "vault.attic", "nas.attic"
COPIES = "/srv/copies"
GUARD, TIMER = "/usr/local/sbin/bedplate-storage-guard", "bedplate-storage-guard.timer"
# Seconds without an answer until the guard removes the mount in these tests, and the longest backup.
LIMIT, LONGEST = 15, 300
_RECORDS = """
runuser -u postgres -- createdb mlflow
runuser -u postgres -- psql --quiet --dbname=mlflow --command='create table runs (run_uuid text)'
systemctl disable --quiet --now nginx bedplate-hub.service bedplate-hub.socket chrony 2>/dev/null || true
install -d /srv/hub/artifacts/packs/ada /srv/hub/tokens; echo pack >/srv/hub/artifacts/packs/ada/1.pack
"""


def planned(name: str) -> NodePlan:
    """Return the plan of a machine of the example."""
    return find_node(plan_of(EXAMPLES / "office.yaml"), name, load_catalog())


def serve(node: Node, plan: NodePlan) -> None:
    """Write what the role `storage` writes on a file server whose kernel has NFS: an apply there takes minutes."""
    server = server_of(plan.shares, by_kernel=True)
    for file in server.files:
        path = node.root / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    node.run("; ".join((*map(create_folder, plan.shares), f"systemctl enable --quiet {server.service}")))


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Node, Node]]:
    """Yield the hub and the file server with kernels of their own."""
    need_root()
    for program in ("systemd-nspawn", "mmdebstrap", "slirp4netns", "nft", "ssh", "qemu-system-x86_64", "mke2fs"):
        need_program(program)
    with NodeLab(kernel_layers()) as lab:
        hub, nas = planned(HUB), planned(SERVER)
        serve(lab.boot(SERVER, str(nas.address)), nas)
        lab.move(SERVER)
        booted = lab.boot(HUB, str(hub.address))
        (mount,) = hub.mounts
        booted.run(f"echo '{nas.address} {mount.server}' >>/etc/hosts")
        assert hub.hub
        records = booted.root / LIBRARY.lstrip("/") / "records"
        records.parent.mkdir(parents=True, exist_ok=True)
        records.write_text(file_text("mlflow/records"))
        records.chmod(0o755)
        apply_roles(lab, HUB, Postgres(has_volume=False), hub_role(hub.hub, hub.accounts), Storage(hub.mounts))
        booted.run(_RECORDS)
        booted = lab.move(HUB)
        lab.nodes[SERVER].machine.wait()
        booted.machine.wait()
        yield booted, lab.nodes[SERVER]


@pytest.fixture
def hub(pair: tuple[Node, Node]) -> Node:
    """Return the hub."""
    return pair[0]


@pytest.fixture
def nas(pair: tuple[Node, Node]) -> Node:
    """Return the file server, whose folder of copies is empty and as the role makes it."""
    pair[1].run(f"rm -rf {COPIES}/*; chown root:root {COPIES}; chmod 1777 {COPIES}")
    return pair[1]


def back_up(hub: Node) -> str:
    """Run the backup of a night; return its result, as systemd has it."""
    seconds = LONGEST * clock_pace()
    hub.run(f"systemctl start {BACKUP} || true", seconds)
    return hub.run(f"systemctl show --property=Result --value {BACKUP}").strip()


def copies(nas: Node) -> list[str]:
    """Return the files of the folder of copies, each with its owner and its mode."""
    return nas.run(f"find {COPIES} -type f -printf '%U %m %P\\n' | sort -k3").splitlines()


def dumps(hub: Node) -> list[str]:
    """Return the names of the backups on the hub."""
    return hub.run("ls /srv/hub/dumps/nightly | sed -n 's/.sha256$//p'").split()


def test_the_folder_of_another_machine_takes_the_backup(hub: Node, nas: Node) -> None:
    """Root of the hub is nobody there, and writes files that no other account reads; the backup has no keys."""
    assert back_up(hub) == "success"

    name = dumps(hub)[-1]
    assert copies(nas) == [
        *(f"65534 600 dumps/{HUB}/{name}.{suffix}" for suffix in ("dump", "sha256", "tar")),
        f"65534 600 files/{HUB}/packs/ada/1.pack",
    ]
    assert nas.run(f"tar --list --file={COPIES}/dumps/{HUB}/{name}.tar | grep -c keys || true").strip() == "0"
    assert f"backup {name}" in hub.run("/usr/local/lib/bedplate/hub-backup list")
    assert hub.run(f"cd /copies/dumps/{HUB}; sha256sum --quiet --check {name}.sha256") == ""


def test_a_folder_that_root_of_the_hub_cannot_write_is_named(hub: Node, nas: Node) -> None:
    """A folder that existed before the role keeps its owner and mode: the backup fails, and says why."""
    # The client may keep the former mode for a minute.
    hub.run("systemctl stop copies.mount")
    nas.run(f"chmod 755 {COPIES}")

    assert back_up(hub) == "exit-code"

    reason = "cannot write to /copies: root of a client is nobody on its server; chmod 1777 the folder there"
    assert reason in hub.run(f"journalctl --no-pager --output=cat --unit={BACKUP} --lines=5")
    assert copies(nas) == []


@pytest.mark.parametrize("mounts", ["ls /copies", "systemctl stop copies.mount"], ids=["mounted", "not-mounted"])
def test_a_server_that_is_away_fails_one_backup(hub: Node, nas: Node, mounts: str) -> None:
    """The backup ends with an error, the dump is on the hub, and the next night copies without anybody's help."""
    shorten_wait(hub)
    hub.run(mounts)
    before = len(dumps(hub))
    nas.cut()
    try:
        assert back_up(hub) == "exit-code"
    finally:
        nas.heal()

    assert hub.run("cat /srv/hub/dumps/failed") == "the copy to /copies failed\n"
    assert len(dumps(hub)) == min(before + 1, 7)
    assert back_up(hub) == "success"
    assert any(f"{dumps(hub)[-1]}.sha256" in line for line in copies(nas))


def test_a_server_that_is_lost_during_the_copy_leaves_no_half_file(hub: Node, nas: Node) -> None:
    """The backup ends; without the list of sums it is none, and the next night completes the file that was cut off."""
    shorten_wait(hub)
    hub.run("head --bytes=8M /dev/urandom >/srv/hub/artifacts/packs/ada/2.pack")
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(back_up, hub)
        until(lambda: "2.pack" in nas.run(f"find {COPIES}"), LONGEST, "no copy", every=0.2)
        nas.cut()
        try:
            assert result.result() == "exit-code"
        finally:
            nas.heal()

    assert not any("sha256" in line for line in copies(nas))
    assert back_up(hub) == "success"
    assert nas.run(f"sha256sum <{COPIES}/files/{HUB}/packs/ada/2.pack") == hub.run(
        "sha256sum </srv/hub/artifacts/packs/ada/2.pack"
    )


def shorten_wait(hub: Node) -> None:
    """Let the guard remove mounts of a lost server after seconds instead of five minutes."""
    hub.run(f"sed -i 's/^LIMIT = .*$/LIMIT = {LIMIT}.0/' {GUARD}; systemctl restart {TIMER}")
