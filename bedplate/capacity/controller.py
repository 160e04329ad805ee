"""The controller: observe, decide, act, in rounds, with metrics. It knows AWS and the cluster as interfaces only.

It can be killed between any two steps: it keeps nothing that an observation does not show again, except memory that
shortens waits.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

from bedplate.capacity.observation import (
    Action,
    Decision,
    EvictPod,
    Node,
    Observation,
    SetDesired,
    SetZones,
    Terminate,
    verb_of,
)
from bedplate.errors import BedplateError

_SHOWN = 3


class Cloud(Protocol):
    """AWS: pools, machines and launches."""

    def observe(self, time: float) -> Observation:
        """Return the state of all regions, or raise."""

    def set_desired(self, action: SetDesired, observed: Observation) -> None:
        """Set a desired capacity if the pool is as observed."""

    def set_zones(self, action: SetZones, observed: Observation) -> None:
        """Set the zones of a pool if they are as observed."""

    def terminate(self, action: Terminate, observed: Observation) -> None:
        """Terminate a machine if its pool is as observed."""


class Workloads(Protocol):
    """The cluster: pods and nodes."""

    def observe(self, cloud: Observation) -> Observation:
        """Return an observation of AWS with pods and nodes, or raise."""

    def apply(self, action: Action) -> None:
        """Apply an action on a node or pod if that is as observed."""

    def check_empty(self, name: str) -> None:
        """Raise unless a node is cordoned by the controller and has no work."""

    def report(self, action: Action, *, failure: str = "") -> None:
        """Explain an action to the people who look at the object."""

    def report_unplaced(self, pod: str, reason: str) -> None:
        """Explain to the owner of a pod why it waits."""


class Leader(Protocol):
    """The election of one of several controllers."""

    def hold(self) -> bool:
        """Return whether this controller may act now."""


MemoryT = TypeVar("MemoryT")
Decide = Callable[[Observation, MemoryT], tuple[Decision, MemoryT]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """An action, and why it was not done; empty if it was. In a dry run nothing is done, without a failure."""

    action: Action
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """One round: what was observed and decided, and the outcome of each action that was tried."""

    observation: Observation
    decision: Decision
    outcomes: tuple[Outcome, ...] = ()


def subject_of(action: Action) -> str:
    """Return the pool, node, pod or machine that an action changes."""
    match action:
        case SetDesired() | SetZones():
            return action.pool
        case Terminate():
            return action.machine
        case EvictPod():
            return action.pod
        case _:
            return action.node


def log_entry(outcome: Outcome, time: float) -> Mapping[str, object]:
    """Return one structured line of the log."""
    result = {"failure": outcome.failure} if outcome.failure else {}
    return {"time": round(time, 1), "do": verb_of(outcome.action), **asdict(outcome.action), **result}


def round_warnings(result: Round) -> tuple[str, ...]:
    """Return what an operator must know about a round besides its actions."""
    silent = dict.fromkeys(pool.region for pool in result.observation.pools if pool.silent)
    held = (f"{result.decision.held}; `bedplate kube status` shows the cluster",) if result.decision.held else ()
    lost = map(not_ready_sentence, filter(_is_lost, result.observation.nodes))
    unanswered = (f"{region} does not answer: its pools stay as they are" for region in silent)
    return (*held, *result.decision.faults, *unanswered, *lost)


def _is_lost(node: Node) -> bool:
    return node.not_ready_since is not None


def not_ready_sentence(node: Node) -> str:
    """Return that a node is not ready, which pods keep its machine, and the command that ends it."""
    since = datetime.fromtimestamp(node.not_ready_since or 0.0, UTC)
    what = f"{node.name}: not ready since {since:%Y-%m-%d %H:%M} UTC"
    if not node.pods or node.machine is None:
        return f"{what}; its machine is ended after an hour." if node.machine else f"{what}."
    end = f"If the machine is lost, `bedplate node stop {node.machine}` ends it, and its pods start elsewhere"
    return f"{what}. Its machine runs on for {pods_words(node.pods)}. {end}."


def pods_words(pods: Sequence[str]) -> str:
    """Return the names of some pods, and the number of the others."""
    more = f" and {len(pods) - _SHOWN} more" if len(pods) > _SHOWN else ""
    return f"{'pod' if len(pods) == 1 else 'pods'} {', '.join(pods[:_SHOWN])}{more}"


@dataclass
class Controller(Generic[MemoryT]):
    """One controller. `memory` is what the planner keeps between rounds."""

    cloud: Cloud
    decide: Decide[MemoryT]
    memory: MemoryT
    workloads: Workloads
    leader: Leader | None = None
    is_dry: bool = False

    def observe(self, time: float) -> Observation:
        """Return the observation of AWS and the cluster, or raise."""
        return self.workloads.observe(self.cloud.observe(time))

    def round(self, time: float) -> Round | None:
        """Observe, decide and act; None if another controller is the leader. Raises if it cannot observe."""
        if self.leader and not self.leader.hold():
            return None
        observation = self.observe(time)
        decision, self.memory = self.decide(observation, self.memory)
        if self.is_dry:
            return Round(observation, decision)
        outcomes = tuple(self._act(decision, observation))
        for unplaced in decision.unplaced:
            self.workloads.report_unplaced(unplaced.pod, unplaced.reason)
        return Round(observation, decision, outcomes)

    def _act(self, decision: Decision, observation: Observation) -> Iterator[Outcome]:
        """Apply the actions in order. After a failure, later actions on the same machine or pool wait for a round."""
        node_of = {machine.id: machine.node for machine in observation.machines}
        failed: set[str] = set()
        for action in decision.actions:
            if self.leader and not self.leader.hold():
                yield Outcome(action, "another controller is the leader")
                return
            subject = subject_of(action)
            subject = node_of.get(subject) or subject
            if subject in failed:
                continue
            failure = self._apply(action, observation, node_of)
            if failure:
                failed.add(subject)
            self.workloads.report(action, failure=failure)
            yield Outcome(action, failure)

    def _apply(self, action: Action, observation: Observation, node_of: Mapping[str, str | None]) -> str:
        try:
            match action:
                case SetDesired():
                    self.cloud.set_desired(action, observation)
                case SetZones():
                    self.cloud.set_zones(action, observation)
                case Terminate():
                    if node := node_of.get(action.machine):
                        self.workloads.check_empty(node)
                    self.cloud.terminate(action, observation)
                case _:
                    self.workloads.apply(action)
        except BedplateError as error:
            return error.what
        return ""


_PREFIX = "bedplate_capacity"
_HELP = {
    "leader": ("gauge", "Whether this controller acts"),
    "round_timestamp_seconds": ("gauge", "Time of the last round that observed everything"),
    "round_seconds": ("gauge", "Duration of the last round"),
    "errors_total": ("counter", "Rounds that could not observe"),
    "actions_total": ("counter", "Actions by their result"),
    "desired": ("gauge", "Desired machines"),
    "maximum": ("gauge", "Most machines now"),
    "machines": ("gauge", "Machines that are paid for"),
    "joined": ("gauge", "Machines that are nodes"),
    "usd_per_hour": ("gauge", "List price of the machines"),
    "pending_pods": ("gauge", "Pods without a node"),
    "unplaced_pods": ("gauge", "Pods that fit no pool, in the last round"),
    "silent_pools": ("gauge", "Pools in regions that do not answer"),
    "faults": ("gauge", "Failures of launches that an operator must end"),
    "held": ("gauge", "Whether nothing is ended because nodes are missing"),
    "not_ready_nodes": ("gauge", "Nodes that have not been ready for a quarter of an hour"),
    "stuck_pods": ("gauge", "Deleted pods that their kubelet does not end"),
}
Sample = tuple[str, Mapping[str, str], float]


@dataclass
class Metrics:
    """Counts since the start of the controller, and the last round."""

    actions: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: int = 0
    seconds: float = 0.0
    is_leader: bool = False
    last: Round | None = None

    def add(self, result: Round | None, seconds: float) -> None:
        """Count a round; None is one in which another controller was the leader."""
        self.is_leader, self.seconds = result is not None, seconds
        if result is not None:
            self.last = result
            self.actions.update((verb_of(o.action), "failed" if o.failure else "done") for o in result.outcomes)

    def text(self) -> str:
        """Return all metrics in the text format."""
        lines: list[str] = []
        last_name = ""
        # All samples of a metric must be together.
        for name, labels, value in sorted(self._samples(), key=lambda sample: sample[0]):
            if name != last_name:
                kind, about = _HELP[name]
                lines += [f"# HELP {_PREFIX}_{name} {about}.", f"# TYPE {_PREFIX}_{name} {kind}"]
                last_name = name
            shown = ",".join(f'{key}="{text}"' for key, text in labels.items())
            lines.append(f"{_PREFIX}_{name}{f'{{{shown}}}' if shown else ''} {value:.15g}")
        return "\n".join(lines) + "\n"

    def _samples(self) -> Iterator[Sample]:
        yield "leader", {}, float(self.is_leader)
        yield "errors_total", {}, float(self.errors)
        yield "round_seconds", {}, self.seconds
        for (verb, result), count in sorted(self.actions.items()):
            yield "actions_total", {"do": verb, "result": result}, float(count)
        if self.last:
            yield from _round_samples(self.last)


def _round_samples(result: Round) -> Iterator[Sample]:
    observation = result.observation
    machines = Counter(machine.pool for machine in observation.machines)
    joined = Counter(machine.pool for machine in observation.machines if machine.node)
    for pool in observation.pools:
        labels, count = {"group": pool.group, "pool": pool.name}, machines[pool.name]
        yield "desired", labels, float(pool.desired)
        yield "maximum", labels, float(pool.max)
        yield "machines", labels, float(count)
        yield "joined", labels, float(joined[pool.name])
        yield "usd_per_hour", labels, count * pool.price
    yield "pending_pods", {}, float(sum(pod.node is None for pod in observation.pods))
    yield "unplaced_pods", {}, float(len(result.decision.unplaced))
    yield "silent_pools", {}, float(sum(pool.silent for pool in observation.pools))
    yield "faults", {}, float(len(result.decision.faults))
    yield "held", {}, float(bool(result.decision.held))
    yield "not_ready_nodes", {}, float(sum(map(_is_lost, observation.nodes)))
    yield "stuck_pods", {}, float(sum(len(node.stuck) for node in observation.nodes))
    yield "round_timestamp_seconds", {}, observation.time
