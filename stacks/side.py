"""A region as `links` sees it: one side of what ties two places together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import pulumi
from pulumi_aws.provider import Provider

from bedplate.plan.fleet import FleetPlan, RegionPlan
from stacks.names import LINKS
from stacks.provider import provider_of
from stacks.reference import output_of, stack_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Side:
    """A region's plan, its stack, and the provider by which `links` acts there."""

    region: RegionPlan
    stack: pulumi.StackReference
    provider: Provider

    @property
    def name(self) -> str:
        """The region's name."""
        return self.region.name

    def output(self, name: str) -> pulumi.Output[str]:
        """Return what the region's stack exports under a name."""
        return output_of(self.stack, name)

    @property
    def table_ids(self) -> dict[str, pulumi.Output[str]]:
        """The region's route tables by name: one for all edges, one for each zone's nodes."""
        of_nodes: pulumi.Output[dict[str, str]] = output_of(self.stack, "node_table_ids")
        zones = sorted(zone.name for zone in self.region.zones)
        return {"edge": self.output("edge_table_id"), **{f"{zone}-nodes": of_nodes[zone] for zone in zones}}

    def inside(self, parent: pulumi.Resource, *, after: tuple[pulumi.Resource, ...] = ()) -> pulumi.ResourceOptions:
        """Return the options of a part of a component that stands in this region."""
        return pulumi.ResourceOptions(parent=parent, depends_on=[*after], provider=self.provider)


def sides(plan: FleetPlan) -> dict[str, Side]:
    """Return every region of a fleet as a side, by name."""
    return {
        region.name: Side(region, stack_of(plan, region.name), provider_of(plan, LINKS, region.name))
        for region in plan.regions
    }


def pairs(every: Mapping[str, T]) -> Iterator[tuple[T, T]]:
    """Yield what each two regions have once, the one whose name sorts first in front: it asks, the other accepts."""
    yield from combinations((every[name] for name in sorted(every)), 2)
