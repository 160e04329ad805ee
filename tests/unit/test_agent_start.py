"""Starts, stops and ends of runs on a machine, with a stand-in for systemd that starts one process a unit."""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bedplate.programs.agent.ends import END, STARTED
from bedplate.programs.agent.member import GPUS
from bedplate.programs.agent.restarts import NO_LEASE
from bedplate.programs.agent.run import AGENT
from tests.testlab.fakes.laptop import TOKEN, oldest_python
from tests.testlab.fakes.runs import ARTIFACTS, ROOT, AgentRun, RunHub, wait_for

ID = "ada-1127-brave-otter"
_MAIN = """
import sys
from pathlib import Path
from bedplate.programs.agent import run
from bedplate.programs.agent.__main__ import main
run._REPORT = 0.2
base = Path(sys.argv[1])
run.AGENT = str(base / "bin/bedplate-agent")
sys.exit(main(sys.argv[2:], base / "scratch", base / "cache"))
"""
# What systemd does with a unit: its words are a file, its state another; after the process, ExecStopPost.
_SYSTEMD = f"""#!{sys.executable} -ISB
import os, signal, sys, time
from pathlib import Path
base, agent = Path({{base!r}}), {{agent!r}}
units = base / "units"
units.mkdir(exist_ok=True)
if (base / "no-bus").exists():
    sys.exit("Failed to connect to bus: Connection refused")
if Path(sys.argv[0]).name == "systemctl":
    action, unit = sys.argv[2], units / sys.argv[-1]
    pid = int(unit.read_text() or 0) if unit.exists() else 0
    if action == "is-active":
        print("active" if pid else "activating" if unit.exists() else "inactive")
    elif pid:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            # While ExecStopPost runs, systemd takes a stop, too.
            pass
    sys.exit()
import subprocess
words = sys.argv[1:]
name = next(word[7:] for word in words if word.startswith("--unit="))
(base / "words").write_text("\\n".join(words))
try:
    (units / name).touch(exist_ok=False)
except FileExistsError:
    sys.exit(f"Unit {{{{name}}}}.service was already loaded or has a fragment file.")
post = next(word[15:] for word in words if word.startswith("-pExecStopPost=")).split()
log = next(word[23:] for word in words if word.startswith("-pStandardError=append:"))
main = words[words.index("{AGENT}", words.index("{GPUS}")):]
if os.fork():
    while (units / name).exists() and not (units / name).read_text():
        time.sleep(0.01)
    sys.exit()
os.setsid()
again = True
with open(log, "ab") as output:
    output.write(b"waiting for 0 GPUs\\n")
    output.flush()
    while again:
        process = subprocess.Popen([*agent, *main[1:]], stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        (units / name).write_text(str(process.pid))
        code = process.wait()
        result = "exit-code" if code > 0 else "signal" if code else "success"
        environment = {{{{**os.environ, "SERVICE_RESULT": result, "EXIT_STATUS": str(code)}}}}
        subprocess.run([*agent, *post[1:]], stdout=output, stderr=output, env=environment)
        again = code < 0 or "-pRestartForceExitStatus=" + str(code) in words
(units / name).unlink()
"""


class Machine:
    """A machine with the agent and that systemd, for this account."""

    def __init__(self, base: Path, python: str = "") -> None:
        self.base = base
        self.command = [python or oldest_python(), "-c", _MAIN, str(base)]
        self.environment = {"PATH": f"{base}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
        (base / "bin").mkdir()
        self.prepare()

    def prepare(self) -> None:
        """Write the programs of the machine."""
        base = self.base
        script = shlex.join(self.command)
        (base / "bin/bedplate-agent").write_text(f'#!/bin/sh\nexport PYTHONPATH={ROOT}\nexec {script} "$@"\n')
        (base / "bin/bedplate-agent").chmod(0o755)
        for name in ("systemd-run", "systemctl"):
            (base / "bin" / name).write_text(_SYSTEMD.format(base=str(base), agent=self.command))
            (base / "bin" / name).chmod(0o755)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.base / "cache" / str(os.getuid()) / ID

    def agent(self, *words: str, given: Any = None) -> subprocess.CompletedProcess[str]:  # noqa: ANN401  a document
        """Run a command of the agent, which prints no traceback and no token."""
        done = subprocess.run(
            (*self.command, *words),
            input=json.dumps(given),
            env=self.environment,
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        return done


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunHub]:
    """Yield a hub without runs."""
    with RunHub(tmp_path) as hub:
        yield hub


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine without runs."""
    return Machine(tmp_path)


def given(hub: RunHub, tmp_path: Path, script: str, **values: object) -> dict[str, Any]:
    """Return what bp gives to `start`."""
    return AgentRun(hub, tmp_path / ID, {"a": b""}, ["sh", "-c", script], **values).given


class Waiting:
    """A unit that waits for another run, and then prints a line instead of its own."""

    def __init__(self, machine: Machine, hub: RunHub) -> None:
        self.machine, self.hub, self._folder = machine, hub, ("--folder", str(machine.folder))
        (machine.base / "bin/systemd-run").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{machine.base}/words\n')
        document = given(hub, machine.base, "true", after="ada-1126-first:ok", predecessor="89abcdef")
        machine.agent("start", given=document)
        words = (machine.base / "words").read_text().splitlines()
        assert words[words.index(AGENT) :][:7] == [AGENT, "wait", *self._folder, "--", GPUS, "run"]

    def start(self, condition: str) -> None:
        """Start it with a condition; the hub is away at first."""
        file = self.machine.folder / "run.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "after": f"ada-1126-first:{condition}"}))
        was_away, self.hub.is_away = self.hub.is_away, True
        self.process = subprocess.Popen(
            [*self.machine.command, "wait", *self._folder, "--", "echo", "went on"],
            env=self.machine.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        time.sleep(0.5)
        self.hub.is_away = was_away

    def end(self) -> tuple[int, str]:
        """Return its exit code and output."""
        output, errors = self.process.communicate(timeout=60)
        assert "Traceback" not in errors
        return self.process.returncode, output


@pytest.fixture
def waiting(machine: Machine, hub: RunHub) -> Waiting:
    """Return a unit that has not started."""
    return Waiting(machine, hub)


def test_a_run_is_started_once_and_followed(machine: Machine, hub: RunHub, tmp_path: Path) -> None:
    """The second start of an id starts nothing; both print the output, and exit as the program."""
    document = given(hub, tmp_path, "echo $$; echo $SECRET | tr a-z A-Z; exit 7", secrets={"SECRET": "word"}, cpus=1.5)

    first, second = (machine.agent("start", "--follow", given=document) for _ in range(2))

    assert (first.returncode, second.returncode) == (7, 7), first.stderr
    unit, *lines = first.stdout.splitlines()
    assert json.loads(unit) == {"unit": f"bp-{ID}", "machine": os.uname().nodename}
    again = machine.agent("start", "--follow", str(len(lines[0]) + 1), given=document)
    assert again.stdout.splitlines() == [unit, "WORD"]
    assert (lines[1:], second.stdout.splitlines()) == (["WORD"], [unit, *lines])
    assert first.stderr == "waiting for 0 GPUs\nthe program ended with exit code 7\n"
    words = (tmp_path / "words").read_text().splitlines()
    assert {"-pCPUQuota=150%", "-pMemoryMax=1024M", "-pKillMode=mixed", "-pTimeoutStopSec=15"} <= {*words}
    assert "WORD" not in "".join(path.read_text() for path in machine.folder.glob("*") if path.is_file())
    assert machine.folder.stat().st_mode & 0o777 == 0o700


def test_python_is_that_of_the_machine_and_is_named(machine: Machine, hub: RunHub, tmp_path: Path) -> None:
    """Debian and Ubuntu have `python3`, and `python` only by a package; the first start says which one it is."""
    programs = tmp_path / "few"
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    document = given(hub, tmp_path, "", environment={"PATH": str(programs)})
    document["command"] = ["python", "-c", "import sys; print(sys.argv[1:])", "a b"]

    first, second = (machine.agent("start", "--follow", given=document) for _ in range(2))

    assert (first.returncode, first.stdout.splitlines()[1]) == (0, "['a b']"), first.stderr
    assert first.stderr.splitlines()[0] == f"python3 is {programs}/python3: Python {platform.python_version()}"
    assert "python3 is" not in second.stderr
    assert f"-EPATH={machine.environment['PATH']}" in (tmp_path / "words").read_text().splitlines()


@pytest.mark.parametrize(("program", "name"), [("pyhton", "pyhton"), ("python", "python3")])
def test_a_program_that_the_machine_lacks_is_refused(
    program: str, name: str, machine: Machine, hub: RunHub, tmp_path: Path
) -> None:
    """Before the start, with its name; a file of the folder is not known yet."""
    document = given(hub, tmp_path, "", environment={"PATH": str(tmp_path / "none")})

    done = machine.agent("start", "--follow", given={**document, "command": [program, "train.py"]})

    assert (done.returncode, done.stdout) == (204, "")
    assert f"error: {os.uname().nodename} has no program {name}: install it there, or name a file" in done.stderr
    assert not machine.folder.exists()
    script = machine.agent("start", "--follow", given={**document, "command": ["./train.sh"]})
    assert (script.returncode, "cannot start ./train.sh" in script.stderr) == (127, True), script.stderr


def test_two_starts_at_once_are_one(machine: Machine, hub: RunHub, tmp_path: Path) -> None:
    """Such as after a lost connection: the second one follows, whoever was first."""
    path = tmp_path / "bin/systemd-run"
    path.write_text(path.read_text().replace("\npost = ", "\ntime.sleep(2)\npost = "))
    document = given(hub, tmp_path, "echo once; exit 7")

    with ThreadPoolExecutor() as pool:
        first = pool.submit(machine.agent, "start", "--follow", given=document)
        wait_for((tmp_path / f"units/bp-{ID}").exists)
        second = machine.agent("start", "--follow", given=document)

    assert [done.returncode for done in (first.result(), second)] == [7, 7], second.stderr
    assert second.stdout == first.result().stdout


def test_the_boot_after_a_power_loss_writes_the_ends(machine: Machine, hub: RunHub, tmp_path: Path) -> None:
    """Of runs that were cut off, and those that the record lacks; it fails while the hub is away."""
    document = given(hub, tmp_path, "echo ready; while :; do sleep 0.1; done")
    machine.agent("start", given=document)
    wait_for(lambda: b"ready" in b"".join(part.read_bytes() for part in machine.folder.glob("logs/0/0/*")))
    assert machine.agent("end").returncode == 0
    assert not (machine.folder / END).exists()

    cut = machine.folder.parent / "ada-1127-cut-otter"
    shutil.copytree(machine.folder, cut)
    told = json.loads((cut / "run.json").read_text())
    (cut / "run.json").write_text(json.dumps({**told, "id": cut.name, "boot": "former", "grace": 0}))
    shutil.copytree(cut, cut.parent / "ada-1127-damaged-otter")
    (cut.parent / "ada-1127-damaged-otter/run.json").write_text("")
    hub.is_away = True
    hub.end_connections()
    assert machine.agent("end").returncode == 204
    assert json.loads((cut / END).read_text())["cause"] == "the machine lost power or restarted"
    hub.is_away = False

    assert machine.agent("end").returncode == 0
    assert (hub.statuses[-1], hub.tags["cause"]) == ("FAILED", "the machine lost power or restarted")
    assert not (machine.folder / END).exists()
    ends = hub.ends
    assert machine.agent("end").returncode == 0
    assert hub.ends == ends
    machine.agent("stop", ID, "--now")
    wait_for(lambda: hub.statuses[-1] == "KILLED")


def test_runs_are_stopped(machine: Machine, hub: RunHub, tmp_path: Path) -> None:
    """By the name of who stops them; `--now` gives a program no time."""
    document = given(hub, tmp_path, "trap '' TERM; echo ready; while :; do sleep 1; done", grace=100)
    assert machine.agent("start", given=document).returncode == 0
    wait_for(lambda: b"ready" in b"".join(part.read_bytes() for part in machine.folder.glob("logs/0/0/*")))

    stopped = machine.agent("stop", ID, "--now")
    followed = machine.agent("follow", ID)

    assert (stopped.returncode, followed.returncode) == (0, 201)
    assert followed.stderr.endswith("\nstopped by root\n")
    assert json.loads((machine.folder / END).read_text())["code"] == 201
    wait_for(lambda: hub.statuses == ["KILLED"])
    assert machine.agent("stop", ID).returncode == 0
    assert hub.statuses == ["KILLED"]


def test_a_manager_that_does_not_answer_ends_no_run(machine: Machine, hub: RunHub, tmp_path: Path) -> None:
    """It is updated, for example. The run goes on, `stop` says that it cannot, and `follow` waits."""
    machine.agent("start", given=given(hub, tmp_path, "echo ready; while [ ! -e ../go ]; do sleep 0.1; done"))
    wait_for((machine.folder / "started").exists)
    (tmp_path / "no-bus").touch()

    assert machine.agent("stop", ID).returncode == 204
    follow = subprocess.Popen((*machine.command, "follow", ID), env=machine.environment)
    with pytest.raises(subprocess.TimeoutExpired):
        follow.wait(4)
    assert not (machine.folder / "end.json").exists()
    (machine.folder / "go").touch()

    assert follow.wait(20) == 0
    wait_for(lambda: hub.statuses == ["FINISHED"])


def test_a_run_whose_agent_was_killed_does_not_begin_again(machine: Machine, hub: RunHub, tmp_path: Path) -> None:
    """Its unit starts again, and the new agent ends a run that has no checkpoint; the output until then stays."""
    machine.agent("start", given=given(hub, tmp_path, "echo ready; sleep 60"))
    history = machine.folder / "history.json"
    wait_for(lambda: history.exists() and json.loads(history.read_text())["has_run"])
    wait_for(lambda: b"ready" in b"".join(part.read_bytes() for part in machine.folder.glob("logs/0/0/*")))

    os.kill(int((tmp_path / "units" / f"bp-{ID}").read_text()), 9)

    assert machine.agent("follow", ID).returncode == 137
    wait_for(lambda: hub.statuses == ["FAILED"])
    assert "the agent of node 0 ended before its program" in hub.tags["cause"]
    assert hub.log() == b"ready\n"
    words = (tmp_path / "words").read_text().splitlines()
    assert {"-pRestartForceExitStatus=200", "-pRestart=on-abnormal", "-pStartLimitIntervalSec=0"} <= {*words}


def test_a_run_whose_agent_was_killed_goes_on_from_its_checkpoint(
    machine: Machine, hub: RunHub, tmp_path: Path
) -> None:
    """The second attempt gets the checkpoint, and the record says why it began."""
    script = (
        'if [ "$BEDPLATE_RESUME" ]; then cat "$BEDPLATE_RESUME"; exit 3; fi; cd "$BEDPLATE_CHECKPOINTS"; echo 7 >x.tmp'
    )
    machine.agent("start", given=given(hub, tmp_path, f"{script}; mv x.tmp x; echo ready; sleep 60"))
    history = machine.folder / "history.json"
    wait_for(lambda: history.exists() and json.loads(history.read_text())["has_run"])
    wait_for((machine.folder / "checkpoints/x").exists)

    os.kill(int((tmp_path / "units" / f"bp-{ID}").read_text()), 9)

    assert machine.agent("follow", ID).returncode == 3
    wait_for(lambda: hub.statuses == ["FAILED"])
    assert "x" in hub.tags["restart.1"]
    assert hub.files[f"{ARTIFACTS}/logs/1/0/000000"] == b"7\n"


def test_agents_of_several_nodes_take_their_leases_themselves(machine: Machine, hub: RunHub, tmp_path: Path) -> None:
    """Their units start at once, also while others have the GPUs."""
    (tmp_path / "bin/systemd-run").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/words\n')
    document = given(hub, tmp_path, "true", gpus=4, nodes=2, rank=1, master="10.0.0.1", port=20_001)

    assert machine.agent("start", given=document).returncode == 0

    assert "--gpus=0" in (tmp_path / "words").read_text().splitlines()
    assert json.loads((machine.folder / "run.json").read_text())["gpus"] == 4


@pytest.mark.parametrize(("gpus", "nodes", "builds"), [(2, 1, "prepare"), (0, 1, ""), (2, 2, "")])
def test_the_unit_builds_an_environment_before_it_has_gpus(
    gpus: int, nodes: int, builds: str, machine: Machine, hub: RunHub
) -> None:
    """Only where the unit takes them. Programs of the environment are unknown to the machine, and not refused."""
    (machine.base / "bin/systemd-run").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{machine.base}/words\n')
    more = {"nodes": nodes, "rank": 0, "master": "127.0.0.1", "port": 20_001} if nodes > 1 else {}
    document = given(hub, machine.base, "true", gpus=gpus, environment_file="uv.lock", **more)

    assert machine.agent("start", given={**document, "command": ["accelerate", "launch"]}).returncode == 0

    words = (machine.base / "words").read_text().splitlines()
    before = [AGENT, builds, "--folder", str(machine.folder), "--"] if builds else []
    assert words[words.index(GPUS) - len(before) : words.index(GPUS)] == before
    assert ("prepare" in words) == bool(builds)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_node_whose_run_has_its_end_writes_no_more(rank: int, machine: Machine, hub: RunHub, tmp_path: Path) -> None:
    """The hub refuses the token of such a run: only node 0, which writes the end, asks again."""
    (tmp_path / "bin/systemd-run").write_text("#!/bin/sh\n")
    machine.agent("start", given=given(hub, tmp_path, "true", nodes=2, rank=rank, master="127.0.0.1", port=20_001))
    (machine.folder / END).write_text('{"code": 201, "cause": "stopped by ada", "status": "KILLED", "tags": {}}')
    hub.refusal = 401

    assert machine.agent("end").returncode == 0

    assert (machine.folder / "recorded").exists() == bool(rank)


@pytest.mark.parametrize(
    ("condition", "status", "refusal", "end"),
    [
        ("ok", "FINISHED", 0, (0, "went on\n", "")),
        ("any", "FAILED", 0, (0, "went on\n", "")),
        ("ok", "FAILED", 0, (202, "", "it did not run: ada-1126-first failed")),
        ("ok", "KILLED", 0, (202, "", "it did not run: ada-1126-first was stopped")),
        ("any", "RUNNING", 404, (202, "", "it did not run: ada-1126-first is in no record")),
        ("any", "RUNNING", 403, (202, "", "it did not run: the hub refuses: no person of the fleet (403)")),
    ],
)
def test_a_run_waits_for_another_one(
    condition: str, status: str, refusal: int, end: tuple[int, str, str], waiting: Waiting
) -> None:
    """Before it takes GPUs. A hub that is away is asked again, as is one that has half of an end."""
    waiting.start(condition)
    waiting.hub.tags_of["89abcdef"] = {"state": "ended"}
    time.sleep(1)
    assert waiting.process.poll() is None

    waiting.hub.statuses, waiting.hub.refusal = [status], refusal

    code, text, cause = end
    assert waiting.end() == (code, text)
    assert not cause or json.loads((waiting.machine.folder / END).read_text())["cause"] == cause


def test_a_run_that_has_ended_waits_no_longer(waiting: Waiting) -> None:
    """The record may be ended without a message to this machine."""
    waiting.start("any")

    waiting.hub.tags |= {"state": "ended", "cause": "its person was removed"}

    assert waiting.end() == (202, "")
    assert json.loads((waiting.machine.folder / END).read_text())["cause"] == "its person was removed"


def test_a_run_that_has_started_waits_for_no_other_again(waiting: Waiting) -> None:
    """Its unit starts again after a lost peer, also while the hub is away."""
    (waiting.machine.folder / STARTED).touch()
    waiting.hub.is_away = True

    waiting.start("ok")

    assert waiting.end() == (0, "went on\n")


def test_a_run_that_waits_for_gpus_says_so(machine: Machine, hub: RunHub, tmp_path: Path) -> None:
    """What its unit prints in the line is shown, and then why it has not started."""
    (tmp_path / "bin/systemd-run").write_text("#!/bin/sh\n")
    machine.agent("start", given=given(hub, tmp_path, "true", gpus=2))
    (machine.folder / "unit").write_text("waiting for 2 GPUs, place 2\n")
    (machine.folder / END).write_text(json.dumps({"code": NO_LEASE, "cause": "no GPUs were free in time"}))

    followed = machine.agent("follow", ID)

    assert (followed.returncode, followed.stdout) == (202, "")
    assert followed.stderr.splitlines() == ["waiting for 2 GPUs, place 2", "no GPUs were free in time"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "follow RUN"),
        (["follow", "x"], "x/run.json"),
        (["stop", "x"], "x/run.json"),
        (["run"], "BEDPLATE_WORK is missing"),
        (["start"], "id is missing"),
    ],
)
def test_wrong_words_are_refused(words: list[str], text: str, machine: Machine) -> None:
    """Exit code 204, in words."""
    done = machine.agent(*words, given={})

    assert (done.returncode, text in done.stderr) == (204, True), done.stderr
    assert not list(machine.base.glob("cache/*/*"))
