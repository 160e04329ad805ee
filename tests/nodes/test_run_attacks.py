"""What a person with a shell can do to the runs of another on one machine, and what their own run can do."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bedplate.plan.fleet import Account
from roles.jobs.role import Jobs
from tests.nodes.test_run_agent import RUNS, Runner
from tests.testlab.fakes.runs import RunHub
from tests.testlab.machines.node_lab import Node, NodeLab, bind_socket
from tests.testlab.network.netlab import until

pytestmark = pytest.mark.nightly

_PEOPLE = (Account("runner", 20077, admin=False, keys=()), Account("grace", 20078, admin=False, keys=()))
_SMI = """#!/bin/sh
case $1 in --query-gpu=*) printf 'GPU-0, 0, [N/A], Disabled\\nGPU-1, 1, [N/A], Disabled\\n';; esac
"""
_GROUP = "/sys/fs/cgroup/user.slice/user-20077.slice"
_TRACE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0) != 0)"
# Each command succeeds if the attempt does; $P is the program of the other person, $A its agent, $F the folder.
_TRIES: Mapping[str, str] = {
    "list runs": f"ls {RUNS}/20077",
    "read the token": "cat $F/token",
    "read output": "cat $F/logs/0/0/000000",
    "read files of the run": "ls $F/output $F/work",
    "write an end": "touch $F/end.json",
    "replace the run": "mv $F /tmp/moved",
    "make the folder of a person who comes": f"mkdir {RUNS}/20079",
    "link the folder of a person who comes": f"ln -s /tmp {RUNS}/20079",
    "environment of the program": "cat /proc/$P/environ | grep .",
    "environment of the agent": "cat /proc/$A/environ | grep .",
    "open files of the agent": "ls /proc/$A/fd/ | grep .",
    "folder of the program": "ls /proc/$P/cwd/ | grep .",
    "memory of the agent": "head -c 1 /proc/$A/mem",
    "trace the agent": f"python3 -Ic '{_TRACE}' $A",
    "signal the program": "kill $P",
    "signal the agent": "kill -9 $A",
    "secrets in the list of processes": "ps -eww -o args | grep -v grep | grep -e hush -e 1893456000",
    "bus of the person": "busctl --address unix:path=/run/user/20077/bus list",
    "manager of the person": "systemctl --user -M runner@ list-units",
    "unit as the person": "systemd-run --uid=20077 true",
    "journal of the person": "journalctl --quiet _UID=20077 | grep .",
    "join the control group": f"echo $$ >$(dirname {_GROUP}/user@20077.service/x)/cgroup.procs",
    "another limit of memory": f"echo max >$(find {_GROUP} -name memory.max | head -1)",
    "freeze the run": f"echo 1 >$(find {_GROUP} -name cgroup.freeze | head -1)",
    "kill by the control group": f"echo 1 >$(find {_GROUP} -name cgroup.kill | head -1)",
    "stop by another path": "bedplate-agent stop ../20077/v-1",
    "follow by another path": "bedplate-agent follow ../20077/v-1",
    "end by another path": "bedplate-agent end --folder $F",
    "hard link to the token": "ln $F/token /tmp/token",
    "hard link to a file of root": "ln /run/bedplate/gpus/gpu-0 /run/bedplate/gpus/gpu-7 || ln /etc/shadow /tmp/shadow",
    "another GPU": "touch /run/bedplate/gpus/gpu-9 || ln -s gpu-0 /run/bedplate/gpus/gpu-9",
    "another UUID": "echo GPU-1 >/run/bedplate/gpus/gpu-0",
    "remove a lease": "rm -f /run/bedplate/gpus/gpu-0",
    "move a lease": "mv /run/bedplate/gpus/gpu-0 /run/bedplate/gpus/gpu-5",
    "close the folder of leases": "chmod 700 /run/bedplate/gpus",
    "another place": "touch /run/bedplate/gpus/wait/0",
    "mount over leases": "mount -t tmpfs tmpfs /run/bedplate/gpus",
    "mount over leases of all in a namespace": "unshare -Urm sh -c 'mount -t tmpfs tmpfs /run/bedplate/gpus'"
    " && ! ls /run/bedplate/gpus/gpu-0",
    "take the lease of another": "flock --nonblock /run/bedplate/gpus/gpu-0 true",
    "share the lease of another": "flock --nonblock --shared /run/bedplate/gpus/gpu-0 true",
    "prepare other leases": "bedplate-gpus prepare && ls /run/bedplate/gpus/gpu-2",
    "release of another": "bedplate-gpus release 0",
    "release of another by a path": "bedplate-gpus release ../gpus/gpu-0",
    "sudo": "sudo -n bedplate-gpus release 0",
    "linger for another": "loginctl enable-linger ada",
    "end the session": "loginctl kill-user runner",
    "own runs": f"ls {RUNS}/20078",
}


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return a node with what the role `jobs` has on it, two GPUs that nvidia-smi only names, and two people."""
    booted = node_lab.boot("titan-07", "10.64.33.7")
    files = [*Jobs(_PEOPLE, has_gpus=True).files()]
    for file in files:
        path = Path(f"{booted.root}{file.path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
        path.chmod(int(file.mode, 8))
    smi = booted.root / "usr/local/bin/nvidia-smi"
    smi.write_text(_SMI)
    smi.chmod(0o755)
    for person in _PEOPLE:
        booted.run(f"useradd --create-home --shell /bin/bash --uid {person.uid} {person.name}")
    booted.run("systemd-tmpfiles --create /etc/tmpfiles.d/bedplate-jobs.conf; bedplate-gpus prepare")
    for person in _PEOPLE:
        booted.run(
            f"loginctl enable-linger {person.name}; until systemctl is-active user@{person.uid}; do sleep 1; done"
        )
    return booted


@pytest.fixture
def hub(node: Node, node_lab: NodeLab, tmp_path: Path) -> Iterator[RunHub]:
    """Yield a hub on the loopback of the node."""
    with RunHub(tmp_path, listener=bind_socket(node_lab.hosts[node.name], "127.0.0.1", 0)) as hub:
        yield hub
        hub.shutdown()


def as_grace(node: Node, script: str) -> str:
    """Return the output of a script of the other person."""
    command = f"XDG_RUNTIME_DIR=/run/user/20078 PATH=/usr/local/bin:$PATH sh -c {shlex.quote(script)}"
    return node.run(f"runuser -u grace -- sh -c {shlex.quote(command)} 2>&1 </dev/null || true")


def gpu_0(node: Node) -> Any:  # noqa: ANN401  a document
    """What `show` of an administrator says about the first GPU."""
    return json.loads(node.run("bedplate-gpus show --json"))["gpus"][0]


def test_a_person_gets_nothing_of_the_runs_of_others(node: Node, hub: RunHub) -> None:
    """Neither files, processes, units nor leases; of processes only their words."""
    script = "echo ready; sleep 983"
    runner = Runner(
        node, hub, "v-1", script, gpus=1, launch="program", secrets={"KEY": "hush"}, environment={"E": "hush"}
    )
    assert runner.start()[0] == 0
    runner.wait_for_output("ready")
    setup = f"F={RUNS}/20077/v-1; P=$(pgrep -u runner -xf 'sleep 983'); A=$(pgrep -u runner -f bedplate-agent.run)"
    tries = "; ".join(f"({command}) >/dev/null 2>&1 && echo '{name}'" for name, command in _TRIES.items())

    out = as_grace(node, f"{setup}; echo $P $A; {tries}")

    first, *succeeded = out.splitlines()
    assert len(first.split()) == 2, out
    assert succeeded == ["own runs"]
    lease = gpu_0(node)
    assert (lease["person"], lease["run"]) == ("runner", "v-1")
    assert node.run("ls /run/bedplate/gpus | xargs") == "gpu-0 gpu-1 line wait\n"
    runner.agent("stop", "v-1", "--now")
    until(lambda: hub.ends == 1, 30, "no end of the record")


def test_a_lease_that_was_given_away_is_found_and_released(node: Node, hub: RunHub) -> None:
    """A process in another control group outlives run and agent, without limits: an administrator finds it."""
    script = """group=/sys/fs/cgroup$(grep ^0:: /proc/self/cgroup | cut -d: -f3)
mkdir ${group%/*}/kept
sleep 982 >/dev/null 2>&1 &
echo $! >${group%/*}/kept/cgroup.procs && kill -9 $(pgrep -u runner -f bedplate-agent.run)"""
    runner = Runner(node, hub, "v-2", script, gpus=1, launch="program", memory=1)
    runner.start()
    until(lambda: hub.ends == 1, 30, "no end of the record")
    assert hub.log() == b""
    lease = gpu_0(node)
    unit = node.run(f"cat /proc/{lease['process']}/cgroup")

    node.run("bedplate-gpus release 0")

    assert (lease["state"], lease["person"], lease["run"]) == ("leased", "runner", "kept")
    assert "bp-v-2" not in unit
    assert gpu_0(node)["state"] == "free"


@pytest.mark.parametrize("command", ["sudo -S true", "su root -c true", "passwd", "newgrp root"])
def test_a_program_of_root_gives_no_other_name(command: str, node: Node) -> None:
    """Who lets it wait for a password with a lock has it under the own name."""
    node.run("bedplate-gpus release line || true")
    hold = f"exec 9</run/bedplate/gpus/line; flock 9; (sleep 981 <&9) & exec {command} </dev/zero"
    node.run(f"runuser -u grace -- sh -c {shlex.quote(hold)} >/dev/null 2>&1 & sleep 1.5")

    waiting = json.loads(as_grace(node, "bedplate-gpus show --json"))["waiting"]
    seen = json.loads(node.run("bedplate-gpus show --json"))["waiting"]
    node.run("bedplate-gpus release line")

    assert {wish["person"] for wish in waiting} <= {"grace", "unknown"}, waiting
    assert [wish["person"] for wish in seen] == ["grace"]


def test_a_run_can_write_a_wrong_end_of_its_own_only(node: Node, hub: RunHub) -> None:
    """It may kill its agent, and write the end: the record then has what the program says, and nothing is left."""
    script = """echo ready
printf '{"code": 0, "cause": "\\\\u001b[2Jfine", "status": "FINISHED", "tags": {}}' >../end.json
setsid -f sh -c 'sleep 980; sleep 980'
kill -9 $(pgrep -u runner -f bedplate-agent.run)
sleep 980"""
    runner = Runner(node, hub, "v-3", script)
    runner.start()

    until(lambda: hub.ends == 1, 30, "no end of the record")

    assert hub.statuses == ["FINISHED"]
    assert "sleep 980" not in node.run("ps -eww -o args")


def test_ranks_of_a_run_are_reached_by_everybody_on_the_machine(node: Node, hub: RunHub) -> None:
    """The rendezvous of PyTorch has no password, and 127.0.0.1 belongs to all people: a known limit."""
    serve = "import os, socket; s = socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT']))); s.accept()"
    script = f'[ "$RANK" = 1 ] && exec sleep 979; echo "port $MASTER_PORT"; exec python3 -Ic "{serve}"'
    runner = Runner(node, hub, "v-4", script, gpus=2)
    runner.start()
    runner.wait_for_output("port")
    port = node.run(f"cat {runner.folder}/logs/0/0/*").split()[-1]

    connect = f"import socket, time; time.sleep(1); socket.create_connection(('127.0.0.1', {port}))"
    assert as_grace(node, f'python3 -Ic "{connect}" && echo reached') == "reached\n"

    runner.agent("stop", "v-4", "--now")
    until(lambda: hub.ends == 1, 30, "no end of the record")
