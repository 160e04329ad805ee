"""A machine with what `hardened` puts there for its ways in: packet filter, sshd and their trial, confirmed."""

from ipaddress import IPv4Network

from bedplate.plan.door import Rule
from roles.hardened import emergency
from roles.hardened.filter import ruleset
from roles.hardened.sshd import settings
from roles.hardened.trial import CONFIRM, SCRIPT
from roles.template import text_of
from tests.support.stand.node import Node
from tests.support.stand.stand import Stand

LAN = Rule("ssh-from-cellar", "SSH from the cellar", IPv4Network("192.168.40.0/22"), "tcp", 22)
OPEN = ruleset((LAN,), frozenset())
KEYS_ONLY = settings(frozenset())
# A second sshd stands for a service of that port.
HIDDEN = 2200
_UNITS = ("bedplate-filter.service", emergency.UNIT)


def guarded(stand: Stand) -> Node:
    """Boot a machine, and let its filter be tried and confirmed as an apply does."""
    node = stand.boot("nas.cellar", "192.168.40.5")
    script = node.root / SCRIPT.removeprefix("/")
    script.write_text(text_of("hardened/bedplate-trial"))
    script.chmod(0o755)
    for unit in _UNITS:
        (node.root / "etc/systemd/system" / unit).write_text(text_of(f"hardened/{unit}"))
    want(node, OPEN)
    (node.root / emergency.PATH.removeprefix("/")).write_text(emergency.ruleset((LAN,)))
    node.run(f"ssh-keygen -A; systemctl enable {' '.join(_UNITS)}; {SCRIPT} begin 60")
    node.ssh(f"sudo {CONFIRM}").check_returncode()
    return node


def want(node: Node, packets: str, sshd: str = KEYS_ONLY) -> None:
    """Write what is wanted, as the role does."""
    folder = node.root / "etc/bedplate/wanted"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "filter.nft").write_text(packets)
    (folder / "sshd.conf").write_text(sshd)


def answers(node: Node, port: int) -> bool:
    """Tell whether somebody on the machine's network comes to a port of it."""
    knock = ("bash", "-c", f"exec 3<>/dev/tcp/{node.address}/{port}")
    return node.desk.run("timeout", "3", *knock).returncode == 0
