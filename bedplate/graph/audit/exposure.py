"""Checks of security groups: ports open to the internet (S101 to S103, S108, S109), EFS in public subnets (S403)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from itertools import chain, pairwise

from bedplate.graph.audit.document import (
    Graph,
    Node,
    Properties,
    StackFault,
    fault,
    is_on,
    is_seen,
    number,
    parts,
    public_names,
    words,
)
from bedplate.rules import Rule

OPEN_TO_THE_INTERNET = Rule(
    "S101",
    "SSH, NFS and wide port ranges must only accept known addresses. The rules of a security group add up.",
    "name the addresses that need access: laptop pools, sites, other security groups",
)
OPEN_SERVICE = Rule(
    "S102",
    "Anyone who can connect to the service controls the machine or reads its data.",
    "allow only security groups or the fleet's own blocks",
)
UNSEEN_PREFIX_LIST = Rule(
    "S103",
    "A prefix list can contain the whole internet.",
    "check the entries of the list, or write its blocks into the rule",
    warns=True,
)
UNNAMED_PUBLIC_PORT = Rule(
    "S108",
    "A port must be open to the internet by intent. A security group's tag `bedplate:public` names such ports.",
    "allow known addresses only, or name the port in the tag: `bedplate:public: PROTOCOL/PORT PROTOCOL/PORT`",
)
PUBLIC_PORT = Rule(
    "S109",
    "The graph is not of bedplate's stacks. The service on the port may be for internal use only.",
    "allow known addresses only, or name the port in the tag: `bedplate:public: PROTOCOL/PORT PROTOCOL/PORT`",
    warns=True,
)
FILES_OPEN_TO_EDGE = Rule(
    "S403",
    "EFS trusts the user ids that a client sends. Machines that face the internet must not reach it.",
    "allow the nodes' security group and the blocks of node subnets, and no block of a public subnet",
    "Amazon EFS user guide, using VPC security groups",
)

Block = IPv4Network | IPv6Network

# A rule for more public addresses than this is not a rule for one organization.
WIDE = 65_536
# Private, reserved and documentation ranges. Source: IANA IPv4 Special-Purpose Address Registry.
_NOT_PUBLIC = tuple(
    collapse_addresses(
        map(
            IPv4Network,
            (
                *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
                *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
                *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            ),
        )
    )
)
# Global unicast addresses (RFC 4291). One host or link gets a /64, which therefore counts as one address.
_GLOBAL = IPv6Network("2000::/3")
_HOST_BITS = 64


def block_of(text: str) -> Block | None:
    """Return the block of a text, with host bits cleared as AWS does; None for an invalid text."""
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        return None


def public_size(blocks: Iterable[Block]) -> int:
    """Return how many public addresses the blocks cover together. An IPv6 /64 counts as one."""
    every_block = tuple(blocks)
    ipv4 = tuple(collapse_addresses(block for block in every_block if isinstance(block, IPv4Network)))
    ipv6 = collapse_addresses(block for block in every_block if isinstance(block, IPv6Network))
    not_public = sum(_shared(block, other) for block in ipv4 for other in _NOT_PUBLIC)
    links = (min(block.num_addresses, _GLOBAL.num_addresses) >> _HOST_BITS for block in ipv6 if block.overlaps(_GLOBAL))
    return sum(block.num_addresses for block in ipv4) - not_public + sum(links)


def is_wide(blocks: Iterable[Block]) -> bool:
    """Return whether the blocks cover more public addresses than one organization has."""
    return public_size(blocks) > WIDE


def _shared(block: IPv4Network, other: IPv4Network) -> int:
    """Return the number of addresses in both blocks. Of two blocks that overlap, one contains the other."""
    return min(block.num_addresses, other.num_addresses) if block.overlaps(other) else 0


GROUPS = ("ec2.SecurityGroup", "ec2.DefaultSecurityGroup")
LIST = "ec2.ManagedPrefixList"
LAST_PORT = 65_535
_PROTOCOLS = {"6": "tcp", "17": "udp", "-1": "", "all": ""}
_BLOCKS = ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6")
_LISTS = ("prefixListIds", "prefixListId")
_GROUP_KEYS = ("referencedSecurityGroupId", "sourceSecurityGroupId", "securityGroups")


@dataclass(frozen=True, slots=True)
class Ingress:
    """One inbound rule; no protocol means all of them.

    `groups` are the URNs of the security groups that it names, `unseen` the prefix lists that the graph lacks.
    """

    group: str
    urn: str
    key: str
    protocol: str
    first: int
    last: int
    blocks: tuple[Block, ...]
    unseen: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def allows(self, protocol: str, port: int) -> bool:
        """Return whether the rule allows packets to a port."""
        return self.protocol in {"", protocol} and self.first <= port <= self.last


def ingress_rules(graph: Graph) -> Iterator[Ingress]:
    """Yield the inbound rules of every security group."""
    entries = _entries(graph)
    for group in graph.of(*GROUPS):
        for index, rule in enumerate(parts(group.inputs.get("ingress"))):
            yield _ingress(graph, entries, (group, f"ingress.{index}", group.urn), rule)
    for node in chain(graph.of("vpc.SecurityGroupIngressRule"), _lone_ingress_rules(graph)):
        targets = graph.targets(node, "securityGroupId", *GROUPS)
        # The group may be outside the graph.
        group_name = targets[0].urn if targets else str(node.inputs.get("securityGroupId", node.urn))
        yield _ingress(graph, entries, (node, "", group_name), node.inputs)


def _lone_ingress_rules(graph: Graph) -> Iterator[Node]:
    return (node for node in graph.of("ec2.SecurityGroupRule") if node.inputs.get("type") == "ingress")


def _ingress(graph: Graph, entries: dict[str, list[str]], place: tuple[Node, str, str], rule: Properties) -> Ingress:
    node, path, group = place
    lists, unseen = _lists(graph, node, rule)
    listed = chain.from_iterable(entries.get(urn, ()) for urn in lists)
    texts = chain(chain.from_iterable(words(rule.get(key)) for key in _BLOCKS), listed)
    blocks = tuple(block for block in map(block_of, texts) if block is not None)
    key = next((key for key in (*_BLOCKS, *_LISTS) if rule.get(key)), "")
    first, last = _ports(rule)
    path = ".".join(filter(None, (path, key)))
    groups = _groups(graph, place, rule)
    return Ingress(group, node.urn, path, _protocol(rule), first, last, blocks, unseen, groups)


def _groups(graph: Graph, place: tuple[Node, str, str], rule: Properties) -> tuple[str, ...]:
    """Return the URNs of the security groups whose members the rule allows."""
    node, path, own = place
    idents = [word for key in _GROUP_KEYS for word in words(rule.get(key))]
    urns = [group.urn for ident in idents for group in graph.targets(node, "", *GROUPS, ident=ident)]
    if not idents and not path:
        urns = [group.urn for key in _GROUP_KEYS for group in graph.targets(node, key, *GROUPS)]
    return (*urns, own) if is_on(rule, "self") else tuple(urns)


def _protocol(rule: Properties) -> str:
    value = rule.get("protocol", rule.get("ipProtocol"))
    name = str(value).lower() if value is not None and is_seen(value) else ""
    return _PROTOCOLS.get(name, name)


def _ports(rule: Properties) -> tuple[int, int]:
    """Return the first and last port; all ports if the rule or its protocol has none."""
    first, last = number(rule.get("fromPort")), number(rule.get("toPort"))
    if not _protocol(rule) or first is None or last is None or first < 0:
        return 0, LAST_PORT
    return first, last


def _lists(graph: Graph, node: Node, rule: Properties) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the URNs of the prefix lists in a rule, and the ids of lists that the graph lacks."""
    idents = [word for key in _LISTS for word in words(rule.get(key))]
    urns = {ident: [target.urn for target in graph.targets(node, "", LIST, ident=ident)] for ident in idents}
    dependencies = [target.urn for key in _LISTS if not idents for target in graph.targets(node, key, LIST)]
    list_urns = tuple(chain(chain.from_iterable(urns.values()), dependencies))
    return list_urns, tuple(ident for ident, targets in urns.items() if not targets)


def _entries(graph: Graph) -> dict[str, list[str]]:
    """Return the blocks of each prefix list by its URN, including entries that are separate resources."""
    table = {
        node.urn: [word for entry in parts(node.inputs.get("entries")) for word in words(entry.get("cidr"))]
        for node in graph.of(LIST)
    }
    for entry in graph.of("ec2.ManagedPrefixListEntry"):
        for target in graph.targets(entry, "prefixListId", LIST):
            table[target.urn].extend(words(entry.inputs.get("cidr")))
    return table


@dataclass(frozen=True, slots=True)
class Service:
    """A service on a port, and the rule that keeps the internet away from it."""

    rule: Rule
    name: str
    protocol: str
    port: int


SERVICES = (
    Service(OPEN_TO_THE_INTERNET, "SSH", "tcp", 22),
    Service(OPEN_TO_THE_INTERNET, "NFS", "tcp", 2049),
    Service(OPEN_TO_THE_INTERNET, "NFS", "udp", 2049),
    Service(OPEN_TO_THE_INTERNET, "the NFS port mapper", "tcp", 111),
    Service(OPEN_TO_THE_INTERNET, "the NFS port mapper", "udp", 111),
    # Services without authentication by default, and services for trusted networks.
    Service(OPEN_SERVICE, "Docker", "tcp", 2375),
    Service(OPEN_SERVICE, "etcd", "tcp", 2379),
    Service(OPEN_SERVICE, "etcd", "tcp", 2380),
    Service(OPEN_SERVICE, "Remote Desktop", "tcp", 3389),
    Service(OPEN_SERVICE, "Redis", "tcp", 6379),
    Service(OPEN_SERVICE, "the Ray dashboard", "tcp", 8265),
    Service(OPEN_SERVICE, "Jupyter", "tcp", 8888),
    Service(OPEN_SERVICE, "the kubelet", "tcp", 10250),
    # Services of a cluster and of its machines: no laptop outside the VPN needs one.
    Service(OPEN_SERVICE, "SMB", "tcp", 445),
    Service(OPEN_SERVICE, "MySQL", "tcp", 3306),
    Service(OPEN_SERVICE, "PostgreSQL", "tcp", 5432),
    Service(OPEN_SERVICE, "the Kubernetes API", "tcp", 6443),
    Service(OPEN_SERVICE, "VXLAN", "udp", 8472),
    Service(OPEN_SERVICE, "Prometheus", "tcp", 9090),
    Service(OPEN_SERVICE, "the node exporter", "tcp", 9100),
    Service(OPEN_SERVICE, "Elasticsearch", "tcp", 9200),
    Service(OPEN_SERVICE, "the DCGM exporter", "tcp", 9400),
    Service(OPEN_SERVICE, "kube-proxy", "tcp", 10249),
    Service(OPEN_SERVICE, "the kubelet without a login", "tcp", 10255),
    Service(OPEN_SERVICE, "kube-controller-manager", "tcp", 10257),
    Service(OPEN_SERVICE, "kube-scheduler", "tcp", 10259),
    Service(OPEN_SERVICE, "Memcached", "tcp", 11211),
    Service(OPEN_SERVICE, "MongoDB", "tcp", 27017),
)

PUBLIC_PORTS = frozenset(
    rule.code for rule in (OPEN_TO_THE_INTERNET, OPEN_SERVICE, UNSEEN_PREFIX_LIST, UNNAMED_PUBLIC_PORT, PUBLIC_PORT)
)
"""The codes of faults about ports that are open to the internet."""

Rules = tuple[Ingress, ...]
Port = tuple[str, int]
"""A protocol and a port: `("udp", 1194)`."""

_COMPONENT = "::bedplate:stacks:"  # in the URNs of bedplate's components and of their children


def check_exposure(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each security group that opens ports to the internet which its tag does not name."""
    groups: dict[str, list[Ingress]] = defaultdict(list)
    for rule in ingress_rules(graph):
        groups[rule.group].append(rule)
    named = {group.urn: frozenset(_named_ports(group)) for group in graph.of(*GROUPS)}
    port_rule = UNNAMED_PUBLIC_PORT if any(_COMPONENT in node.urn for node in graph.nodes) else PUBLIC_PORT
    for group, rules in groups.items():
        yield from _exposed(rules, named.get(group, frozenset()), port_rule)
        yield from _unseen(rules)


def _named_ports(group: Node) -> Iterator[Port]:
    """Yield the ports that the tag of a security group names, such as `udp/1194 tcp/443`."""
    for name in public_names(group):
        protocol, _, port = name.partition("/")
        if port.isdecimal():
            yield protocol, int(port)


def _exposed(rules: Iterable[Ingress], named: frozenset[Port], port_rule: Rule) -> Iterator[StackFault]:
    services: dict[tuple[Rule, Rules], list[str]] = defaultdict(list)
    public = [rule for rule in rules if public_size(rule.blocks)]
    for service in SERVICES if public else ():
        wide = _wide_rules(rule for rule in public if rule.allows(service.protocol, service.port))
        if wide and (service.protocol, service.port) not in named:
            services[service.rule, wide].append(f"{service.name} ({service.port})")
    # All ports open is one fault.
    all_ports = {wide for broken, wide in services if broken is OPEN_TO_THE_INTERNET and all(map(_is_every_port, wide))}
    for (broken, wide), names in services.items():
        if broken is OPEN_TO_THE_INTERNET or wide not in all_ports:
            yield fault(broken, wide[0].urn, wide[0].key, _message(wide, names))
    reported = {wide for _, wide in services}
    for wide, names in _open_ports(public, named).items():
        if wide not in reported:
            yield fault(port_rule, wide[0].urn, wide[0].key, _message(wide, names))


def _open_ports(rules: Iterable[Ingress], named: frozenset[Port]) -> dict[Rules, list[str]]:
    """Return the ports that are open to the internet and not named, as `tcp/6443`, by the rules that open them."""
    ports: dict[Rules, list[str]] = defaultdict(list)
    for protocol in ("tcp", "udp"):
        allowing = [rule for rule in rules if rule.protocol in {"", protocol}]
        ranges = [(rule.first, rule.last) for rule in allowing]
        ranges += [(port, port) for name, port in named if name == protocol]
        for first, end in pairwise(sorted({edge for low, high in ranges for edge in (low, high + 1)})):
            wide = _wide_rules(rule for rule in allowing if rule.allows(protocol, first))
            if wide and (protocol, first) not in named:
                ports[wide].append(f"{protocol}/{first}" if end == first + 1 else f"{protocol}/{first}-{end - 1}")
    return ports


def _wide_rules(rules: Iterable[Ingress]) -> Rules:
    """Return the rules that are each too wide, or all rules if they are too wide together."""
    every_rule = tuple(rules)
    alone = tuple(rule for rule in every_rule if is_wide(rule.blocks))
    together = every_rule if is_wide(chain.from_iterable(rule.blocks for rule in every_rule)) else ()
    return alone or together


def _is_every_port(rule: Ingress) -> bool:
    return not rule.protocol or (rule.first <= 1 and rule.last == LAST_PORT)


def _message(rules: Rules, names: Iterable[str]) -> str:
    what = "every port" if all(map(_is_every_port, rules)) else ", ".join(dict.fromkeys(names))
    blocks = tuple(dict.fromkeys(str(block) for rule in rules for block in rule.blocks))
    shown = ", ".join(blocks[:4]) + (f" and {len(blocks) - 4:,} more" if len(blocks) > 4 else "")  # noqa: PLR2004 - a line
    by = f", by {len(rules)} rules together" if len(rules) > 1 else ""
    size = public_size(chain.from_iterable(rule.blocks for rule in rules))
    return f"{what} is open to {size:,} public addresses ({shown}{by})"


def _unseen(rules: Iterable[Ingress]) -> Iterator[StackFault]:
    for rule in rules:
        services = [service for service in SERVICES if rule.allows(service.protocol, service.port)]
        for name in rule.unseen if services else ():
            message = f"{services[0].name} is open to the prefix list {name}, which is not in the graph"
            yield fault(UNSEEN_PREFIX_LIST, rule.urn, rule.key, message)


_NFS = ("tcp", 2049)
_TABLES = ("ec2.RouteTable", "ec2.DefaultRouteTable")
_GATEWAY = "ec2.InternetGateway"
# Resources with an address in a subnet, and the property that names their security groups.
_MEMBERS = {"ec2.NetworkInterface": "securityGroups", "ec2.Instance": "vpcSecurityGroupIds"}


def check_edge(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each rule of a mount target's security group that allows public subnets."""
    edges = {node.urn: node for node in _public_subnets(graph)}
    blocks = tuple(block for node in edges.values() for block in map(block_of, words(node.inputs.get("cidrBlock"))))
    members = frozenset(_groups_in(graph, frozenset(edges)))
    targets = {
        group.urn
        for target in graph.of("efs.MountTarget")
        for group in graph.targets(target, "securityGroups", *GROUPS)
    }
    for rule in ingress_rules(graph) if targets else ():
        if rule.group in targets and rule.allows(*_NFS):
            yield from _edge_faults(rule, tuple(block for block in blocks if block), members)


def _edge_faults(rule: Ingress, edges: tuple[Block, ...], members: frozenset[str]) -> Iterator[StackFault]:
    overlapping = [str(edge) for edge in edges if any(_overlap(edge, block) for block in rule.blocks)]
    if overlapping:
        yield fault(
            FILES_OPEN_TO_EDGE, rule.urn, rule.key, f"NFS (2049) is open to public subnets: {', '.join(overlapping)}"
        )
    elif members & set(rule.groups):
        yield fault(
            FILES_OPEN_TO_EDGE,
            rule.urn,
            rule.key,
            "NFS (2049) is open to a security group of machines in public subnets",
        )


def _overlap(block: Block, other: Block) -> bool:
    return block.version == other.version and block.overlaps(other)


def _public_subnets(graph: Graph) -> Iterator[Node]:
    """Yield the subnets whose route table has a route to an internet gateway."""
    tables = {table.urn for table in graph.of(*_TABLES) if _has_gateway(graph, table)}
    for route in graph.of("ec2.Route"):
        if graph.targets(route, "gatewayId", _GATEWAY):
            tables.update(table.urn for table in graph.targets(route, "routeTableId", *_TABLES))
    for association in graph.of("ec2.RouteTableAssociation"):
        if any(table.urn in tables for table in graph.targets(association, "routeTableId", *_TABLES)):
            yield from graph.targets(association, "subnetId", "ec2.Subnet")


def _has_gateway(graph: Graph, table: Node) -> bool:
    idents = (word for route in parts(table.inputs.get("routes")) for word in words(route.get("gatewayId")))
    return any(graph.targets(table, "", _GATEWAY, ident=ident) for ident in idents)


def _groups_in(graph: Graph, subnets: frozenset[str]) -> Iterator[str]:
    """Yield the security groups of machines in these subnets."""
    for kind, key in _MEMBERS.items():
        for node in graph.of(kind):
            if any(subnet.urn in subnets for subnet in graph.targets(node, "subnetId", "ec2.Subnet")):
                yield from (group.urn for group in graph.targets(node, key, *GROUPS))
