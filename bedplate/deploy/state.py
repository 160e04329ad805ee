"""What is deployed, from the states that Pulumi's engine keeps of the stacks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.catalog import Catalog
from bedplate.deploy.progress import resource_name
from bedplate.deploy.recovery import unfinished_operations, unread_urns
from bedplate.plan.cost import volume_price
from bedplate.plan.pools import Volume
from bedplate.plan.stacks import LINKS, PRICE, SHARED, Layout

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
            return volume_price(Volume(int(inputs["size"]), **figures), catalog)
    return 0.0
