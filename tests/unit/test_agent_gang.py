"""Agents of several nodes as processes of this machine: they start, stop, restart and end together."""

import fcntl
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path

import pytest

from bedplate.programs.agent.links import Link, connect
from bedplate.programs.agent.restarts import History
from tests.testlab.fakes.gangs import ID, AgentGang, final_value, pod_variables, trainer
from tests.testlab.fakes.laptop import TOKEN
from tests.testlab.fakes.runs import RunHub, wait_for


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunHub]:
    """Yield a hub without runs."""
    with RunHub(tmp_path) as hub:
        yield hub


SHELL = ["sh", "-c"]


def test_a_gang_runs_as_one_program(hub: RunHub, tmp_path: Path) -> None:
    """Each node has its ranks, and the record one end with the ends of all."""
    gang = AgentGang(hub, tmp_path, 3, trainer(5, 0.01))

    assert gang.run() == [0, 0, 0]

    value = final_value(3, 5)
    assert [gang.log(rank) for rank in range(3)] == [f"begin 0\nend {value}\n"] * 3
    assert [hub.tags[f"exit.0.{rank}"] for rank in range(3)] == ["0"] * 3
    assert [hub.tags[f"node.{node}"] for node in range(3)] == [f"machine-{node}" for node in range(3)]
    assert (hub.tags["state"], hub.tags["nodes"], hub.tags["attempt"], hub.tags["code"]) == ("ended", "3", "0", "0")
    assert (hub.statuses, hub.ends, hub.tags["checkpoint"]) == (["FINISHED"], 1, "step-000005")


@pytest.mark.nightly
def test_no_node_starts_before_all_are_there(hub: RunHub, tmp_path: Path) -> None:
    """A node that comes late is waited for; nothing of the program runs before."""
    gang = AgentGang(hub, tmp_path, 2, trainer(1, 0))
    for run in gang.nodes:
        run.prepare()
    first = gang.nodes[0].agent("run", "--folder", str(gang.nodes[0].folder))
    time.sleep(5)

    assert not gang.output(0)
    gang.processes = [first, gang.nodes[1].agent("run", "--folder", str(gang.nodes[1].folder))]
    assert gang.codes() == [0, 0]
    # Machines that a run waits for cost its budget nothing.
    assert [int(value) < 4 for name, value in hub.tags.items() if name.startswith("ran.")] == [True]


@pytest.mark.parametrize(
    ("own", "interfaces"),
    [({}, "lo =lo"), ({"GLOO_SOCKET_IFNAME": "eth7", "NCCL_SOCKET_IFNAME": "^tun"}, "eth7 ^tun")],
)
def test_ranks_meet_on_the_interface_to_the_first_node(
    own: dict[str, str], interfaces: str, hub: RunHub, tmp_path: Path
) -> None:
    """Else gloo uses 127.0.1.1 on Debian, and NCCL any tunnel; a variable of the person stays."""
    gang = AgentGang(hub, tmp_path, 2, [*SHELL, "echo $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"], environment=own)

    assert gang.run() == [0, 0]

    assert [gang.output(rank) for rank in range(2)] == [f"{interfaces}\n"] * 2


def test_code_travels_once_from_the_hub(hub: RunHub, tmp_path: Path) -> None:
    """The other nodes get it from the first, which may be in another region than the hub."""
    gang = AgentGang(hub, tmp_path, 3, [*SHELL, "cat a"])
    pack = gang.nodes[0].given["packs"]

    assert gang.run() == [0, 0, 0]

    assert hub.fetched == pack


def test_who_has_the_token_gets_the_packs_of_the_run_only(hub: RunHub, tmp_path: Path) -> None:
    """Not the other files of node 0. What it does not have, the hub is asked for."""
    gang = AgentGang(hub, tmp_path, 2, [*SHELL, "echo ready; sleep 60"])
    gang.start()
    wait_for(lambda: "ready" in gang.output(0))

    for name in ("../token", "none.pack", f"../{ID}/run.json"):
        with closing(connect("127.0.0.1", gang.port, TOKEN, 0)) as link:
            link.send("fetch", pack=name)
            with pytest.raises(OSError, match="has ended"):
                link.receive_file(tmp_path / "stolen")
    assert not (tmp_path / "stolen").exists()
    gang.processes[0].send_signal(signal.SIGTERM)
    assert gang.codes() == [201, 201]


def test_a_node_without_code_ends_the_gang_before_its_start(hub: RunHub, tmp_path: Path) -> None:
    """Exit code 203 everywhere, and the cause of that node."""
    gang = AgentGang(hub, tmp_path, 2, trainer(1, 0))
    gang.nodes[1].given["packs"] = ["packs/ada/none.pack"]

    assert gang.run() == [203, 203]

    assert hub.tags["cause"].startswith("no code: the hub refuses")
    assert (hub.statuses, gang.output(0)) == (["FAILED"], "")


def test_a_node_that_is_stopped_before_the_start_keeps_no_other_waiting(hub: RunHub, tmp_path: Path) -> None:
    """Its machine shuts down while it waits for the first node, which starts later."""
    gang = AgentGang(hub, tmp_path, 2, trainer(40, 0.05))
    for run in gang.nodes:
        run.prepare()
    second = gang.nodes[1].agent("run", "--folder", str(gang.nodes[1].folder))
    wait_for((gang.nodes[1].folder / "started").exists)
    first = gang.nodes[0].agent("run", "--folder", str(gang.nodes[0].folder))
    gang.processes = [first, second]
    wait_for(lambda: answers(gang.port))
    second.send_signal(signal.SIGTERM)

    assert gang.codes() == [201, 201]

    assert hub.tags["cause"].startswith("stopped by SIGTERM")
    assert hub.statuses == ["KILLED"]


@pytest.mark.nightly
def test_a_first_node_that_fetches_slowly_hears_of_the_end(hub: RunHub, tmp_path: Path) -> None:
    """Another node was stopped, and has left before."""
    gang = AgentGang(hub, tmp_path, 2, trainer(40, 0.05))
    gang.nodes[0].before = """
import time
fetch = run.Run._fetch
run.Run._fetch = lambda *words: (time.sleep(9), fetch(*words))
"""
    gang.start()
    wait_for(lambda: answers(gang.port) and (gang.nodes[1].folder / "started").exists())
    time.sleep(0.2)

    gang.processes[1].send_signal(signal.SIGTERM)

    assert gang.codes() == [201, 201]
    assert hub.statuses == ["KILLED"]


def answers(port: int) -> bool:
    """Return whether something listens on a port of this machine."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_a_killed_rank_is_repeated_in_place_within_seconds(hub: RunHub, tmp_path: Path) -> None:
    """All ranks go on from the newest checkpoint; the end is that of an uninterrupted run."""
    gang = AgentGang(hub, tmp_path, 2, trainer(40, 0.05))
    gang.start()
    wait_for(lambda: len(list(gang.checkpoints.glob("step-*[0-9]"))) > 4)

    os.kill(gang.wait_for_program(1), signal.SIGKILL)
    killed = time.monotonic()
    wait_for(lambda: "begin" in gang.output(1, 1))
    seconds = time.monotonic() - killed

    assert gang.codes() == [0, 0]
    assert seconds < 5
    assert gang.output(0, 1).endswith(f"end {final_value(2, 40)}\n")
    assert not gang.output(0, 1).startswith("begin 0\n")
    cause = "the program of node 1 was killed by signal 9, Killed: attempt 1 goes on from checkpoint step-"
    assert hub.tags["restart.1"].startswith(cause)
    assert (hub.tags["exit.0.1"], hub.tags["attempt"], hub.statuses) == ("137", "1", ["FINISHED"])


def test_an_own_failure_is_the_cause_and_its_victims_are_none(hub: RunHub, tmp_path: Path) -> None:
    """The peers lose their connection at the same moment; the run is not repeated."""
    gang = AgentGang(hub, tmp_path, 3, trainer(40, 0.02), environment={"FAILS": "1 9"})

    assert gang.run() == [3, 3, 3]

    assert hub.tags["cause"] == "the program of node 1 ended with exit code 3"
    assert (hub.statuses, hub.tags["attempt"]) == (["FAILED"], "0")


def test_own_failures_are_repeated_on_request(hub: RunHub, tmp_path: Path) -> None:
    """RESTARTS times, each attempt with logs of its own."""
    command = [*SHELL, "echo $BEDPLATE_ATTEMPT; exit 3"]
    gang = AgentGang(hub, tmp_path, 1, command, restarts=2, scratch_ok="1")

    assert gang.run() == [3]

    assert [gang.log(0, attempt) for attempt in range(4)] == ["0\n", "1\n", "2\n", ""]
    assert hub.tags["cause"] == "the program ended with exit code 3"


def test_a_stop_on_one_node_stops_all_within_a_second(hub: RunHub, tmp_path: Path) -> None:
    """Every rank gets the signal and its time; the record has who has stopped the run."""
    script = "trap 'date +%s.%N; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    gang = AgentGang(hub, tmp_path, 3, [*SHELL, script])
    gang.start()
    wait_for(lambda: all("ready" in gang.output(rank) for rank in range(3)))
    (gang.nodes[2].folder / "stop.json").write_text('{"by": "ada", "now": false}')

    now = time.time()
    gang.processes[2].send_signal(signal.SIGTERM)

    assert gang.codes() == [201, 201, 201]
    assert all(0 < float(gang.output(rank).split()[1]) - now < 1 for rank in range(3))
    assert (hub.tags["cause"], hub.statuses) == ("stopped by ada", ["KILLED"])


def lose_node(gang: AgentGang, node: int) -> None:
    """Start a gang, and kill all of a node after some checkpoints."""
    gang.start()
    wait_for(lambda: len(list(gang.checkpoints.glob("step-*[0-9]"))) > 4)
    program = gang.wait_for_program(node)
    gang.processes[node].kill()
    os.kill(program, signal.SIGKILL)


@pytest.mark.nightly
def test_a_lost_node_ends_the_others_for_a_new_start(hub: RunHub, tmp_path: Path) -> None:
    """They leave with 200, the record waits; new agents go on from the checkpoint as the next attempt."""
    gang = AgentGang(hub, tmp_path, 3, trainer(60, 0.05))
    lose_node(gang, 2)

    assert gang.codes() == [200, 200, -9]
    assert (hub.tags["state"], hub.statuses) == ("queued", [])
    assert hub.tags["cause"].startswith("node 2 (machine-2) was lost: attempt 1 goes on from checkpoint step-")
    assert gang.run() == [0, 0, 0]
    assert hub.tags["restart.1"].startswith("node 2 (machine-2) was lost: attempt 1 goes on from checkpoint step-")
    assert gang.output(0, 1).endswith(f"end {final_value(3, 60)}\n")
    assert (hub.tags["attempt"], hub.tags["state"], hub.statuses) == ("1", "ended", ["FINISHED"])


@pytest.mark.nightly
def test_a_lost_coordinator_ends_the_others_for_a_new_start(hub: RunHub, tmp_path: Path) -> None:
    """Its successor knows from the record what was there, and the cause."""
    gang = AgentGang(hub, tmp_path, 2, trainer(60, 0.05))
    lose_node(gang, 0)

    assert gang.codes() == [-9, 200]
    (gang.nodes[0].folder / "history.json").unlink()
    assert gang.run() == [0, 0]
    assert hub.tags["restart.1"].startswith("the agent of node 0 ended before its program: attempt 1 goes on from ch")
    assert gang.output(1, 1).endswith(f"end {final_value(2, 60)}\n")


@pytest.mark.nightly
def test_a_hub_that_is_away_keeps_no_run_from_its_restart(hub: RunHub, tmp_path: Path) -> None:
    """What was there is beside the checkpoints, too; the record gets everything later."""
    gang = AgentGang(hub, tmp_path, 2, trainer(60, 0.05))
    lose_node(gang, 0)
    gang.codes()
    hub.is_away, gang.nodes[0].pauses["_PATIENCE"] = True, 1
    hub.end_connections()

    gang.start()
    wait_for(lambda: gang.output(0, 1))
    hub.is_away = False

    assert gang.codes() == [0, 0]
    assert gang.log(0, 1).endswith(f"end {final_value(2, 60)}\n")


@pytest.mark.nightly
def test_a_checkpoint_whose_name_is_no_text_keeps_nothing_from_the_record(hub: RunHub, tmp_path: Path) -> None:
    """PostgreSQL refuses such a tag, and with it all that are sent with it."""
    script = "echo x >$BEDPLATE_CHECKPOINTS/$(printf 'a\\377'); sleep 2"
    gang = AgentGang(hub, tmp_path, 1, [*SHELL, script])

    assert gang.run() == [0]

    assert hub.tags["checkpoint"] == "a?"


@pytest.mark.nightly
def test_no_second_attempt_from_scratch(hub: RunHub, tmp_path: Path) -> None:
    """A program that writes no checkpoint ends with its first cause and what allows more."""
    gang = AgentGang(hub, tmp_path, 2, trainer(100, 0.1, 1_000))
    gang.start()
    wait_for(lambda: gang.output(0) and gang.output(1))

    os.kill(gang.wait_for_program(1), signal.SIGKILL)

    assert gang.codes() == [137, 137]
    assert hub.tags["cause"].startswith("the program of node 1 was killed by signal 9, Killed; not repeated: ")
    assert "--scratch-ok" in hub.tags["cause"]
    assert hub.statuses == ["FAILED"]


IGNORES = """
echo "attempt $BEDPLATE_ATTEMPT"
if [ $BEDPLATE_ATTEMPT = 0 ]; then echo x >"$BEDPLATE_CHECKPOINTS/one"; sleep 2; kill -9 $$; fi
%s
sleep 60
"""


@pytest.mark.nightly
def test_a_program_that_ignores_its_checkpoint_is_stopped_and_named(hub: RunHub, tmp_path: Path) -> None:
    """At attempt 2, when the time to open it is over."""
    gang = AgentGang(hub, tmp_path, 1, [*SHELL, IGNORES % ""])
    gang.nodes[0].before = "from bedplate.programs.agent import gang; gang._OPEN_LEAST = 2"

    assert gang.run() == [1]

    assert hub.tags["cause"].startswith("attempt 1 has not opened checkpoint one: stopped, so that it does not begin")
    assert (hub.statuses, gang.log(0, 1)) == (["FAILED"], "attempt 1\n")


@pytest.mark.nightly
def test_a_new_checkpoint_before_the_old_one_is_opened_stops_at_once(hub: RunHub, tmp_path: Path) -> None:
    """The program has begun from scratch."""
    gang = AgentGang(hub, tmp_path, 1, [*SHELL, IGNORES % 'echo x >"$BEDPLATE_CHECKPOINTS/two"'])

    assert gang.run() == [1]

    assert "has not opened checkpoint one" in hub.tags["cause"]


@pytest.mark.nightly
@pytest.mark.parametrize("way", ['cat "$BEDPLATE_RESUME"', 'touch "$BEDPLATE_RESUMED"'])
def test_a_program_that_opens_its_checkpoint_goes_on(way: str, hub: RunHub, tmp_path: Path) -> None:
    """By the kernel's word, or by its own, if it reads checkpoints elsewhere."""
    gang = AgentGang(hub, tmp_path, 1, [*SHELL, IGNORES % f"{way}; sleep 3; exit 0"])
    gang.nodes[0].before = "from bedplate.programs.agent import gang; gang._OPEN_LEAST = 2"

    assert gang.run() == [0]


LATE = """
cd "$BEDPLATE_CHECKPOINTS"
if [ $BEDPLATE_ATTEMPT = 0 ]; then echo x >one; sleep 2; echo x >two; kill -9 $$; fi
sleep 4; cat "$BEDPLATE_RESUME"
"""


def test_a_checkpoint_of_the_last_moment_is_not_one_of_the_next_attempt(hub: RunHub, tmp_path: Path) -> None:
    """A program that takes its time to open it, such as for its imports, is not stopped for it."""
    gang = AgentGang(hub, tmp_path, 1, [*SHELL, LATE])

    assert gang.run() == [0]

    assert hub.tags["restart.1"].endswith("goes on from checkpoint two")


@pytest.mark.nightly
def test_a_time_limit_counts_all_attempts(hub: RunHub, tmp_path: Path) -> None:
    """Not each of them."""
    script = "echo ready; [ $BEDPLATE_ATTEMPT = 0 ] && sleep 1.5 && exit 3; sleep 60"
    gang = AgentGang(hub, tmp_path, 2, [*SHELL, script], restarts=1, scratch_ok="1", **{"for": 3})
    start = time.monotonic()

    assert gang.run() == [201, 201]

    assert time.monotonic() - start < 12
    assert (hub.tags["cause"], hub.statuses) == ("stopped: its time was over", ["KILLED"])


def test_a_program_has_run_before_it_runs(hub: RunHub, tmp_path: Path) -> None:
    """So that a successor of an agent that is killed at this moment does not begin from scratch."""
    gang = AgentGang(hub, tmp_path, 1, [*SHELL, "cat ../history.json"])

    assert gang.run() == [0]

    assert '"has_run": true' in gang.output(0)


@pytest.mark.nightly
def test_time_counts_also_if_the_agent_is_killed(hub: RunHub, tmp_path: Path) -> None:
    """At least until the newest checkpoint, without which a run does not go on."""
    script = "[ $BEDPLATE_RESUME ] || { sleep 2; echo x >$BEDPLATE_CHECKPOINTS/one; }; cat $BEDPLATE_RESUME; sleep 60"
    gang = AgentGang(hub, tmp_path, 1, [*SHELL, script], **{"for": 4})
    gang.start()
    wait_for(lambda: "checkpoint" in hub.tags)
    program = gang.wait_for_program(0)
    gang.processes[0].kill()
    os.kill(program, signal.SIGKILL)
    gang.codes()
    start = time.monotonic()

    assert gang.run() == [201]

    assert (hub.tags["cause"], hub.tags["attempt"]) == ("stopped: its time was over", "1")
    assert time.monotonic() - start < 3.5


def test_a_run_that_is_over_is_not_started_again(hub: RunHub, tmp_path: Path) -> None:
    """Its agents may be killed between the decision and the end: their successors write that, whatever it was."""
    over = History(attempt=0, has_run=True, cause="the program ended with exit code 7", end=(7, False))
    hub.tags["history"] = over.text
    gang = AgentGang(hub, tmp_path, 2, [*SHELL, "echo again"])
    gang.checkpoints.mkdir()
    (gang.checkpoints / "one").write_text("1")

    assert gang.run() == [7, 7]

    assert (hub.tags["cause"], hub.tags["code"], hub.statuses) == (over.cause, "7", ["FAILED"])
    assert not gang.output(0)


def test_a_history_that_somebody_has_changed_ends_the_run(hub: RunHub, tmp_path: Path) -> None:
    """All nodes end with a sentence: none waits for a coordinator that has failed."""
    hub.tags["history"] = '{"attempt": 0, "has_run": true, "newest": "x/one"}'
    gang = AgentGang(hub, tmp_path, 2, trainer(1, 0))
    gang.checkpoints.mkdir()
    (gang.checkpoints / "one").write_text("1")

    assert gang.run() == [1, 1]

    assert hub.tags["cause"].startswith("the agent of node 0 has failed: ValueError")
    assert hub.statuses == ["FAILED"]


def test_the_hub_can_stop_a_run(hub: RunHub, tmp_path: Path) -> None:
    """At the next report, with its reason."""
    gang = AgentGang(hub, tmp_path, 2, [*SHELL, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"])
    gang.start()
    wait_for(lambda: gang.output(1))

    hub.stop = "the budget of ada is used up"

    assert gang.codes() == [201, 201]
    assert (hub.tags["cause"], hub.statuses) == ("the budget of ada is used up", ["KILLED"])


def pods(hub: RunHub, tmp_path: Path, nodes: int, command: list[str], **variables: str) -> AgentGang:
    """Start a gang whose agents have their settings in their environment, as in pods, with more variables."""
    gang = AgentGang(hub, tmp_path, nodes, command)
    for run in gang.nodes:
        run.prepare()
        run.environment |= pod_variables(run) | variables
    gang.processes = [run.agent("run", "--", *command) for run in gang.nodes]
    return gang


SAVES = [
    *SHELL,
    'echo x >"$BEDPLATE_CHECKPOINTS/$RANK"; trap "echo saved; exit 0" TERM; echo ready; while :; do sleep 0.05; done',
]


def test_a_pod_that_is_told_to_go_leaves_a_run_that_waits(hub: RunHub, tmp_path: Path) -> None:
    """A preemption, a drain or a spot notice: all ranks get their time, and the record has the cause and no end."""
    gang = pods(hub, tmp_path, 2, SAVES)
    wait_for(lambda: all(hub.log(rank) for rank in range(2)))

    gang.processes[1].send_signal(signal.SIGTERM)

    assert gang.codes() == [201, 201]
    assert [gang.log(rank) for rank in range(2)] == ["ready\nsaved\n"] * 2
    assert (hub.tags["state"], hub.statuses, hub.ends) == ("queued", [], 0)
    assert hub.tags["cause"].startswith("stopped by SIGTERM, as at a shutdown: attempt 1 goes on from checkpoint ")


@pytest.mark.parametrize(("seconds", "code", "statuses"), [("0.1", 203, ["FAILED"]), ("3600", 201, [])])
def test_a_pod_that_was_not_ready_in_its_time_is_not_made_again(
    seconds: str, code: int, statuses: list[str], hub: RunHub, tmp_path: Path
) -> None:
    """The next one would reach its deadline, too, such as with a slow build of its environment."""
    run = AgentGang(hub, tmp_path, 1, ["true"]).nodes[0]
    run.prepare()
    run.before = f"""
import time
from pathlib import Path
run.Run._fetch = lambda *_: (Path({str(tmp_path)!r}, "fetches").touch(), time.sleep(30))
"""
    run.environment |= {**pod_variables(run), "BEDPLATE_FOR": seconds}
    process = run.agent("run", "--", "true")
    wait_for((tmp_path / "fetches").exists)
    time.sleep(0.2)

    process.send_signal(signal.SIGTERM)

    assert run.end_of(process) == code
    assert hub.statuses == statuses


def test_old_variables_of_an_image_are_named(hub: RunHub, tmp_path: Path) -> None:
    """In the record and in the log; those that the person gives are a choice, and the program has all of them."""
    old = {"FI_EFA_USE_DEVICE_RDMA": "1", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth7", "RDMAV_FORK_SAFE": ""}
    own = {"NCCL_PROTO": "simple", "BEDPLATE_ENV": "SEED NCCL_PROTO"}
    gang = pods(hub, tmp_path, 2, [*SHELL, "echo $NCCL_PROTO $NCCL_IB_DISABLE"], **old, **own)

    assert gang.codes() == [0, 0]

    note = "the image sets FI_EFA_USE_DEVICE_RDMA=1 (obsolete), NCCL_IB_DISABLE=1 (hides the fabric), "
    note += "NCCL_SOCKET_IFNAME=eth7 (may be no interface here)"
    assert hub.tags["note"] == note
    assert [gang.log(rank) for rank in range(2)] == [f"bedplate: {note}\nsimple 1\n", "simple 1\n"]


def test_a_lost_pod_of_which_the_hub_has_not_heard_is_not_repeated_from_scratch(hub: RunHub, tmp_path: Path) -> None:
    """What has run is also known by the folder of checkpoints: that of the pod is gone, and the hub was away."""
    gang = pods(hub, tmp_path, 1, [*SHELL, "echo ready; exec sleep 5"])
    wait_for(lambda: hub.log(0))
    pod = gang.nodes[0].folder.parent / "pod"
    gang.processes[0].kill()
    assert gang.codes() == [-9]
    hub.tags.pop("history")
    shutil.rmtree(pod)
    pod.mkdir()

    gang.processes = [gang.nodes[0].agent("run", "--", *SHELL, "echo ready")]

    assert gang.codes() == [1]
    assert hub.tags["code"] == "137"
    assert "has no complete checkpoint, and --scratch-ok is not given" in hub.tags["cause"]


def test_a_pod_that_a_person_stops_ends_its_run(hub: RunHub, tmp_path: Path) -> None:
    """By the tag that bp writes before it deletes the JobSet; the status of a notice is not used."""
    gang = pods(hub, tmp_path, 2, SAVES)
    wait_for(lambda: all(hub.log(rank) for rank in range(2)))
    hub.tags["stopped_by"] = "ada"

    for process in gang.processes:
        process.send_signal(signal.SIGTERM)

    assert gang.codes() == [1, 1]
    assert (hub.tags["cause"], hub.tags["code"], hub.statuses) == ("stopped by ada", "201", ["KILLED"])


LEASES = """#!/bin/sh
# bedplate-gpus run --gpus=N --wait=60 -- sh -c SCRIPT SELF: one lease for all, kept by the open file of the program.
exec 9>>{lock}
echo "asks $BEDPLATE_NODE" >>{log}
flock -w 1 9 || exit 202
echo "has $BEDPLATE_NODE" >>{log}
while [ "$1" != -- ]; do shift; done
shift
export CUDA_VISIBLE_DEVICES=GPU-$BEDPLATE_NODE
exec "$@"
"""


def leased(hub: RunHub, tmp_path: Path, command: list[str]) -> AgentGang:
    """Return a gang of two nodes with two GPUs each, whose leases are locks of files."""
    gang = AgentGang(hub, tmp_path, 2, command, gpus=2)
    for node, run in enumerate(gang.nodes):
        program = tmp_path / f"gpus-{node}"
        program.write_text(LEASES.format(lock=tmp_path / f"lock-{node}", log=tmp_path / "leases"))
        program.chmod(0o755)
        run.environment["BEDPLATE_NODE"] = str(node)
        run.before = f"from bedplate.programs.agent import gang, member; member.GPUS = {str(program)!r}"
        run.before += "; gang._PAUSES = (0.5, 1)"
    return gang


def test_a_gang_takes_its_leases_in_turn(hub: RunHub, tmp_path: Path) -> None:
    """Node 0 first; its ranks have these GPUs, and the leases end with the gang."""
    gang = leased(hub, tmp_path, [*SHELL, 'echo "$RANK $WORLD_SIZE $CUDA_VISIBLE_DEVICES"'])

    assert gang.run() == [0, 0]

    assert [gang.output(rank) for rank in range(4)] == [f"{rank} 4 GPU-{rank // 2}\n" for rank in range(4)]
    assert (tmp_path / "leases").read_text().split() == ["asks", "0", "has", "0", "asks", "1", "has", "1"]
    for node in range(2):
        with (tmp_path / f"lock-{node}").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.nightly
def test_a_gang_without_all_leases_keeps_none(hub: RunHub, tmp_path: Path) -> None:
    """It waits again a moment later, so that two gangs do not wait for each other without end."""
    gang = leased(hub, tmp_path, [*SHELL, "echo ready"])
    with (tmp_path / "lock-1").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        gang.start()
        wait_for(lambda: (tmp_path / "leases").exists() and (tmp_path / "leases").read_text().count("has 0") > 1)
        assert not gang.output(0)

    assert gang.codes() == [0, 0]
    assert (tmp_path / "leases").read_text().endswith("has 1\n")


@pytest.mark.nightly
def test_a_lease_that_an_administrator_ends_stops_the_gang(hub: RunHub, tmp_path: Path) -> None:
    """The GPUs are for others then; the run goes on as after any end from outside."""
    gang = leased(hub, tmp_path, [*SHELL, "echo ready; sleep 60"])
    gang.start()
    wait_for(lambda: gang.output(3))

    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes() == b"cat\0" and path.with_name("fd").joinpath("9").readlink() == tmp_path / "lock-1":
                os.kill(int(path.parent.name), signal.SIGTERM)

    assert 0 not in gang.codes()
    assert "ready" in gang.output(0)


class Wire:
    """Both ends of connections, which end with the test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """Return the two ends of a new connection."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            one = self._stack.enter_context(socket.create_connection(listener.getsockname()))
            return one, self._stack.enter_context(listener.accept()[0])

    def link(self, end: socket.socket, token: str, *, is_coordinator: bool) -> Link:
        """Return a link over one end."""
        return self._stack.enter_context(closing(Link(end, token, is_coordinator=is_coordinator)))

    def links(self, first: str, second: str) -> tuple[Link, Link]:
        """Return the links of a coordinator and a member with these tokens."""
        one, other = self.sockets()
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(self.link, one, first, is_coordinator=True)
            member = self.link(other, second, is_coordinator=False)
            return found.result(), member


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Yield connections that end with the test."""
    with ExitStack() as stack:
        yield Wire(stack)


def test_two_agents_with_one_token_understand_each_other(wire: Wire) -> None:
    """Both ways, in order."""
    coordinator, member = wire.links("t", "t")
    member.send("join", node=1)
    member.send("beat")
    member.send("started")
    coordinator.send("start", attempt=0)

    assert coordinator.receive() == {"type": "join", "node": 1}
    assert coordinator.receive() == {"type": "started"}
    assert member.receive() == {"type": "start", "attempt": 0}


def test_another_token_is_refused_on_both_sides(wire: Wire) -> None:
    """Neither takes a message of a stranger."""
    coordinator, member = wire.links("t", "u")
    coordinator.send("start")
    member.send("join", node=1)

    for link in (coordinator, member):
        with pytest.raises(ConnectionError, match="another token"):
            link.receive()


@pytest.mark.parametrize(
    "line",
    [b"", b"x\n", b'{"type": "start"}\n', b"0" * 64 + b' {"type": "stop"}\n', b"\xff" * 99],
    ids=["none", "word", "json", "code", "bytes"],
)
def test_lines_of_others_are_refused(line: bytes, wire: Wire) -> None:
    """Also on a connection that was accepted."""
    one, other = wire.sockets()
    other.sendall(b"0" * 64 + b"\n" + line)
    link = wire.link(one, "t", is_coordinator=True)
    other.shutdown(socket.SHUT_WR)

    with pytest.raises((ConnectionError, ValueError)):
        link.receive()


def test_the_token_does_not_travel(wire: Wire) -> None:
    """Who listens between two agents learns nothing that opens the hub, and what he repeats is refused."""
    one, other = wire.sockets()
    other.sendall(b"0" * 64 + b"\n")
    wire.link(one, TOKEN, is_coordinator=False).send("join", node=1)
    first = other.recv(4096)
    again, replay = wire.sockets()
    replay.sendall(first)
    link = wire.link(again, TOKEN, is_coordinator=True)

    assert TOKEN.encode() not in first
    with pytest.raises(ConnectionError):
        link.receive()


def test_a_silent_peer_is_lost(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """After seconds without a sign of life, as when its machine has lost power."""
    monkeypatch.setattr("bedplate.programs.agent.links.LOST", 0.3)
    coordinator, _ = wire.links("t", "t")

    with pytest.raises(TimeoutError):
        coordinator.receive()


def is_reached(stranger: socket.socket, port: int) -> bool:
    """Connect to a port of this machine; return whether that succeeds."""
    return not stranger.connect_ex(("127.0.0.1", port))


def test_a_stranger_who_sends_a_byte_now_and_then_is_cut_off(hub: RunHub, tmp_path: Path) -> None:
    """Nobody keeps a thread of the agent without the token."""
    gang = AgentGang(hub, tmp_path, 2, trainer(1, 0))
    gang.nodes[0].before = "from bedplate.programs.agent import gang; gang.LOST = 0.5"
    gang.nodes[0].prepare()
    process = gang.nodes[0].agent("run", "--folder", str(gang.nodes[0].folder))
    with socket.socket() as stranger:
        wait_for(partial(is_reached, stranger, gang.port))
        stranger.settimeout(0.1)
        stranger.recv(4096)
        end, is_open = time.monotonic() + 3, True
        while is_open and time.monotonic() < end:
            with suppress(TimeoutError):
                stranger.sendall(b"0")
                is_open = bool(stranger.recv(4096))
    process.send_signal(signal.SIGTERM)
    gang.nodes[0].end_of(process)

    assert not is_open


@pytest.mark.nightly
def test_strangers_do_not_disturb_a_gang(hub: RunHub, tmp_path: Path) -> None:
    """Connections without the token, of no use, or silent: the gang starts and ends."""
    gang = AgentGang(hub, tmp_path, 2, trainer(3, 0))
    for run in gang.nodes:
        run.prepare()
    first = gang.nodes[0].agent("run", "--folder", str(gang.nodes[0].folder))
    with ExitStack() as stack:
        for number in range(40):
            stranger = stack.enter_context(socket.socket())
            wait_for(partial(is_reached, stranger, gang.nodes[0].given["port"]))
            stranger.sendall((b"", b"GET / HTTP/1.1\r\n\r\n", b"0" * 64 + b'\n{"type": "join"}\n')[number % 3])
        gang.processes = [first, gang.nodes[1].agent("run", "--folder", str(gang.nodes[1].folder))]

        assert gang.codes() == [0, 0]
