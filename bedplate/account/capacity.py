"""The Auto Scaling groups of one group: what AWS reports about them, changes of their size, the start of machines.

Only `bedplate node start` and `stop` change a group: its desired capacity, one scheduled action, and two tags.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from bedplate.account.client import AwsClient, ask_regions, require_all
from bedplate.account.machines import describe_groups, time_of_tag
from bedplate.capacity.ladder import LadderDecision, next_actions
from bedplate.capacity.observation import Activity, Machine, Observation, Pool, SetDesired, failure_code
from bedplate.capacity.shrink import NO_END, End, after_stop, next_end
from bedplate.errors import BedplateError, InputError
from bedplate.foreign import parse_json
from bedplate.plan.pools import PAUSED, REQUESTED_BY, UNTIL, PoolPlan

# Launches in the past, of which the decision uses the last ten minutes. 100 is the most in one page.
_ACTIVITIES = 100
_FAILED = ("Failed", "Cancelled")
# The beginnings of the states of instances that leave their group.
LEAVING = ("Terminat", "Detach")
_INSTANCE = re.compile(r"\bi-[0-9a-f]{8,17}\b")
_CAUSE = re.compile(r"increasing the capacity from (\d+) to (\d+)")
# Characters that AWS does not accept in the value of a tag.
_NOT_IN_TAGS = re.compile(r"[^\w .:/=+\-@]")


_Groups = Mapping[str, tuple[dict[str, Any], tuple[Activity, ...]]]


@dataclass(frozen=True, slots=True)
class ScalingGroups:
    """The Auto Scaling groups of some pools, in ladder order."""

    client: AwsClient
    fleet: str
    pools: tuple[PoolPlan, ...]
    silent: dict[str, BedplateError] = field(default_factory=dict)
    """The errors of the regions that did not answer last."""
    _answers: dict[str, _Groups] = field(default_factory=dict)

    def observe(self, time: float) -> Observation:
        """Return the state of all pools that are deployed; a region that does not answer any more is as it was.

        One that has never answered is left out: its rungs are passed, and its machines are unknown. Raises the error of
        a region if there is no other.
        """
        answers = ask_regions((pool.region for pool in self.pools), self._groups)
        self.silent.clear()
        self.silent.update(answers.failures)
        self._answers.update(answers.successes)
        if not answers.successes or not any(self._answers.values()):
            require_all(answers, "cannot read the Auto Scaling groups")
        groups = {name: group for region in self._answers.values() for name, group in region.items()}
        present = tuple(pool for pool in self.pools if pool.name in groups)
        if not present:
            regions = " ".join(f"--stack {region}" for region in dict.fromkeys(pool.region for pool in self.pools))
            raise InputError(f"{self.pools[0].group} is not deployed", fix=f"run `bedplate up {regions}`")
        return Observation(
            time=time,
            pools=tuple(
                replace(_pool(pool, groups[pool.name][0]), silent=pool.region in self.silent) for pool in present
            ),
            machines=tuple(machine for pool in present for machine in _machines(pool, groups[pool.name][0])),
            activities=tuple(launch for pool in present for launch in groups[pool.name][1]),
        )

    def _groups(self, region: str) -> _Groups:
        """Return each group of a region with its launches, by pool."""
        names = {self._name(pool): pool.name for pool in self.pools if pool.region == region}
        groups = {group["AutoScalingGroupName"]: group for group in describe_groups(self.client, region, list(names))}
        return {
            names[name]: (group, tuple(read_launches(self.client, region, name, names[name])))
            for name, group in groups.items()
        }

    def set_desired(self, pool: str, count: int) -> None:
        """Set the desired capacity of a pool."""
        self._call(pool, "set_desired_capacity", DesiredCapacity=count, HonorCooldown=False)

    def read_end(self, pool: str) -> End | None:
        """Return the end of a pool's machines that `write_end` has scheduled."""
        query = {"ScheduledActionNames": [self._end_name(pool)]}
        for action in self._call(pool, "describe_scheduled_actions", **query)["ScheduledUpdateGroupActions"]:
            return End(_utc(action["StartTime"]), action["DesiredCapacity"])
        return None

    def write_end(self, pool: str, end: End | None) -> None:
        """Schedule the end of a pool's machines, or cancel it; the stacks do not manage this scheduled action."""
        name = {"ScheduledActionName": self._end_name(pool)}
        if end:
            sizes = {"StartTime": end.until, "DesiredCapacity": end.floor}
            self._call(pool, "put_scheduled_update_group_action", **name, **sizes)
        elif self.read_end(pool):
            self._call(pool, "delete_scheduled_action", **name)

    def forget_end(self, pool: str, desired: int) -> None:
        """Cancel the end of a pool that now has a lower desired capacity, if it would raise that again."""
        end = self.read_end(pool)
        if end and after_stop(end, desired) is None:
            self.write_end(pool, None)

    def write_request(self, pool: str, person: str, end: End | None) -> None:
        """Record on a pool who asked for machines, and until when."""
        until = f"{end.until:%Y-%m-%dT%H:%MZ}" if end else NO_END
        owner = {"ResourceId": self._name(self._plan(pool)), "ResourceType": "auto-scaling-group"}
        values = {REQUESTED_BY: tag_value(person), UNTIL: until}
        tags = [{**owner, "Key": key, "Value": value, "PropagateAtLaunch": False} for key, value in values.items()]
        self.client.call("autoscaling", self._plan(pool).region, "create_or_update_tags", Tags=tags)

    def _plan(self, pool: str) -> PoolPlan:
        return next(plan for plan in self.pools if plan.name == pool)

    def _name(self, pool: PoolPlan) -> str:
        return f"{self.fleet}-{pool.name}"

    def _end_name(self, pool: str) -> str:
        return f"{self.fleet}-{pool}-until"

    def _call(self, pool: str, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  boto3's own
        plan = self._plan(pool)
        return self.client.call("autoscaling", plan.region, operation, AutoScalingGroupName=self._name(plan), **params)


def terminate_machine(client: AwsClient, region: str, instance: str, *, replaced: bool = False) -> str:
    """Terminate an instance through its group, which starts another one only if it is to be replaced.

    Return the name of the Auto Scaling group.
    """
    reply = client.call(
        "autoscaling",
        region,
        "terminate_instance_in_auto_scaling_group",
        InstanceId=instance,
        ShouldDecrementDesiredCapacity=not replaced,
    )
    name: str = reply["Activity"]["AutoScalingGroupName"]
    return name


def group_members(client: AwsClient, region: str, group: str) -> tuple[int, frozenset[str]]:
    """Return the desired number of machines of an Auto Scaling group, and its instances that are not leaving."""
    (facts,) = describe_groups(client, region, [group])
    members = {member["InstanceId"]: member["LifecycleState"] for member in facts["Instances"]}
    return facts["DesiredCapacity"], frozenset(name for name in members if not members[name].startswith(LEAVING))


def console_output(client: AwsClient, region: str, instance: str, lines: int) -> tuple[str, ...]:
    """Return the last lines of an instance's console output; none if AWS has no output yet."""
    reply = client.call("ec2", region, "get_console_output", InstanceId=instance)
    return tuple(line.rstrip() for line in reply.get("Output", "").splitlines() if line.strip())[-lines:]


def _pool(pool: PoolPlan, group: Mapping[str, Any]) -> Pool:
    sizes = (group["MinSize"], group["MaxSize"], group["DesiredCapacity"])
    zones, suspended = tuple(sorted(pool.zones)), suspended_processes(group)
    return Pool(pool.name, pool.group, pool.rung, pool.region, zones, *sizes, suspended=suspended)


def suspended_processes(group: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the suspended processes of an Auto Scaling group, except AZRebalance, which the stacks suspend."""
    names = {process["ProcessName"] for process in group.get("SuspendedProcesses", ())}
    return tuple(sorted(names - {"AZRebalance"}))


def keep_reason(group: Mapping[str, Any], now: float) -> str:
    """Return why a group of AWS keeps machines that nobody uses; empty if nothing does."""
    tags = {tag["Key"]: tag["Value"] for tag in group.get("Tags", ())}
    if PAUSED in tags:
        return f"{tags[PAUSED]} has paused its group"
    if "Terminate" in suspended_processes(group):
        return "somebody has suspended the process Terminate of its group"
    end = tags.get(UNTIL, NO_END)
    until = time_of_tag(end)
    if end != NO_END and (until is None or now < until.timestamp()):
        return f"somebody has started it with `--for`, until {end}"
    # AWS may lack machines that the group wants: those that run must be the minimum.
    running = sum(member["LifecycleState"] == "InService" for member in group["Instances"])
    if min(group["DesiredCapacity"], running) <= group["MinSize"]:
        return f"its group is at its minimum of {group['MinSize']}"
    return ""


def _machines(pool: PoolPlan, group: Mapping[str, Any]) -> Iterator[Machine]:
    for member in group["Instances"]:
        state = member["LifecycleState"]
        if not state.startswith(LEAVING):
            # The decision does not read when a machine was launched.
            zone, is_ready = member["AvailabilityZone"], state == "InService"
            yield Machine(member["InstanceId"], pool.name, zone, launched=0.0, ready=is_ready)


def read_launches(client: AwsClient, region: str, group: str, pool: str) -> Iterator[Activity]:
    """Yield the last launches of a pool's Auto Scaling group that have failed, or have an instance."""
    query = {"AutoScalingGroupName": group, "MaxRecords": _ACTIVITIES}
    for activity in client.call("autoscaling", region, "describe_scaling_activities", **query)["Activities"]:
        description, text = activity.get("Description", ""), activity.get("StatusMessage", "")
        has_failed = activity["StatusCode"] in _FAILED
        instance = _INSTANCE.search(description)
        code = failure_code(f"{text} {description}") if has_failed else None
        # AWS cancels launches when the desired capacity falls, and when somebody ends the machine.
        is_ended = activity["StatusCode"] == "Cancelled" and code is None
        if not description.startswith("Launching") or not (has_failed or instance) or is_ended:
            continue
        cause = _CAUSE.search(activity.get("Cause", ""))
        before, after = (int(cause[1]), int(cause[2])) if cause else (0, 0)
        yield Activity(
            id=activity["ActivityId"],
            pool=pool,
            time=activity["StartTime"].timestamp(),
            ok=not has_failed,
            zone=_launch_zone(activity.get("Details", "")),
            code=code,
            count=max(1, after - before) if has_failed else 1,
            before=before,
            after=after,
            machine=instance[0] if instance else None,
            text=text if has_failed else "",
            ended=end.timestamp() if has_failed and (end := activity.get("EndTime")) else None,
        )


def tag_value(person: str) -> str:
    """Return the name of a person as the value of a tag."""
    return _NOT_IN_TAGS.sub("_", person)[:100]


def _launch_zone(details: str) -> str | None:
    """Return the zone of an activity, from details such as {"Availability Zone": "us-west-2a"}."""
    with suppress(ValueError, AttributeError):
        zone = parse_json(details).get("Availability Zone")
        return zone if isinstance(zone, str) else None
    return None


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


POLL = 5.0
"""Seconds between two observations."""
WAIT = 1800.0
"""Seconds to wait after the last launch: longer than the lifecycle hook that ends a machine which does not report."""


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks for `count` machines in total, and until when, by pool: None is without an end.

    The end of a pool that is not in `until` stays as it is.
    """

    count: int
    person: str
    until: Mapping[str, datetime | None]


@dataclass(frozen=True, slots=True)
class Clock:
    """Time in seconds since 1970, and a pause; tests replace both."""

    now: Callable[[], float]
    sleep: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Progress:
    """One observation of a start, and the next actions."""

    observation: Observation
    decision: LadderDecision
    ends: Mapping[str, End] = field(default_factory=dict)
    """The ends of machines that are scheduled now, by pool."""
    cancelled: Mapping[str, End] = field(default_factory=dict)
    """The ends that this start has cancelled."""

    @property
    def ready(self) -> int:
        """The number of machines that are in service."""
        return sum(machine.ready for machine in self.observation.machines)


def start_machines(groups: ScalingGroups, request: Request, clock: Clock) -> Iterator[Progress]:
    """Yield the progress until enough machines are ready, no rung has more, or the wait is over.

    A start can stop anywhere, and the same request continues it: the end is scheduled before machines are launched.
    """
    tried: dict[str, float] = {}
    ends = _Ends(groups, request)
    deadline = clock.now() + WAIT
    observation = groups.observe(clock.now())
    ends.keep(observation)
    while True:
        decision = next_actions(observation, request.count, tried)
        final = _is_final(observation, decision, request.count) or clock.now() >= deadline
        yield Progress(observation, decision, dict(ends.scheduled), dict(ends.cancelled))
        if final:
            return
        for action in decision.actions:
            if decision.is_raise(action):
                ends.schedule(observation, action)
                tried[action.pool] = clock.now()
                deadline = clock.now() + WAIT
            groups.set_desired(action.pool, action.count)
        clock.sleep(POLL)
        observation = groups.observe(clock.now())


def _is_final(observation: Observation, decision: LadderDecision, count: int) -> bool:
    """Return whether enough machines are ready, or all that can come; failed pools are lowered first."""
    ready = sum(machine.ready for machine in observation.machines)
    is_waiting = decision.actions or decision.trying or ready < len(observation.machines)
    return not decision.actions and (ready >= count or (decision.missing > 0 and not is_waiting))


class _Ends:
    """The ends of the pools of a start."""

    def __init__(self, groups: ScalingGroups, request: Request) -> None:
        self._groups, self._request = groups, request
        self.scheduled: dict[str, End] = {}
        self.cancelled: dict[str, End] = {}

    def keep(self, observation: Observation) -> None:
        """Move the ends of machines that run already, and that the request counts."""
        left = self._request.count
        for pool in observation.pools:
            share = min(pool.desired, left)
            left -= share
            if pool.desired and self._move(pool.name, pool.desired, share):
                self._groups.write_request(pool.name, self._request.person, self.scheduled.get(pool.name))

    def schedule(self, observation: Observation, action: SetDesired) -> None:
        """Schedule the end of machines before they are launched, and record who asked for them."""
        pool = next(pool for pool in observation.pools if pool.name == action.pool)
        self._move(pool.name, pool.desired, action.count)
        self._groups.write_request(pool.name, self._request.person, self.scheduled.get(pool.name))

    def _move(self, pool: str, desired: int, count: int) -> bool:
        """Schedule the end of a pool after a start; return whether it has changed."""
        if pool not in self._request.until:
            return False
        current = self._groups.read_end(pool)
        end = next_end(current, desired, count, self._request.until[pool])
        if end != current:
            self._groups.write_end(pool, end)
        if end:
            self.scheduled[pool] = end
        elif current:
            self.cancelled[pool] = current
        return end != current
