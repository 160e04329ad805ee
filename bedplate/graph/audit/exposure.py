"""How much of the public internet a set of blocks covers, however it is written."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from itertools import chain

from bedplate.checks.addresses import CARRIER, PRIVATE, RESERVED
from bedplate.graph.audit.document import Graph, Node, Properties, is_on, is_seen, number, parts, words
from bedplate.graph.audit.rules import StackFault, fault

Block = IPv4Network | IPv6Network

# More than this is no lab, no company and no provider's office any more.
WIDE = 65_536
_NOT_PUBLIC = tuple(collapse_addresses((*RESERVED, *PRIVATE, CARRIER)))
# RFC 4291: global unicast. One host, or one link, is given a /64, so that one counts as one address.
_GLOBAL = IPv6Network("2000::/3")
_HOST_BITS = 64


def block_of(text: str) -> Block | None:
    """Return the block that AWS makes of a text, host bits cleared; None where it is no block."""
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        return None


def public_size(blocks: Iterable[Block]) -> int:
    """Return how many public addresses the blocks cover together, each counted once; an IPv6 /64 counts as one."""
    told = tuple(blocks)
    four = tuple(collapse_addresses(block for block in told if isinstance(block, IPv4Network)))
    six = collapse_addresses(block for block in told if isinstance(block, IPv6Network))
    hidden = sum(_shared(block, other) for block in four for other in _NOT_PUBLIC)
    return (
        sum(block.num_addresses for block in four)
        - hidden
        + sum(min(block.num_addresses, _GLOBAL.num_addresses) >> _HOST_BITS for block in six if block.overlaps(_GLOBAL))
    )


def is_wide(blocks: Iterable[Block]) -> bool:
    """Whether the blocks let in more of the internet than anybody's own addresses."""
    return public_size(blocks) > WIDE


def _shared(one: IPv4Network, other: IPv4Network) -> int:
    """Return the size of what two blocks share: blocks that overlap lie in one another."""
    return min(one.num_addresses, other.num_addresses) if one.overlaps(other) else 0


GROUPS = ("ec2.SecurityGroup", "ec2.DefaultSecurityGroup")
LIST = "ec2.ManagedPrefixList"
LAST_PORT = 65_535
_PROTOCOLS = {"6": "tcp", "17": "udp", "-1": "", "all": ""}
_BLOCKS = ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6")
_LISTS = ("prefixListIds", "prefixListId")
_GROUP_KEYS = ("referencedSecurityGroupId", "sourceSecurityGroupId", "securityGroups")


@dataclass(frozen=True, slots=True)
class Opening:
    """One rule that lets traffic in; no protocol means all of them.

    `groups` are the URNs of the groups that it names, `unseen` the prefix lists that are not in the graph.
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

    def reaches(self, protocol: str, port: int) -> bool:
        """Whether the rule lets packets to a port in."""
        return self.protocol in {"", protocol} and self.first <= port <= self.last


def openings(graph: Graph) -> Iterator[Opening]:
    """Yield what each security group lets in, rule by rule."""
    entries = _entries(graph)
    for group in graph.of(*GROUPS):
        for index, rule in enumerate(parts(group.inputs.get("ingress"))):
            yield _opening(graph, entries, (group, f"ingress.{index}", group.urn), rule)
    for node in chain(graph.of("vpc.SecurityGroupIngressRule"), _incoming(graph)):
        targets = graph.targets(node, "securityGroupId", *GROUPS)
        # Rules of a group outside the graph still add up.
        group_name = targets[0].urn if targets else str(node.inputs.get("securityGroupId", node.urn))
        yield _opening(graph, entries, (node, "", group_name), node.inputs)


def _incoming(graph: Graph) -> Iterator[Node]:
    return (node for node in graph.of("ec2.SecurityGroupRule") if node.inputs.get("type") == "ingress")


def _opening(graph: Graph, entries: dict[str, list[str]], place: tuple[Node, str, str], rule: Properties) -> Opening:
    node, path, group = place
    lists, unseen = _lists(graph, node, rule)
    listed = chain.from_iterable(entries.get(urn, ()) for urn in lists)
    texts = chain(chain.from_iterable(words(rule.get(key)) for key in _BLOCKS), listed)
    blocks = tuple(block for block in map(block_of, texts) if block is not None)
    key = next((key for key in (*_BLOCKS, *_LISTS) if rule.get(key)), "")
    first, last = _ports(rule)
    path = ".".join(filter(None, (path, key)))
    groups = _groups(graph, place, rule)
    return Opening(group, node.urn, path, _protocol(rule), first, last, blocks, unseen, groups)


def _groups(graph: Graph, place: tuple[Node, str, str], rule: Properties) -> tuple[str, ...]:
    """Return the URNs of the groups whose members a rule lets in."""
    node, path, own = place
    named = [word for key in _GROUP_KEYS for word in words(rule.get(key))]
    found = [one.urn for word in named for one in graph.targets(node, "", *GROUPS, ident=word)]
    if not named and not path:
        found = [one.urn for key in _GROUP_KEYS for one in graph.targets(node, key, *GROUPS)]
    return (*found, own) if is_on(rule, "self") else tuple(found)


def _protocol(rule: Properties) -> str:
    told = rule.get("protocol", rule.get("ipProtocol"))
    name = str(told).lower() if told is not None and is_seen(told) else ""
    return _PROTOCOLS.get(name, name)


def _ports(rule: Properties) -> tuple[int, int]:
    """Return the first and last port; all of them where the rule names none or its protocol has none."""
    first, last = number(rule.get("fromPort")), number(rule.get("toPort"))
    if not _protocol(rule) or first is None or last is None or first < 0:
        return 0, LAST_PORT
    return first, last


def _lists(graph: Graph, node: Node, rule: Properties) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the URNs of the prefix lists that a rule names, and the names of those that the graph does not hold."""
    named = [word for key in _LISTS for word in words(rule.get(key))]
    found = {word: [one.urn for one in graph.targets(node, "", LIST, ident=word)] for word in named}
    depended = [one.urn for key in _LISTS if not named for one in graph.targets(node, key, LIST)]
    return (
        tuple(chain(chain.from_iterable(found.values()), depended)),
        tuple(word for word, urns in found.items() if not urns),
    )


def _entries(graph: Graph) -> dict[str, list[str]]:
    """Return the blocks of each prefix list by its URN, entries that are resources of their own included."""
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
    """What listens on a port, and the rule under which the internet must not reach it."""

    code: str
    name: str
    protocol: str
    port: int


SERVICES = (
    Service("S101", "SSH", "tcp", 22),
    Service("S101", "NFS", "tcp", 2049),
    Service("S101", "NFS", "udp", 2049),
    Service("S101", "NFS's port mapper", "tcp", 111),
    Service("S101", "NFS's port mapper", "udp", 111),
    # What gives a machine or its data away to whoever connects, or was made for a trusted network alone.
    Service("S102", "docker", "tcp", 2375),
    Service("S102", "etcd", "tcp", 2379),
    Service("S102", "etcd", "tcp", 2380),
    Service("S102", "remote desktop", "tcp", 3389),
    Service("S102", "redis", "tcp", 6379),
    Service("S102", "Ray's dashboard", "tcp", 8265),
    Service("S102", "Jupyter", "tcp", 8888),
    Service("S102", "the kubelet", "tcp", 10250),
)

Culprits = tuple[Opening, ...]


def check_exposure(graph: Graph) -> Iterator[StackFault]:
    """Tell each group that lets the internet at what only a lab's own people may reach."""
    groups: dict[str, list[Opening]] = defaultdict(list)
    for opening in openings(graph):
        groups[opening.group].append(opening)
    for rules in groups.values():
        yield from _exposed(rules)
        yield from _unseen(rules)


def _exposed(rules: Iterable[Opening]) -> Iterator[StackFault]:
    told: dict[tuple[str, Culprits], list[Service]] = defaultdict(list)
    public = [rule for rule in rules if public_size(rule.blocks)]
    for service in SERVICES if public else ():
        culprits = _culprits(rule for rule in public if rule.reaches(service.protocol, service.port))
        if culprits:
            told[service.code, culprits].append(service)
    # Every port is one fault, told under SSH's rule.
    worst = {culprits for code, culprits in told if code == "S101" and all(map(_is_every_port, culprits))}
    for (code, culprits), services in told.items():
        if code == "S101" or culprits not in worst:
            first = culprits[0]
            yield fault(code, first.urn, first.key, _message(culprits, services))


def _culprits(rules: Iterable[Opening]) -> Culprits:
    """Return the rules that are wide by themselves, or else all if they are wide together, or else none."""
    all_of_them = tuple(rules)
    alone = tuple(rule for rule in all_of_them if is_wide(rule.blocks))
    together = all_of_them if is_wide(chain.from_iterable(rule.blocks for rule in all_of_them)) else ()
    return alone or together


def _is_every_port(rule: Opening) -> bool:
    return not rule.protocol or (rule.first <= 1 and rule.last == LAST_PORT)


def _message(culprits: Culprits, services: Iterable[Service]) -> str:
    names = tuple(dict.fromkeys(f"{service.name} ({service.port})" for service in services))
    what = "every port" if all(map(_is_every_port, culprits)) else ", ".join(names)
    blocks = tuple(dict.fromkeys(str(block) for rule in culprits for block in rule.blocks))
    told = ", ".join(blocks[:4]) + (f" and {len(blocks) - 4:,} more" if len(blocks) > 4 else "")  # noqa: PLR2004 - a line
    by = f", by {len(culprits)} rules together" if len(culprits) > 1 else ""
    size = public_size(chain.from_iterable(rule.blocks for rule in culprits))
    return f"{what} is open to {size:,} public addresses ({told}{by})"


def _unseen(rules: Iterable[Opening]) -> Iterator[StackFault]:
    for rule in rules:
        watched = [service for service in SERVICES if rule.reaches(service.protocol, service.port)]
        for name in rule.unseen if watched else ():
            yield fault(
                "S103", rule.urn, rule.key, f"{watched[0].name} is open to {name}, which this graph does not hold"
            )


_NFS = ("tcp", 2049)
_TABLES = ("ec2.RouteTable", "ec2.DefaultRouteTable")
_GATEWAY = "ec2.InternetGateway"
# What has an address in a subnet, and where it names its groups.
_MEMBERS = {"ec2.NetworkInterface": "securityGroups", "ec2.Instance": "vpcSecurityGroupIds"}


def check_edge(graph: Graph) -> Iterator[StackFault]:
    """Yield a fault for each rule of a mount target's security group that lets an edge subnet in."""
    edges = {node.urn: node for node in _edges(graph)}
    blocks = tuple(block for node in edges.values() for block in map(block_of, words(node.inputs.get("cidrBlock"))))
    members = frozenset(_members(graph, frozenset(edges)))
    guards = {
        group.urn
        for target in graph.of("efs.MountTarget")
        for group in graph.targets(target, "securityGroups", *GROUPS)
    }
    for rule in openings(graph) if guards else ():
        if rule.group in guards and rule.reaches(*_NFS):
            yield from _faults(rule, tuple(block for block in blocks if block), members)


def _faults(rule: Opening, edges: tuple[Block, ...], members: frozenset[str]) -> Iterator[StackFault]:
    met = [str(edge) for edge in edges if any(_overlap(edge, block) for block in rule.blocks)]
    if met:
        yield fault("S403", rule.urn, rule.key, f"NFS (2049) is open to edge subnets: {', '.join(met)}")
    elif members & set(rule.groups):
        yield fault("S403", rule.urn, rule.key, "NFS (2049) is open to a group that machines in edge subnets have")


def _overlap(one: Block, other: Block) -> bool:
    return one.version == other.version and one.overlaps(other)


def _edges(graph: Graph) -> Iterator[Node]:
    """Yield the subnets whose own route table has a route to an internet gateway."""
    tables = {table.urn for table in graph.of(*_TABLES) if _leads_out(graph, table)}
    for route in graph.of("ec2.Route"):
        if graph.targets(route, "gatewayId", _GATEWAY):
            tables.update(table.urn for table in graph.targets(route, "routeTableId", *_TABLES))
    for each in graph.of("ec2.RouteTableAssociation"):
        if any(table.urn in tables for table in graph.targets(each, "routeTableId", *_TABLES)):
            yield from graph.targets(each, "subnetId", "ec2.Subnet")


def _leads_out(graph: Graph, table: Node) -> bool:
    named = (word for route in parts(table.inputs.get("routes")) for word in words(route.get("gatewayId")))
    return any(graph.targets(table, "", _GATEWAY, ident=word) for word in named)


def _members(graph: Graph, edges: frozenset[str]) -> Iterator[str]:
    """Yield the groups of machines in edge subnets."""
    for kind, key in _MEMBERS.items():
        for node in graph.of(kind):
            if any(subnet.urn in edges for subnet in graph.targets(node, "subnetId", "ec2.Subnet")):
                yield from (group.urn for group in graph.targets(node, key, *GROUPS))
