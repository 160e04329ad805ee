"""The current machines of the fleet: their DNS names, the status that they report, and their use by people."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address
from typing import Any, TypeVar

from bedplate.account.bundle import RegionStore
from bedplate.account.client import AwsClient, NotThere, RegionResults, ask_regions, filters
from bedplate.bundle import NodeStatus, UseReport
from bedplate.errors import PartialError
from bedplate.nodes.host_keys import fingerprint_of_sshfp
from bedplate.plan.cluster import pool_node_name
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.pools import GROUP, REQUESTED_BY, UNTIL, PoolPlan

_T = TypeVar("_T")


def read_node_statuses(
    client: AwsClient, plan: FleetPlan, instances: Mapping[str, Collection[str]]
) -> RegionResults[Mapping[str, NodeStatus]]:
    """Return the status of these instances of each region by id; those without one are left out."""
    return _ask_stores(client, plan, instances, RegionStore.statuses)


def read_use_reports(
    client: AwsClient, plan: FleetPlan, instances: Mapping[str, Collection[str]]
) -> RegionResults[Mapping[str, UseReport]]:
    """Return the last report of use of these instances of each region by id; those without a valid one are left out.

    Each user of a machine can write one with its rights: it is for reports only.
    """
    return _ask_stores(client, plan, instances, RegionStore.use_reports)


def _ask_stores(
    client: AwsClient,
    plan: FleetPlan,
    instances: Mapping[str, Collection[str]],
    read: Callable[[RegionStore, Collection[str]], Mapping[str, _T | None]],
) -> RegionResults[Mapping[str, _T]]:
    def ask(region: str) -> Mapping[str, _T]:
        try:
            values = read(RegionStore(client, plan, region), instances[region])
        except NotThere:
            return {}  # the region was deployed before it had the bucket
        return {instance: value for instance, value in values.items() if value}

    return ask_regions(instances, ask)


_Records = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A name, without the domain, and the `instance` that claimed it, with the fingerprints of its host keys."""

    name: str
    instance: str
    fingerprints: tuple[str, ...] = ()


def read_claims(client: AwsClient, plan: FleetPlan) -> tuple[Claim, ...]:
    """Return every name that a machine has claimed in the fleet's private zone; raises like `AwsClient.call`."""
    zones = _zones(client, plan)
    return tuple(claim for zone in zones for claim in claims_of_zone(client, plan.home.name, zone, plan.domain))


def find_claim(claims: Iterable[Claim], name: str) -> Claim:
    """Return the claim of a name. Raises PartialError for none, or more than one."""
    matches = [claim for claim in claims if claim.name == name]
    if not matches:
        raise PartialError(
            f"no running machine is named {name}", fix="`bedplate node list --live` shows running machines"
        )
    if len(matches) > 1:
        owners = ", ".join(claim.instance for claim in matches)
        fix = f"delete the zone that is not the fleet's, or its records of {name}"
        raise PartialError(f"two private zones have records of {name}: {owners}", fix=fix)
    return matches[0]


def claims_of_zone(client: AwsClient, region: str, zone: str, domain: str) -> Iterator[Claim]:
    """Yield the names in a zone; the region only selects the endpoint."""
    by_name: defaultdict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for record_set in zone_records(client, region, zone):
        values = tuple(record["Value"] for record in record_set.get("ResourceRecords", ()))
        by_name[record_set["Name"]][record_set["Type"]] = values
    for name, records in by_name.items():
        if records.get("TXT"):
            yield _claim(name.rstrip(".").removesuffix(f".{domain}"), records)


def zone_records(client: AwsClient, region: str, zone: str) -> Iterator[dict[str, Any]]:
    """Yield the record sets of a zone; the region only selects the endpoint."""
    return client.items("route53", region, "list_resource_record_sets", "ResourceRecordSets", HostedZoneId=zone)


def _claim(name: str, records: _Records) -> Claim:
    fingerprints = filter(None, map(fingerprint_of_sshfp, records.get("SSHFP", ())))
    return Claim(name, records["TXT"][0].strip('"'), tuple(fingerprints))


def _zones(client: AwsClient, plan: FleetPlan) -> Iterator[str]:
    zones = client.call("route53", plan.home.name, "list_hosted_zones_by_name", DNSName=plan.domain)["HostedZones"]
    for zone in zones:
        if zone["Name"] == f"{plan.domain}." and zone["Config"]["PrivateZone"]:
            yield zone["Id"].rpartition("/")[2]


# The most names in one call of DescribeAutoScalingGroups and of DescribeInstances. Source: their API pages.
GROUPS_PER_CALL, _INSTANCES = 50, 100
# Source: the API page of InstanceState.
EXISTING = ("pending", "running", "shutting-down", "stopping", "stopped")
"""The EC2 states of an instance that has not terminated."""


@dataclass(frozen=True, slots=True)
class LiveMachine:
    """A machine of a pool; `name` is the name that it has claimed in the fleet's zone, if any.

    `fingerprints` are those of its host keys, as it has published them there.
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
    launched: datetime | None = None
    requested_by: str | None = None
    """Who last started machines in its pool with `bedplate node start`."""
    image: str = ""
    """The image from which it started."""
    until: datetime | None = None
    """The end of the machines that were started in its pool for a limited time."""

    @property
    def label(self) -> str:
        """The name that commands print and accept: the claimed one, else one after its instance."""
        return self.name or pool_node_name(self.group, self.instance, self.region)


def read_machines(client: AwsClient, plan: FleetPlan) -> RegionResults[tuple[LiveMachine, ...]]:
    """Return the machines of all pools by region, in any state."""
    return read_pool_machines(client, plan, plan.pools, read_claims(client, plan))


def read_pool_machines(
    client: AwsClient, plan: FleetPlan, pools: Iterable[PoolPlan], claims: Iterable[Claim]
) -> RegionResults[tuple[LiveMachine, ...]]:
    """Return the machines of some pools by region, in any state."""
    names = defaultdict[str, list[str]](list)
    for pool in pools:
        names[pool.region].append(f"{plan.name}-{pool.name}")
    return read_group_machines(client, plan, names, claims)


def read_group_machines(
    client: AwsClient, plan: FleetPlan, names: Mapping[str, Sequence[str]], claims: Iterable[Claim]
) -> RegionResults[tuple[LiveMachine, ...]]:
    """Return the machines of Auto Scaling groups, which the plan may lack by now, by region, in any state."""
    # A machine can write the record of a name of another group: that name is not its own.
    by_owner = {(claim.instance, *group_and_region(claim.name)): claim for claim in claims}
    return ask_regions(names, lambda region: tuple(_of_region(client, plan, region, names[region], by_owner)))


def group_and_region(name: str) -> tuple[str, str]:
    """Return ("box", "us-west-2") for box-1.us-west-2."""
    host, _, region = name.partition(".")
    return host.rpartition("-")[0], region


def has_terminated(client: AwsClient, region: str, instance: str) -> bool:
    """Return whether an instance has terminated; EC2 lists it for up to an hour longer."""
    conditions = {"instance-id": instance, "instance-state-name": EXISTING}
    return not any(find_instances(client, region, conditions))


def _of_region(
    client: AwsClient,
    plan: FleetPlan,
    region: str,
    names: Sequence[str],
    claims: Mapping[tuple[str, str, str], Claim],
) -> Iterator[LiveMachine]:
    planned = {pool.name: pool.group for pool in plan.pools}
    groups = tuple(describe_groups(client, region, list(names)))
    members = {member["InstanceId"]: (group, member) for group in groups for member in group["Instances"]}
    instances = dict(describe_instances(client, region, list(members)))
    for instance, (group, member) in members.items():
        facts, tags = instances.get(instance, {}), {tag["Key"]: tag["Value"] for tag in group.get("Tags", ())}
        pool = group["AutoScalingGroupName"].removeprefix(f"{plan.name}-")
        label = planned.get(pool) or tags.get(GROUP, pool)
        claim = claims.get((instance, label, region))
        address = facts.get("PrivateIpAddress")
        yield LiveMachine(
            instance=instance,
            group=label,
            pool=pool,
            region=region,
            zone=member["AvailabilityZone"],
            type=member.get("InstanceType", ""),
            state=member["LifecycleState"],
            address=IPv4Address(address) if address else None,
            name=claim.name if claim else None,
            fingerprints=claim.fingerprints if claim else (),
            launched=facts.get("LaunchTime"),
            requested_by=tags.get(REQUESTED_BY),
            image=facts.get("ImageId", ""),
            until=time_of_tag(tags.get(UNTIL, "")),
        )


def time_of_tag(text: str) -> datetime | None:
    """Return the time of a tag; None without one, or if somebody edited the tag."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def describe_groups(client: AwsClient, region: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the Auto Scaling groups with these names that exist."""
    for start in range(0, len(names), GROUPS_PER_CALL):
        query = {"AutoScalingGroupNames": names[start : start + GROUPS_PER_CALL]}
        yield from client.items("autoscaling", region, "describe_auto_scaling_groups", "AutoScalingGroups", **query)


def describe_instances(client: AwsClient, region: str, instances: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each existing instance of these ids with EC2's description."""
    for start in range(0, len(instances), _INSTANCES):
        # A filter ignores unknown ids; a list of ids with an unknown one is rejected.
        for instance in find_instances(client, region, {"instance-id": instances[start : start + _INSTANCES]}):
            yield instance["InstanceId"], instance


def find_instances(
    client: AwsClient, region: str, conditions: Mapping[str, str | Sequence[str]]
) -> Iterator[dict[str, Any]]:
    """Yield EC2's description of each instance that meets the conditions, by the names of its filters."""
    for reservation in client.items("ec2", region, "describe_instances", "Reservations", Filters=filters(conditions)):
        yield from reservation["Instances"]
