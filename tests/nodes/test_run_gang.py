"""`bp run --nodes 2` with PyTorch over two booted machines of a group: ssh, agents, leases and packet filters."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from tests.testlab.fakes.laptop import HOST, FakeHub
from tests.testlab.machines.gang_lab import GROUP, MACHINES, Gangs, gang_lab, laptop_of, listener_of, person
from tests.testlab.machines.layers import with_pytorch
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.network.netlab import until
from tests.unit.test_bp_run import API, FLEET, RUN_TOKEN, Record
from tests.unit.test_bp_run import MACHINES as FACTS

pytestmark = pytest.mark.nightly

ROOT, STEPS = Path(__file__).parents[2], 40
# DistributedDataParallel rebuilds its buckets after its first step, so with more than two ranks gloo adds in another
# order in the first step after a restart; with find_unused_parameters it keeps them, and the end is equal bit by bit.
TRAIN = f"""
import os, time, torch, torch.distributed as dist
from pathlib import Path
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
rank, folder, resume = dist.get_rank(), Path(os.environ["BEDPLATE_CHECKPOINTS"]), os.environ.get("BEDPLATE_RESUME")
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
begin = 0
if resume:
    state = torch.load(resume)
    begin = state.pop("step")
    model.load_state_dict(state)
model = DistributedDataParallel(model, find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("begin", begin, flush=True)
for step in range(begin, {STEPS}):
    data = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(32, 8, generator=data)
    loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(float(os.environ.get("PAUSE", "0.05")))
    if rank == 0:
        new = folder / f"step-{{step:06}}.tmp"
        torch.save({{**model.module.state_dict(), "step": step + 1}}, new)
        new.rename(new.with_suffix(""))
print("end", dist.get_world_size(), loss.item().hex(), sum(p.double().sum().item() for p in model.parameters()).hex())
"""


@pytest.fixture(scope="module")
def layers() -> Callable[[], tuple[Path, ...]]:
    """Return what makes the layers of nodes with PyTorch."""
    return with_pytorch


@pytest.fixture(scope="module")
def machines(node_lab: NodeLab) -> Iterator[list[Node]]:
    """Yield the machines."""
    with gang_lab(node_lab) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def record(node_lab: NodeLab, machines: list[Node], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    """Yield the record of a hub that laptop and machines reach."""
    with FakeHub(tmp_path_factory.mktemp("hub"), listener=listener_of(node_lab)) as hub:
        record = Record(hub)
        facts = {**FACTS["gpu-1.us-west-2"], "group": GROUP, "gpus": 2}
        of_machines = {
            node.name: {**facts, "address": str(node.address), "host_key": " ".join(node.host_key.split()[:2])}
            for node in machines
        }
        groups = {GROUP: {**FLEET["groups"]["gpu"], "gpus": 2}}
        fleet = {**FLEET, "machines": of_machines, "groups": groups, "checkpoints": {"": "/home"}}
        hub.answer("/fleet.json", fleet)
        hub.answer("/bedplate/end", {})
        hub.answer(f"{API}runs/log-metric", {})
        hub.tokens.add(RUN_TOKEN)
        yield record


@pytest.fixture(scope="module")
def gangs(node_lab: NodeLab, machines: list[Node], record: Record) -> Iterator[Gangs]:
    """Yield the machines with a laptop."""
    with laptop_of(node_lab, record.hub, RUN_TOKEN) as laptop:
        work = laptop.archive.parent / "work"
        (work / "train.py").write_text(TRAIN)
        for node in machines:
            node.run(f"echo {node_lab.workstation.address} {HOST} >>/etc/hosts")
        (work / "ddp.py").write_text((ROOT / "examples/ddp/train.py").read_text())
        yield Gangs(machines, laptop, person())


@pytest.fixture(autouse=True)
def _nothing_is_left(gangs: Gangs, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each run, no machine has a unit, or a GPU that is not free."""
    monkeypatch.chdir(gangs.laptop.archive.parent / "work")
    yield
    until(lambda: gangs.units() == ["", ""], 60, "a unit is left", every=1)
    assert gangs.leases() == [["", ""], ["", ""]]


def _start(gangs: Gangs, *words: str) -> Popen[str]:
    """Start a run; return once it has begun."""
    process = gangs.laptop.start("run", "--nodes", "2", "--gpus", "2", "-y", *words, "--", "python3", "train.py")
    assert process.stdout
    lines = list[str]()
    while not lines or not lines[-1].startswith("begin"):
        lines.append(process.stdout.readline())
        assert lines[-1], (lines, process.communicate(timeout=10))
    return process


def _end(process: Popen[str]) -> list[float]:
    """Return the values of a run that succeeds."""
    output, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    return values_of(output)


def values_of(output: str) -> list[float]:
    """Return the number of ranks, the last loss and the sum of the weights by the last line of a run."""
    word, ranks, *values = output.splitlines()[-1].split()
    assert word == "end", output
    return [float(ranks), *map(float.fromhex, values)]


@pytest.fixture(scope="module")
def expected(gangs: Gangs) -> list[float]:
    """Return the end of an uninterrupted run, during which each GPU has a lease."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(gangs.laptop.archive.parent / "work")
        process = _start(gangs)
        assert len({run for runs in gangs.leases() for run in runs}) == 1, gangs.leases()
        assert all(run for runs in gangs.leases() for run in runs), gangs.leases()
        return _end(process)


def test_a_run_starts_on_two_machines_that_know_themselves_by_a_local_address(
    gangs: Gangs, record: Record, expected: list[float]
) -> None:
    """Four ranks have one model, and the record has both machines."""
    assert expected[0] == 4
    assert [record.tags[f"node.{node}"] for node in (0, 1)] == [*MACHINES]
    # bp ends before the agent has written all of its record.
    until(lambda: record.runs[-1]["info"]["status"] == "FINISHED", 30, "the record has no end")
    assert record.tags["state"] == "ended"
    name = gangs.nodes[0].run("hostname").strip()
    assert "127.0.1.1" in gangs.nodes[0].run(f"getent ahostsv4 {name}")


@pytest.mark.parametrize("node", [0, 1])
def test_a_killed_rank_is_repeated_in_place(gangs: Gangs, record: Record, expected: list[float], node: int) -> None:
    """All go on from the newest checkpoint, with the leases that they have; the end is the same."""
    process = _start(gangs)
    _wait_for_checkpoint(record)

    gangs.nodes[node].run(f"pkill --signal KILL --newest --uid {gangs.person.uid} --full 'python3 train.py'")

    assert _end(process) == expected
    assert record.tags["attempt"] == "1"
    assert "killed by signal 9, Killed: attempt 1 goes on from checkpoint step-" in record.tags["restart.1"]


@pytest.mark.parametrize("node", [0, 1])
def test_a_killed_agent_is_started_again_by_systemd(
    gangs: Gangs, record: Record, expected: list[float], node: int
) -> None:
    """The run goes on from its checkpoint, and bp follows it to the same end."""
    process = _start(gangs)
    _wait_for_checkpoint(record)

    gangs.systemctl(node, f"kill --kill-who=main --signal=KILL bp-{record.tags['id']}")

    assert _end(process) == expected
    assert int(record.tags["attempt"]) >= 1
    assert "goes on from checkpoint step-" in record.tags["restart.1"]


def test_a_stop_ends_the_run_on_both_machines(gangs: Gangs, record: Record) -> None:
    """The record says who has stopped it."""
    process = _start(gangs, "--env", "PAUSE=5")

    done = gangs.laptop.bp("stop", record.tags["id"])

    assert done.returncode == 0, done.stderr
    process.communicate(timeout=60)
    until(lambda: record.runs[-1]["info"]["status"] == "KILLED", 30, "the record has no end")
    assert (process.returncode, record.tags["cause"]) == (201, f"stopped by {gangs.person.name}")


def _epochs(lines: list[str]) -> list[tuple[int, int]]:
    """Return each epoch of the example, with how many processes it had."""
    found = (re.match(r"epoch (\d+) of \d+, (\d+) processes", line) for line in lines)
    return [(int(match[1]), int(match[2])) for match in found if match]


def test_use_of_several_gpus_by_one_number(gangs: Gangs, record: Record) -> None:
    """The shipped example has a process a GPU, on one machine or two; it learns the same. The other machine is idle."""
    for words, processes in ((["--gpus", "1"], 1), (["--gpus", "2"], 2), (["--nodes", "2", "--gpus", "2"], 4)):
        done = gangs.laptop.bp("run", *words, "-y", "--", "python3", "ddp.py", "--epochs", "4")

        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert _epochs(lines) == [(epoch, processes) for epoch in range(4)], done.stdout
        assert float(lines[-1].split()[-1]) > 0.6, done.stdout
        assert len({name for name in record.tags if name.startswith("node.")}) == max(processes // 2, 1)


def test_restart_from_the_last_checkpoint(gangs: Gangs, record: Record) -> None:
    """Each epoch of the shipped example is there once, but for the one that was interrupted; the end is the same."""
    words = ("run", "--nodes", "2", "--gpus", "2", "-y", "--", "python3", "ddp.py", "--epochs", "6", "--pause")
    whole, _ = gangs.laptop.start(*words, "0").communicate(timeout=180)
    process = gangs.laptop.start(*words, "0.5")
    lines = list[str]()
    while len(_epochs(lines)) < 3:
        assert process.stdout
        lines.append(process.stdout.readline())
        assert lines[-1], process.communicate(timeout=10)

    gangs.nodes[1].run(f"pkill --signal KILL --newest --uid {gangs.person.uid} --full 'python3 ddp.py'")

    output, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    epochs = [epoch for epoch, _ in _epochs(lines + output.splitlines())]
    assert (sorted({*epochs}), len(epochs) <= 7) == ([*range(6)], True), epochs
    assert output.splitlines()[-1] == whole.splitlines()[-1]
    assert "goes on from checkpoint 0000" in record.tags["restart.1"]


def _wait_for_checkpoint(record: Record) -> None:
    until(lambda: "checkpoint" in record.tags, 60, "no checkpoint")
