"""What the tags of a group tell the cluster-autoscaler of machines that are not there yet, held against its template.

Only groups that say they are the autoscaler's are judged, and only types that the catalogue knows.
"""

from collections.abc import Iterator, Mapping

from bedplate.audit.fault import StackFault, fault
from bedplate.audit.graph import Graph
from bedplate.audit.node import Node
from bedplate.audit.value import Properties, is_seen, part, parts, words
from bedplate.catalog import load_catalog
from bedplate.plan.from_zero import ENABLED, LABEL, RESOURCE
from bedplate.plan.registration import DEVICES, EFA, INSTANCE_TYPE, devices

_FABRIC = ("efa", "efa-only")


def check_from_zero(graph: Graph) -> Iterator[StackFault]:
    """Tell groups whose tags promise other machines than their templates launch."""
    for node in graph.of("autoscaling.Group"):
        told = node.inputs.get("tags")
        tags = {str(tag.get("key")): tag.get("value") for tag in parts(told)}
        if is_seen(told) and ENABLED in tags:
            yield from _judge(node, _template(graph, node), tags)


def _template(graph: Graph, group: Node) -> Node | None:
    """Return the launch template of a group, where the graph holds it."""
    policy = part(part(group.inputs, "mixedInstancesPolicy"), "launchTemplate")
    spec = part(policy, "launchTemplateSpecification") or part(group.inputs, "launchTemplate")
    key = "mixedInstancesPolicy" if policy else "launchTemplate"
    idents = words([spec.get("launchTemplateId"), spec.get("id")])
    kinds = "ec2.LaunchTemplate"
    found = graph.targets(group, key, kinds, ident=idents[0] if idents else "")
    return next(iter(found), None)


def _judge(group: Node, template: Node | None, tags: Mapping[str, object]) -> Iterator[StackFault]:
    types = _types(group, template)
    told = {key: tags.get(f"{RESOURCE}{key}") for key in sorted(DEVICES)}
    if types and load_catalog().types.keys() >= {*types}:
        there = _devices(types) | _fabric(template)
        for key, count in told.items():
            if not _agrees(count, there.get(key, 0)):
                yield _fault(group, f"{RESOURCE}{key}", count, f"each machine has {there.get(key, 0)}")
    named = tags.get(f"{LABEL}{INSTANCE_TYPE}")
    if len(types) == 1 and is_seen(named) and named != types[0]:
        yield _fault(group, f"{LABEL}{INSTANCE_TYPE}", named, f"it launches {types[0]}")


def _agrees(told: object, count: int) -> bool:
    return not is_seen(told) or str(told or 0) == str(count)


def _fault(group: Node, tag: str, told: object, truth: str) -> StackFault:
    return fault("S801", group.urn, "tags", f"the tag {tag} is {told or 'missing'}, and {truth}")


def _types(group: Node, template: Node | None) -> tuple[str, ...]:
    """Return the types that a group launches; none where it asks for them by requirements."""
    overrides = parts(part(part(group.inputs, "mixedInstancesPolicy"), "launchTemplate").get("overrides"))
    if any(one.get("instanceRequirements") for one in overrides):
        return ()
    own = words(template.inputs.get("instanceType")) if template else ()
    return words([one.get("instanceType") for one in overrides]) or own


def _devices(types: tuple[str, ...]) -> dict[str, int]:
    """Return what a pod may count on, whichever of the types comes: of each device the least."""
    each = [devices(load_catalog().types[name]) for name in types]
    return {key: min(one[key] for one in each) for key in each[0] if all(key in one for one in each)}


def _fabric(template: Node | None) -> dict[str, int]:
    faces: tuple[Properties, ...] = parts(template.inputs.get("networkInterfaces")) if template else ()
    return {EFA: sum(face.get("interfaceType") in _FABRIC for face in faces)}
