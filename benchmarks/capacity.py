"""The processor time and memory of one large decision, and of a simulated day.

The peer is the least that a planner can do with the same equal pods: reading them, and one pass that fills one machine
after the other, without labels, rungs or reasons. The original kubernetes-ec2-autoscaler took 16.6 s for such a
decision on another machine.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage

from bedplate.capacity.planner import Memory, decide
from bedplate.capacity.protocol import parse_observation
from bedplate.capacity.scenario import SCENARIOS
from bedplate.capacity.simulator import simulate
from tests.testlab.run import pace, pace_line

NODES, PODS, PENDING, POOLS = 1000, 10_000, 2000, 12
MAX_DECISION_S, MAX_MIB, MAX_DAY_S = 0.8, 400, 10.0
ORIGINAL_S = 16.6


def observation() -> str:
    """Return 10,000 pods on 1,000 nodes of 12 pools in 4 groups; 2,000 pods of 1 GPU wait."""
    dice = random.Random(18)  # noqa: S311  the same observation each time
    unit = {"gpus": 8, "cpus": 192, "memory": 2000}
    shared = {"region": "us-west-2", "zones": ["us-west-2a", "us-west-2b"], "minimum": 0, "maximum": 400}
    pools = [
        {**unit, **shared, "name": f"p{n}", "group": f"g{n % 4}", "rung": n // 4, "labels": {"group": f"g{n % 4}"}}
        | {"desired": len(range(n, NODES, POOLS)), "taints": ["nvidia.com/gpu"], "price": 55.0}
        for n in range(POOLS)
    ]
    running = [list(range(n, PODS - PENDING, NODES)) for n in range(NODES)]
    nodes = [
        {
            **unit,
            "name": f"n{n}",
            "machine": f"i{n}",
            "labels": {"group": f"g{n % POOLS % 4}"},
            "pods": [f"pod{m}" for m in on],
        }
        | {
            "free_gpus": 8 - len(on),
            "free_cpus": 192 - 5 * len(on),
            "free_memory": 2000 - 40 * len(on),
            "idle_since": None,
        }
        for n, on in enumerate(running)
    ]
    machines = [
        {"id": f"i{n}", "pool": f"p{n % POOLS}", "zone": "us-west-2a", "launched": 0.0, "node": f"n{n}"}
        for n in range(NODES)
    ]
    pods = [
        {"id": f"pod{n}", "arrival": 600.0, "gpus": 1, "cpus": 5, "memory": 40, "tolerations": ["nvidia.com/gpu"]}
        | {"selector": {"group": f"g{dice.randrange(4)}"}, "node": f"n{n % NODES}" if n < PODS - PENDING else None}
        for n in range(PODS)
    ]
    parts = {"pods": pods, "nodes": nodes, "machines": machines, "pools": pools, "activities": []}
    return json.dumps({"time": 7200.0, **parts})


def naive(line: str) -> int:
    """Return the machines that the pending pods need, and read the rest not at all."""
    machines, room = 0, (0.0, 0.0, 0.0)
    for pod in json.loads(line)["pods"]:
        if pod["node"] is None:
            need = (pod["gpus"], pod["cpus"], pod["memory"])
            if any(left < wanted for left, wanted in zip(room, need, strict=True)):
                machines, room = machines + 1, (8.0, 192.0, 2000.0)
            room = tuple(left - wanted for left, wanted in zip(room, need, strict=True))
    return machines


def seconds(work: Callable[[], object], runs: int = 5) -> float:
    """Return the processor seconds of the fastest run, at the pace of the reference."""
    times = []
    for _ in range(runs):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times) / pace()


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    line = observation()
    decision = seconds(lambda: decide(parse_observation(line), Memory()))
    memory = getrusage(RUSAGE_SELF).ru_maxrss / 1024
    peer = seconds(lambda: naive(line))
    day = seconds(lambda: simulate(SCENARIOS["steady-day"]()), 1)
    print(pace_line())
    print(f"decision {decision:.2f} s (target: {MAX_DECISION_S}), {memory:.0f} MiB (target: {MAX_MIB})")
    print(f"{decision / peer:.2f} times a single pass ({peer:.3f} s); {decision / ORIGINAL_S:.3f} times the original")
    print(f"simulated day {day:.1f} s (target: {MAX_DAY_S:.0f})")
    return int(decision > MAX_DECISION_S or memory > MAX_MIB or day > MAX_DAY_S)


if __name__ == "__main__":
    sys.exit(main())
