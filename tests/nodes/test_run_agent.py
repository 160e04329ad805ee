"""The agent with the real systemd of a booted node: units of a person, limits, kills, stops and a power loss."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bedplate.programs.agent.member import GPUS
from bedplate.programs.agent.run import AGENT
from roles.jobs.role import Jobs
from tests.testlab.fakes.runs import AgentRun, RunHub, Tree
from tests.testlab.machines.node_lab import Node, NodeLab, bind_socket
from tests.testlab.network.netlab import until

pytestmark = pytest.mark.nightly

RUNS = "/var/cache/bedplate/runs"
SYSTEMCTL = "runuser -u runner -- env XDG_RUNTIME_DIR=/run/user/20077 systemctl --user"
# The leases of GPUs have tests of their own. It waits as they do: stops end it, and 202 is its end without GPUs.
_GPUS = """#!/bin/sh
[ "$2" != --gpus=9 ] || { echo "waiting for GPUs" >&2; sleep 2; exit 202; }
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return a node with the agent, and ada, whose units need no login."""
    booted = node_lab.boot("titan-03", "10.64.33.9")
    for file in Jobs((), has_gpus=False).files():
        path = Path(f"{booted.root}{file.path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
        path.chmod(int(file.mode, 8))
    Path(f"{booted.root}{GPUS}").write_text(_GPUS)
    Path(f"{booted.root}{GPUS}").chmod(0o755)
    booted.run(f"useradd --create-home --uid 20077 runner; install -d -o runner -g runner -m 700 {RUNS}/20077")
    booted.run("loginctl enable-linger runner; until systemctl is-active user@20077; do sleep 0.2; done")
    return booted


@pytest.fixture
def hub(node: Node, node_lab: NodeLab, tmp_path: Path) -> Iterator[RunHub]:
    """Yield a hub on the loopback of the node."""
    with RunHub(tmp_path, listener=bind_socket(node_lab.hosts[node.name], "127.0.0.1", 0)) as hub:
        yield hub
        hub.shutdown()


class Runner:
    """The person of the node with one run."""

    def __init__(
        self, node: Node, hub: RunHub, name: str, script: str, code: Tree | None = None, **given: object
    ) -> None:
        self.node, self.name, self.folder = node, name, f"{RUNS}/20077/{name}"
        self.given = AgentRun(hub, Path(name), code or {"a": b""}, ["sh", "-c", script], **given).given

    def agent(self, *words: str, given: Any = None) -> tuple[int, str]:  # noqa: ANN401  a document
        """Run a command of the agent as that person; return its exit code and output."""
        (self.node.root / "srv/given").write_text(json.dumps(given))
        command = f"XDG_RUNTIME_DIR=/run/user/20077 {AGENT} {shlex.join(words)} </srv/given"
        out = self.node.run(f"runuser -u runner -- sh -c {shlex.quote(command)} 2>&1 && echo 0 || echo $?")
        text, _, code = out.rstrip().rpartition("\n")
        return int(code or text), text if code else ""

    def start(self, *words: str) -> tuple[int, str]:
        """Start the run."""
        return self.agent("start", *words, given=self.given)

    @property
    def end(self) -> Any:  # noqa: ANN401  a document
        """The end of the run, once there is one."""
        return json.loads(self.node.run(f"cat {self.folder}/end.json"))

    def wait_for_output(self, text: str) -> None:
        """Wait until the program has printed something."""
        until(lambda: text in self.node.run(f"cat {self.folder}/logs/0/0/* || true"), 30, "no output")


def test_a_unit_has_its_limits_and_exits_as_its_program(node: Node, hub: RunHub) -> None:
    """They are those that systemd has; the end is written once, and no unit is left."""
    script = "echo ready; sleep 4; exit 7"
    runner = Runner(node, hub, "a-1", script, cpus=1.5, memory=2, grace=20)
    assert runner.start()[0] == 0
    runner.wait_for_output("ready")

    names = ["CPUQuotaPerSecUSec", "MemoryMax", "KillMode", "TimeoutStopUSec", "OOMPolicy", "Environment"]
    show = f"{SYSTEMCTL} show bp-a-1 {' '.join(f'-p {name}' for name in names)}"
    shown = dict(line.split("=", 1) for line in node.run(show).splitlines())
    followed = runner.agent("follow", "a-1")

    assert [shown[name] for name in names[:5]] == ["1.500000s", str(2 << 30), "mixed", "30s", "continue"]
    assert followed == (7, "ready\nthe program ended with exit code 7")
    until(lambda: hub.ends == 1, 20, "no end of the record")
    assert (hub.statuses, hub.log()) == (["FAILED"], b"ready\n")
    until(lambda: "bp-a-1" not in node.run(f"{SYSTEMCTL} list-units --all 'bp-*'"), 20, "the unit is left")
    assert runner.given["token"] not in node.run("ps -eww -o args")


def test_a_killed_agent_has_an_end_and_leaves_nothing(node: Node, hub: RunHub) -> None:
    """The program ends with it. Its unit starts again, and the new agent ends a run without a checkpoint."""
    runner = Runner(node, hub, "a-2", "setsid -f sleep 987; echo ready; sleep 986")
    runner.start()
    runner.wait_for_output("ready")
    until(lambda: '"has_run": true' in hub.tags.get("history", ""), 20, "the agent has not noted its start")

    node.run(f"{SYSTEMCTL} kill --kill-who=main --signal=KILL bp-a-2")

    until(lambda: hub.statuses == ["FAILED"], 30, "no end of the record")
    assert "the agent of node 0 ended before its program" in runner.end["cause"]
    assert "sleep 98" not in node.run("ps -eww -o args")
    assert hub.log() == b"ready\n"


def test_a_stop_gives_time_and_a_second_one_takes_it(node: Node, hub: RunHub) -> None:
    """The cause has the name of the person."""
    runner = Runner(node, hub, "a-3", "trap 'echo got' TERM; echo ready; while :; do sleep 0.2; done", grace=300)
    runner.start()
    runner.wait_for_output("ready")

    assert runner.agent("stop", "a-3")[0] == 0
    runner.wait_for_output("got")
    assert runner.agent("stop", "a-3", "--now")[0] == 0

    until(lambda: hub.statuses == ["KILLED"], 30, "no end of the record")
    assert (runner.end["code"], runner.end["cause"]) == (201, "stopped by runner")


@pytest.mark.parametrize(("is_stopped", "code", "cause"), [(False, 202, "no GPUs"), (True, 201, "stopped by runner")])
def test_a_run_that_waits_for_gpus_has_an_end(
    is_stopped: bool,  # noqa: FBT001  a parameter
    code: int,
    cause: str,
    node: Node,
    hub: RunHub,
) -> None:
    """Its agent has not started yet."""
    runner = Runner(node, hub, f"a-4-{code}", "true", gpus=9)
    runner.start()
    if is_stopped:
        runner.agent("stop", runner.name)

    until(lambda: hub.ends == 1, 30, "no end of the record")

    assert (runner.end["code"], runner.end["cause"][: len(cause)]) == (code, cause)
    assert hub.tags["state"] == "ended"


def test_a_run_without_a_login_survives_and_a_power_loss_has_an_end(node: Node, hub: RunHub) -> None:
    """After the boot, the person's manager writes its end, and nobody asks for it; a second start starts nothing."""
    runner = Runner(node, hub, "a-5", "echo ready; sleep 985")
    runner.start()
    runner.wait_for_output("ready")
    node.run("sync")

    node.crash()
    # The manager tries again after a minute.
    until(lambda: hub.statuses == ["FAILED"], 150, "no end of the record")

    assert (runner.end["code"], runner.end["cause"]) == (137, "the machine lost power or restarted")
    assert runner.start("--follow")[0] == 137
    assert "sleep 985" not in node.run("ps -eww -o args")


def test_a_run_that_goes_on_keeps_its_folder_and_an_old_one_is_removed(node: Node, hub: RunHub) -> None:
    """systemd-tmpfiles cleans by the rows of the role, here with an age of a second."""
    runner = Runner(node, hub, "a-8", "echo ready; while [ ! -e ../go ]; do sleep 0.2; done")
    runner.start()
    runner.wait_for_output("ready")
    row = f"d {RUNS}/20077 0700 20077 20077 1s"
    clean = f"sleep 3; echo {shlex.quote(row)} >/run/clean.conf; systemd-tmpfiles --clean /run/clean.conf"

    node.run(clean)
    assert node.run(f"ls {runner.folder}/work").split() == ["a"]
    node.run(f"touch {runner.folder}/go")
    until(lambda: hub.ends == 1, 30, "no end of the record")
    until(lambda: "bp-a-8" not in node.run(f"{SYSTEMCTL} list-units --all 'bp-*'"), 20, "the unit is left")
    node.run(clean)

    assert node.run(f"ls -A {RUNS}/20077").split() == []


TRAIN = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(30):
    inputs = torch.randn(32, 8, generator=data)
    loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex(), flush=True)
print(dist.get_rank(), dist.get_world_size(), sum(p.double().sum().item() for p in model.parameters()).hex())
"""


def test_pytorch_trains_on_two_ranks_and_repeats_bit_by_bit(node: Node, hub: RunHub) -> None:
    """With gloo on CPUs, started by the number of GPUs: both ranks have one model, and a second run the same losses."""
    node.run("apt-get install --yes --quiet --no-install-recommends python3-torch >/dev/null 2>&1", 900)
    logs = list[tuple[bytes, bytes]]()
    for name in ("a-6", "a-7"):
        hub.files.clear()
        runner = Runner(node, hub, name, "exec python3 train.py", gpus=2, code={"train.py": TRAIN.encode()})
        assert runner.start("--follow")[0] == 0
        until(lambda: hub.ends == 1, 30, "no end of the record")
        hub.ends = 0
        logs.append((hub.log(0), hub.log(1)))

    (first, second), again = logs
    assert again == (first, second)
    assert [first.split()[-3:-1], second.split()[-3:-1]] == [[b"0", b"2"], [b"1", b"2"]]
    assert first.split()[-1] == second.split()[-1]
    losses = [float.fromhex(line.split()[1]) for line in first.decode().splitlines() if " 0x" in line[:6]]
    assert losses[29] < losses[0] / 2
