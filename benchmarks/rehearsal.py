"""Rehearsing one, three and ten regions, beside its two floors; run it as `python -m benchmarks.rehearsal`.

The floors are what a rehearsal cannot do without: the calls themselves, made by plain boto3 on the same moto, and the
SDK's evaluation of the same programs with mocks that answer at once. The aim is at most 1.3 times their sum, a cost
that grows as the resources do, and less than 500 MB for three regions. Each figure is taken in a process of its own.
"""

import json
import pickle
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import RLock
from time import perf_counter
from typing import Any

from botocore.exceptions import ClientError

from benchmarks.fleet import plan_of

REGIONS = (1, 3, 10)
SEED = 7
Figures = dict[str, float]


def rehearsed(regions: int, log: Path) -> Figures:
    """Create, run again and preview every stack; leave the calls of the creation in `log`."""
    from moto.moto_api._internal import mock_random  # noqa: PLC0415

    from bedplate.cli.waves import waves  # noqa: PLC0415
    from bedplate.rehearsal import simulation  # noqa: PLC0415
    from bedplate.rehearsal.rehearse import Rehearsal  # noqa: PLC0415
    from bedplate.rehearsal.report import Phase  # noqa: PLC0415
    from bedplate.rehearsal.stack import World, run  # noqa: PLC0415

    plan = plan_of(regions)
    calls: list[tuple[str, str, str, dict[str, Any]]] = []
    stacks, in_order = waves(plan), RLock()
    with simulation.running(plan.account) as cloud:
        mock_random.seed(SEED)
        real = cloud.call

        def recorded(service: str, region: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
            with in_order:
                calls.append((service, region, operation, params))
                return real(service, region, operation, params)

        cloud.call = recorded  # type: ignore[method-assign]  # the recorder stands at the door
        rehearsal = Rehearsal(World(cloud), lambda *_: None)
        created = timed(lambda: rehearsal.run(Phase.CREATE, stacks))
        log.write_bytes(pickle.dumps((plan.account, calls)))
        again = timed(lambda: rehearsal.run(Phase.AGAIN, stacks))
        preview = timed(lambda: [run(one, rehearsal.world, preview=True) for wave in stacks for one in wave])
    assert not rehearsal.failed, [report.failures for report in rehearsal.reports.values()]
    count = sum(sum(report.types.values()) for report in rehearsal.reports.values())
    return {"resources": count, "calls": len(calls), "create": created, "again": again, "preview": preview}


def called(log: Path) -> Figures:
    """Make the same calls with plain boto3."""
    from moto.moto_api._internal import mock_random  # noqa: PLC0415

    from bedplate.rehearsal import simulation  # noqa: PLC0415

    account, calls = pickle.loads(log.read_bytes())  # noqa: S301  # written by this program a moment ago
    with simulation.running(account) as cloud:
        mock_random.seed(SEED)

        def replay() -> None:
            for service, region, operation, params in calls:
                # What was refused then is refused again.
                with suppress(ClientError):
                    getattr(cloud.client(service, region), operation)(**params)

        return {"boto3": timed(replay)}


def evaluated(regions: int) -> Figures:
    """Evaluate the same programs with mocks that answer at once."""
    from bedplate.cli.waves import waves  # noqa: PLC0415
    from benchmarks.null_mocks import AtOnce, evaluate_with_null_mocks  # noqa: PLC0415

    stacks = [stack for wave in waves(plan_of(regions)) for stack in wave]
    at_once = AtOnce()

    def evaluate() -> None:
        for stack in stacks:
            evaluate_with_null_mocks(stack, at_once)

    return {"sdk": timed(evaluate)}


def timed(act: Callable[[], object]) -> float:
    """Return the seconds that something takes."""
    started = perf_counter()
    act()
    return perf_counter() - started


def in_a_process(*arguments: str) -> Figures:
    """Run this module in a process of its own; return its figures and its peak memory in MB."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.rehearsal", *arguments], capture_output=True, check=True)
    found: Figures = json.loads(done.stdout)
    return found


def compare(regions: int) -> Mapping[str, float]:
    """Return all figures of a fleet."""
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "calls")
        ours = in_a_process("rehearsed", str(regions), log)
        return {**in_a_process("evaluated", str(regions)), **in_a_process("called", log), **ours}


def main() -> None:
    """Print a line for each fleet, and how the cost grows."""
    costs = {}
    print("regions resources  create  ms each   boto3     sdk  ratio   again preview     MB")
    for regions in REGIONS:
        found = compare(regions)
        ratio = found["create"] / (found["boto3"] + found["sdk"])
        costs[regions] = each = 1000 * found["create"] / found["resources"]
        print(
            f"{regions:7} {found['resources']:9.0f} {found['create']:6.1f}s {each:8.1f} {found['boto3']:6.1f}s "
            f"{found['sdk']:6.1f}s {ratio:6.2f} {found['again']:6.1f}s {found['preview']:6.1f}s {found['mb']:6.0f}"
        )
    few, many = REGIONS[-2:]
    print(f"a resource of {many} regions costs {costs[many] / costs[few]:.2f} times one of {few}")


def _part() -> None:
    match sys.argv[1:]:
        case ["rehearsed", regions, log]:
            found = rehearsed(int(regions), Path(log))
        case ["called", log]:
            found = called(Path(log))
        case ["evaluated", regions]:
            found = evaluated(int(regions))
        case _:
            main()
            return
    found["mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(found))


if __name__ == "__main__":
    _part()
