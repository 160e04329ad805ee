"""The machines that the fleet's Auto Scaling groups hold now, asked of AWS region by region."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from bedplate.account.claims import Claim, claims
from bedplate.account.door import Door
from bedplate.account.regions import Answers, ask_regions
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pool import PoolPlan

# Groups that one call of DescribeAutoScalingGroups may name, instances of DescribeInstances. Source: their API pages.
_GROUPS, _INSTANCES = 50, 100
# States of an instance that has not terminated. Source: the API page of InstanceState.
_EXISTING = ("pending", "running", "shutting-down", "stopping", "stopped")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of a pool: `name` is the one that it has claimed in the fleet's zone, where it has one.

    `fingerprints` are those of its host keys, as it has told them there.
    """

    instance: str
    group: str
    pool: str
    region: str
    zone: str
    type: str
    state: str
    address: IPv4Address | None
    name: str | None = None
    fingerprints: tuple[str, ...] = ()


def machines(door: Door, plan: FleetPlan) -> Answers[tuple[Machine, ...]]:
    """Return by region the machines that its groups hold, whatever state they are in."""
    return machines_of(door, plan, plan.pools, claims(door, plan))


def machines_of(
    door: Door, plan: FleetPlan, pools: Iterable[PoolPlan], told: Iterable[Claim]
) -> Answers[tuple[Machine, ...]]:
    """Return by region the machines that the groups of pools hold, whatever state they are in."""
    asked, taken = tuple(pools), {claim.instance: claim for claim in told}

    def ask(region: str) -> tuple[Machine, ...]:
        groups = {f"{plan.name}-{pool.name}": pool for pool in asked if pool.region == region}
        return tuple(_of_region(door, region, groups, taken))

    return ask_regions((pool.region for pool in asked), ask)


def has_terminated(door: Door, region: str, instance: str) -> bool:
    """Return whether an instance has terminated; EC2 forgets it within the hour."""
    ids, states = [instance], list(_EXISTING)
    wanted = [{"Name": "instance-id", "Values": ids}, {"Name": "instance-state-name", "Values": states}]
    return not any(page["Reservations"] for page in door.pages("ec2", region, "describe_instances", Filters=wanted))


def _of_region(door: Door, region: str, pools: Mapping[str, PoolPlan], taken: Mapping[str, Claim]) -> Iterator[Machine]:
    members = {one["InstanceId"]: (pools[group], one) for group, one in _members(door, region, list(pools))}
    addresses = dict(_addresses(door, region, list(members)))
    for ident, (pool, told) in members.items():
        claim = taken.get(ident)
        yield Machine(
            instance=ident,
            group=pool.group,
            pool=pool.name,
            region=region,
            zone=told["AvailabilityZone"],
            type=told.get("InstanceType", ""),
            state=told["LifecycleState"],
            address=addresses.get(ident),
            name=claim.name if claim else None,
            fingerprints=claim.fingerprints if claim else (),
        )


def _members(door: Door, region: str, groups: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for start in range(0, len(groups), _GROUPS):
        asked = {"AutoScalingGroupNames": groups[start : start + _GROUPS]}
        for page in door.pages("autoscaling", region, "describe_auto_scaling_groups", **asked):
            for group in page["AutoScalingGroups"]:
                yield from ((group["AutoScalingGroupName"], one) for one in group["Instances"])


def _addresses(door: Door, region: str, instances: list[str]) -> Iterator[tuple[str, IPv4Address]]:
    for start in range(0, len(instances), _INSTANCES):
        # A filter bears what EC2 has forgotten by now; a list of ids would be refused whole.
        wanted = [{"Name": "instance-id", "Values": instances[start : start + _INSTANCES]}]
        for page in door.pages("ec2", region, "describe_instances", Filters=wanted):
            for one in (each for booking in page["Reservations"] for each in booking["Instances"]):
                if "PrivateIpAddress" in one:
                    yield one["InstanceId"], IPv4Address(one["PrivateIpAddress"])
