"""Nodes that offer fewer devices than planned: they are not there yet, and late after a while.

A device plugin registers minutes after its node, or again after a restart, and marks broken devices for good.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from bedplate.capacity.observation import UNITS, Machine, Node, Observation, Pool


def missing_devices(node: Node, pool: Pool) -> str:
    """Return the planned devices of which a node offers fewer; empty if it has all."""
    for name in ("gpus", "efa"):
        count, planned = getattr(node.size, name), getattr(pool.size, name)
        if count < planned:
            return f"{count} of {planned} {UNITS[name]}"
    return ""


def next_lacking(observation: Observation, lacking: Mapping[str, float]) -> Mapping[str, float]:
    """Return the machines whose nodes lack devices, with the time since when."""
    return {machine.id: lacking.get(machine.id, observation.time) for machine, _, _ in _incomplete(observation)}


def settle(observation: Observation, lacking: Mapping[str, float]) -> tuple[Observation, Observation]:
    """Return the observation for places and ends, and that for boots and breakers.

    An empty node that lacks devices is a booting machine at first. Later its machine must be replaced, and counts as
    one that did not become a node. A node with work stays one until then.
    """
    booting: dict[str, Machine] = {}
    late: dict[str, Machine] = {}
    failed: dict[str, Node] = {}
    for machine, node, missing in _incomplete(observation):
        since = lacking[machine.id]
        if observation.time - since >= observation.settings.join:
            failed[node.name] = replace(node, defect=node.defect or f"it offers {missing}")
            if not node.pods:
                late[machine.id] = replace(machine, node=None, launched=since)
        elif not node.pods:
            booting[machine.id] = replace(machine, node=None, launched=observation.time, registered=True)
    starting = {observed.node for observed in observation.machines if observed.id in booting}
    seen = replace(
        observation,
        nodes=tuple(failed.get(node.name, node) for node in observation.nodes if node.name not in starting),
        machines=tuple(booting.get(machine.id, machine) for machine in observation.machines),
    )
    return seen, replace(seen, machines=tuple(late.get(machine.id, machine) for machine in seen.machines))


def _incomplete(observation: Observation) -> Iterator[tuple[Machine, Node, str]]:
    pools = {pool.name: pool for pool in observation.pools}
    machines = {machine.node: machine for machine in observation.machines if machine.node}
    for node in observation.nodes:
        machine = machines.get(node.name)
        if machine and (missing := missing_devices(node, pools[machine.pool])):
            yield machine, node, missing
