"""What the internet can reach: judged by the addresses that all rules of a group cover together, not by their text."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from bedplate.audit.address import is_wide, public_size
from bedplate.audit.fault import StackFault, fault
from bedplate.audit.graph import Graph
from bedplate.audit.opening import LAST_PORT, Opening, openings


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
