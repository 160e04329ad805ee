"""What tests of shared storage ask about: the roles of the lab's machines, and what is mounted where."""

from collections.abc import Iterator
from contextlib import contextmanager

from bedplate.plan.node import NodePlan
from roles.people.role import People
from roles.storage.attached import HOMES
from roles.storage.role import Storage
from tests.support.needs import need_program, need_root
from tests.support.nodes import lab_node
from tests.support.stand.deploying import deployed
from tests.support.stand.node import Node
from tests.support.stand.stand import Stand
from tests.support.virtual.user_mode import with_user_mode

BENCH, SERVER = "titan-03.cellar", "nas.cellar"


def roles_of(node: NodePlan) -> tuple[People, Storage]:
    """Return people and storage as the plan has them, with a server at the machine's homes."""
    homes = next((share.path for share in node.shares if share.mount == HOMES), None)
    return People(node.accounts, homes), Storage(node.mounts, node.shares)


@contextmanager
def stand_with_kernels() -> Iterator[Stand]:
    """Give a stand whose machines may move to kernels of their own."""
    need_root()
    for program in ("systemd-nspawn", "debootstrap", "slirp4netns", "nft", "ssh", "mke2fs"):
        need_program(program)
    with Stand(with_user_mode()) as opened:
        yield opened


def file_server(stand: Stand) -> Node:
    """Return the booted file server, its folders on a file system of their own: an overlay has no handles."""
    booted = stand.boot(SERVER, str(lab_node(SERVER).address))
    booted.run("mount -t tmpfs tmpfs /srv")
    deployed(stand, SERVER, *roles_of(lab_node(SERVER)))
    return booted


def client_of(nas: Node, stand: Stand) -> Node:
    """Return a booted machine that mounts from the file server."""
    booted = stand.boot(BENCH, str(lab_node(BENCH).address))
    booted.run(f"echo '{nas.address} nas.cellar.lab.internal' >> /etc/hosts")
    deployed(stand, BENCH, *roles_of(lab_node(BENCH)))
    return booted


def kinds(node: Node, path: str) -> list[str]:
    """Return the kinds of file systems that are mounted at a path, the lowest first; asks no server."""
    lines = node.run("cat /proc/self/mountinfo").splitlines()
    return [line.split(" - ")[1].split()[0] for line in lines if line.split()[4] == path]
