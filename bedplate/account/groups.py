"""All Auto Scaling groups of a capacity plan: one observation of every region, and conditional changes of their size.

Every change is absolute or names its machine, and is made only if the group is still as it was observed. So a lost
reply, a repeated call or a second controller cannot start a machine twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from bedplate.account.capacity import LEAVING, keep_reason, read_launches, suspended_processes, tag_value
from bedplate.account.client import AwsClient, RegionResults, ask_regions, filters, require_all
from bedplate.account.machines import GROUPS_PER_CALL, describe_groups, describe_instances
from bedplate.capacity.observation import (
    Activity,
    Machine,
    Observation,
    Pool,
    SetDesired,
    Settings,
    SetZones,
    Size,
    Terminate,
)
from bedplate.errors import InputError, PartialError
from bedplate.plan.capacity import CapacityPlan, CapacityPool
from bedplate.plan.pools import PAUSED
from bedplate.plan.registration import MAX_PODS
from bedplate.rounds import ask_within

LONGEST_ANSWER = 20.0
"""Seconds in which a region must answer."""
_HISTORY = timedelta(hours=6).total_seconds()
# AWS refuses the whole call if one instance is in another state. Source: SetInstanceProtection.
_PROTECTABLE = ("InService", "EnteringStandby", "Standby")
# The states of a spot request whose instance AWS interrupts, and the time between the notice and that.
_MARKED, _NOTICE = ("marked-for-termination", "marked-for-stop"), 120.0


class Changed(PartialError):
    """A group is not as it was observed: the next round decides again."""


@dataclass(frozen=True, slots=True)
class _Region:
    """A region as AWS reports it: groups by pool, launches, notices by instance, free addresses by subnet."""

    groups: Mapping[str, dict[str, Any]]
    launches: tuple[Activity, ...]
    launched: Mapping[str, float]
    notices: Mapping[str, float]
    addresses: Mapping[str, int]


@dataclass
class FleetGroups:
    """The groups of a plan. The launch times of instances are read once.

    `paused` says who has paused each paused group, as last observed.
    """

    client: AwsClient
    plan: CapacityPlan
    paused: Mapping[str, str] = field(default_factory=dict)
    _launched: dict[str, float] = field(default_factory=dict)
    _regions: dict[str, _Region] = field(default_factory=dict)
    """The last answer of each region."""

    def observe(self, time: float) -> Observation:
        """Return pools, machines and launches of all regions. A region that does not answer is as it was before.

        The machines of one that has never answered are unknown, and it launches none: pods on them are not pending, so
        they are not launched again elsewhere. Raises if no region answers.
        """
        # A round of the controller must end before the next one.
        asks = {pool.region: partial(self._region, pool.region, time) for pool in self.plan.pools}
        answers = RegionResults(*ask_within(asks, LONGEST_ANSWER))
        self._regions |= answers.successes
        if not answers.successes:
            require_all(answers, "cannot read the Auto Scaling groups")
        regions = {region: self._unknown(region) for region in answers.failures} | self._regions
        deployed = [pool for pool in self.plan.pools if pool.name in regions[pool.region].groups]
        self.paused = {
            pool.group: operator for pool in deployed if (operator := _pause(regions[pool.region].groups[pool.name]))
        }
        recent = (launch for region in regions.values() for launch in region.launches if time - launch.time <= _HISTORY)
        return Observation(
            time=time,
            pools=tuple(
                replace(pool, silent=pool.region in answers.failures) for pool in self._pools(deployed, regions)
            ),
            machines=tuple(
                machine for pool in deployed for machine in self._machines(pool, regions[pool.region], time)
            ),
            activities=tuple(sorted(recent, key=lambda launch: launch.time, reverse=True)),
            settings=Settings(
                idle=self.plan.idle,
                cap=self.plan.cap,
                spare=self.plan.spare,
                max={pool.group: pool.group_max for pool in deployed},
                max_cost=self.plan.max_cost,
                fleet_max_cost=self.plan.fleet_max_cost,
                paused=frozenset(self.paused),
            ),
        )

    def keep_reasons(self, time: float) -> Mapping[str, str]:
        """Return why each pool keeps machines that nobody uses, as last observed; empty if nothing does."""
        groups = {name: group for region in self._regions.values() for name, group in region.groups.items()}
        return {name: keep_reason(group, time) for name, group in groups.items()}

    def _unknown(self, region: str) -> _Region:
        """Return a region that has never answered, with empty groups."""
        empty = {"MinSize": 0, "MaxSize": 0, "DesiredCapacity": 0, "Instances": []}
        groups = {pool.name: dict(empty) for pool in self.plan.pools if pool.region == region}
        return _Region(groups, (), {}, {}, {})

    def _region(self, region: str, time: float) -> _Region:
        names = {self._name(pool): pool.name for pool in self.plan.pools if pool.region == region}
        groups = {
            names[group["AutoScalingGroupName"]]: group for group in describe_groups(self.client, region, list(names))
        }
        members = [member["InstanceId"] for group in groups.values() for member in group["Instances"]]
        unknown = [instance for instance in members if instance not in self._launched]
        for instance, facts in describe_instances(self.client, region, unknown):
            self._launched[instance] = facts["LaunchTime"].timestamp()
        has_spot = any(pool.region == region and pool.market.is_spot for pool in self.plan.pools)
        subnets = {subnet for group in groups.values() for subnet in _subnets(group)}
        return _Region(
            groups=groups,
            launches=tuple(
                launch
                for pool, group in groups.items()
                for launch in read_launches(self.client, region, group["AutoScalingGroupName"], pool)
            ),
            launched={instance: self._launched.get(instance, time) for instance in members},
            notices=dict(self._notices(region)) if has_spot else {},
            addresses=dict(self._addresses(region, sorted(subnets))) if subnets else {},
        )

    def _notices(self, region: str) -> Iterator[tuple[str, float]]:
        """Yield the spot instances that AWS will interrupt, and when."""
        query = {"Filters": filters({"status-code": _MARKED})}
        for request in self.client.items(
            "ec2", region, "describe_spot_instance_requests", "SpotInstanceRequests", **query
        ):
            status = request["Status"]
            if status["Code"] in _MARKED and request.get("InstanceId"):
                yield request["InstanceId"], status["UpdateTime"].timestamp() + _NOTICE

    def _addresses(self, region: str, subnets: list[str]) -> Iterator[tuple[str, int]]:
        """Yield the free addresses of subnets; a region has one for nodes in each zone."""
        for subnet in self.client.items("ec2", region, "describe_subnets", "Subnets", SubnetIds=subnets):
            yield subnet["SubnetId"], subnet["AvailableIpAddressCount"]

    def _pools(self, deployed: Sequence[CapacityPool], regions: Mapping[str, _Region]) -> Iterator[Pool]:
        desired = {pool.name: regions[pool.region].groups[pool.name]["DesiredCapacity"] for pool in deployed}
        for pool in deployed:
            region = regions[pool.region]
            group = region.groups[pool.name]
            of_group = sum(desired[other.name] for other in deployed if other.group == pool.group)
            subnets = _subnets(group)
            has_address = not subnets or any(region.addresses.get(subnet, 0) for subnet in subnets)
            yield Pool(
                name=pool.name,
                group=pool.group,
                rung=pool.rung,
                region=pool.region,
                zones=tuple(sorted(_zones(group, pool))),
                out=tuple(sorted(set(pool.zones) - _zones(group, pool))),
                min=group["MinSize"],
                # The pools of a group share its maximum.
                max=min(group["MaxSize"], desired[pool.name] + max(0, pool.group_max - of_group)),
                desired=desired[pool.name],
                type=pool.type,
                market=pool.market,
                size=Size(pool.gpus, pool.cpus, pool.memory, pool.efa, pool.ephemeral, 0 if pool.is_ssh else MAX_PODS),
                price=pool.price,
                labels=pool.labels,
                taints=frozenset(pool.taints),
                eligible=has_address and not pool.blocked_reason,
                is_ssh=pool.is_ssh,
                idle=pool.idle,
                suspended=suspended_processes(group),
                template=_template(group),
            )

    def _machines(self, pool: CapacityPool, region: _Region, time: float) -> Iterator[Machine]:
        for member in region.groups[pool.name]["Instances"]:
            state, instance = member["LifecycleState"], member["InstanceId"]
            if not state.startswith(LEAVING):
                yield Machine(
                    id=instance,
                    pool=pool.name,
                    zone=member["AvailabilityZone"],
                    launched=region.launched.get(instance, time),
                    notice=region.notices.get(instance),
                    ready=state == "InService",
                    template=_template(member),
                )

    def set_desired(self, action: SetDesired, observed: Observation) -> None:
        """Set the desired capacity of a pool. Raises Changed if the group is not as observed."""
        pool, before = self._pool(action.pool), _observed(observed, action.pool)
        group = self._read(pool)
        if group["DesiredCapacity"] == action.count:
            return  # an earlier call whose reply was lost, or another controller
        if group["DesiredCapacity"] != before.desired:
            what = f"{action.pool}: desired is {group['DesiredCapacity']}, {before.desired} was observed"
            raise Changed(what)
        members = sum(not member["LifecycleState"].startswith(LEAVING) for member in group["Instances"])
        if action.count < min(members, group["DesiredCapacity"]):
            raise Changed(f"{action.pool}: {members} machines run, desired {action.count} would end some")
        if not group["MinSize"] <= action.count <= group["MaxSize"]:
            limits = f"{group['MinSize']} to {group['MaxSize']}"
            raise Changed(f"{action.pool}: desired {action.count} is not within {limits}")
        name = self._name(pool)
        if action.count < group["DesiredCapacity"]:
            self._protect(pool, group)
        params = {"DesiredCapacity": action.count, "HonorCooldown": False}
        self.client.call("autoscaling", pool.region, "set_desired_capacity", AutoScalingGroupName=name, **params)

    def set_zones(self, action: SetZones, observed: Observation) -> None:
        """Set the subnets of a pool. Raises Changed if its zones are not as observed, or have no subnet.

        AWS moves no machine out of a zone that the group leaves, because the stacks suspend AZRebalance.
        """
        pool, before = self._pool(action.pool), _observed(observed, action.pool)
        group = self._read(pool)
        zones = _zones(group, pool)
        if zones == set(action.zones):
            return
        if zones != set(before.zones):
            raise Changed(f"{action.pool}: its zones are {', '.join(sorted(zones))}, others were observed")
        if not any(process["ProcessName"] == "AZRebalance" for process in group.get("SuspendedProcesses", ())):
            raise Changed(f"{action.pool}: AZRebalance is not suspended, so AWS would end machines with work")
        names = [f"{self.plan.fleet}-{zone}-nodes" for zone in action.zones]
        query = {"Filters": filters({"tag:Name": names, "tag:bedplate:fleet": self.plan.fleet})}
        subnets = {
            subnet["AvailabilityZone"]: subnet["SubnetId"]
            for subnet in self.client.items("ec2", pool.region, "describe_subnets", "Subnets", **query)
        }
        if missing := set(action.zones) - subnets.keys():
            raise Changed(f"{action.pool}: no subnet of its nodes in {', '.join(sorted(missing))}")
        params = {"VPCZoneIdentifier": ",".join(subnets[zone] for zone in action.zones)}
        self.client.call(
            "autoscaling", pool.region, "update_auto_scaling_group", AutoScalingGroupName=self._name(pool), **params
        )

    def _protect(self, pool: CapacityPool, group: Mapping[str, Any]) -> None:
        """Protect machines from scale-in: if AWS launches one more at this moment, it ends that one."""
        members = [
            member["InstanceId"]
            for member in group["Instances"]
            if member["LifecycleState"] in _PROTECTABLE and not member.get("ProtectedFromScaleIn")
        ]
        for start in range(0, len(members), GROUPS_PER_CALL):
            ids = members[start : start + GROUPS_PER_CALL]
            query = {"AutoScalingGroupName": self._name(pool), "InstanceIds": ids, "ProtectedFromScaleIn": True}
            self.client.call("autoscaling", pool.region, "set_instance_protection", **query)

    def terminate(self, action: Terminate, observed: Observation) -> None:
        """Terminate a machine through its group. Raises Changed if the group is not as observed.

        A repeated call could lower desired once more than needed, never raise it: machines that run stay.
        """
        machine = next((machine for machine in observed.machines if machine.id == action.machine), None)
        if machine is None:
            raise Changed(f"{action.machine} was not observed")
        pool = self._pool(machine.pool)
        group = self._read(pool)
        states = {member["InstanceId"]: member["LifecycleState"] for member in group["Instances"]}
        if states.get(machine.id, "Terminated").startswith(LEAVING):
            return
        if action.decrement and group["DesiredCapacity"] <= group["MinSize"]:
            raise Changed(f"{pool.name} is at its minimum of {group['MinSize']}")
        params = {"InstanceId": machine.id, "ShouldDecrementDesiredCapacity": action.decrement}
        self.client.call("autoscaling", pool.region, "terminate_instance_in_auto_scaling_group", **params)

    def pause(self, group: str | None, person: str) -> tuple[str, ...]:
        """Write on the pools of a group, or of all, that the controller leaves them alone; return their groups.

        Raises InputError if none of them is deployed.
        """
        return self._tag(group, "create_or_update_tags", {"Value": tag_value(person), "PropagateAtLaunch": False})

    def resume(self, group: str | None) -> tuple[str, ...]:
        """Remove what `pause` wrote; return the groups."""
        return self._tag(group, "delete_tags", {})

    def _tag(self, group: str | None, operation: str, values: Mapping[str, Any]) -> tuple[str, ...]:
        pools = [pool for pool in self.plan.pools if group in (None, pool.group)]

        def write(region: str) -> list[str]:
            names = [self._name(pool) for pool in pools if pool.region == region]
            deployed = [entry["AutoScalingGroupName"] for entry in describe_groups(self.client, region, names)]
            owners = [{"ResourceId": name, "ResourceType": "auto-scaling-group"} for name in deployed]
            if owners:
                tags = [{**owner, "Key": PAUSED, **values} for owner in owners]
                self.client.call("autoscaling", region, operation, Tags=tags)
            return deployed

        changed = require_all(ask_regions((pool.region for pool in pools), write), "not all groups are changed")
        deployed = {name for names in changed.values() for name in names}
        if not deployed:
            raise InputError(f"{group or 'the fleet'} has no Auto Scaling groups", fix="run `bedplate up` first")
        return tuple(dict.fromkeys(pool.group for pool in pools if self._name(pool) in deployed))

    def _pool(self, name: str) -> CapacityPool:
        pool = next((pool for pool in self.plan.pools if pool.name == name), None)
        if pool is None:
            raise InputError(f"no pool named {name} in the plan")
        return pool

    def _read(self, pool: CapacityPool) -> dict[str, Any]:
        for group in describe_groups(self.client, pool.region, [self._name(pool)]):
            return group
        raise Changed(f"{pool.name} is not deployed")

    def _name(self, pool: CapacityPool) -> str:
        return f"{self.plan.fleet}-{pool.name}"


def _pause(group: Mapping[str, Any]) -> str:
    return next((str(tag["Value"]) for tag in group.get("Tags", ()) if tag["Key"] == PAUSED), "")


def _template(owner: Mapping[str, Any]) -> str:
    """Return the version of the launch template that a group uses, or that one of its instances has."""
    mixed = owner.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {}).get("LaunchTemplateSpecification", {})
    return str((owner.get("LaunchTemplate") or mixed).get("Version", ""))


def _subnets(group: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(filter(None, group.get("VPCZoneIdentifier", "").split(",")))


def _zones(group: Mapping[str, Any], pool: CapacityPool) -> set[str]:
    """Return the zones of the plan in which the group launches."""
    return set(pool.zones) & set(group.get("AvailabilityZones", ())) or set(pool.zones)


def _observed(observation: Observation, name: str) -> Pool:
    pool = next((pool for pool in observation.pools if pool.name == name), None)
    if pool is None:
        raise Changed(f"{name} was not observed")
    return pool
