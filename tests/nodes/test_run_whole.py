"""The whole way of a run: archives of two people, ssh, a hub with all services, and a workbench with all roles."""

import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.testlab.fakes.wheels import wheel
from tests.testlab.machines.layers import RELEASE
from tests.testlab.machines.whole_hub import result_of
from tests.testlab.machines.whole_runs import WholeRuns
from tests.testlab.network.netlab import until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(RELEASE != "bookworm", reason="a workbench with all roles has not passed on Debian 13 yet"),
]

TRAIN = """import os, random
rank, rate = int(os.environ["RANK"]), 0.1
random.seed(rank)
weights = [random.random() for _ in range(8)]
for step in range(20):
    inputs = [random.gauss(0, 1) for _ in weights]
    error = sum(w * x for w, x in zip(weights, inputs)) - sum(inputs)
    weights = [w - rate * error * x / 8 for w, x in zip(weights, inputs)]
    print(step, (error * error).hex(), flush=True)
print(rank, os.environ["WORLD_SIZE"], os.environ["CUDA_VISIBLE_DEVICES"])
"""
# Each start is counted outside of what a run has. The first argument is the end of its name.
WAIT = """echo start >>~/starts-$1
echo ready
until [ -e ~/go-$1 ]; do sleep 0.2; done
echo end
exit 3
"""
_NUMBERS = count(time.time_ns() % 1_000_000)


@pytest.fixture(autouse=True)
def _folders(runs: WholeRuns) -> Iterator[None]:
    """Give each person a folder with code; afterwards nothing is left of any run."""
    for laptop in runs.laptops.values():
        laptop.write("wait.sh", WAIT)
    yield
    until(lambda: runs.units == "", 120, "a unit is left", every=1)
    assert [gpu["state"] for gpu in runs.leases["gpus"]] == ["free"] * 4
    assert runs.leases["waiting"] == []


class Started:
    """A run of wait.sh on one of four GPUs, or more. Its first line is there, unless it waits."""

    def __init__(self, runs: WholeRuns, person: str, gpus: int = 1, *, waits: bool = False) -> None:
        self.runs, self.person, self.word = runs, person, f"w{next(_NUMBERS)}"
        words = ("--on", "titan-03", "--name", self.word, "--gpus", str(gpus))
        self.bp = runs.laptops[person].start_run(*words, "--", "sh", "wait.sh", self.word)
        if not waits:
            until(lambda: self.bp.output == "ready\n" or not self.bp.runs, 120, "no first line")
            assert self.bp.output == "ready\n", result_of(self.bp).stderr

    def let_go(self) -> None:
        """Let the program end."""
        self.runs.bench.as_person(self.person, f"touch ~/go-{self.word}")

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.runs.name_of(self.word)

    @property
    def has_folder(self) -> bool:
        """Whether the workbench has got it."""
        return self.runs.has(self.runs.folder(self.person, f"*-{self.word}"))

    @property
    def starts(self) -> int:
        """How often the program was started."""
        text = self.runs.bench.as_person(self.person, f"cat ~/starts-{self.word} 2>/dev/null || true")
        return len(text.splitlines())

    def end(self, seconds: float = 180) -> Any:  # noqa: ANN401  a document
        """Let the program end; return the record after its end."""
        self.let_go()
        record = self.runs.wait_for_end(self.word, seconds)
        result_of(self.bp)
        return record

    @property
    def output(self) -> str:
        """What the hub has of its output."""
        return self.runs.bp(self.person, "logs", self.name)


def test_six_commands_from_an_archive(runs: WholeRuns) -> None:
    """Run, edit, run again, see the edited line, and repeat the first run bit by bit."""
    grace, words = runs.laptops["grace"], [f"train-{next(_NUMBERS)}" for _ in range(3)]
    texts = [TRAIN, TRAIN.replace("0.1", "0.2")]
    done = []
    for word, text in zip(words, texts, strict=False):
        grace.write("train.py", text)
        done.append(result_of(grace.start_run("--gpus", "2", "--name", word, "--", "python3", "train.py")))
    first, second = (runs.name_of(word) for word in words[:2])

    difference = runs.bp("grace", "diff", first, second)
    again = grace.bp("again", first, "--name", words[2])
    logs = [[runs.bp("grace", "logs", runs.name_of(word), "--rank", str(rank)) for rank in (0, 1)] for word in words]
    shown = runs.bp("grace", "show", second)

    lines = done[0].stdout.splitlines()
    assert (len(lines), lines[-1].split()[:2]) == (21, ["0", "2"]), done[0]
    assert done[1].stdout != done[0].stdout, done[1]
    assert [line for line in difference.splitlines() if re.match("[-+][^-+]", line)] == [
        '-rank, rate = int(os.environ["RANK"]), 0.1',
        '+rank, rate = int(os.environ["RANK"]), 0.2',
    ]
    assert (again.returncode, again.stdout) == (0, done[0].stdout), again.stderr
    assert logs[2] == logs[0]
    assert [log[0] for log in logs[:2]] == [result.stdout for result in done]
    assert re.search("state +finished", shown), shown


def test_show_says_why_a_planted_run_ended(runs: WholeRuns) -> None:
    """A second rank that fails, and a signal."""
    grace, (failing, crashing) = runs.laptops["grace"], (f"planted-{next(_NUMBERS)}" for _ in range(2))
    grace.write("fails.sh", 'if [ "$RANK" = 1 ]; then echo broken; exit 7; fi; sleep 600\n')
    failed = result_of(grace.start_run("--gpus", "2", "--name", failing, "--", "sh", "fails.sh"))
    killed = result_of(grace.start_run("--on", "titan-03", "--name", crashing, "--", "sh", "-c", "kill -SEGV $$"))

    assert (failed.returncode, killed.returncode) == (7, 139), (failed, killed)
    assert re.search("cause +rank 1 ended with exit code 7", runs.bp("grace", "show", runs.name_of(failing)))
    assert "broken" in runs.bp("grace", "logs", runs.name_of(failing), "--rank", "1")
    assert "killed by signal 11, Segmentation fault" in runs.bp("grace", "show", runs.name_of(crashing))


def test_an_environment_comes_from_the_wheels_of_the_hub(runs: WholeRuns) -> None:
    """The index is not asked. The first run builds it, the second one finds it, and a repeat has its list."""
    grace, words, folder = (
        runs.laptops["grace"],
        [f"env-{next(_NUMBERS)}" for _ in range(3)],
        "/srv/hub/artifacts/wheels",
    )
    script = "import alpha, beta, sys; print(alpha.version, beta.version, sys.prefix)"
    runs.hub.node.run(f"install -d {folder}")

    def put(*wheels: tuple[str, bytes]) -> None:
        for name, content in wheels:
            runs.hub.node.run(f"echo {b64encode(content).decode()} | base64 --decode >{folder}/{name}")

    put(wheel("alpha", "1.0", ["beta"]), wheel("beta", "1.5"))
    grace.write("requirements.txt", "alpha\n")
    done = [
        result_of(grace.start_run("--gpus", "1", "--name", word, "--", "python", "-c", script)) for word in words[:2]
    ]
    put(wheel("beta", "2.0"))
    again = grace.bp("again", runs.name_of(words[0]), "--name", words[2])
    grace.write("requirements.txt", "")

    found = done[0].stdout.split()
    assert found[:2] == ["1.0", "1.5"], done
    assert found[2].startswith("/scratch/grace/runs/environments/")
    assert done[1].stdout == done[0].stdout
    assert ["builds the environment" in result.stderr for result in (*done, again)] == [True, False, True]
    assert again.stdout.split()[:2] == ["1.0", "1.5"], again
    shown = runs.record(words[2])["environment"]
    assert shown == f"1/{runs.record(words[0])['run_id']}/artifacts/environment.txt"


def test_a_run_goes_after_another_one(runs: WholeRuns) -> None:
    """It has no place in the line for GPUs until then; one that wants success does not run after a failure."""
    first, (later, never) = Started(runs, "grace"), (f"after-{next(_NUMBERS)}" for _ in range(2))
    words = ("--on", "titan-03", "--gpus", "1")
    follower = runs.laptops["grace"].start_run(
        *words, "--after", f"{first.name}:any", "--name", later, "--", "sh", "-c", "echo went on"
    )
    refused = runs.laptops["grace"].start_run(*words, "--after", first.name, "--name", never, "--", "true")
    unit = runs.folder("grace", f"*-{later}") + "/unit"
    until(lambda: runs.has(unit), 120, "the follower has no unit")
    until(lambda: runs.has(runs.folder("grace", f"*-{never}") + "/unit"), 120, "the other one has no unit")

    assert runs.leases["waiting"] == []
    assert first.end()["code"] == "3"

    done, failed = result_of(follower), result_of(refused)
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    assert (failed.returncode, failed.stdout) == (202, ""), failed.stderr
    assert f"it did not run: {first.name} failed" in failed.stderr
    assert "it did not run" in runs.bp("grace", "show", runs.name_of(never))


def test_two_people_share_gpus_by_leases(runs: WholeRuns) -> None:
    """The second one waits, sees who has the GPUs, and gets one at the end of the first run."""
    of_ada = Started(runs, "ada", 4)
    of_grace = Started(runs, "grace", waits=True)
    until(lambda: runs.leases["waiting"] != [], 120, "nobody waits")

    listed = runs.bp("grace", "runs", "--all")
    gpus = json.loads(runs.bp("grace", "gpus", "--json"))["machines"]["titan-03.cellar"]
    of_ada.let_go()
    of_grace.let_go()
    done = result_of(of_grace.bp)

    assert {of_ada.name, of_grace.name} <= set(re.findall(r"\S+", listed)), listed
    assert [(gpu["person"], gpu["run"]) for gpu in gpus["gpus"]] == [("ada", of_ada.name)] * 4
    assert [(wish["person"], wish["run"], wish["wish"]) for wish in gpus["waiting"]] == [("grace", of_grace.name, 1)]
    assert (done.returncode, done.stdout) == (3, "ready\nend\n"), done.stderr
    assert "waiting for 1 GPUs, place 1" in done.stderr
    assert (result_of(of_ada.bp).returncode, of_ada.starts) == (3, 4)
    assert [run.end()["status"] for run in (of_ada, of_grace)] == ["FAILED"] * 2


@pytest.mark.parametrize("step", ["connecting", "recorded", "started", "attached", "ending"])
def test_a_closed_laptop_neither_loses_nor_doubles_a_run(runs: WholeRuns, step: str) -> None:
    """What has started goes on and has its end; what has not is in the record, and never starts."""
    grace = runs.laptops["grace"]
    # Without a connection of an earlier run.
    grace.close()
    run = Started(runs, "grace", waits=True)
    reached = {
        "connecting": lambda: "ssh" in grace.processes,
        "recorded": lambda: bool(runs.records(run.word)),
        "started": lambda: run.has_folder,
        "attached": lambda: run.bp.output == "ready\n",
        "ending": lambda: run.bp.output == "ready\n",
    }
    until(reached[step], 120, f"{step} is not reached")
    if step == "ending":
        run.let_go()

    grace.close()
    run.bp.popen.wait(60)
    # What ssh has passed on may still start.
    time.sleep(10)

    if run.has_folder:
        assert run.end()["cause"] == "the program ended with exit code 3"
        assert (run.starts, run.output) == (1, "ready\nend\n")
    else:
        assert step in {"connecting", "recorded"}
        assert [record["state"] in {"sent", "queued"} for record in runs.records(run.word)] in ([], [True])
        assert run.starts == 0


def test_a_killed_hub_has_the_end_of_a_run(runs: WholeRuns) -> None:
    """Its services are killed in the middle of a run, and are away at the end of the program."""
    run = Started(runs, "grace")
    runs.kill_hub()
    runs.stop_hub()
    run.let_go()
    until(lambda: run.bp.output == "ready\nend\n", 60, "the output depends on the hub")

    runs.start_hub()
    done = result_of(run.bp)

    assert (done.returncode, done.stdout) == (3, "ready\nend\n"), done.stderr
    record = run.end()
    assert (record["cause"], record["status"]) == ("the program ended with exit code 3", "FAILED")
    assert (run.starts, run.output) == (1, "ready\nend\n")


def test_a_removed_person_has_no_run_after_a_minute(runs: WholeRuns) -> None:
    """The hub refuses the token of the run: the program gets SIGTERM, and its GPU is free. Others' runs go on."""
    run, kept = Started(runs, "grace"), Started(runs, "ada")
    removed = runs.hub.operator("person", "remove", "grace")
    start = time.monotonic()
    try:
        done = result_of(run.bp, 240)
        took, people = time.monotonic() - start, [gpu["person"] for gpu in runs.leases["gpus"]]
    finally:
        runs.hub.node.run("rm /srv/hub/tokens/removed")

    assert "hub.us-west-2 refuses the person's tokens" in removed.stdout, removed.stdout + removed.stderr
    assert (done.returncode, done.stdout) == (205, "ready\n"), done.stderr
    assert "no person of the fleet" in done.stderr
    assert took < 90
    assert sorted(people) == ["", "", "", "ada"]
    assert kept.end()["cause"] == "the program ended with exit code 3"


def test_a_machine_without_power_loses_its_run_and_says_so(runs: WholeRuns) -> None:
    """The laptop gives up in words. After the boot the run has its end, and its GPU is free; nobody has asked."""
    run = Started(runs, "grace")
    name, node = run.name, runs.bench.node
    node.run("sync")

    node.machine.crash()
    done = result_of(run.bp, 240)
    silent, shown = runs.record(run.word), runs.bp("grace", "show", name)
    node.machine.boot()
    record = runs.wait_for_end(run.word)

    assert (done.returncode, done.stdout) == (246, "ready\n"), done.stderr
    assert "no connection to titan-03.cellar: the run goes on" in done.stderr
    assert (silent["state"], silent["status"]) == ("running", "RUNNING")
    assert re.search("state +running", shown), shown
    assert (record["status"], record["cause"]) == ("FAILED", "the machine lost power or restarted")
    assert (run.starts, run.output) == (1, "ready\n")
