"""An order carried out: roles of a test, pyinfra's own operations, real agents of this machine in a test's folders."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, ClassVar, cast

import pytest
from pyinfra.operations import files, server

from bedplate.nodes.apply import Event, Kind, Order, Step, Target, event_of, write_order
from bedplate.plan.nodes import standing_nodes
from roles.base import NO_CHANGES, Changes, DiskSpace, Role
from roles.engine import connector
from roles.engine.connection import login_trouble, operation_error
from roles.engine.work import disk_space_error, work_through
from tests.testlab.fakes.agent import GATE as AGENT_GATE
from tests.testlab.fakes.agent import NAS, Notebook, run_order, changes, order_of, starts
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of


def test_an_apply_makes_it_so_and_a_second_changes_nothing(tmp_path: Path) -> None:
    """What is as it ought to be is left alone, restarts included."""
    folder = tmp_path / "node"

    first = run_order(order_of(tmp_path), Notebook(folder))
    second = run_order(order_of(tmp_path), Notebook(folder))

    assert changes(first) == ["Folder", "Settings", "Start anew"]
    assert (first[-1].step, first[-1].changed, first[-1].unchanged) == (Step.DONE, 3, 0)
    assert changes(second) == []
    assert (second[-1].changed, second[-1].unchanged) == (0, 3)
    assert starts(folder) == 1


def test_a_check_says_exactly_what_an_apply_then_does(tmp_path: Path) -> None:
    """What only answers a change is foretold with the change, and not without it."""
    folder = tmp_path / "node"
    foretold = changes(run_order(order_of(tmp_path, check=True), Notebook(folder)))
    untouched = not folder.exists()
    done = changes(run_order(order_of(tmp_path), Notebook(folder)))

    after = run_order(order_of(tmp_path, check=True), Notebook(folder))

    assert untouched
    assert foretold == done
    assert changes(after) == []


def test_what_a_failure_left_undone_is_done_by_the_next_apply(tmp_path: Path) -> None:
    """The file is as it ought to be by then, and what reads it is started all the same."""
    folder = tmp_path / "node"
    failed = run_order(order_of(tmp_path), Notebook(folder, failing="echo no >&2; exit 1"))
    foretold = changes(run_order(order_of(tmp_path, check=True), Notebook(folder)))

    second = run_order(order_of(tmp_path), Notebook(folder))
    third = run_order(order_of(tmp_path), Notebook(folder))

    assert (failed[-1].step, failed[-1].kind, failed[-1].words) == (Step.TROUBLE, Kind.FAILED, "A step between: no")
    assert foretold == changes(second) == ["Start anew"]
    assert changes(third) == []
    assert starts(folder) == 1


@pytest.mark.parametrize(("number", "moment"), [(1, "after"), (2, "before"), (2, "after"), (3, "before")])
def test_a_line_cut_at_any_operation_is_made_good(number: int, moment: str, tmp_path: Path) -> None:
    """Wherever it is cut, the second apply ends where one whole apply would have, and the third changes nothing."""
    node = Notebook(tmp_path / "node")
    cutting = (sys.executable, "-m", "tests.testlab.fakes.broken_connection", str(number), moment)

    cut = run_order(order_of(tmp_path, command=cutting), node)
    second = run_order(order_of(tmp_path), node)
    third = run_order(order_of(tmp_path), node)

    assert (cut[-1].step, cut[-1].kind) == (Step.TROUBLE, Kind.CUT)
    assert second[-1].step is Step.DONE
    assert (tmp_path / "node/settings").read_text() == "one\n"
    assert starts(tmp_path / "node") >= 1
    assert changes(third) == []


def test_what_was_cut_in_one_role_is_not_forgotten_by_an_apply_of_another(tmp_path: Path) -> None:
    """A whole apply that failed left a start due; an apply of another role alone ends well, and it is due still."""

    @dataclass(frozen=True, slots=True)
    class Diary(Notebook):
        name: ClassVar[str] = "diary"

        def install(self) -> None:
            files.directory(name="Folder of diaries", path=str(self.folder))

        def configure(self) -> Changes:
            return ()

    notebook, diary = Notebook(tmp_path / "node"), Diary(tmp_path / "other")
    run_order(order_of(tmp_path), Notebook(tmp_path / "node", failing="exit 1"), diary)
    diary.folder.rmdir()
    alone = run_order(replace(order_of(tmp_path), only=frozenset({"diary"})), notebook, diary)

    after = run_order(order_of(tmp_path), notebook, diary)
    last = run_order(order_of(tmp_path), notebook, diary)

    assert changes(alone) == ["Folder of diaries"]
    assert changes(after) == ["Start anew"]
    assert changes(last) == []


def test_one_node_s_end_is_not_the_others(tmp_path: Path) -> None:
    """A node that is not reached is named, and the others are done."""
    order = Order(
        (
            Target(AGENT_GATE, ("sh", "-c", "echo 'Connection refused' >&2; exit 255")),
            Target(NAS, ("sh", "-c")),
        ),
        "ada",
        folder=str(tmp_path / "run"),
        memory=str(tmp_path / "memory"),
    )

    events = {event.node: event for event in run_order(order, Notebook(tmp_path / "node"))}

    assert events[AGENT_GATE.name].kind is Kind.UNREACHED
    assert events[NAS.name].step is Step.DONE


def test_when_its_input_ends_no_further_operation_begins(tmp_path: Path) -> None:
    """Ctrl-C stops between two operations, and says of which node."""
    out = io.StringIO()
    reading, writing = os.pipe()
    os.close(writing)

    with os.fdopen(reading, "rb") as ended:
        work_through(order_of(tmp_path), ended, out, lambda _: (Notebook(tmp_path / "node"),))

    last = json.loads(out.getvalue().splitlines()[-1])
    assert (last["step"], last["kind"]) == ("trouble", "stopped")
    assert not (tmp_path / "node").exists()


NEEDS = (DiskSpace(1000, 200, 20), DiskSpace(392, 142, 4))
HEAD = "Filesystem 1048576-blocks Used Available Capacity Mounted on\n"
ROOMY = (("/", 90_000), ("/", 90_000))
TMP = "/tmp"  # noqa: S108  as df prints it
IN_MEMORY = ((TMP, 500), ("/run", 100))


def df(*rows: tuple[str, int]) -> str:
    """Return the output of df: for each folder its mount and what is free there."""
    every = (*rows, *IN_MEMORY[len(rows) - 2 :])
    return HEAD + "".join(f"/dev/vda1 20000 1000 {free} 5% {mount}\n" for mount, free in every)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((("/", 1749), ("/", 1749)), "/ has 1,749 MiB free, 1,750 MiB required"),
        ((("/", 9000), ("/var", 0)), "/var has 0 MiB free, 350 MiB required"),
        (
            (("/usr", 10), ("/var", 20)),
            "/usr has 10 MiB free, 1,400 MiB required; /var has 20 MiB free, 350 MiB required",
        ),
        ((*ROOMY, (TMP, 31)), f"{TMP} has 31 MiB free, 32 MiB required"),
        ((*ROOMY, ("/", 90_000), ("/run", 0)), "/run has 0 MiB free, 16 MiB required"),
        ((("/", 1797),) * 4, "/ has 1,797 MiB free, 1,798 MiB required"),
    ],
    ids=["one", "var", "both", "tmp", "run", "one for all"],
)
def test_a_full_file_system_is_reported_with_the_space_required(rows: tuple[tuple[str, int], ...], words: str) -> None:
    """The needs of all roles are summed for each file system, with a little for files that are replaced."""
    trouble = disk_space_error(df(*rows), NEEDS)

    assert trouble
    assert (trouble.kind, trouble.what.partition(": ")[2]) == (Kind.REFUSED, words)
    assert "nothing was changed" in trouble.what
    assert "free disk space" in trouble.fix


@pytest.mark.parametrize("text", [df(*ROOMY), df(("/", 1400), ("/var", 350)), "", HEAD, "sh: df: not found\n"])
def test_enough_space_and_an_unreadable_answer_refuse_nothing(text: str) -> None:
    """A node with an unusual df is configured all the same."""
    assert disk_space_error(text, NEEDS) is None


def test_a_setting_needs_next_to_no_space() -> None:
    """A node that has its packages can be configured while its disk is nearly full."""
    assert disk_space_error(df(("/usr", 8), ("/var", 8)), ()) is None
    assert disk_space_error(df(("/usr", 8), ("/var", 7)), ())


GATE = standing_nodes(plan_of(EXAMPLES / "lab.yaml"))[0]


@dataclass(frozen=True, slots=True)
class Errands(Role):
    """One that fails while a file is missing, and one after it."""

    folder: Path
    name: ClassVar[str] = "errands"

    def install(self) -> None:
        """Fail, and go on."""
        server.shell(name="Aside", commands=[f"test -e {self.folder}/mended || exit 1"], _ignore_errors=True)
        server.shell(name="After", commands=[f"echo once >> {self.folder}/after"])

    def configure(self) -> Changes:
        """Write nothing."""
        return NO_CHANGES

    def activate(self, changes: Changes) -> None:
        """Start nothing."""


def told(folder: Path) -> list[Event]:
    """Carry the order out on a node, and return what was told of its work."""
    order = Order((Target(GATE, ("sh", "-c")),), "ada", folder=str(folder / "run"), memory=str(folder / "memory"))
    out = io.StringIO()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stays_open, os.fdopen(writing, "wb"):
        work_through(order, stays_open, out, lambda _: (Errands(folder),))
    return [event_of(line) for line in out.getvalue().splitlines()]


def test_a_failure_that_nothing_waits_for_is_told_at_the_end(tmp_path: Path) -> None:
    """The rest is done by then; the node has failed until the next apply finds it mended."""
    first = told(tmp_path)
    done = (tmp_path / "after").read_text()
    left = (tmp_path / "memory").rglob("*")
    unfinished = [line for path in left if path.is_file() for line in path.read_text().splitlines()]
    (tmp_path / "mended").touch()
    second = told(tmp_path)

    assert done == "once\n"
    assert unfinished == ["Aside"]
    assert (first[-1].step, first[-1].kind) == (Step.TROUBLE, Kind.FAILED)
    assert first[-1].words == "Aside: it failed without a word"
    assert second[-1].step is Step.DONE


def test_what_waits_for_a_second_connection_gets_it(tmp_path: Path) -> None:
    """A change that may shut us out is confirmed over a connection that is opened after it."""
    confirm = tmp_path / "run/unconfirmed/trial"
    script = f"#!/bin/sh\\nmv $0 {tmp_path}/confirmed\\n"
    trial = f"mkdir -p {confirm.parent}; printf '{script}' > {confirm}; chmod 700 {confirm}"

    events = run_order(order_of(tmp_path), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].step is Step.DONE
    assert (tmp_path / "confirmed").exists()


def test_whoever_confirms_knocks_again(tmp_path: Path) -> None:
    """A daemon that takes nobody while it reads its settings anew is not yet a node that shuts everybody out."""
    door, confirm = tmp_path / "door", tmp_path / "run/unconfirmed/trial"
    first = f"test ! -e {confirm} || test -e {tmp_path}/knocked || {{ touch {tmp_path}/knocked; exit 255; }}"
    door.write_text(f'#!/bin/sh\n{first}\nexec sh -c "$1"\n')
    door.chmod(0o755)
    trial = f"mkdir -p {confirm.parent}; printf '#!/bin/sh\\nrm $0\\n' > {confirm}; chmod 700 {confirm}"

    events = run_order(order_of(tmp_path, command=(str(door),)), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].step is Step.DONE
    assert (tmp_path / "knocked").exists()


def test_a_change_after_which_nobody_can_log_in_ends_the_work_on_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node goes back by itself; who applied is told which operation it was."""
    monkeypatch.setattr("roles.engine.work.KNOCKING", 1.0)
    door = tmp_path / "door"
    door.write_text(f'#!/bin/sh\ntest ! -e {tmp_path}/run/unconfirmed/trial || exit 255\nexec sh -c "$1"\n')
    door.chmod(0o755)
    trial = f"mkdir -p {tmp_path}/run/unconfirmed; touch {tmp_path}/run/unconfirmed/trial"

    events = run_order(order_of(tmp_path, command=(str(door),)), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].kind is Kind.FAILED
    assert "A step between: after it nobody can log in" in events[-1].words
    assert starts(tmp_path / "node") == 0


BUSY = pytest.mark.parametrize(
    "said",
    [
        "E: Could not get lock /var/lib/dpkg/lock",
        "dpkg: error: dpkg frontend lock was locked by another process with pid 7",
        "debconf: DbDriver config: /var/cache/debconf/config.dat is locked by another process: Resource unavailable",
    ],
    ids=["apt", "dpkg", "debconf"],
)


@BUSY
def test_a_package_manager_that_is_busy_is_waited_for(said: str, tmp_path: Path) -> None:
    """Whoever installs packages beside us ends some time."""
    refused = f"echo '{said}' >&2; exit 100"
    busy = f"test -e {tmp_path}/free || {{ touch {tmp_path}/free; {refused}; }}"

    events = run_order(order_of(tmp_path), Notebook(tmp_path / "node", failing=busy))

    assert any(event.step is Step.NOTE and "waits" in event.words for event in events)
    assert events[-1].step is Step.DONE


@BUSY
def test_a_package_manager_that_stays_busy_is_waited_for_no_longer_than_told(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After that time the operator is told to look who it is."""
    monkeypatch.setattr(connector, "PACKAGES_SECONDS", 1.5)
    busy = f"echo >> {tmp_path}/tries; echo '{said}' >&2; exit 100"

    events = run_order(order_of(tmp_path), Notebook(tmp_path / "node", failing=busy))

    assert "did not end in time" in events[-1].words
    assert "look who" in events[-1].fix
    assert len((tmp_path / "tries").read_text()) > 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("dpkg: error: No space left on device", "its disk is full"),
        ("E: Failed to fetch http://deb/x  Temporary failure resolving 'deb'", "cannot reach a package archive"),
        ("E: Unable to locate package nvtop", "do not have what is wanted"),
        ("E: Sub-process /usr/bin/dpkg exited unexpectedly", "ended in the middle of its work"),
        ("ERROR: No matching distribution found for uv==0.9.0", "cannot reach an index of Python's packages"),
        ("no such luck", "no such luck"),
    ],
    ids=["disk", "mirror", "package", "killed", "index", "unknown"],
)
def test_a_failure_says_what_to_do(said: str, told: str, tmp_path: Path) -> None:
    """The operation is named, with what its command's words mean, or the words themselves, and how long it took."""
    node = Notebook(tmp_path / "node", failing=f'echo "{said}" >&2; exit 1')

    events = run_order(order_of(tmp_path), node)

    assert events[-1].words.startswith("A step between: ")
    assert told in events[-1].words
    assert events[-1].fix
    assert events[-1].seconds > 0


@dataclass(frozen=True, slots=True)
class Large(Notebook):
    """A role whose packages fit on no disk."""

    space: ClassVar[DiskSpace] = DiskSpace(programs=10**9)


def test_a_node_without_disk_space_is_refused_before_an_operation_begins(tmp_path: Path) -> None:
    """Nothing of the order is done, and nothing is remembered as begun; `--check` reports the changes all the same."""
    foretold = run_order(order_of(tmp_path, check=True), Large(tmp_path / "node"))
    events = run_order(order_of(tmp_path), Large(tmp_path / "node"))

    assert foretold[-1].step is Step.DONE
    assert [(event.step, event.kind) for event in events] == [(Step.TROUBLE, Kind.REFUSED)]
    assert "MiB required" in events[-1].words
    assert not (tmp_path / "node").exists()
    assert not (tmp_path / "memory").exists()


def test_only_a_role_with_something_to_install_needs_its_space(tmp_path: Path) -> None:
    """Packages take space once: a new setting of a node that has them needs next to none."""
    run_order(order_of(tmp_path), Notebook(tmp_path / "node"))

    events = run_order(order_of(tmp_path), Large(tmp_path / "node", "two\n"))

    assert events[-1].step is Step.DONE
    assert (tmp_path / "node" / "settings").read_text() == "two\n"


def test_a_defect_of_a_role_is_told_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The operator reads a sentence, and the other nodes go on."""

    @dataclass(frozen=True, slots=True)
    class Broken(Notebook):
        def install(self) -> None:
            raise KeyError("nobody")

    events = run_order(order_of(tmp_path), Broken(tmp_path / "node"))

    assert (events[-1].kind, events[-1].words) == (Kind.DEFECT, "KeyError: 'nobody'")
    assert capsys.readouterr().err == ""


def test_an_agent_of_many_keys_is_told_how_to_offer_one() -> None:
    """The daemon hangs up before ssh comes to the right key, and says nothing of the reason but this."""
    trouble = login_trouble("titan-01.cellar", "Received disconnect: Too many authentication failures\n")

    assert "--identity FILE" in trouble.fix
    assert "IdentitiesOnly yes" in trouble.fix


@pytest.mark.parametrize(
    "said",
    [
        "E: Release file for http://deb/InRelease is not valid yet (invalid for another 3d 2h).",
        "SSL: certificate is not yet valid",
    ],
    ids=["apt", "tls"],
)
def test_a_clock_that_is_behind_is_named(said: str) -> None:
    """What apt says of it speaks of the archive, which has no fault."""
    assert operation_error("titan-01.cellar", "Install hardening packages", said).what == "Guards: its clock is behind"


def test_a_node_steers_no_terminal() -> None:
    """Of what it says, control signs are shown as question marks."""
    trouble = operation_error("titan-01.cellar", "Install hardening packages", "\x1b]0;owned\x07 it broke\n")

    assert trouble.what == "Guards: ?]0;owned? it broke"


SLEEPER, AWAKE = standing_nodes(plan_of(EXAMPLES / "lab.yaml"))[:2]
ASLEEP = ("env", "ASLEEP=1", "sh", "-c")
NEVER_IN = ("sh", "-c", "exec sleep 600", "sh")
Engine = subprocess.Popen[bytes]


@contextmanager
def _engine(folder: Path, sleeping: tuple[str, ...], seconds: float) -> Iterator[Engine]:
    """Give the engine at work on one machine that sleeps and one that is awake; a question may take so long."""
    targets = (Target(SLEEPER, sleeping), Target(AWAKE, ("sh", "-c")))
    order = Order(targets, "ada", folder=str(folder / "run"), memory=str(folder / "memory"), check=True)
    program = (sys.executable, "-m", "tests.testlab.fakes.patched_run", str(seconds))
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        write_order(cast("BinaryIO", engine.stdin), order)
        try:
            yield engine
        finally:
            engine.kill()


def _ends(engine: Engine) -> Iterator[Event]:
    """Yield how each machine ends, as soon as it does."""
    assert engine.stdout
    yield from (event for event in map(event_of, map(bytes.decode, engine.stdout)) if _is_end(event))


def _is_end(event: Event) -> bool:
    return event.step in (Step.DONE, Step.TROUBLE)


@pytest.mark.parametrize("sleeping", [ASLEEP, NEVER_IN], ids=["question", "login"])
def test_a_machine_that_does_not_answer_keeps_no_other_waiting(sleeping: tuple[str, ...], tmp_path: Path) -> None:
    """The one that is awake is done while the other still sleeps."""
    with _engine(tmp_path, sleeping, 500) as engine:
        first = next(_ends(engine))

    assert (first.node, first.step) == (AWAKE.name, Step.DONE)


def test_a_question_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """A package manager that hangs, or a disk: the machine is told as one that does not answer."""
    with _engine(tmp_path, ASLEEP, 2) as engine:
        ends = {event.node: event for event in _ends(engine)}

    assert ends[SLEEPER.name].kind is Kind.UNREACHED
    assert "does not answer" in ends[SLEEPER.name].words
    assert "ps -ef" in ends[SLEEPER.name].fix
    assert ends[AWAKE.name].step is Step.DONE


@pytest.mark.parametrize("sleeping", [ASLEEP, NEVER_IN], ids=["question", "login"])
def test_who_stops_waits_for_no_machine_that_is_only_looked_at(sleeping: tuple[str, ...], tmp_path: Path) -> None:
    """Nothing has changed on it, so that one Ctrl-C is enough."""
    with _engine(tmp_path, sleeping, 500) as engine:
        ends = _ends(engine)
        next(ends)
        assert engine.stdin
        engine.stdin.close()
        start = time.monotonic()
        last = next(ends)
        status = engine.wait()

    assert (last.node, last.kind, status) == (SLEEPER.name, Kind.STOPPED, 0)
    assert "before anything changed" in last.words
    assert time.monotonic() - start < 120
