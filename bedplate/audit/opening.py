"""What security groups let in: every rule, inline or a resource of its own, in one form."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from bedplate.audit.address import Block, block_of
from bedplate.audit.graph import Graph
from bedplate.audit.node import Node
from bedplate.audit.value import Properties, is_on, is_seen, number, parts, words

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
