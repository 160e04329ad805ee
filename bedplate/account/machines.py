"""The machines that the fleet's Auto Scaling groups hold now, asked of AWS region by region."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from bedplate.account.client import Answers, Door, ask_regions
from bedplate.errors import PartError
from bedplate.nodes.host_keys import fingerprint_of_sshfp
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import PoolPlan

_Values = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A name, without the domain, and the `instance` that took it; `fingerprints` are those of its host keys."""

    name: str
    instance: str
    address: IPv4Address | None = None
    fingerprints: tuple[str, ...] = ()


def claims(door: Door, plan: FleetPlan) -> tuple[Claim, ...]:
    """Return every name that a machine has taken; raises as the door does."""
    return tuple(claim for zone in _zones(door, plan) for claim in _of_zone(door, plan, zone))


def claim_of(told: Iterable[Claim], name: str) -> Claim:
    """Return who has a name, and has told a host key. Raises PartError where nobody has, or more than one."""
    found = [claim for claim in told if claim.name == name]
    if not found:
        raise PartError(f"no machine has the name {name} now", fix="`bedplate node list --live` shows those that run")
    if len(found) > 1:
        owners = ", ".join(claim.instance for claim in found)
        fix = "one zone alone is the fleet's: delete the other, or its records of that name"
        raise PartError(f"two private zones tell of {name}: {owners}", fix=fix)
    if not found[0].fingerprints:
        fix = f"let its group replace it, or read it in a session, then `bedplate node trust {name} SHA256:...`"
        raise PartError(f"{name} ({found[0].instance}) has told AWS no host key", fix=fix)
    return found[0]


def _of_zone(door: Door, plan: FleetPlan, zone: str) -> Iterator[Claim]:
    told: defaultdict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for page in door.pages("route53", plan.home.name, "list_resource_record_sets", HostedZoneId=zone):
        for one in page["ResourceRecordSets"]:
            told[one["Name"]][one["Type"]] = tuple(each["Value"] for each in one.get("ResourceRecords", ()))
    for name, values in told.items():
        if values.get("TXT"):
            yield _claim(name.rstrip(".").removesuffix(f".{plan.domain}"), values)


def _claim(name: str, values: _Values) -> Claim:
    address = next((IPv4Address(each) for each in values.get("A", ())), None)
    fingerprints = tuple(found for each in values.get("SSHFP", ()) if (found := fingerprint_of_sshfp(each)))
    return Claim(name, values["TXT"][0].strip('"'), address, fingerprints)


def _zones(door: Door, plan: FleetPlan) -> Iterator[str]:
    listed = door.call("route53", plan.home.name, "list_hosted_zones_by_name", DNSName=plan.domain)["HostedZones"]
    for zone in listed:
        if zone["Name"] == f"{plan.domain}." and zone["Config"]["PrivateZone"]:
            yield zone["Id"].rpartition("/")[2]


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
