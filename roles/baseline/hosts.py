"""Names that a node knows without asking anybody: its own, and every machine whose address never changes."""

from collections.abc import Iterator
from ipaddress import IPv4Address

from bedplate.plan.node import NodePlan
from roles.shipped import Shipped

# Debian's own address for a machine's name where no fixed one is known: Debian Reference, section 5.1.1.
_OWN = IPv4Address("127.0.1.1")


def hosts(node: NodePlan, own_name: str) -> Shipped:
    """Return /etc/hosts of a node whose host name is `own_name`."""
    return Shipped("Hosts", "/etc/hosts", "".join(f"{line}\n" for line in _lines(node, own_name)))


def _lines(node: NodePlan, own_name: str) -> Iterator[str]:
    yield "127.0.0.1 localhost"
    names = dict.fromkeys((node.full_name, node.name, node.host, own_name))
    yield f"{node.address or _OWN} {' '.join(names)}"
    yield "::1 localhost ip6-localhost ip6-loopback"
    for name, address in sorted(node.hosts.items()):
        if name != node.full_name:
            yield f"{address} {name} {name.removesuffix(f'.{node.domain}')}"
