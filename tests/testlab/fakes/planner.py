"""A small planner for tests of the controller: it spills on typed failures and ends idle machines, nothing else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bedplate.capacity.actions import Action, CordonNode, Decision, SetDesired, Terminate, UncordonNode
from bedplate.capacity.observation import Cordon, Observation, Pod

_HELD = 300.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Until when each pool that has failed is passed."""

    held: Mapping[str, float] = field(default_factory=dict)


def decide(observation: Observation, memory: Memory) -> tuple[Decision, Memory]:
    """Return the next actions; all pods suit all pools."""
    failed = {launch.pool: launch.time + _HELD for launch in observation.activities if launch.code}
    held = {name: end for name, end in {**memory.held, **failed}.items() if end > observation.time}
    homeless = _homeless(observation)
    back = [UncordonNode(node.name, "pending pods") for node in observation.nodes if node.cordoned is Cordon.PLANNER]
    actions = (*back[: len(homeless)], *_sizes(observation, homeless[len(back) :], held))
    return Decision(actions or tuple(_ends(observation))), Memory(held)


def _homeless(observation: Observation) -> list[Pod]:
    """Return the pending pods that fit no live node."""
    free = {node.name: node.free.gpus for node in observation.nodes if node.cordoned is None}
    homeless = []
    for pod in (pod for pod in observation.pods if pod.node is None):
        name = next((name for name, gpus in free.items() if gpus >= pod.size.gpus), None)
        if name:
            free[name] -= pod.size.gpus
        else:
            homeless.append(pod)
    return homeless


def _sizes(observation: Observation, pods: list[Pod], held: Mapping[str, float]) -> Iterator[Action]:
    needed = sum(pod.size.gpus for pod in pods)
    for pool in observation.pools:
        machines = [machine for machine in observation.machines if machine.pool == pool.name]
        joined = sum(machine.node is not None for machine in machines)
        if pool.name in held and pool.desired > max(pool.minimum, len(machines)):
            yield SetDesired(pool.name, max(pool.minimum, len(machines)), "no capacity")
        coming = (len(machines) if pool.name in held else pool.desired) - joined
        needed -= coming * pool.size.gpus
        share = min(-(-needed // pool.size.gpus), pool.maximum - pool.desired)
        if share > 0 and pool.name not in held:
            needed -= share * pool.size.gpus
            yield SetDesired(pool.name, pool.desired + share, "pending pods")


def _ends(observation: Observation) -> Iterator[Action]:
    for node in observation.nodes:
        idle = node.idle_since is not None and observation.time - node.idle_since > observation.settings.idle
        if node.machine and idle and node.cordoned is None:
            yield CordonNode(node.name, "idle")
        elif node.machine and idle and node.cordoned is Cordon.PLANNER:
            yield Terminate(node.machine, decrement=True, reason="idle")
