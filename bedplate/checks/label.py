"""Labels and taints: what Kubernetes takes beside what it, the drivers and bedplate give."""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.repeated import repeated
from bedplate.checks.rules import fault
from bedplate.spec.group import Group
from bedplate.spec.site import Use

# Kubernetes keeps both domains and all below them; the others are those of labels and taints that bedplate gives.
_KEPT = ("kubernetes.io", "k8s.io")
_OURS = ("bedplate", "k8s.amazonaws.com", "vpc.amazonaws.com", "nvidia.com", "amd.com", "aws.amazon.com")


def check_labels(evidence: Evidence) -> Iterator[Fault]:
    """Tell labels and taints that nobody reads, that are somebody else's, or that come twice."""
    for name, group in evidence.fleet.groups.items():
        key = f"groups.{name}"
        if group.use is not Use.KUBERNETES:
            yield from _unread(key, group)
            continue
        for place, mark in marks(key, group):
            yield from _domain(place, mark)
        yield from _again(key, group)


def marks(key: str, group: Group) -> Iterator[tuple[str, str]]:
    """Yield the keys of labels and of taints, with where they stand."""
    for label in group.labels:
        yield f"{key}.labels.{label}", label
    for index, taint in enumerate(group.taints):
        yield f"{key}.taints.{index}", taint.partition(":")[0].partition("=")[0]


def _again(key: str, group: Group) -> Iterator[Fault]:
    taints = enumerate(taint.rpartition(":") for taint in group.taints)
    keyed = ((f"{key}.taints.{index}", (name.partition("=")[0], effect)) for index, (name, _, effect) in taints)
    for place, (mark, effect), first in repeated(keyed):
        yield fault("E351", place, f"{mark} is a taint for {effect} already, as number {_number(first)}")


def _unread(key: str, group: Group) -> Iterator[Fault]:
    for name, given in (("labels", group.labels), ("taints", group.taints)):
        if given:
            yield fault("E338", f"{key}.{name}", f"machines of use {group.use} join no cluster that reads {name}")


def _domain(place: str, mark: str) -> Iterator[Fault]:
    domain, slash, _ = mark.rpartition("/")
    if not slash:
        return
    if any(domain == kept or domain.endswith(f".{kept}") for kept in _KEPT):
        yield fault("E337", place, f"Kubernetes keeps {domain} to itself")
    elif domain in _OURS:
        yield fault("E337", place, f"bedplate gives what is in {domain}")


def _number(key: str) -> int:
    return int(key.rpartition(".")[2]) + 1
