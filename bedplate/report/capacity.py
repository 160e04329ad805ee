"""Reports of capacity: words for times, failures and actions; `capacity simulate`, `node start` and `node stop`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bedplate.bundle import UseReport
from bedplate.capacity.controller import subject_of
from bedplate.capacity.ladder import Breaker, LadderDecision, RungStatus
from bedplate.capacity.observation import (
    UNITS,
    Action,
    Activity,
    Machine,
    Node,
    Observation,
    Pod,
    Pool,
    SetDesired,
    Size,
    Terminate,
    failure_of,
    verb_of,
)
from bedplate.capacity.packing import new_machine, shape_of, shortfalls
from bedplate.capacity.simulator import Simulation
from bedplate.errors import BedplateError
from bedplate.foreign import one_line
from bedplate.plan.pools import PoolPlan
from bedplate.report.columns import aligned, counted

if TYPE_CHECKING:
    from bedplate.account.machines import LiveMachine


_MINUTE, _HOUR = 60.0, 3600.0
_STALE = 900.0  # a machine writes a report of its use every five minutes
# The characters of AWS's text that are shown.
_TEXT = 160


def mismatch(pod: Pod, pool: Pool) -> str:
    """Return why a machine of a pool cannot run a pod; empty if it can."""
    return pod.unsupported or next(shortfalls(shape_of(pod), new_machine(pool)), "")


def shortage(node: Node, pool: Pool) -> str:
    """Return the resource of which a node reports much less than a usual node of its pool; empty if there is none.

    One device less is much.
    """
    for name, unit in UNITS.items():
        reported, size = getattr(node.size, name), getattr(pool.size, name)
        if reported < size * (1 if name in _DEVICES else _USUAL):
            return f"{reported:g} {unit}, a machine of {pool.name} has {size:g}"
    return ""


_DEVICES, _USUAL = ("gpus", "efa"), 0.9


def size_words(size: Size) -> str:
    """Return what a pod asks for."""
    words = [f"{getattr(size, name):g} {unit}" for name, unit in UNITS.items() if getattr(size, name)]
    return ", ".join(words) or "nothing"


def breaker_sentences(breaker: Breaker, now: float) -> str:
    """Return why a rung launches nothing, when one machine probes it, and what an operator can change."""
    failure = failure_of(breaker.code)
    code, fix = f" ({breaker.code})" if breaker.code else "", fix_sentence(breaker.code)
    result = "when its machine is a node" if breaker.needs_node else "when AWS launches its machine"
    if breaker.probe is not None:
        probe = f"One machine was asked for at {clock(breaker.probe)} as a probe; the rung is used again {result}."
    elif breaker.until > now:
        probe = f"From {clock(breaker.until)} a pending pod can start one machine as a probe."
    else:
        probe = "The next pending pod starts one machine as a probe."
    said = f' AWS: "{one_line(breaker.text)[:_TEXT]}".' if breaker.text and not failure.is_brief else ""
    next_rungs = "No other region is tried." if failure.everywhere else "Pods use the next rungs."
    return f"skipped since {clock(breaker.opened)}: {breaker.cause}{code}.{said} {next_rungs} {probe}{fix}"


def coded_cause(code: str | None, text: str) -> str:
    """Return the cause of a failed launch with its code; for an unknown code, the text."""
    cause = failure_of(code).cause
    return f"{cause} ({code})" if cause else text


def fix_sentence(code: str | None) -> str:
    """Return what an operator can change against a failure, after a space; empty for an unknown code."""
    fix = failure_of(code).fix
    return f" To change that: {fix}." if fix else ""


def use_sentence(report: UseReport | None, idle: float, reason: str, now: float) -> str:
    """Return a sentence about the use of a machine for people, and its end; `reason` is why its group keeps it."""
    if report is None:
        return "its use is unknown: no report."
    if abs(now - report.time) >= _STALE:
        return f"its use is unknown: its last report is of {clock(report.time)}."
    if report.idle_since is None:
        return "in use."
    unused, left = f"idle for {age(now - report.idle_since)}", report.idle_since + idle - now
    if reason:
        return f"{unused}; it stays: {reason}."
    if left < -_STALE:  # it tries every five minutes
        return f"{unused}; it could not end: `journalctl -u bedplate-idle` there says why."
    return f"{unused}; it ends in {age(left)}." if left > 0 else f"{unused}; it ends now."


def action_sentence(action: Action, desired: Mapping[str, int]) -> str:
    """Return what an action does and why; `desired` has the desired number of each pool."""
    match action:
        case SetDesired():
            verb = "raise" if action.count > desired.get(action.pool, 0) else "lower"
            before = desired.get(action.pool, 0)
            words = f"{verb} the desired number of {action.pool} from {before} to {action.count}"
        case Terminate():
            words = f"end the machine {action.machine}"
        case _:
            words = f"{verb_of(action)} {subject_of(action)}"
    return f"{words}: {action.reason}."


def clock(time: float) -> str:
    """Return a time of day."""
    return f"{datetime.fromtimestamp(time, UTC):%H:%M} UTC"


def age(seconds: float) -> str:
    """Return a duration in its two largest units at most."""
    if seconds < _MINUTE:
        return f"{max(0, seconds):.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    hours, minutes = divmod(round(seconds / _MINUTE), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def simulation_lines(simulation: Simulation) -> Iterator[str]:
    """Yield the scenario and its figures."""
    scenario, figures = simulation.scenario, simulation.figures
    yield f"{scenario.name}: {scenario.about}; {scenario.horizon / 3600:g} hours"
    useful = figures.useful_gpu_hours / figures.gpu_hours if figures.gpu_hours else 0.0
    running = "never" if figures.all_running is None else _span(figures.all_running)
    late = f", {figures.unstarted} never started" if figures.unstarted else ""
    rows = [
        ("pods", f"{figures.pods}{late}"),
        ("last start after the burst", running),
        (
            "wait",
            f"{_span(figures.wait_p50)} median, {_span(figures.wait_p95)} p95, {_span(figures.wait_max)} longest",
        ),
        ("again after a stop", f"{_span(figures.again_p95)} p95"),
        ("cost", f"{figures.usd:,.0f} USD, {figures.machine_hours:,.1f} machine hours"),
        ("GPU hours", f"{figures.gpu_hours:,.1f} paid, {useful:.0%} of them useful") if figures.gpu_hours else (),
        ("launches", f"{figures.launches}, {figures.spills} spills, {figures.failed} refused by AWS"),
        ("doubled", f"{figures.doubled} machines that no waiting pod needed"),
        ("unused", f"{figures.never_used} machines ran no pod, {figures.never_joined} never became nodes"),
        ("pods stopped", f"{figures.evicted} moved, {figures.interrupted} by AWS, {figures.killed} killed"),
        ("people's cordons undone", str(figures.broken_cordons)),
        ("reversals within 30 minutes", str(figures.flips)),
        ("processor time", f"{figures.cpu_per_decision * 1000:.1f} ms a decision, {figures.cpu_longest:.2f} s longest"),
    ]
    yield from aligned(row for row in rows if row)


def _span(seconds: float) -> str:
    return f"{seconds:,.0f} s"


Pools = Mapping[str, PoolPlan]


def rung_name(pool: PoolPlan) -> str:
    """Return `rung 2, us-east-1 spot`: ladders count from 1."""
    place = pool.zones[0] if len(pool.zones) == 1 else pool.region
    return f"rung {pool.rung + 1}, {place} {pool.market.value}"


def undeployed_lines(now: Observation, pools: Pools, silent: Mapping[str, BedplateError]) -> Iterator[str]:
    """Yield a line for each rung that is passed: its region does not answer, or its stack is not deployed."""
    for name in sorted(pools.keys() - {pool.name for pool in now.pools}, key=list(pools).index):
        pool = pools[name]
        if pool.region in silent:
            yield f"{rung_name(pool)}: passed, its machines are not counted: {silent[pool.region].what}"
            continue
        yield f"{rung_name(pool)}: not deployed: `bedplate up --stack {pool.region}`"


def progress_lines(
    before: Observation | None, now: Observation, decision: LadderDecision, pools: Pools
) -> Iterator[str]:
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
    return f"{place}: {name} failed: {coded_cause(launch.code, launch.text[:_TEXT])}"


def _machine_lines(before: Sequence[Machine], now: Sequence[Machine]) -> Iterator[str]:
    states = {machine.id: machine.ready for machine in before}
    for machine in now:
        if states.get(machine.id) != machine.ready:
            yield f"{machine.zone}: {machine.id} {'is in service' if machine.ready else 'is booting'}"


def _action_line(action: SetDesired, decision: LadderDecision, pools: Pools) -> str:
    name = rung_name(pools[action.pool])
    if not decision.is_raise(action):
        return f"{name}: {action.reason}: no further attempts"
    (rung,) = (rung for rung in decision.rungs if rung.pool.name == action.pool)
    return f"{name}: launching {counted(action.count - rung.expected, 'machine')} ({action.reason})"


def rung_lines(decision: LadderDecision, pools: Pools) -> Iterator[str]:
    """Yield a line for each rung: the reason for which it takes no more machines."""
    for rung in decision.rungs:
        code = f" ({rung.code})" if rung.code else ""
        yield f"{rung_name(pools[rung.pool.name])}: {rung.reason or 'open'}{code}"


def shortage_fix(decision: LadderDecision) -> str:
    """Return the fix for a ladder without room: that of the first failed rung."""
    codes = (rung.code for rung in decision.rungs if rung.status is RungStatus.FAILED and rung.code)
    code = next(codes, None)
    if code:
        return failure_of(code).fix
    is_full = all(rung.status is RungStatus.FULL for rung in decision.rungs)
    return (
        "raise `max` of its rungs in the fleet file"
        if is_full
        else "see the activity history of its Auto Scaling groups"
    )


def running_lines(machines: "Iterable[LiveMachine]", pools: Pools, ends: Mapping[str, datetime]) -> Iterator[str]:
    """Yield a line for each machine in service, with the command to log in."""
    for machine in machines:
        name = machine.label
        end = f", until {_time(ends[machine.pool])}" if machine.pool in ends else ""
        login = f": `bedplate ssh {name}`" if machine.name and pools[machine.pool].use.is_ssh else ""
        yield f"machine {name} is running in {machine.zone}{end}{login}"


def end_lines(cancelled: Mapping[str, datetime], unlimited: Iterable[str]) -> Iterator[str]:
    """Yield notes about ends that a start has cancelled, and about pools for which its `--for` has no effect."""
    for pool, until in cancelled.items():
        yield f"note: the end of {pool} at {_time(until)} is cancelled: this start has no --for"
    for pool in unlimited:
        yield f"note: {pool} has no end: its machines were started without --for"


def interrupted_lines(group: str, now: Observation, decision: LadderDecision, pools: Pools) -> Iterator[str]:
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
    started_by = f", started by {machine.requested_by}" if machine.requested_by else ""
    yield f"{machine.label}: {machine.instance}, {machine.type} in {machine.zone}, {age}{started_by}"
    yield f"logged in: {'unknown' if people is None else ', '.join(people) or 'nobody'}"
    yield "its disks are deleted; file systems and buckets stay"


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
