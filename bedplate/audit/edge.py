"""File systems that edge subnets reach: those whose route table leads to an internet gateway."""

from collections.abc import Iterator

from bedplate.audit.address import Block, block_of
from bedplate.audit.fault import StackFault, fault
from bedplate.audit.graph import Graph
from bedplate.audit.node import Node
from bedplate.audit.opening import GROUPS, Opening, openings
from bedplate.audit.value import parts, words

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
