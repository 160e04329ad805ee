"""`bp gpus`: what machines and the cluster say about their GPUs, and a shell that has some."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.testlab.fakes.laptop import TOKEN, FakeHub, Laptop, oldest_python

API = "/api/2.0/mlflow/"
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
_FACTS = {"place": "cellar", "group": None, "ssh": True, "jobs": True, "price": None, "gpus": 4, "host_key": _KEY}
MACHINES = {
    "titan-01.cellar": {**_FACTS, "address": "10.8.0.4"},
    "titan-02.cellar": {**_FACTS, "address": "10.8.0.5", "gpus": None},
    "titan-03.cellar": {**_FACTS, "address": "10.8.0.6", "host_key": None},
    "small.cellar": {**_FACTS, "address": "10.8.0.7", "gpus": 0},
    "worker.cellar": {**_FACTS, "address": "10.8.0.8", "ssh": False},
}
SHOWN = {"gpus": [{"gpu": 0, "state": "free"}], "waiting": []}
ANSWERS = f"""case "$*" in
*bp-token) echo {TOKEN} ;;
*titan-01.cellar*--json) echo '{json.dumps(SHOWN)}' ;;
*titan-01.cellar*show*) printf 'GPU 0: free\\nGPU 1: leased: grace\\033[2J since 27 Nov 18:00\\n'
    echo 'GPU 2: leased: ada since 27 Nov 18:00, process 7 of ada-1127-shell' ;;
*titan-02.cellar*) echo banner >&2; echo 'ssh: connect to host 10.8.0.5 port 22: Connection timed out' >&2; false ;;
esac
"""


def _run(name: str, status: str = "RUNNING", **tags: str) -> dict[str, Any]:
    info = {"run_id": name.encode().hex().ljust(32, "0")[:32], "run_name": name, "status": status}
    known = {"owner": "grace", "state": "running", **tags}
    return {
        "info": {**info, "start_time": 1_795_798_183_994},
        "data": {"tags": [{"key": f"bedplate.{key}", "value": value} for key, value in known.items()]},
    }


RUNS = [
    _run("grace-1127-on-node", gpus="8", group="train", machine="train-1.us-west-2"),
    _run("grace-1127-queued", gpus="2", group="train"),
    _run("grace-1127-notes", gpus="1", group="train", session="jupyter"),
    _run("ada-1127-shell", gpus="1", machine="titan-01.cellar", session="ssh"),
    _run("grace-1127-on-titan", gpus="1", machine="titan-01.cellar"),
    _run("grace-1127-on-cpus", gpus="0", group="sim"),
    _run("grace-1127-over", "FINISHED", gpus="8", group="train"),
]


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    """Yield ada's laptop; of three machines with GPUs one answers, one is away, and one has no verified host key."""
    with FakeHub(tmp_path) as hub:
        hub.answer(
            "/fleet.json", {"schema": 1, "fleet": "lab", "domain": "lab.internal", "machines": MACHINES, "groups": {}}
        )
        hub.answer(f"{API}experiments/get-by-name", {"experiment": {"experiment_id": "7"}})
        hub.answer(f"{API}runs/search", {"runs": RUNS})
        (tmp_path / "laptop").mkdir()
        laptop = Laptop(tmp_path / "laptop", hub, oldest_python())
        laptop.ssh_answers(ANSWERS)
        yield laptop


def test_gpus_of_machines_and_of_the_cluster_are_listed(laptop: Laptop) -> None:
    """A machine that does not answer is named with the reason, and the status is 6."""
    done = laptop.bp("gpus")

    assert done.returncode == 6
    assert done.stdout.splitlines() == [
        "titan-01.cellar",
        "  GPU 0: free",
        "  GPU 1: leased: grace?[2J since 27 Nov 18:00",
        "  GPU 2: leased: ada since 27 Nov 18:00, process 7 of ada-1127-shell, a session",
        "titan-02.cellar: ssh: connect to host 10.8.0.5 port 22: Connection timed out",
        "titan-03.cellar: the host key of titan-03.cellar is not verified",
        "train (cluster): 8 GPUs for grace, grace-1127-on-node",
        "train (cluster): 2 GPUs for grace, grace-1127-queued",
        "train (cluster): 1 GPUs for grace, grace-1127-notes, a session",
    ]


def test_programs_get_one_document(laptop: Laptop) -> None:
    """With what each machine said, or its error, and the runs in the cluster."""
    document = json.loads(laptop.bp("gpus", "--json").stdout)

    assert document["machines"]["titan-01.cellar"] == SHOWN
    assert [*document["machines"]] == ["titan-01.cellar", "titan-02.cellar", "titan-03.cellar"]
    assert [run["name"] for run in document["cluster"]] == [
        "grace-1127-on-node",
        "grace-1127-queued",
        "grace-1127-notes",
    ]
    assert document["sessions"] == ["grace-1127-notes", "ada-1127-shell"]


def test_connections_ask_nothing_and_trust_verified_keys(laptop: Laptop) -> None:
    """Eight at once must not ask for passphrases."""
    laptop.bp("gpus")

    (words,) = (line for line in laptop.logins if "titan-01.cellar bedplate-gpus" in line)
    assert {"BatchMode=yes", "ConnectTimeout=10", "StrictHostKeyChecking=yes", "HostName=10.8.0.4"} <= {*words.split()}


def test_a_shell_holds_gpus_of_a_machine(laptop: Laptop) -> None:
    """It has a terminal, waits in the line of the machine, and ends after its time."""
    laptop.bp("gpus", "hold", "2", "--for", "4h", "--on", "titan-01")

    words = laptop.logins[-1]
    assert words.startswith("-t -a -x ")
    limit = "timeout --foreground --signal=HUP --kill-after=60 4h"
    assert words.endswith(f"titan-01.cellar bedplate-gpus run --gpus 2 -- {limit} sh -c 'exec $SHELL -l'")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("2 --for 4 --on titan-01", "error: '4' is not a time\n  fix  write 30m, 4h or 2d\n"),
        ("2 --for 4h;reboot --on titan-01", "is not a time"),
        ("5 --for 4h --on titan-01", "titan-01"),
        ("2 --for 4h --on titan-09", "titan-09"),
        ("0 --for 4h --on titan-01", "invalid choice: 0"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_first(words: str, error: str, laptop: Laptop) -> None:
    """No connection to the machine is made."""
    done = laptop.bp("gpus", "hold", *words.split())

    assert done.returncode == 2
    assert error in done.stderr
    assert not any("bedplate-gpus" in line for line in laptop.logins)
