"""The ladders of groups: rungs, circuit breakers of their pools, and which pool launches missing machines.

Desired capacity is always set to a number that follows from an observation. The same observation gives the same
actions, so a lost reply, a second operator or a repeated command cannot launch a machine twice.

A pool that has failed launches nothing for a while, then one machine as a probe. Its breaker opens at the failure, and
a later success closes it: a launch or, if machines had failed at their first boot, a machine that became a node.

The controller reads the rungs with their breakers (`read_rungs`), and keeps a `Memory` between its decisions. Commands
of operators, which keep nothing, ask for the next actions towards a number of machines (`next_actions`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from bedplate.capacity.boots import Boot, are_elsewhere, failed_boots, failing, is_boot_failure
from bedplate.capacity.observation import (
    FAILURES,
    NOT_READY,
    Activity,
    Machine,
    Observation,
    Pool,
    SetDesired,
    failure_code,
    failure_of,
)

HOLD = 300.0
"""Seconds for which a pool is not tried again after its first failure."""
LONGEST_HOLD = 3600.0
"""The longest time between two probes of a pool that keeps failing."""
SHORTAGE_HOLD = 600.0
"""The longest time between two probes of a pool without capacity: a refused launch costs nothing, an idle lab does."""
PATIENCE = 300.0
"""Seconds without a machine after which a pool has failed, if AWS reports no known failure."""
FIRST, FURTHER = 4, 2
"""The machines that boot at once in the first and in further pools of a group whose launch template is not proven."""
RECLAIMED = "SpotInterruption"
"""The code of a pool if AWS interrupts many of its spot instances. It is bedplate's own, not EC2's."""

_PROBED = "; the last probe failed too"
# A spot pool has failed if AWS interrupts this share of its machines, and at least this many.
_RECLAIMED_SHARE, _RECLAIMED_LEAST = 0.2, 2


@dataclass(frozen=True, slots=True)
class Breaker:
    """The failure of a pool, and the time of the next probe; all times are Unix seconds.

    `code` is the code of AWS's error, None if there was none, and `text` its last words. The breaker opened at
    `opened`, and a probe may start at `until`. `probe` is the start of a probe whose result is not known yet; `closed`
    is when a success closed the breaker. `failures` counts the failures in a row: each doubles the time to the next
    probe. If it `needs_node`, first boots have failed: a launch is no success, only a machine that becomes a node.
    """

    code: str | None
    cause: str
    opened: float
    until: float
    failures: int = 1
    probe: float | None = None
    closed: float | None = None
    text: str = ""
    needs_node: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the pool may launch nothing but a probe."""
        return self.closed is None

    def is_broken(self, machine: Machine) -> bool:
        """Return whether a booting machine is likely to fail as others did; that of the probe has its chance."""
        is_probe = self.probe is not None and machine.launched >= self.probe
        return self.needs_node and self.is_open and not is_probe

    def is_probe_due(self, now: float) -> bool:
        """Return whether the pool may launch one machine."""
        return self.is_open and self.probe is None and now >= self.until


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """The state of a pool in one observation; times are Unix seconds.

    `late` has the machines that should be nodes by now and are not. `short_since` is when the pool began to have fewer
    machines than desired. `boots` has, by ID, the first boots that failed within the last hour: also of machines that
    do not exist any more.
    """

    pool: Pool
    machines: tuple[Machine, ...] = ()
    launches: tuple[Activity, ...] = ()
    late: tuple[Machine, ...] = ()
    short_since: float | None = None
    boots: Mapping[str, Boot] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[Machine, ...]:
        """The machines that have become nodes."""
        return tuple(machine for machine in self.machines if machine.node)

    @property
    def untried_zones(self) -> frozenset[str]:
        """The zones without a failed boot; none if the zone of one is unknown, or the pool has a single zone."""
        failed = {boot.zone for boot in self.boots.values()}
        return frozenset() if None in failed else frozenset({*self.pool.zones, *self.pool.out} - failed)

    @property
    def noticed(self) -> tuple[Machine, ...]:
        """The spot instances that AWS will interrupt."""
        return tuple(machine for machine in self.machines if machine.notice is not None)


@dataclass(frozen=True, slots=True)
class PoolFailure:
    """Why a pool has failed: AWS's code and text if there are any, and the cause; see `Breaker`."""

    code: str | None
    cause: str
    text: str = ""
    needs_node: bool = False


def next_breaker(breaker: Breaker | None, facts: PoolFacts, now: float) -> Breaker | None:
    """Return the breaker of a pool after one more observation; None if the pool has not failed lately."""
    if breaker and breaker.closed is not None and now - breaker.closed > LONGEST_HOLD:
        breaker = None
    if breaker and breaker.is_open and _has_succeeded(breaker, facts):
        breaker = replace(breaker, closed=now, probe=None)
    if breaker is None or not breaker.is_open or breaker.probe is not None:
        failure = _failure(breaker, facts, now)
        if failure:
            return _opened(breaker, failure, facts, now)
    return breaker


def launch_failure(pool: Pool, launches: Sequence[Activity], since: float) -> PoolFailure | None:
    """Return the last known launch failure that ended `since` a time; None if a later launch succeeded.

    A failure in one zone does not count while AWS may still try another zone.
    """
    success = max((launch.time for launch in launches if launch.ok), default=since)
    failures = [
        launch for launch in launches if not launch.ok and launch.end >= max(success, since) and launch.code in FAILURES
    ]
    failed_zones = {launch.zone for launch in failures}
    for launch in failures:
        code = str(launch.code)
        failure = FAILURES[code]
        if not (failure.in_zone and launch.zone):
            return PoolFailure(code, failure.cause, launch.text)
        if failed_zones >= set(pool.zones):
            return PoolFailure(code, f"{failure.cause} in {', '.join(pool.zones)}", launch.text)
    return None


def _opened(breaker: Breaker | None, failure: PoolFailure, facts: PoolFacts, now: float) -> Breaker:
    failures = breaker.failures + 1 if breaker else 1
    longest = SHORTAGE_HOLD if failure_of(failure.code).is_brief else LONGEST_HOLD
    # A zone in which no boot has failed can be probed at once.
    hold = 0.0 if failure.needs_node and facts.untried_zones else HOLD
    until = now + min(longest, hold * 2 ** min(failures - 1, 8))
    return Breaker(opened=now, until=until, failures=failures, **asdict(failure))


def _has_succeeded(breaker: Breaker, facts: PoolFacts) -> bool:
    since = breaker.opened if breaker.probe is None else breaker.probe
    machines = [machine for machine in facts.machines if _is_since(machine.launched, breaker)]
    if breaker.needs_node:
        return any(machine.node for machine in machines)
    is_launching = bool(machines) or any(launch.ok and _is_since(launch.time, breaker) for launch in facts.launches)
    return is_launching and launch_failure(facts.pool, facts.launches, since) is None


def _is_since(time: float, breaker: Breaker) -> bool:
    return time > breaker.opened if breaker.probe is None else time >= breaker.probe


def _failure(breaker: Breaker | None, facts: PoolFacts, now: float) -> PoolFailure | None:
    """Return a failure that the breaker does not know yet."""
    since = now - HOLD
    if breaker:
        since = breaker.probe or max(since, breaker.closed or 0.0)
    refused = [launch for launch in facts.launches if not is_boot_failure(launch)]
    if failure := launch_failure(facts.pool, refused, since):
        return failure
    if breaker and breaker.probe is not None:
        return _failed_probe(breaker, facts, now)
    if failure := _boot_failure(facts, breaker):
        return failure
    if taken := _reclaimed(facts):
        return PoolFailure(RECLAIMED, f"AWS interrupts {taken} of its spot instances")
    if facts.short_since is not None and now - facts.short_since >= PATIENCE:
        return PoolFailure(None, f"no machine after {PATIENCE / 60:.0f} minutes", _last_text(facts, since))
    return None


def _boot_failure(facts: PoolFacts, breaker: Breaker | None) -> PoolFailure | None:
    """Return the failure of first boots that began since a success closed the breaker."""
    closed = (breaker.closed or 0.0) if breaker else 0.0
    since_closed = [boot for boot in facts.boots.values() if boot.launched >= closed]
    failed, zones = failing(facts.pool, facts.machines, since_closed)
    if not failed or (zones and are_elsewhere(facts.machines, failed)):
        return None
    text = next((boot.text for boot in reversed(failed) if boot.text), "")
    if not any(boot.existed for boot in failed):
        return PoolFailure(None, f"{len(failed)} launches failed", text, needs_node=True)
    place = f" in {', '.join(zones)}" if zones else ""
    subject = "a machine" if len(failed) == 1 else f"{len(failed)} machines"
    return PoolFailure(
        NOT_READY, f"{subject}{place} did not become {'a node' if len(failed) == 1 else 'nodes'}", text, needs_node=True
    )


def _last_text(facts: PoolFacts, since: float) -> str:
    """Return the newest text of a failed launch."""
    failures = [launch for launch in facts.launches if not launch.ok and launch.text and launch.end >= since]
    return max(failures, key=lambda launch: launch.end).text if failures else ""


def _failed_probe(breaker: Breaker, facts: PoolFacts, now: float) -> PoolFailure | None:
    failed = [boot for boot in facts.boots.values() if _is_since(boot.launched, breaker)]
    if failed:
        text = failed[-1].text or breaker.text
        code = failure_code(text) or NOT_READY
        return PoolFailure(code, "the probe did not become a node", text, needs_node=True)
    is_launched = any(_is_since(machine.launched, breaker) for machine in facts.machines)
    if not is_launched and breaker.probe is not None and now - breaker.probe >= PATIENCE:
        text = _last_text(facts, breaker.probe) or breaker.text
        cause = f"{breaker.cause.removesuffix(_PROBED)}{_PROBED}"
        return PoolFailure(breaker.code, cause, text, breaker.needs_node)
    return None


def _reclaimed(facts: PoolFacts) -> int:
    """Return how many spot instances AWS interrupts, if they are a large part of the pool."""
    taken = len(facts.noticed)
    return taken if taken >= max(_RECLAIMED_LEAST, _RECLAIMED_SHARE * len(facts.machines)) else 0


_BOOT_FACTOR, _BOOT_MARGIN = 1.3, 60.0
# No machine boots in less: it was a node when the simulation started, or clocks differ.
_SHORTEST_BOOT = 30.0


class RungStatus(StrEnum):
    """Whether a rung can take more machines."""

    OPEN = "open"
    FULL = "full"
    FAILED = "failed"
    PAUSED = "paused"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class RungState:
    """One pool of the ladder, which is one Auto Scaling group. `reason` says why it takes no more machines."""

    pool: Pool
    machines: int
    status: RungStatus
    reason: str = ""
    code: str | None = None
    facts: PoolFacts | None = None
    breaker: Breaker | None = None
    starts: int = 0
    """The number of machines that it may launch now."""

    @property
    def lowest_desired(self) -> int:
        """The lowest desired capacity that AWS accepts and that ends no machine."""
        return max(self.pool.min, self.machines)

    @property
    def expected(self) -> int:
        """The machines that the pool has or will have: a failed pool gets no more than its probe."""
        is_probed = self.breaker is not None and self.breaker.probe is not None
        is_stopped = self.status is RungStatus.FAILED and not is_probed
        is_lasting = is_stopped or self.status is RungStatus.SILENT
        return self.machines if is_lasting else max(self.pool.desired, self.machines)

    @property
    def left_zones(self) -> tuple[str, ...]:
        """The zones in which the pool must launch nothing, because first boots fail there; never all of them.

        While failed boots keep the breaker open, its probe goes where none has failed. A zone comes back when its
        failures are too old to count.
        """
        if self.facts is None or self.is_fixed:
            return self.pool.out
        every, boots = {*self.pool.zones, *self.pool.out}, self.facts.boots.values()
        failed, zones = failing(self.pool, self.facts.machines, boots)
        is_probed = self.breaker is not None and self.breaker.is_open and self.breaker.needs_node
        bad = set(zones) if zones and (is_probed or are_elsewhere(self.facts.nodes, failed)) else set()
        tried = {boot.zone for boot in boots if boot.zone in every and (is_probed or boot.zone in self.pool.out)}
        return next((tuple(sorted(zones)) for zones in (bad | tried, bad) if zones < every), ())

    @property
    def doomed(self) -> tuple[Machine, ...]:
        """The machines that boot in a zone to leave; AWS replaces them. A registered one may have pods already."""
        if self.facts is None or self.status not in (RungStatus.OPEN, RungStatus.FULL):
            return ()
        zones = self.left_zones
        booting = (m for m in self.facts.machines if m.node is None and m.notice is None and not m.registered)
        return tuple(machine for machine in booting if machine.zone in zones)

    @property
    def is_fixed(self) -> bool:
        """Whether nothing of the pool may be changed."""
        return self.status in (RungStatus.PAUSED, RungStatus.SILENT)

    @property
    def room(self) -> int:
        """The number of machines that the pool can still launch."""
        return max(0, self.pool.max - self.expected) if self.status is RungStatus.OPEN else 0


@dataclass(frozen=True, slots=True)
class Doubt:
    """A pending pod, or gang, for which a node has room and which does not start there.

    It has had room `since`, None if it has none now. Until `until` it does not count; `times` doubles that pause.
    """

    since: float | None
    until: float = 0.0
    times: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """The state that the controller keeps between two decisions; without it, it only waits longer or probes once more.

    The first five have the name of a pool as key. `short` has the time when the pool began to have fewer machines
    than desired, `boots` the longest time in seconds that one of its machines took to become a node, `proven` the last
    launch template with which one did, `unready` the first boots that failed in the last hour, by machine. `reported`
    has the pods for which an event already says that they fit on no machine. `doubts` has the ID of a pod or gang as
    key. `registered` has the machines that had a Node object, `lacking` those whose node lacks devices, with the time
    since when, `ended` those that the planner ended. `moves` has the times at which movable pods were moved, by their
    owner, else by ID.
    """

    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    short: Mapping[str, float] = field(default_factory=dict)
    boots: Mapping[str, float] = field(default_factory=dict)
    proven: Mapping[str, str] = field(default_factory=dict)
    unready: Mapping[str, Mapping[str, Boot]] = field(default_factory=dict)
    reported: frozenset[str] = frozenset()
    doubts: Mapping[str, Doubt] = field(default_factory=dict)
    registered: frozenset[str] = frozenset()
    lacking: Mapping[str, float] = field(default_factory=dict)
    ended: Mapping[str, float] = field(default_factory=dict)
    moves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def read_rungs(observation: Observation, memory: Memory) -> tuple[RungState, ...]:
    """Return all pools, reservations and capacity blocks first, else in ladder order, each with its new breaker."""
    longest: dict[str, float] = {}
    for pool in observation.pools:
        longest[pool.type] = max(longest.get(pool.type, 0.0), memory.boots.get(pool.name, 0.0))
    rungs = []
    for pool in sorted(observation.pools, key=lambda pool: not pool.market.is_reserved):
        own, launches = observation.machines_of(pool.name), observation.launches_of(pool.name)
        # Types that are not known are not compared.
        limit = _join_limit(memory.boots.get(pool.name, 0.0), longest[pool.type] if pool.type else 0.0, observation)
        late = tuple(_late(own, observation.time, limit))
        # The memory may be that of an earlier controller, and the shortage may have ended since.
        short_since = memory.short.get(pool.name) if len(own) < pool.desired else None
        earlier = memory.unready.get(pool.name, {})
        boots = failed_boots(launches, late, earlier, memory.ended, observation.time)
        facts = PoolFacts(pool, own, launches, late, short_since, boots)
        rungs.append(_rung(facts, memory, observation))
    return tuple(_with_first(_without_climbing(rungs), memory.proven))


def _with_first(rungs: Iterable[RungState], proven: Mapping[str, str]) -> Iterator[RungState]:
    """Yield the rungs; where no machine has become a node with the launch template, few boot before one does.

    AWS replaces those that fail until the pool is skipped, which doubles them: at most ten are lost.
    """
    groups: set[str] = set()
    for rung in rungs:
        if proven.get(rung.pool.name) == rung.pool.template:
            yield replace(rung, starts=rung.room)
            continue
        most = FURTHER if rung.pool.group in groups else FIRST
        groups.add(rung.pool.group)
        left = most - rung.expected + len(rung.facts.nodes if rung.facts else ())
        reason = f"no machine is a node with its launch template yet, so it boots at most {most} at once"
        yield replace(rung, starts=min(rung.room, max(0, left)), reason=rung.reason or reason)


def _without_climbing(rungs: Sequence[RungState]) -> Iterator[RungState]:
    """Yield the rungs; in a group with a fault that all regions have, only the rung that met it is probed."""
    breakers = {rung.pool.name: rung.breaker for rung in rungs if rung.breaker}
    pools = [rung.pool for rung in rungs]
    for rung in rungs:
        name = common_fault(rung.pool, pools, breakers)
        if name and rung.status in (RungStatus.OPEN, RungStatus.FULL):
            reason = f"{name}: {breakers[name].cause}, as in all regions"
            yield replace(rung, status=RungStatus.FAILED, reason=reason)
        else:
            yield rung


def common_fault(pool: Pool, pools: Iterable[Pool], breakers: Mapping[str, Breaker]) -> str:
    """Return the other pool of a group that met a fault which all regions have; empty if none did."""
    for other in pools:
        breaker = breakers.get(other.name)
        is_met = breaker is not None and breaker.is_open and failure_of(breaker.code).everywhere
        if is_met and other.group == pool.group and other.name != pool.name:
            return other.name
    return ""


def faults(rungs: Iterable[RungState]) -> Iterator[str]:
    """Yield the failures of pools that an operator must end, with AWS's text and the fix."""
    for rung in rungs:
        failure = failure_of(rung.breaker.code if rung.breaker and rung.breaker.is_open else None)
        if failure.is_fault:
            yield f"{rung.pool.name}: {failure.cause}; {failure.fix}"


def _rung(facts: PoolFacts, memory: Memory, observation: Observation) -> RungState:
    pool, now = facts.pool, observation.time
    machines = len(facts.machines)
    breaker = memory.breakers.get(pool.name)
    if pool.silent:
        return RungState(pool, machines, RungStatus.SILENT, f"{pool.region} does not answer", None, facts, breaker)
    breaker = next_breaker(breaker, facts, now)
    if pool.group in observation.settings.paused:
        return RungState(pool, machines, RungStatus.PAUSED, f"{pool.group} is paused", None, facts, breaker)
    if not pool.eligible:
        reason = "the region has no image, no link or no free addresses"
        return RungState(pool, machines, RungStatus.FAILED, reason, None, facts, breaker)
    if pool.cannot_launch:
        return RungState(pool, machines, RungStatus.FAILED, pool.cannot_launch, None, facts, breaker)
    if breaker and breaker.is_open:
        return RungState(pool, machines, RungStatus.FAILED, breaker_reason(breaker, now), breaker.code, facts, breaker)
    if max(machines, pool.desired) >= pool.max:
        reason = f"at its maximum of {pool.max}"
        return RungState(pool, machines, RungStatus.FULL, reason, None, facts, breaker)
    return RungState(pool, machines, RungStatus.OPEN, "", None, facts, breaker)


def breaker_reason(breaker: Breaker, now: float) -> str:
    """Return why a pool launches nothing, and what happens next."""
    if breaker.probe is not None:
        return f"{breaker.cause} (a probe is under way)"
    minutes = (breaker.until - now) / 60
    return f"{breaker.cause} " + (f"(next probe in {max(1, minutes):.0f} min)" if minutes > 0 else "(a probe is due)")


def _join_limit(boot: float, elsewhere: float, observation: Observation) -> float:
    """Return the seconds after which a machine is late, from the longest boot in its pool, or of its type elsewhere.

    Other regions may boot several times faster: they shorten the time of an unknown pool by half at most.
    """
    join = observation.settings.join
    if boot:
        return _BOOT_FACTOR * boot + _BOOT_MARGIN
    return max(join / 2, _BOOT_FACTOR * elsewhere + _BOOT_MARGIN) if elsewhere else join


def _late(machines: Iterable[Machine], now: float, limit: float) -> Iterable[Machine]:
    """Return the machines that should be nodes by now, in the order of their launch."""
    booting = (machine for machine in machines if machine.node is None and machine.notice is None)
    late = (machine for machine in booting if now - machine.launched >= limit)
    return sorted(late, key=lambda machine: machine.launched)


def next_boots(observation: Observation, memory: Memory) -> Mapping[str, float]:
    """Return the longest time that a machine of each pool took to become a node."""
    joined = {node.machine: node.joined for node in observation.nodes if node.machine}
    boots = dict(memory.boots)
    for machine in observation.machines:
        boot = joined.get(machine.id, 0.0) - machine.launched
        if boot >= _SHORTEST_BOOT:
            boots[machine.pool] = max(boots.get(machine.pool, 0.0), boot)
    return boots


def next_proven(observation: Observation, memory: Memory) -> Mapping[str, str]:
    """Return the last launch template of each pool with which a machine became a node whose gate has not failed."""
    templates = {pool.name: pool.template for pool in observation.pools}
    failed = {node.machine for node in observation.nodes if node.failed}
    nodes = (machine for machine in observation.machines if machine.node and machine.id not in failed)
    return {**memory.proven, **{m.pool: m.template for m in nodes if m.template == templates[m.pool]}}


@dataclass(frozen=True, slots=True)
class LadderDecision:
    """The next actions and the state of every rung; `missing` is the number of machines for which no rung has room."""

    actions: tuple[SetDesired, ...]
    rungs: tuple[RungState, ...]
    missing: int

    @property
    def trying(self) -> RungState | None:
        """The first rung on which AWS is launching machines."""
        waiting = (rung for rung in self.rungs if rung.status is not RungStatus.FAILED)
        return next((rung for rung in waiting if rung.expected > rung.machines), None)

    def is_raise(self, action: SetDesired) -> bool:
        """Return whether an action raises its pool; else it lowers it, so that AWS stops its attempts."""
        return any(rung.pool.name == action.pool and action.count > rung.pool.desired for rung in self.rungs)


def next_actions(observation: Observation, count: int, tried: Mapping[str, float]) -> LadderDecision:
    """Return the next actions towards `count` machines in all pools together.

    `tried` has the time at which each pool was last raised. Before the next rung is raised, the failed ones are lowered
    and observed again: otherwise AWS could still launch there.
    """
    rungs = tuple(_assessed(observation, pool, tried.get(pool.name)) for pool in observation.pools)
    missing = max(0, count - sum(rung.expected for rung in rungs))
    actions = tuple(_lower(rungs)) or tuple(_raise(rungs, missing))
    return LadderDecision(actions, rungs, max(0, missing - sum(rung.room for rung in rungs)))


def _lower(rungs: Sequence[RungState]) -> Iterator[SetDesired]:
    for rung in rungs:
        if rung.status is RungStatus.FAILED and rung.pool.desired > rung.lowest_desired:
            yield SetDesired(rung.pool.name, rung.lowest_desired, rung.reason)


def _raise(rungs: Sequence[RungState], missing: int) -> Iterator[SetDesired]:
    passed: list[str] = []
    for rung in rungs:
        share = min(rung.room, missing)
        if share:
            reason = "; ".join(passed) or "the first rung of the ladder"
            yield SetDesired(rung.pool.name, rung.expected + share, reason)
            missing -= share
        passed.append(f"{rung.pool.name}: {rung.reason or f'at its maximum of {rung.pool.max}'}")


def _assessed(observation: Observation, pool: Pool, tried: float | None) -> RungState:
    machines = len(observation.machines_of(pool.name))
    if pool.silent:
        # What it was asked for may have come: to launch it again elsewhere would start it twice.
        return RungState(pool, machines, RungStatus.PAUSED, f"{pool.region} does not answer")
    code, reason = _rung_failure(observation, pool, tried)
    if reason:
        return RungState(pool, machines, RungStatus.FAILED, reason, code)
    if max(machines, pool.desired) >= pool.max:
        return RungState(pool, machines, RungStatus.FULL, f"at its maximum of {pool.max}")
    return RungState(pool, machines, RungStatus.OPEN)


def _rung_failure(observation: Observation, pool: Pool, tried: float | None) -> tuple[str | None, str]:
    """Return the code and the reason for which a pool is not tried; an empty reason if it is."""
    if pool.cannot_launch:
        return None, pool.cannot_launch
    launches = observation.launches_of(pool.name)
    if failure := launch_failure(pool, launches, observation.time - HOLD):
        return failure.code, failure.cause
    success = max((activity.time for activity in launches if activity.ok), default=0.0)
    return None, _time_out(observation, pool, tried, success)


def _time_out(observation: Observation, pool: Pool, tried: float | None, success: float) -> str:
    """Return a reason if a pool has launched nothing for `PATIENCE` seconds, until it may be tried again."""
    if tried is None:
        return ""
    waited = observation.time - max(tried, success)
    is_short = len(observation.machines_of(pool.name)) < pool.desired
    if PATIENCE <= waited < PATIENCE + HOLD and (is_short or success < tried):
        return f"no machine after {PATIENCE / 60:.0f} minutes"
    return ""
