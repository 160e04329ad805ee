"""`bp run --nodes 2` with PyTorch over two real kubelets: agents, JobSet, Kueue, and pods that meet by their names."""

import os
import random
import time
from collections.abc import Callable, Iterator
from subprocess import Popen

import pytest

from tests.nodes.test_run_gang import STEPS, TRAIN, values_of
from tests.testlab.fakes.laptop import FakeHub, Laptop
from tests.testlab.kubernetes.gang_nodes import GROUP, PERSON, GangNodes, as_person, facts_of_group, gang_nodes, kill
from tests.testlab.kubernetes.real_node import HOST
from tests.unit.test_bp_run import FLEET, RUN_TOKEN, Record, laptop_at_work

KILLS, SEED = int(os.environ.get("GANG_KILLS", "10")), os.environ.get("GANG_SEED", "1")
_LACKS = "has no complete checkpoint, and --scratch-ok is not given"
# Seconds of a step, as long as those of other tests are too short for a kill.
_PAUSE = 0.2


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangNodes]:
    """Yield the nodes."""
    with gang_nodes(tmp_path_factory.mktemp("nodes")) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def record(nodes: GangNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    """Yield the record of a hub that laptop and pods reach."""
    del nodes
    with FakeHub(tmp_path_factory.mktemp("hub"), address=HOST) as hub:
        record = Record(hub)
        groups = {GROUP: {**FLEET["groups"]["train"], **facts_of_group()}}
        hub.answer("/fleet.json", {**FLEET, "machines": {}, "groups": groups, "checkpoints": {"": "/home"}})
        hub.answer("/bedplate/end", {})
        hub.tokens.add(RUN_TOKEN)
        yield record


@pytest.fixture(scope="module")
def laptop(nodes: GangNodes, record: Record, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    """Return the laptop with the program that trains."""
    folder = tmp_path_factory.mktemp("laptop")
    laptop = laptop_at_work(record.hub, folder)
    laptop.set(person=PERSON, address=HOST, cluster=vars(as_person(nodes.plane)))
    (folder / "work/train.py").write_text(TRAIN)
    return laptop


@pytest.fixture(autouse=True)
def _at_work(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(laptop.archive.parents[1] / "work")


def _start(laptop: Laptop) -> Popen[str]:
    """Start a run; return once it trains."""
    process = laptop.start(
        "run", "--nodes", "2", "--gpus", "2", "-y", "--env", f"PAUSE={_PAUSE}", "--", "python3", "train.py"
    )
    assert process.stdout
    while not (line := process.stdout.readline()).startswith("begin"):
        assert line, process.communicate(timeout=10)
    return process


@pytest.fixture(scope="module")
def expected(laptop: Laptop) -> list[float]:
    """Return the end of an uninterrupted run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(laptop.archive.parents[1] / "work")
        process = _start(laptop)
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        return values_of(output)


def test_a_run_starts_on_two_kubelets(nodes: GangNodes, record: Record, expected: list[float]) -> None:
    """Four ranks, two on each node, have one model; the record has both nodes, and why it has ended."""
    assert expected[0] == 4
    assert {record.tags[f"node.{node}"] for node in (0, 1)} == {node.case.name for node in nodes.nodes}
    assert (record.tags["cause"], record.tags["attempt"]) == ("all ranks ended with exit code 0", "0")


def _kill_rank(nodes: GangNodes, node: int, chance: random.Random) -> bool:
    ranks = nodes.ranks(node)
    return bool(ranks) and kill(chance.choice(ranks))


def _kill_agent(nodes: GangNodes, node: int, _: random.Random) -> bool:
    return kill(nodes.agent(node))


def _kill_shim(nodes: GangNodes, node: int, _: random.Random) -> bool:
    return kill(nodes.shim(node))


def _delete_pod(nodes: GangNodes, node: int, _: random.Random) -> bool:
    return nodes.delete_pod(node)


def _delete_pod_by_force(nodes: GangNodes, node: int, _: random.Random) -> bool:
    return nodes.delete_pod(node, "--force", "--grace-period=0")


_WAYS: tuple[Callable[[GangNodes, int, random.Random], bool], ...]
_WAYS = (_kill_rank, _kill_agent, _kill_shim, _delete_pod, _delete_pod_by_force)


@pytest.mark.parametrize("number", range(KILLS))
def test_a_run_that_is_killed_at_a_random_moment_ends_the_same(
    laptop: Laptop, nodes: GangNodes, record: Record, expected: list[float], number: int
) -> None:
    """A rank, an agent, a container's shim or a pod is lost: the end is the same, unless there was no checkpoint."""
    chance, way = random.Random(f"{SEED}.{number}"), _WAYS[number % len(_WAYS)]  # noqa: S311  it can be repeated
    process = _start(laptop)
    time.sleep(chance.uniform(0, _PAUSE * STEPS))

    is_killed = way(nodes, chance.randrange(2), chance)

    output, errors = process.communicate(timeout=300)
    facts = [record.tags.get(name, "") for name in ("attempt", "restart.1", "cause")]
    print(number, way.__name__, is_killed, process.returncode, *facts, sep="; ")  # noqa: T201  of a test that has failed
    if process.returncode:
        assert _LACKS in record.tags["cause"], errors
        return
    # DistributedDataParallel arranges its buckets anew after its first step, and so gloo adds in another order.
    assert values_of(output) == pytest.approx(expected, rel=1e-5)
    assert not is_killed or int(record.tags["attempt"]) >= 1
