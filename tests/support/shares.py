"""What tests of shared storage ask about: the roles of the lab's machines, and what is mounted where."""

from bedplate.plan.node import NodePlan
from roles.people.role import People
from roles.storage.attached import HOMES
from roles.storage.role import Storage
from tests.support.stand.node import Node

BENCH, SERVER = "titan-03.cellar", "nas.cellar"


def roles_of(node: NodePlan) -> tuple[People, Storage]:
    """Return people and storage as the plan has them, with a server at the machine's homes."""
    homes = next((share.path for share in node.shares if share.mount == HOMES), None)
    return People(node.accounts, homes), Storage(node.mounts, node.shares)


def kinds(node: Node, path: str) -> list[str]:
    """Return the kinds of file systems that are mounted at a path, the lowest first; asks no server."""
    lines = node.run("cat /proc/self/mountinfo").splitlines()
    return [line.split(" - ")[1].split()[0] for line in lines if line.split()[4] == path]
