"""The packet filter of a node as nftables reads it: what no door of the plan lets in is dropped.

Knows one table, `inet bedplate`, and never touches another: kube-proxy's, docker's and the guards of gateways stay.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses

from bedplate.plan.firewall import NFS, Rule
from bedplate.plan.nodes import Duty, pods_of
from roles.files import Shipped, rendered, text_of

# Kubernetes forwards packets of pods; gateways bring tables of their own for what they forward.
FORWARDERS = frozenset({Duty.WORKER, Duty.CONTROL, Duty.TUNNELS, Duty.JOINT, Duty.LAPTOPS})
# People run containers there: whether packets are forwarded at all is the matter of what runs them.
HOSTS = frozenset({Duty.WORKBENCH})
# A pod's or a container's own program speaks to no file server: volumes are mounted by the machine's kernel.
PODS = frozenset({Duty.WORKER, Duty.CONTROL})
# Who may speak to a file server: root, in whose name the kernel mounts, and stunnel, by an id that systemd lends it.
# Whoever else asks there could claim to be anybody, for the server believes its clients (ADR 15).
# Source: systemd.exec(5), `DynamicUser=`.
FILES, MOUNTERS = f"tcp dport {NFS}", "0, 61184-65519"
# What the kernel holds of it, and what it would hold of the text on stdin, tried in a network of its own: no rule that
# a hand has added is in the second, whatever else lies on the node.
HELD = "nft --stateless list table inet bedplate"
TRIED = f"unshare --net sh -c 'nft --file - && {HELD}'"
# The bridges that Docker and Podman make, as they name them; a machine's own, br0, is none of them.
_BRIDGES = ("docker*", "br-*", "podman*", "cni-podman*")


@dataclass(frozen=True, slots=True)
class Door:
    """Connections of one protocol and port; without blocks they may come from anywhere."""

    name: str
    protocol: str | None
    port: int | None
    blocks: tuple[IPv4Network, ...]

    @property
    def is_wide(self) -> bool:
        """Whether it is open to everything that its blocks send."""
        return self.protocol is None and self.port is None

    @property
    def matches(self) -> str:
        """What a packet must look like, in nftables' words."""
        parts = [f"ip saddr @{self.name}"] if self.blocks else []
        if self.port is not None:
            parts.append(f"{self.protocol} dport {self.port}")
        elif self.protocol is not None:
            parts.append(f"meta l4proto {self.protocol}")
        return " ".join(parts) or "meta nfproto ipv4"


def doors_of(rules: Iterable[Rule]) -> tuple[Door, ...]:
    """Return the rules as doors, one a protocol and port; a block within another is said once."""
    blocks: dict[tuple[str, int], list[IPv4Network]] = {}
    for rule in rules:
        blocks.setdefault((rule.protocol or "", rule.port or 0), []).append(rule.block)
    return tuple(_door(*key, blocks[key]) for key in sorted(blocks))


def ruleset(rules: Iterable[Rule], duties: frozenset[Duty]) -> str:
    """Return the text that nftables loads, whole or not at all."""
    known = tuple(rules)
    return rendered(
        "hardened/filter.nft.j2",
        doors=doors_of(known),
        to_files=FILES,
        mounters=MOUNTERS,
        carries_pods=bool(duties & PODS),
        pods=pods_of(known),
        forwards=bool(duties & FORWARDERS),
        bridges=_BRIDGES if duties & HOSTS else (),
    )


def _door(protocol: str, port: int, blocks: list[IPv4Network]) -> Door:
    name = "_".join(_words(protocol, port))
    everywhere = any(block.prefixlen == 0 for block in blocks)
    narrowed = () if everywhere else tuple(collapse_addresses(blocks))
    return Door(name, protocol or None, port or None, narrowed)


def _words(protocol: str, port: int) -> Iterator[str]:
    yield "from"
    yield protocol or "all"
    if port:
        yield str(port)


PATH = "/etc/bedplate/emergency.nft"
UNIT = "bedplate-shut.service"
UNIT_PATH = f"/etc/systemd/system/{UNIT}"
# What `systemctl enable` makes of its WantedBy, without asking a running systemd.
ENABLED = f"/etc/systemd/system/sysinit.target.wants/{UNIT}"
# An empty chain that the packet filter itself never has; `bedplate-trial` looks for it under this name.
MARK = "emergency"
_SSH = ("tcp", 22)


def emergency_ruleset(rules: Iterable[Rule]) -> str:
    """Return the text that nftables loads; of the plan's doors it has those of SSH alone."""
    return rendered(
        "hardened/emergency.nft.j2",
        doors=doors_of(rule for rule in rules if (rule.protocol, rule.port) == _SSH),
        to_files=FILES,
        mounters=MOUNTERS,
        mark=MARK,
    )


def shipped(text: str) -> tuple[Shipped, ...]:
    """Return the files that shut a node at its boot."""
    return (
        Shipped("Packet filter of emergencies", PATH, text, "600"),
        Shipped("Unit that shuts the node first", UNIT_PATH, text_of(f"hardened/{UNIT}")),
    )
