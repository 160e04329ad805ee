"""Reports of `node start` and `node stop`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from bedplate.capacity.ladder import Climb, RungStatus
from bedplate.capacity.observation import FAILURES, Activity, Machine, Observation, SetDesired
from bedplate.plan.pools import PoolPlan
from bedplate.report.columns import counted
from bedplate.spec.sites import Use

if TYPE_CHECKING:
    from bedplate.account.machines import Machine as LiveMachine  # it imports boto3

_TEXT = 160
Pools = Mapping[str, PoolPlan]


def rung_name(pool: PoolPlan) -> str:
    """Return `rung 2, us-east-1 spot`: ladders count from 1."""
    place = pool.zones[0] if len(pool.zones) == 1 else pool.region
    return f"rung {pool.rung + 1}, {place} {pool.market.value}"


def undeployed_lines(now: Observation, pools: Pools) -> Iterator[str]:
    """Yield a line for each rung that is passed because its stack is not deployed."""
    for name in sorted(pools.keys() - {pool.name for pool in now.pools}, key=list(pools).index):
        pool = pools[name]
        yield f"{rung_name(pool)}: not deployed: `bedplate up --stack {pool.region}`"


def progress_lines(before: Observation | None, now: Observation, decision: Climb, pools: Pools) -> Iterator[str]:
    """Yield what has happened since the last observation, then the next actions with their reasons."""
    if before:
        yield from (
            _failure_line(launch) for launch in now.activities if launch not in before.activities and not launch.ok
        )
        yield from _machine_lines(before.machines, now.machines)
    yield from (_action_line(action, decision, pools) for action in decision.actions)
    if before and before.time // 60 != now.time // 60:
        ready = sum(machine.ready for machine in now.machines)
        yield f"waiting: {ready} of {counted(len(now.machines), 'machine')} in service"


def _failure_line(launch: Activity) -> str:
    place, name = launch.zone or launch.pool, launch.machine or "launch"
    known = FAILURES.get(launch.code or "")
    return f"{place}: {name} failed: {f'{known.cause} ({launch.code})' if known else launch.text[:_TEXT]}"


def _machine_lines(before: Sequence[Machine], now: Sequence[Machine]) -> Iterator[str]:
    states = {machine.id: machine.ready for machine in before}
    for machine in now:
        if states.get(machine.id) != machine.ready:
            yield f"{machine.zone}: {machine.id} {'is in service' if machine.ready else 'is booting'}"


def _action_line(action: SetDesired, decision: Climb, pools: Pools) -> str:
    name = rung_name(pools[action.pool])
    if not decision.is_raise(action):
        return f"{name}: {action.reason}: no further attempts"
    (rung,) = (rung for rung in decision.rungs if rung.pool.name == action.pool)
    return f"{name}: launching {counted(action.count - rung.expected, 'machine')} ({action.reason})"


def rung_lines(decision: Climb, pools: Pools) -> Iterator[str]:
    """Yield a line for each rung: the reason for which it takes no more machines."""
    for rung in decision.rungs:
        code = f" ({rung.code})" if rung.code else ""
        yield f"{rung_name(pools[rung.pool.name])}: {rung.reason or 'open'}{code}"


def shortage_fix(decision: Climb) -> str:
    """Return the fix for a ladder without room: that of the first failed rung."""
    codes = (rung.code for rung in decision.rungs if rung.status is RungStatus.FAILED and rung.code)
    code = next(codes, None)
    if code:
        return FAILURES[code].fix
    is_full = all(rung.status is RungStatus.FULL for rung in decision.rungs)
    return (
        "raise `max` of its rungs in the fleet file"
        if is_full
        else "see the activity history of its Auto Scaling groups"
    )


def running_lines(machines: "Iterable[LiveMachine]", pools: Pools, ends: Mapping[str, datetime]) -> Iterator[str]:
    """Yield a line for each machine in service, with the command to log in."""
    for machine in machines:
        name = machine.name or machine.instance
        end = f", until {_time(ends[machine.pool])}" if machine.pool in ends else ""
        login = f": `bedplate ssh {name}`" if machine.name and pools[machine.pool].use is Use.SSH else ""
        yield f"machine {name} is running in {machine.zone}{end}{login}"


def end_lines(cancelled: Mapping[str, datetime], unlimited: Iterable[str]) -> Iterator[str]:
    """Yield notes about ends that a start has cancelled, and about pools for which its `--for` has no effect."""
    for pool, until in cancelled.items():
        yield f"note: the end of {pool} at {_time(until)} is cancelled: this start has no --for"
    for pool in unlimited:
        yield f"note: {pool} has no end: its machines were started without --for"


def interrupted_lines(group: str, now: Observation, decision: Climb, pools: Pools) -> Iterator[str]:
    """Yield what AWS goes on with after an interrupted start, and how to follow or end it."""
    counts = {pool.name: pool.desired for pool in now.pools} | {a.pool: a.count for a in decision.actions}
    pending = False
    for pool, count in counts.items():
        machines = now.machines_of(pool)
        launching = count - sum(machine.ready for machine in machines)
        if launching > 0:
            pending = True
            ids = ", ".join(machine.id for machine in machines if not machine.ready) or "no instance yet"
            yield f"AWS is still launching {counted(launching, 'machine')} on {rung_name(pools[pool])}: {ids}"
    if pending:
        yield f"`bedplate node start {group}` continues; `bedplate node list --live` shows the instances to stop"


def stop_lines(machine: "LiveMachine", age: str, people: tuple[str, ...] | None) -> Iterator[str]:
    """Yield the facts of a machine before it is terminated; `people` are logged in, None if that is unknown."""
    asked = f", started by {machine.requested_by}" if machine.requested_by else ""
    yield f"{machine.name or machine.instance}: {machine.instance}, {machine.type} in {machine.zone}, {age}{asked}"
    yield f"logged in: {'unknown' if people is None else ', '.join(people) or 'nobody'}"
    yield "its disks are deleted; file systems and buckets stay"


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
