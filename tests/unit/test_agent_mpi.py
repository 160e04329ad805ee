"""`--launch mpi`: mpirun on node 0 starts processes on the other nodes by the agents, without sshd."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bedplate.programs.agent.links import connect
from tests.testlab.fakes.gangs import TRAINER, AgentGang, final_value
from tests.testlab.fakes.runs import RunHub, kill, wait_for
from tests.testlab.run import need_program

# Each node needs an address of its own: its link to node 0 comes from there.
_ADDRESS = """
import socket, types
from functools import partial
from bedplate.programs.agent import links
bound = partial(socket.create_connection, source_address=({address!r}, 0))
links.socket = types.SimpleNamespace(**{{**vars(socket), "create_connection": bound}})
"""
# Open MPI refuses root without them.
_ROOT = {f"OMPI_ALLOW_RUN_AS_ROOT{suffix}": "1" for suffix in ("", "_CONFIRM")}
SHELL = ["sh", "-c"]
# There is no bedplate-gpus here.
_LEASED = """
from bedplate.programs.agent import member
member.Member._take_lease = lambda self, seconds: True
"""
# Gives the program that trains the ranks of MPI.
_RANKS = 'export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE; exec "$@"'


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunHub]:
    """Yield a hub without runs, where there is an MPI."""
    need_program("mpirun")
    with RunHub(tmp_path) as hub:
        yield hub


def mpi_gang(hub: RunHub, folder: Path, command: list[str], nodes: int = 2, **given: object) -> AgentGang:
    """Return a gang whose command starts once, on node 0."""
    environment = {**_ROOT, "HOME": str(folder), **given.pop("environment", {})}  # type: ignore[dict-item]
    gang = AgentGang(hub, folder, nodes, command, launch="mpi", environment=environment, **given)
    for node, run in enumerate(gang.nodes):
        run.before = _ADDRESS.format(address=f"127.0.0.{node + 1}")
    return gang


def trainer(steps: int, pause: float) -> list[str]:
    """Return the command of a training that mpirun starts."""
    words = [sys.executable, "-IS", str(TRAINER), str(steps), str(pause)]
    return ["mpirun", "sh", "-c", _RANKS, "sh", *words]


def test_mpirun_starts_ranks_on_all_nodes(hub: RunHub, tmp_path: Path) -> None:
    """A slot a GPU, and a remote process a node, whose end and output are those of a rank."""
    gang = mpi_gang(hub, tmp_path, trainer(5, 0.01))

    assert gang.run() == [0, 0]

    value = final_value(2, 5)
    assert sorted(gang.log(0).splitlines()) == ["begin 0", "begin 0", f"end {value}", f"end {value}"]
    assert (hub.tags["exit.0.0"], hub.tags["code"], hub.statuses) == ("0", "0", ["FINISHED"])


def test_each_node_has_a_slot_a_gpu(hub: RunHub, tmp_path: Path) -> None:
    """Without `-n`, mpirun starts as many ranks as there are GPUs, in the order of the nodes."""
    files = "cat $OMPI_MCA_orte_default_hostfile $HYDRA_HOST_FILE"
    gang = mpi_gang(hub, tmp_path, [*SHELL, files], 3, gpus=2)
    for run in gang.nodes:
        run.before += _LEASED

    assert gang.run() == [0, 0, 0]

    hosts = [f"127.0.0.{node + 1}" for node in range(3)]
    assert gang.output(0).splitlines() == [f"{host} slots=2" for host in hosts] + [f"{host}:2" for host in hosts]


def test_a_rank_that_fails_on_another_node_is_the_cause(hub: RunHub, tmp_path: Path) -> None:
    """Mpirun ends with its exit code; what it ends on the other nodes is none."""
    gang = mpi_gang(hub, tmp_path, trainer(40, 0.02), environment={"FAILS": "1 5"})

    assert gang.run() == [3, 3]

    assert hub.tags["cause"] == "the program of node 0 ended with exit code 3"
    assert (hub.statuses, hub.tags["attempt"]) == (["FAILED"], "0")


def test_a_killed_daemon_is_the_cause_and_repeated_in_place(hub: RunHub, tmp_path: Path) -> None:
    """Mpirun is its victim; the next attempt goes on from the checkpoint."""
    gang = mpi_gang(hub, tmp_path, trainer(30, 0.05))
    gang.start()
    wait_for(lambda: len(list(gang.checkpoints.glob("step-*[0-9]"))) > 4)

    os.kill(gang.wait_for_program(1), signal.SIGKILL)

    assert gang.codes() == [0, 0]
    assert f"end {final_value(2, 30)}\n" in gang.output(0, 1)
    assert "begin 0\n" not in gang.output(0, 1)
    cause = "the program of node 1 was killed by signal 9, Killed: attempt 1 goes on from checkpoint step-"
    assert hub.tags["restart.1"].startswith(cause)
    assert (hub.tags["exit.0.1"], hub.tags["attempt"], hub.statuses) == ("137", "1", ["FINISHED"])


@pytest.mark.nightly
def test_a_lost_node_ends_the_others_for_a_new_start(hub: RunHub, tmp_path: Path) -> None:
    """New agents go on from the checkpoint as the next attempt."""
    gang = mpi_gang(hub, tmp_path, trainer(30, 0.05))
    gang.start()
    wait_for(lambda: len(list(gang.checkpoints.glob("step-*[0-9]"))) > 4)
    program = gang.wait_for_program(1)

    kill(gang.processes[1])
    os.killpg(program, signal.SIGKILL)

    assert gang.nodes[0].end_of(gang.processes[0]) == 200
    assert gang.run() == [0, 0]
    assert f"end {final_value(2, 30)}\n" in gang.output(0, 1)
    assert hub.tags["restart.1"].startswith("node 1 (machine-1) was lost: attempt 1 goes on from checkpoint step-")


def test_a_stop_on_another_node_stops_mpirun(hub: RunHub, tmp_path: Path) -> None:
    """Within its time to end, and with who has stopped the run."""
    gang = mpi_gang(hub, tmp_path, trainer(400, 0.05))
    gang.start()
    gang.wait_for_program(1)
    began = time.monotonic()

    gang.processes[1].send_signal(signal.SIGTERM)

    assert gang.codes() == [201, 201]
    assert time.monotonic() - began < 8
    assert (hub.statuses, hub.tags["cause"]) == (["KILLED"], "stopped by SIGTERM, as at a shutdown")


# What mpirun does: it calls the agent as ssh, and sees its exit code.
_CALL = """
trap "" TERM
$HYDRA_LAUNCHER_EXEC 127.0.0.2 true && echo true
$PRTE_MCA_plm_ssh_agent 127.0.0.9 true 2>&1
$OMPI_MCA_plm_rsh_agent -x 127.0.0.2 echo '$PWD $LEFT $BEDPLATE_ATTEMPT;' "exit 7"
echo $?
"""


def test_the_agent_takes_the_place_of_ssh(hub: RunHub, tmp_path: Path) -> None:
    """Its words are a command of the shell there, options come before the host, and the exit code returns."""
    gang = mpi_gang(hub, tmp_path, [*SHELL, _CALL])

    assert gang.run() == [7, 7]

    error = "127.0.0.9 does not run ['true']: the connection has ended"
    assert gang.output(0).splitlines() == ["true", error, "7"]
    assert gang.output(3) == f"{gang.nodes[1].folder}/work yes 0\n"
    assert (hub.tags["exit.0.1"], hub.tags["exit.0.3"]) == ("0", "7")
    assert hub.tags["cause"] == "rank 3 ended with exit code 7"


def test_what_mpirun_leaves_behind_ends_with_it(hub: RunHub, tmp_path: Path) -> None:
    """Its exit code is no cause."""
    script = "$OMPI_MCA_plm_rsh_agent 127.0.0.2 'echo here; exec sleep 60' & sleep 1; kill $!"
    gang = mpi_gang(hub, tmp_path, [*SHELL, script])

    assert gang.run() == [0, 0]

    assert gang.output(1) == "here\n"
    assert (hub.statuses, hub.tags["cause"]) == (["FINISHED"], "the program of node 0 ended with exit code 0")


def test_a_stop_of_a_host_after_the_end_of_mpirun_is_no_cause(hub: RunHub, tmp_path: Path) -> None:
    """The run has succeeded: it is not repeated for what lingers on a machine that goes."""
    remote = """$OMPI_MCA_plm_rsh_agent 127.0.0.2 'trap "" TERM; echo here; sleep 60' &"""
    gang = mpi_gang(hub, tmp_path, [*SHELL, f"{remote} while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"])
    gang.start()
    wait_for(lambda: gang.output(1))
    (tmp_path / "go").touch()
    wait_for(lambda: "exit.0.0" in hub.tags)

    gang.processes[1].send_signal(signal.SIGTERM)

    assert gang.codes() == [0, 0]
    assert (hub.statuses, hub.tags["cause"]) == (["FINISHED"], "the program of node 0 ended with exit code 0")


def test_a_host_that_is_out_of_memory_is_the_cause(hub: RunHub, tmp_path: Path) -> None:
    """Mpirun on node 0 only ends as if by a signal. The counter of the kernel is injected."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "memory.events").write_text("oom_kill 0\n")
    script = f"""$OMPI_MCA_plm_rsh_agent 127.0.0.2 'echo "oom_kill 1" >{own}/memory.events'; exit 137"""
    gang = mpi_gang(hub, tmp_path, [*SHELL, script])
    gang.nodes[1].cgroup = own

    assert gang.run() == [137, 137]

    assert hub.tags["cause"] == "the program of node 1 was out of memory: the kernel has killed a process"
    assert (hub.statuses, hub.tags["attempt"]) == (["FAILED"], "0")


def test_only_who_has_the_token_starts_something(hub: RunHub, tmp_path: Path) -> None:
    """Not another account of the same machine."""
    gang = mpi_gang(hub, tmp_path, [*SHELL, "echo ready; sleep 60"])
    gang.start()
    wait_for(lambda: "ready" in gang.output(0))

    with closing(connect("127.0.0.1", gang.port, "other", 0)) as link:
        link.send("remote", host="127.0.0.2", command="true")
        with pytest.raises(OSError, match="has ended"):
            link.receive()

    assert not gang.program_of(1)
    gang.processes[0].send_signal(signal.SIGTERM)
    assert gang.codes() == [201, 201]
