"""What is asked of any file server by a machine that mounts from it: whose files are, what root may, which ports do."""

from dataclasses import dataclass

from tests.support.nodes import lab_node
from tests.support.stand.command import CommandError
from tests.support.stand.node import Node

_BY_PERSON = "su --login {} --command '{}'"
_OF_ROOT = ("chown ada /data/of-root", "ls /home/ada", "touch /home/of-root")
_DENIED = ("not permitted", "denied")
# How a server says that it has nothing for such a port.
_ELSEWHERE = ("No such file",)


@dataclass(frozen=True, slots=True)
class Kept:
    """A file that ada wrote at home on both machines: as the server and the client see it, and what grace is told."""

    uid: str
    there: list[str]
    here: list[str]
    to_grace: str


def by_person(name: str, script: str) -> str:
    """Return the command that runs a script as somebody who has just logged in."""
    return _BY_PERSON.format(name, script)


def written_on_both(nas: Node, bench: Node) -> Kept:
    """Let ada write a file on the client and go on with it on the server."""
    uid = str(lab_node(bench.name).accounts.uids["ada"])
    bench.run(by_person("ada", "umask 077; echo from bench > kept"))
    there = nas.run("stat --format='%u %g %a' /srv/home/ada/kept /home/ada/kept").splitlines()
    nas.run(by_person("ada", "echo from server >> kept"))
    here = bench.run(by_person("ada", "id --user; stat --format=%u kept; cat kept")).splitlines()
    return Kept(uid, there, here, _refusal(bench, by_person("grace", "cat /home/ada/kept")))


def taken_from_root(nas: Node, bench: Node) -> tuple[str, list[str]]:
    """Return who owns what a client's root wrote, and what it was told of all that it tried beyond."""
    bench.run("touch /data/of-root")
    return nas.run("stat --format=%U /srv/data/of-root").strip(), [_refusal(bench, each) for each in _OF_ROOT]


def mounted_by(port: str, nas: Node, bench: Node) -> str:
    """Return how a mount by a port of that kind, `resvport` or `noresvport`, is refused; empty where it is not."""
    bench.run("systemctl stop home.mount data.mount")
    return _refusal(
        bench, f"mount -t nfs4 -o vers=4.2,retry=0,{port} {nas.address}:/srv/data /mnt && umount /mnt", *_ELSEWHERE
    )


def _refusal(node: Node, script: str, *also: str) -> str:
    """Return how a script is refused; another failure is the test's own. Raises CommandError."""
    try:
        node.run(script)
    except CommandError as error:
        if any(word in str(error) for word in (*_DENIED, *also)):
            return str(error)
        raise
    return ""
