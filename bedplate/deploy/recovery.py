"""The state of a stack after a killed run: unfinished operations, and the state that contains what they made.

A created object is added to the state as the engine would have done it, with the inputs of its operation; a refresh
then reads what AWS has. ADR 19 says why this is not done by `pulumi import`.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from bedplate.deploy.progress import resource_name

Deployment = Mapping[str, Any]
"""The `deployment` of an exported state."""
_STACK = "pulumi:pulumi:Stack"
_CREATING = "creating"
# A refresh removes the errors of an incomplete creation; without one the engine updates the resource.
_UNREAD = "bedplate recover has not read it from AWS yet"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An operation with an unknown result; `region` is that of its provider."""

    operation: str
    urn: str
    region: str
    resource: Mapping[str, Any]

    @property
    def is_creation(self) -> bool:
        """Whether AWS may have an object that the state does not have."""
        return self.operation == _CREATING

    @property
    def type(self) -> str:
        """The type of the resource."""
        return str(self.resource["type"])

    @property
    def name(self) -> str:
        """The name of the resource in its stack."""
        return self.urn.rpartition("::")[2]

    def __str__(self) -> str:
        return f"{self.operation} {resource_name(self.urn)}"


@dataclass(frozen=True, slots=True)
class Repair:
    """What is known about an unfinished operation.

    `ids` are the objects that a creation can have made, apart from those that the state has; None for a type that
    cannot be searched. The creation of a `setting` can be repeated.
    """

    operation: Unfinished
    ids: tuple[str, ...] | None = ()
    is_setting: bool = False

    @property
    def is_decided(self) -> bool:
        """Whether there is at most one object."""
        return self.ids is not None and len(self.ids) <= 1


def unfinished_operations(deployment: Deployment) -> tuple[Unfinished, ...]:
    """Return the operations whose results the engine does not know."""
    regions = dict(_regions(deployment))
    operations = {}
    for operation in deployment.get("pending_operations") or ():
        resource = operation["resource"]
        region = resource.get("inputs", {}).get("region") or regions.get(resource.get("provider", ""), "")
        unfinished = Unfinished(operation["type"], resource["urn"], region, resource)
        # A second run adds its own operation for the same resource.
        operations[unfinished.operation, unfinished.urn] = unfinished
    return tuple(operations.values())


def _regions(deployment: Deployment) -> Iterator[tuple[str, str]]:
    for resource in deployment.get("resources") or ():
        if resource["type"].startswith("pulumi:providers:"):
            yield f"{resource['urn']}::{resource['id']}", resource.get("inputs", {}).get("region", "")


def known_ids(deployment: Deployment, kind: str) -> frozenset[str]:
    """Return the ids of a type that the state has; a resource that was deleted before its replacement has none."""
    same_type = (resource for resource in deployment.get("resources") or () if resource["type"] == kind)
    return frozenset(resource.get("id", "") for resource in same_type if not resource.get("pendingReplacement"))


def unread_urns(deployment: Deployment) -> tuple[str, ...]:
    """Return the resources that `recovered` added and that no refresh has read yet: they lack outputs of AWS."""
    resources = deployment.get("resources") or ()
    return tuple(resource["urn"] for resource in resources if resource.get("initErrors") == [_UNREAD])


def root_urn(deployment: Deployment) -> str:
    """Return the URN of the stack itself; empty for a stack without resources."""
    resources = deployment.get("resources") or ()
    return next((str(resource["urn"]) for resource in resources if resource["type"] == _STACK), "")


def recovered(deployment: Deployment, repairs: Iterable[Repair]) -> dict[str, Any]:
    """Return the state with the objects of decided repairs, and without unfinished operations."""
    state = deepcopy(dict(deployment))
    resources = state.setdefault("resources", [])
    for repair in repairs:
        for ident in repair.ids or ():
            _add(resources, _created(repair.operation.resource, ident))
    state["pending_operations"] = []
    return state


def _created(resource: Mapping[str, Any], ident: str) -> dict[str, Any]:
    # The provider reads a resource without outputs as an import, which would lose its inputs.
    outputs = {**resource.get("inputs", {}), "id": ident}
    return {**resource, "id": ident, "outputs": outputs, "initErrors": [_UNREAD]}


def _add(resources: list[dict[str, Any]], created: dict[str, Any]) -> None:
    """Add a resource after all that it depends on; the one that it replaces is deleted by the next run."""
    for index, old in enumerate(resources):
        if old["urn"] == created["urn"] and not old.get("delete"):
            if old.get("pendingReplacement"):
                resources[index] = created
            else:
                resources[index : index + 1] = [created, {**old, "delete": True}]
            return
    resources.append(created)
