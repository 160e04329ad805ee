"""The states that Pulumi's engine keeps of the stacks: what is deployed, and the repair after a killed run.

A created object is added to the state as the engine would have done it, with the inputs of its operation; a refresh
then reads what AWS has. ADR 19 says why this is not done by `pulumi import`.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.catalog import Catalog
from bedplate.deploy.progress import resource_name
from bedplate.errors import HeldError
from bedplate.files import is_alive
from bedplate.plan.cost import volume_price
from bedplate.plan.pools import VolumePlan
from bedplate.plan.stacks import LINKS, PRICE, SHARED, Layout

_HOLDER = re.compile(r"created by (?P<user>.*)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<since>\S+)")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that took a lock; `since` is a time in UTC."""

    user: str
    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"{self.user}@{self.host}, process {self.pid}, since {self.since}"

    @property
    def is_here(self) -> bool:
        """Whether the process ran on this machine."""
        return self.host == os.uname().nodename

    def lives_here(self) -> bool:
        """Return whether the process is alive on this machine; another program may have its number by now."""
        if not self.is_here or not is_alive(self.pid):
            return False
        command = ["ps", "-o", "comm=", "-p", str(self.pid)]
        try:
            name = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
        except OSError:
            return True
        return "pulumi" in name


class LockedError(HeldError):
    """Another run of Pulumi holds the lock of a stack; a backend such as Pulumi Cloud does not say who."""

    holders: tuple[LockHolder, ...] = ()


def lock_holders(text: str) -> tuple[LockHolder, ...]:
    """Return the holders that the error of a locked stack names."""
    return tuple(
        LockHolder(match["user"], match["host"], int(match["pid"]), match["since"]) for match in _HOLDER.finditer(text)
    )


def remove_damaged_files(backend: Path) -> tuple[str, ...]:
    """Delete each `*.attrs` of a file backend that is no JSON, and return their names.

    Pulumi writes these in place, beside each object, and cannot read an object with an incomplete one: "EOF". They have
    only metadata, and the object is readable without. Source: gocloud.dev/blob/fileblob, attrs.go.
    """
    damaged = [path for path in sorted((backend / ".pulumi").rglob("*.attrs")) if not _is_json(path)]
    for path in damaged:
        path.unlink(missing_ok=True)
    return tuple(path.name for path in damaged)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


StateDocument = Mapping[str, Any]
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
    """The result of looking for the resource of an unfinished operation.

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


def unfinished_operations(deployment: StateDocument) -> tuple[Unfinished, ...]:
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


def _regions(deployment: StateDocument) -> Iterator[tuple[str, str]]:
    for resource in deployment.get("resources") or ():
        if resource["type"].startswith("pulumi:providers:"):
            yield f"{resource['urn']}::{resource['id']}", resource.get("inputs", {}).get("region", "")


def known_ids(deployment: StateDocument, kind: str) -> frozenset[str]:
    """Return the ids of a type that the state has; a resource that was deleted before its replacement has none."""
    same_type = (resource for resource in deployment.get("resources") or () if resource["type"] == kind)
    return frozenset(resource.get("id", "") for resource in same_type if not resource.get("pendingReplacement"))


def unread_urns(deployment: StateDocument) -> tuple[str, ...]:
    """Return the resources that `recovered` added and that no refresh has read yet: they lack outputs of AWS."""
    resources = deployment.get("resources") or ()
    return tuple(resource["urn"] for resource in resources if resource.get("initErrors") == [_UNREAD])


def root_urn(deployment: StateDocument) -> str:
    """Return the URN of the stack itself; empty for a stack without resources."""
    resources = deployment.get("resources") or ()
    return next((str(resource["urn"]) for resource in resources if resource["type"] == _STACK), "")


def recovered(deployment: StateDocument, repairs: Iterable[Repair]) -> dict[str, Any]:
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


Resource = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StackState:
    """The last deployment of a stack, as `pulumi stack export` has it."""

    deployment: Mapping[str, Any]

    @property
    def pending(self) -> tuple[str, ...]:
        """Return `creating URN` for each operation of a killed run that `bedplate recover` must complete."""
        unfinished = (f"{operation.operation} {operation.urn}" for operation in unfinished_operations(self.deployment))
        return (*unfinished, *(f"reading {urn}" for urn in unread_urns(self.deployment)))

    @property
    def is_empty(self) -> bool:
        """Return whether the stack has no resources."""
        return not self._resources

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Return the outputs of the last complete deployment."""
        roots = (resource for resource in self._resources if not resource_name(resource["urn"]))
        return next((root.get("outputs") or {} for root in roots), {})

    @property
    def kept(self) -> tuple[Resource, ...]:
        """Return the resources that `destroy` keeps: protected ones and what they need."""
        by_urn = {resource["urn"]: resource for resource in self._resources}
        todo = [resource["urn"] for resource in self._resources if resource.get("protect")]
        urns: set[str] = set()
        while todo:
            urn = todo.pop()
            if urn in by_urn and urn not in urns:
                urns.add(urn)
                todo.extend(_needs(by_urn[urn]))
        return tuple(resource for urn, resource in by_urn.items() if urn in urns)

    @property
    def deletable(self) -> tuple[Resource, ...]:
        """Return the resources that `destroy` deletes, components and the stack too, without references to others."""
        urns = {resource["urn"] for resource in self.kept}
        own = (resource for resource in self._resources if not resource.get("external"))
        return tuple(resource for resource in own if resource["urn"] not in urns)

    @property
    def scaling_groups(self) -> Mapping[str, str]:
        """Return the names of the Auto Scaling groups by URN."""
        groups = (resource for resource in self._resources if resource["type"] == "aws:autoscaling/group:Group")
        return {resource["urn"]: str(resource["id"]) for resource in groups}

    @property
    def _resources(self) -> tuple[Resource, ...]:
        return tuple(self.deployment.get("resources") or ())


def _needs(resource: Resource) -> tuple[str, ...]:
    """Return the URNs of the parent, the provider, which is followed by an id, and the dependencies."""
    provider = resource.get("provider", "").rpartition("::")[0]
    return (resource.get("parent", ""), provider, *(resource.get("dependencies") or ()))


def deployed_layout(states: Mapping[str, StackState], home: str) -> Layout | None:
    """Return the layout of the stacks with something to delete, by their part; None without any."""
    deployed = {part: state for part, state in states.items() if state.deletable}
    regions = {part: state.outputs for part, state in deployed.items() if part not in (SHARED, LINKS)}
    if not deployed:
        return None
    return Layout(
        home=next((region for region, outputs in regions.items() if "zone_id" in outputs), home),
        regions=tuple(regions),
        is_linked=LINKS in deployed,
        has_transit=any("transit_gateway_id" in outputs for outputs in regions.values()),
        outputs=frozenset((region, name) for region, outputs in regions.items() for name in _read_by_links(outputs)),
    )


def _read_by_links(outputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the outputs that `links` reads, as in `Layout`."""
    names = (name for key in ("edge_subnet_ids", "files", "buckets") for name in outputs.get(key, ()))
    return (*names, *(("laptops",) if "laptop_gateway" in outputs else ()))


def recorded_price(states: Iterable[StackState]) -> float | None:
    """Return the list price of the regions at their last deployment, in USD an hour; None if a region lacks it."""
    regions = [state.outputs for state in states if state.deletable]
    return sum(outputs[PRICE] for outputs in regions) if all(PRICE in outputs for outputs in regions) else None


def kept_price(resources: Iterable[Resource], catalog: Catalog) -> float:
    """Return the list price of keys and volumes in USD an hour, without requests and without stored data."""
    return sum(_price(resource["type"], resource.get("inputs", {}), catalog) for resource in resources)


def _price(kind: str, inputs: Mapping[str, Any], catalog: Catalog) -> float:
    match kind:
        case "aws:kms/key:Key":
            return catalog.rates["key"]
        case "aws:ebs/volume:Volume":
            figures = {key: int(inputs[key]) for key in ("throughput", "iops") if key in inputs}
            return volume_price(VolumePlan(int(inputs["size"]), **figures), catalog)
    return 0.0
