"""Whose a resource is: an owner on everything that carries tags."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.audit.fault import StackFault, fault
from bedplate.audit.graph import Graph
from bedplate.audit.node import Node
from bedplate.audit.value import Properties, is_seen, parts

OWNER = "owner"
_PROVIDER = "pulumi:providers:aws"
_LAUNCHED = ("instance", "volume")


def check_owners(graph: Graph) -> Iterator[StackFault]:
    """Tell what carries tags and none of an owner's."""
    defaults = {node.urn: _default_tags(node) for node in graph.of(_PROVIDER)}
    for node in graph.nodes:
        if not _is_tagged(node) or node.kind == _PROVIDER:
            continue
        tags = _tags(node)
        # The provider's check merges its default tags into the inputs: where it has, they do not count again.
        inherited = defaults.get(node.provider.rpartition("::")[0], {})
        told = tags if tags is None or tags.keys() & inherited.keys() else {**inherited, **tags}
        if told is not None and not _names_owner(told):
            yield fault("S701", node.urn, "tags", "no tag names its owner")


def check_launched(graph: Graph) -> Iterator[StackFault]:
    """Tell launch templates whose machines and volumes would have no owner."""
    for node in graph.of("ec2.LaunchTemplate"):
        told = node.inputs.get("tagSpecifications")
        specs = {spec.get("resourceType"): spec.get("tags") for spec in parts(told)}
        bare = [kind for kind in _LAUNCHED if not _names_owner(specs.get(kind))]
        if is_seen(told) and bare:
            yield fault("S702", node.urn, "tagSpecifications", f"each {' and '.join(bare)} it launches has no owner")


def _is_tagged(node: Node) -> bool:
    return "tags" in node.inputs or "tagsAll" in node.outputs or "tags" in node.outputs


def _tags(node: Node) -> Mapping[str, Any] | None:
    """Return a resource's tags; None where they cannot be seen."""
    told = node.inputs.get("tags", node.outputs.get("tagsAll", {}))
    if not is_seen(told):
        return None
    if isinstance(told, list):
        return {str(tag.get("key")): tag.get("value") for tag in parts(told)}
    return told if isinstance(told, dict) else {}


def _names_owner(tags: object) -> bool:
    """Whether tags name an owner, or cannot be seen."""
    if not is_seen(tags):
        return True
    return isinstance(tags, dict) and any(key.lower() == OWNER and bool(value) for key, value in tags.items())


def _default_tags(provider: Node) -> Properties:
    """Return the default tags of a provider, which the engine keeps as a JSON text."""
    told = provider.inputs.get("defaultTags")
    if isinstance(told, str) and is_seen(told):
        try:
            told = json.loads(told)
        except (json.JSONDecodeError, RecursionError):
            return {}
    tags = told.get("tags") if isinstance(told, dict) else None
    return tags if isinstance(tags, dict) else {}
