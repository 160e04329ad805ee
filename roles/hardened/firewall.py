"""The nftables rules of a node: inbound packets that no firewall rule of the plan allows are dropped.

The pods router also translates the senders of packets to pods to its own address.

It has one table, `inet bedplate`, and never changes tables of kube-proxy, Docker or the gateways.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses

from bedplate.plan.firewall import METRICS_PORTS, NFS, OVERLAY, TCP, UDP, FirewallRule, pods_of
from bedplate.plan.fleet import Access
from bedplate.plan.hub import ALERTMANAGER_PORT, ALERTS_PORT, GRAFANA_UID, METRICS_UID, NGINX_UID, PROMETHEUS_PORT
from bedplate.plan.nodes import NodeRole, access_on
from roles.base import UNITS, ManagedFile, render, unit_files
from roles.storage.mounts import TUNNEL_UID

# Kubernetes forwards packets of pods; gateways have tables of their own for forwarded packets.
_GATEWAYS = frozenset({NodeRole.TUNNELS, NodeRole.PEERED, NodeRole.LAPTOPS})
FORWARDERS = frozenset({NodeRole.WORKER, NodeRole.CONTROL}) | _GATEWAYS
# Users run containers there: Docker or Podman decides whether packets are forwarded.
HOSTS = frozenset({NodeRole.WORKBENCH})
# Programs in pods must not connect to a file server: the node's kernel mounts volumes.
PODS = frozenset({NodeRole.WORKER, NodeRole.CONTROL})
# Users that may connect to a file server: root, for mounts of the kernel, and the user of the tunnels to EFS.
# Any other user could claim any identity, because an NFS server trusts its clients (ADR 15).
FILES, MOUNTERS = f"tcp dport {NFS}", f"0, {TUNNEL_UID}"
# Ports on loopback of the hub, and the users that reach them: who can send alerts, could send any text to people.
LOOPBACK = (
    (f"{PROMETHEUS_PORT}, {ALERTMANAGER_PORT}", f"0, {NGINX_UID}, {METRICS_UID}, {GRAFANA_UID}"),
    (str(ALERTS_PORT), f"0, {METRICS_UID}"),
)
# Whoever reaches the metadata service has the role of the machine. The other addresses give the roles of ECS tasks and
# EKS pods. Source: EC2 user guide, "Instance metadata"; EKS user guide, "EKS Pod Identity".
METADATA = (
    "ip daddr { 169.254.169.254, 169.254.170.2, 169.254.170.23 }",
    "ip6 daddr { fd00:ec2::23, fd00:ec2::254 }",
)
# The bridge of pods and flannel's VXLAN device: their packets are those of pods.
_POD_DEVICES = 'ifname { "cni0", "flannel.1" }'
# The loaded table, and the table that the text on stdin gives in an empty network namespace: a rule added by hand is
# only in the first.
HELD = "nft --stateless list table inet bedplate"
TRIED = f"unshare --net sh -c 'nft --file - && {HELD}'"
# The names of Docker's and Podman's bridges; a bridge of the machine itself, br0, does not match.
_BRIDGES = ("docker*", "br-*", "podman*", "cni-podman*")


@dataclass(frozen=True, slots=True)
class InboundRule:
    """Inbound connections of one protocol and port, from these blocks; from anywhere without blocks."""

    name: str
    protocol: str | None
    port: int | None
    blocks: tuple[IPv4Network, ...]

    @property
    def allows_all(self) -> bool:
        """Whether it allows all protocols and ports."""
        return self.protocol is None and self.port is None

    @property
    def matches(self) -> str:
        """The nftables expression that matches its packets."""
        parts = [f"ip saddr @{self.name}"] if self.blocks else []
        if self.port is not None:
            parts.append(f"{self.protocol} dport {self.port}")
        elif self.protocol is not None:
            parts.append(f"meta l4proto {self.protocol}")
        return " ".join(parts) or "meta nfproto ipv4"


def merge_rules(rules: Iterable[FirewallRule]) -> tuple[InboundRule, ...]:
    """Return one inbound rule for each protocol and port, with overlapping blocks merged."""
    blocks: dict[tuple[str, int], list[IPv4Network]] = {}
    for rule in rules:
        blocks.setdefault((rule.protocol or "", rule.port or 0), []).append(rule.block)
    return tuple(_inbound_rule(*key, blocks[key]) for key in sorted(blocks))


def ruleset(
    rules: Iterable[FirewallRule], node_roles: frozenset[NodeRole], to_pods: Iterable[FirewallRule] = ()
) -> str:
    """Return the rules of a node, which nftables loads in one transaction.

    `to_pods`: from outside of the cluster, it forwards these connections to pods, and no others.
    """
    all_rules = tuple(rules)
    inbound, carries_pods = merge_rules(all_rules), bool(node_roles & PODS)
    exclusive = [*((TCP, port) for port in METRICS_PORTS), *([(UDP, OVERLAY)] if carries_pods else ())]
    return render(
        "hardened/filter.nft.j2",
        inbound=inbound,
        exclusive=[rule for rule in inbound if (rule.protocol, rule.port) in exclusive and rule.blocks],
        overlay_port=OVERLAY,
        metadata=METADATA,
        people_use_role=access_on(node_roles) is Access.LOGIN,
        pod_devices=_POD_DEVICES,
        to_pods=tuple(_pod_matches(to_pods)),
        is_gateway=bool(node_roles & _GATEWAYS),
        to_files=FILES,
        mounters=MOUNTERS,
        loopback=LOOPBACK if NodeRole.HUB in node_roles else (),
        carries_pods=carries_pods,
        pods=pods_of(all_rules),
        translates=NodeRole.ROUTER in node_roles or {NodeRole.WORKER, NodeRole.TUNNELS} <= node_roles,
        forwards=bool(node_roles & FORWARDERS),
        bridges=_BRIDGES if node_roles & HOSTS else (),
    )


def _pod_matches(rules: Iterable[FirewallRule]) -> Iterator[str]:
    """Yield the expression for each range of ports; kube-proxy has changed the port of a service by then."""
    blocks: dict[str, list[IPv4Network]] = {}
    for rule in rules:
        ports = f"{rule.port}-{rule.last}" if rule.last and rule.last != rule.port else rule.port
        blocks.setdefault(f"meta l4proto {rule.protocol} ct original proto-dst {ports}", []).append(rule.block)
    for ports, from_blocks in blocks.items():
        yield f"ip saddr {{ {', '.join(map(str, collapse_addresses(from_blocks)))} }} {ports}"


def _inbound_rule(protocol: str, port: int, blocks: list[IPv4Network]) -> InboundRule:
    name = "_".join(filter(None, ("from", protocol or "all", str(port or ""))))
    from_anywhere = any(block.prefixlen == 0 for block in blocks)
    merged = () if from_anywhere else tuple(collapse_addresses(blocks))
    return InboundRule(name, protocol or None, port or None, merged)


PATH = "/etc/bedplate/emergency.nft"
UNIT = "bedplate-shut.service"
UNIT_PATH = f"{UNITS}/{UNIT}"
# The link that `systemctl enable` creates; image builds have no running systemd.
ENABLED = f"{UNITS}/sysinit.target.wants/{UNIT}"
# An empty chain that only these rules have; `bedplate-trial` searches for this name.
MARK = "emergency"
_SSH = ("tcp", 22)


def emergency_ruleset(rules: Iterable[FirewallRule]) -> str:
    """Return the emergency rules, which allow only SSH from the blocks of the plan."""
    return render(
        "hardened/emergency.nft.j2",
        inbound=merge_rules(rule for rule in rules if (rule.protocol, rule.port) == _SSH),
        to_files=FILES,
        mounters=MOUNTERS,
        metadata=METADATA,
        mark=MARK,
    )


def emergency_files(text: str) -> tuple[ManagedFile, ...]:
    """Return the emergency rules and the unit that loads them at boot."""
    return (
        ManagedFile("Write the emergency firewall rules", PATH, text, "600"),
        *unit_files("hardened", UNIT),
    )
