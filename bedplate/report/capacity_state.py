"""Reports of `capacity status` and `capacity explain`: what each rung does, what happens next, and why."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bedplate.bundle import UseReport
from bedplate.capacity.controller import Round, not_ready_sentence, pods_words, round_warnings, subject_of
from bedplate.capacity.devices import missing_devices
from bedplate.capacity.ladder import Breaker, common_fault
from bedplate.capacity.observation import (
    Activity,
    Cordon,
    Decision,
    Machine,
    Node,
    Observation,
    Pod,
    Pool,
    failure_of,
    verb_of,
)
from bedplate.report.capacity import (
    action_sentence,
    age,
    breaker_sentences,
    clock,
    coded_cause,
    fix_sentence,
    mismatch,
    shortage,
    size_words,
    use_sentence,
)
from bedplate.report.columns import aligned, counted
from bedplate.report.queue import queued_work, room_sentence

_SHOWN = 5
# A failure that is older says nothing about now.
_RECENT = 3600.0


@dataclass(frozen=True, slots=True)
class CapacityState:
    """An observation, what the planner decides on it, and its breakers. `has_cluster` is false if only AWS was read.

    `uses` has the last report of use by machine, `unread` the errors of regions whose reports cannot be read.
    `kept` says why a pool keeps machines that nobody uses.
    """

    observation: Observation
    decision: Decision
    paused: Mapping[str, str] = field(default_factory=dict)
    leader: str = ""
    has_cluster: bool = True
    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    uses: Mapping[str, UseReport] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups, in the order of the pools."""
        return tuple(dict.fromkeys(pool.group for pool in self.observation.pools))

    @property
    def worker_pools(self) -> tuple[Pool, ...]:
        """The pools of Kubernetes workers."""
        return tuple(pool for pool in self.observation.pools if not pool.is_ssh)

    def pools(self, group: str) -> tuple[Pool, ...]:
        """The pools of a group, in ladder order."""
        return tuple(pool for pool in self.observation.pools if pool.group == group)

    def machines(self, pool: Pool) -> tuple[Machine, ...]:
        """The machines of a pool."""
        return self.observation.machines_of(pool.name)


def status_lines(state: CapacityState) -> Iterator[str]:
    """Yield a table with a line for each rung."""
    rows = [("group", "rung", "machines", "joined", "desired", "max", "USD/h", "state")]
    document = status_document(state)
    for pool, rung in zip(state.observation.pools, document["rungs"], strict=True):
        counts = (str(rung[key]) for key in ("machines", "joined", "desired", "maximum"))
        rows.append((pool.group, rung_name(pool), *counts, f"{rung['usd_per_hour']:,.2f}", rung["state"]))
    yield from aligned(rows, right=(2, 3, 4, 5, 6))
    if state.has_cluster:
        yield f"{counted(document['pending'], 'pod')} without a node"
    yield from _people_lines(state, state.observation.pools)
    yield from (f"warning: {line}" for line in round_warnings(Round(state.observation, state.decision)))
    others = [(pool, pool.suspended) for pool in state.observation.pools if pool.suspended]
    yield from (f"warning: {pool.name}: suspended processes: {', '.join(names)}" for pool, names in others)
    yield from (f"warning: {line}" for line in _out_lines(state.observation.pools))
    if state.leader:
        yield f"the controller on {state.leader} acts"
    yield from (f"{group}: paused by {operator}" for group, operator in state.paused.items())


def status_document(state: CapacityState) -> Mapping[str, Any]:
    """Return what `capacity status --json` prints."""
    rungs = [
        {
            "group": pool.group,
            "pool": pool.name,
            "rung": pool.rung,
            "region": pool.region,
            "market": pool.market,
            "machines": len(state.machines(pool)),
            "joined": sum(_has_joined(state, pool, machine) for machine in state.machines(pool)),
            "desired": pool.desired,
            "maximum": pool.max,
            "usd_per_hour": round(len(state.machines(pool)) * pool.price, 2),
            "state": _rung_words(state, pool)[0],
        }
        for pool in state.observation.pools
    ]
    waiting = sum(pod.node is None for pod in state.observation.pods)
    paused, leader = dict(state.paused), state.leader or None
    idle = {name: report.idle_since for name, report in state.uses.items() if report.idle_since is not None}
    pending = waiting if state.has_cluster else None
    return {"rungs": rungs, "pending": pending, "paused": paused, "leader": leader, "idle_since": idle}


def rung_name(pool: Pool) -> str:
    """Return `2 us-east-1 spot`: ladders count from 1."""
    place = pool.zones[0] if len(pool.zones) == 1 else pool.region
    return f"{pool.rung + 1} {place} {pool.market}"


def explain_group(state: CapacityState, group: str) -> Iterator[str]:
    """Yield sentences about a group: its machines, each rung, the pods that wait for it, and what happens next."""
    pools = state.pools(group)
    machines = [(pool, machine) for pool in pools for machine in state.machines(pool)]
    joined = sum(_has_joined(state, *machine) for machine in machines)
    usd = sum(pool.price for pool, _ in machines)
    booting = f", {len(machines) - joined} of them booting" if joined < len(machines) else ""
    yield f"{group} has {counted(len(machines), 'machine')}{booting}, for {usd:,.2f} USD per hour at list prices."
    if group in state.paused:
        fix = f"`bedplate capacity resume {group}` continues"
        yield f"{state.paused[group]} has paused it: no machine starts or ends by itself here. {fix}."
    yield from _ceiling_lines(state, group)
    for pool in pools:
        yield f"Rung {rung_name(pool)}: {_rung_words(state, pool)[1]}"
    yield from _out_lines(pools)
    yield from _node_lines(state, pools)
    yield from _people_lines(state, pools, is_brief=False)
    if all(pool.is_ssh for pool in pools):
        return
    if not state.has_cluster:
        yield "Pods are not known without a kubeconfig, so what happens next is not known either."
        return
    yield from _waiting_lines(state, pools)
    yield from _next_lines(state, pools)


def _out_lines(pools: Iterable[Pool]) -> Iterator[str]:
    """Yield which zones the planner has taken out of pools."""
    for pool in pools:
        if pool.out:
            again = "AWS launches there again an hour after the last failure"
            yield f"{pool.name} leaves {', '.join(pool.out)} out: machines there do not become nodes. {again}."


def _ceiling_lines(state: CapacityState, group: str) -> Iterator[str]:
    """Yield which ceilings leave no room for one more machine of a group."""
    settings = state.observation.settings
    price = min((pool.price for pool in state.pools(group) if not pool.is_ssh), default=None)
    ceilings = (
        (f"`groups.{group}.max_cost`", settings.max_cost.get(group), state.pools(group)),
        ("`max_cost` of the fleet", settings.fleet_max_cost, state.worker_pools),
    )
    for key, ceiling, pools in ceilings:
        usd = sum(max(pool.desired, len(state.machines(pool))) * pool.price for pool in pools)
        if price is not None and ceiling is not None and usd + price > ceiling:
            more = f"{usd:,.2f} USD per hour are in use, and one more machine costs {price:,.2f}"
            yield f"{key} ({ceiling:g}) permits no more machines: {more}. Machines that run stay."


def explain_pod(state: CapacityState, pod: Pod) -> Iterator[str]:
    """Yield sentences about a pod: where it runs, or what each rung has for it."""
    moves = "it may be moved" if pod.movable else "it is not moved"
    if pod.node:
        yield f"{pod.id} runs on {pod.node} for {age(state.observation.time - pod.since)}; {moves}."
        return
    waited = age(state.observation.time - pod.arrival)
    gang = f" with the {pod.gang_size} pods of {pod.gang}" if pod.gang and pod.gang_size != 1 else ""
    yield f"{pod.id} waits{gang} for {waited}. It asks for {size_words(pod.size)}."
    for pool in state.worker_pools:
        reason = mismatch(pod, pool)
        sentence = f"does not suit the pod: {reason}." if reason else _rung_words(state, pool)[1]
        yield f"{pool.group}, rung {rung_name(pool)}: {sentence}"
    yield from _place_lines(state, {pod.id: "It"})
    if pod.queued and pod.id not in {waiting.pod for waiting in state.decision.waiting if waiting.is_coming}:
        yield room_sentence(queued_work(state.observation)[pod.owner], state.observation)
    if pod.message:
        yield f"{'Its queue' if pod.queued else 'The scheduler'} says: {pod.message}"
    reasons = [unplaced.reason for unplaced in state.decision.unplaced if unplaced.pod == pod.id]
    yield from (f"No machine is started for it: {reason}." for reason in reasons)
    suitable = [pool for pool in state.worker_pools if not mismatch(pod, pool)]
    yield from () if reasons else _next_lines(state, suitable)


def _place_lines(state: CapacityState, pods: Mapping[str, str]) -> Iterator[str]:
    """Yield where pending pods get a place, or why they have none; `pods` has the word for each."""
    by_reason: dict[tuple[bool, str], list[str]] = {}
    for waiting in state.decision.waiting:
        if waiting.pod in pods:
            by_reason.setdefault((waiting.is_coming, waiting.reason), []).append(pods[waiting.pod])
    for (is_coming, reason), words in list(by_reason.items())[:_SHOWN]:
        subject = words[0] if len(words) == 1 else f"{words[0]} and {len(words) - 1} more"
        verb = "has" if len(words) == 1 else "have"
        yield f"{subject} {verb} {'a place' if is_coming else 'no place yet'}: {reason}."


def _has_joined(state: CapacityState, pool: Pool, machine: Machine) -> bool:
    """Return whether a machine works: a worker as a node if the cluster is known, others by their lifecycle hook."""
    return machine.node is not None or (machine.ready and (pool.is_ssh or not state.has_cluster))


def _last_failure(state: CapacityState, pool: Pool) -> Activity | None:
    """Return the newest launch of a pool if it has failed within the last hour; None if a breaker says more."""
    if state.has_cluster and not pool.is_ssh:
        return None
    newest = max(state.observation.launches_of(pool.name), key=lambda launch: launch.time, default=None)
    is_recent = newest is not None and state.observation.time - newest.time < _RECENT
    return newest if newest is not None and is_recent and not newest.ok else None


def _rung_words(state: CapacityState, pool: Pool) -> tuple[str, str]:
    """Return the state of a rung in a few words, and in one sentence or two."""
    machines, is_paused = state.machines(pool), pool.group in state.paused
    count = f"{len(machines)} of at most {counted(pool.max, 'machine')}"
    if pool.silent:
        return "no answer", f"{count}; {pool.region} does not answer, so nothing is changed here."
    if not pool.eligible:
        lack = "no machine can start: it has no free addresses in its subnets, or no path to the home region."
        return "paused" if is_paused else "not usable", lack
    if is_paused:
        return "paused", f"{count}; paused."
    if pool.cannot_launch:
        fix = "`aws autoscaling resume-processes` ends that"
        return "suspended", f"{count}; {pool.cannot_launch} (SuspendedProcesses). {fix}."
    breaker = state.breakers.get(pool.name)
    if breaker and breaker.is_open:
        sentences = breaker_sentences(breaker, state.observation.time)
        return failure_of(breaker.code).cause or breaker.cause, f"{count}; {sentences}"
    if fault := common_fault(pool, state.observation.pools, state.breakers):
        cause = state.breakers[fault].cause
        return cause, f"{count}; not tried: {fault} has met a fault that all regions have: {cause}."
    if failure := _last_failure(state, pool):
        cause = coded_cause(failure.code, failure.text or "AWS gave no reason")
        failed = f"the last launch failed at {clock(failure.time)}: {cause}. The next rungs are used."
        return failure_of(failure.code).cause or "launch failed", f"{count}; {failed}{fix_sentence(failure.code)}"
    missing = pool.desired - len(machines)
    if missing > 0:
        return "launching", f"{count}; AWS is launching {missing} more."
    is_full = pool.desired >= pool.max
    return "full" if is_full else "open", f"{count}{_room(state, pool, is_full=is_full)}"


def _room(state: CapacityState, pool: Pool, *, is_full: bool) -> str:
    """Return the end of the sentence about a rung that launches nothing at present."""
    booting = [machine.launched for machine in state.machines(pool) if not _has_joined(state, pool, machine)]
    if booting:
        return f"; {len(booting)} of them booting, the first since {clock(min(booting))}."
    return ": it is full." if is_full else "; more can start."


def _node_lines(state: CapacityState, pools: Sequence[Pool]) -> Iterator[str]:
    """Yield sentences about nodes that are cordoned or idle."""
    places = {machine.id: (machine, pool) for pool in pools for machine in state.machines(pool)}
    nodes = [(node, *places[node.machine]) for node in state.observation.nodes if node.machine in places]
    lines = [sentence for node in nodes if (sentence := _node_sentence(state, *node))]
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"{counted(len(lines) - _SHOWN, 'more node')} like these."


_GATES = {
    "hardware": "broken hardware: the machine is drained and replaced, unless half of its pool has the fault",
    "software": "broken software: the machine stays, and takes no new pods",
    "unknown": "no answer: the machine stays, and takes no new pods",
}


def _fault_sentence(node: Node, machine: Machine, pool: Pool) -> str:
    """Return what is wrong with a node; empty if nothing is."""
    if node.not_ready_since is not None:
        return not_ready_sentence(node)
    if node.stuck:
        return f"{node.name}: its kubelet does not end the deleted {pods_words(node.stuck)}; they do not keep it."
    if lack := shortage(node, pool):
        end = "Its machine is replaced if that lasts" if missing_devices(node, pool) else "Restart kubelet there"
        return f"{node.name}: it reports {lack}. {end}, or end it by `bedplate node stop {machine.id}`."
    if node.failed:
        return f"{node.name}: its health gate finds {_GATES[node.failed]}. `kubectl describe node` shows why."
    return ""


def _node_sentence(state: CapacityState, node: Node, machine: Machine, pool: Pool) -> str:
    now = state.observation.time
    if fault := _fault_sentence(node, machine, pool):
        return fault
    if machine.notice:
        return f"{node.name}: AWS interrupts this spot instance at {clock(machine.notice)}."
    if node.cordoned is Cordon.HUMAN:
        return f"{node.name}: a person has cordoned it, so it is neither used nor ended. `kubectl uncordon` returns it."
    if node.cordoned is Cordon.PLANNER:
        if node.pods:
            left = f"{counted(len(node.pods), 'pod')} left"
            return f"{node.name}: drained by the controller, {left}; it ends when it is empty."
        return f"{node.name}: cordoned by the controller; it is used again if pods need it, else it ends."
    if node.idle_since is not None and not node.pods:
        idle_for = f"{node.name}: idle for {age(now - node.idle_since)}"
        if reason := _keep_reason(state, pool):
            return f"{idle_for}; it stays: {reason}."
        left_time = node.idle_since + (pool.idle or state.observation.settings.idle) - now
        end = f"it ends in {age(left_time)}" if left_time > 0 else "it ends next"
        return f"{idle_for}; {end} unless a pod needs it."
    return ""


def _keep_reason(state: CapacityState, pool: Pool) -> str:
    """Return why an idle node of a pool is not ended; empty if it is."""
    settings = state.observation.settings
    if pool.group in state.paused:
        return f"{pool.group} is paused"
    if max(pool.desired, len(state.machines(pool))) <= pool.min:
        return f"{pool.name} is at its minimum of {pool.min}"
    group = {own.id for other in state.pools(pool.group) for own in state.machines(other)}
    free = [node for node in state.observation.nodes if node.machine in group and not node.pods and not node.cordoned]
    if len(free) <= settings.spare.get(pool.group, 0):
        return f"{pool.group} keeps {counted(settings.spare[pool.group], 'spare machine')}"
    return ""


def _people_lines(state: CapacityState, pools: Sequence[Pool], *, is_brief: bool = True) -> Iterator[str]:
    """Yield sentences about machines for people that end after an idle time; in brief, only about unused ones."""
    limits = {pool.name: pool.idle for pool in pools if pool.is_ssh and pool.idle}
    for machine in state.observation.machines:
        report = state.uses.get(machine.id)
        if machine.pool in limits and ((report and report.idle_since is not None) or not is_brief):
            kept = state.kept.get(machine.pool, "") if machine.ready else "it is not in service"
            sentence = use_sentence(report, limits[machine.pool], kept, state.observation.time)
            yield f"{machine.id} in {machine.zone}: {sentence}"
    if limits:
        yield from (f"warning: unknown use of machines: {line}" for line in state.unread)


def _waiting_lines(state: CapacityState, pools: Sequence[Pool]) -> Iterator[str]:
    waiting = [pod for pod in state.observation.pods if pod.node is None]
    workers = [pool for pool in pools if not pool.is_ssh]
    suited = [pod for pod in waiting if any(not mismatch(pod, pool) for pool in workers)]
    if not suited:
        yield "No pod waits for this group."
        return
    oldest = min(pod.arrival for pod in suited)
    more = len(suited) - _SHOWN
    names = ", ".join(pod.id for pod in suited[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    waited = age(state.observation.time - oldest)
    verb = "waits" if len(suited) == 1 else "wait"
    yield f"{counted(len(suited), 'pod')} {verb} that could run here, the oldest for {waited}: {names}."
    coming = {waiting.pod for waiting in state.decision.waiting if waiting.is_coming}
    if count := sum(pod.id in coming for pod in suited):
        verb = "has" if count == 1 else "have"
        yield f"{count} of them {verb} a place: on a machine that runs or boots, or that AWS is asked for next."
    yield from _place_lines(state, {pod.id: pod.id for pod in suited if pod.id not in coming})


def _next_lines(state: CapacityState, pools: Sequence[Pool]) -> Iterator[str]:
    """Yield what the planner does next with these pools, their machines and nodes."""
    names = {pool.name for pool in pools}
    machines = [machine for machine in state.observation.machines if machine.pool in names]
    nodes = {machine.node for machine in machines if machine.node}
    subjects = names | nodes | {machine.id for machine in machines}
    subjects |= {pod.id for pod in state.observation.pods if pod.node in nodes}
    actions = [action for action in state.decision.actions if subject_of(action) in subjects]
    desired = {pool.name: pool.desired for pool in pools}
    yield from (f"Next: {action_sentence(action, desired)}" for action in actions[:_SHOWN])
    if len(actions) > _SHOWN:
        rest = Counter(verb_of(action) for action in actions[_SHOWN:])
        yield f"Next, as well: {', '.join(f'{count} x {name}' for name, count in rest.items())}."
    if not actions:
        yield "Next: no action until pods, machines or AWS change, or an idle time ends."
