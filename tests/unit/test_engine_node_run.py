"""The run of an order: roles of a test, pyinfra's own operations, and real agents on this machine."""

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

from bedplate.nodes.apply import ApplyRequest, Event, NodeErrorKind, Step, Target, parse_event, write_request
from bedplate.nodes.remote import login_error
from bedplate.plan.nodes import permanent_nodes
from roles.base import NO_CHANGES, Changes, DiskSpace, Role
from roles.engine import connector, node_run
from roles.engine.connection import operation_error
from roles.engine.node_run import disk_space_error, run_request
from tests.testlab.fakes.agent import GATE, NAS, Notebook, changes, order_of, run_order, starts
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of


def test_a_second_apply_changes_nothing(tmp_path: Path) -> None:
    """An apply carries out all operations; a second apply none, restarts included."""
    folder = tmp_path / "node"

    first = run_order(order_of(tmp_path), Notebook(folder))
    second = run_order(order_of(tmp_path), Notebook(folder))

    assert changes(first) == ["Create folder", "Write settings", "Restart service"]
    assert (first[-1].step, first[-1].changed, first[-1].unchanged) == (Step.DONE, 3, 0)
    assert changes(second) == []
    assert (second[-1].changed, second[-1].unchanged) == (0, 3)
    assert starts(folder) == 1


def test_a_dry_run_predicts_the_apply(tmp_path: Path) -> None:
    """`--check` reports the changes and restarts of the next apply, and changes nothing."""
    folder = tmp_path / "node"
    predicted = changes(run_order(order_of(tmp_path, check=True), Notebook(folder)))
    untouched = not folder.exists()
    done = changes(run_order(order_of(tmp_path), Notebook(folder)))

    after = run_order(order_of(tmp_path, check=True), Notebook(folder))

    assert untouched
    assert predicted == done
    assert changes(after) == []


def test_a_restart_after_a_failure_is_caught_up(tmp_path: Path) -> None:
    """After a failed apply the file is written; the next apply still restarts its service."""
    folder = tmp_path / "node"
    failed = run_order(order_of(tmp_path), Notebook(folder, failing="echo no >&2; exit 1"))
    predicted = changes(run_order(order_of(tmp_path, check=True), Notebook(folder)))

    second = run_order(order_of(tmp_path), Notebook(folder))
    third = run_order(order_of(tmp_path), Notebook(folder))

    assert (failed[-1].step, failed[-1].kind, failed[-1].words) == (Step.ERROR, NodeErrorKind.FAILED, "Run step: no")
    assert predicted == changes(second) == ["Restart service"]
    assert changes(third) == []
    assert starts(folder) == 1


@pytest.mark.parametrize(("number", "moment"), [(1, "after"), (2, "before"), (2, "after"), (3, "before")])
def test_an_interrupted_apply_is_completed(number: int, moment: str, tmp_path: Path) -> None:
    """After a lost connection, the second apply completes the first, and the third changes nothing."""
    node = Notebook(tmp_path / "node")
    cutting = (sys.executable, "-m", "tests.testlab.fakes.broken_connection", str(number), moment)

    interrupted = run_order(order_of(tmp_path, command=cutting), node)
    second = run_order(order_of(tmp_path), node)
    third = run_order(order_of(tmp_path), node)

    assert (interrupted[-1].step, interrupted[-1].kind) == (Step.ERROR, NodeErrorKind.CUT)
    assert second[-1].step is Step.DONE
    assert (tmp_path / "node/settings").read_text() == "one\n"
    assert starts(tmp_path / "node") >= 1
    assert changes(third) == []


def test_an_apply_of_another_role_keeps_unfinished_operations(tmp_path: Path) -> None:
    """A restart left unfinished by one role is still done after an apply of another role."""

    @dataclass(frozen=True, slots=True)
    class Diary(Notebook):
        name: ClassVar[str] = "diary"

        def install(self) -> None:
            files.directory(name="Create folder of diaries", path=str(self.folder))

        def configure(self) -> Changes:
            return NO_CHANGES

    notebook, diary = Notebook(tmp_path / "node"), Diary(tmp_path / "other")
    run_order(order_of(tmp_path), Notebook(tmp_path / "node", failing="exit 1"), diary)
    diary.folder.rmdir()
    alone = run_order(replace(order_of(tmp_path), only=frozenset({"diary"})), notebook, diary)

    after = run_order(order_of(tmp_path), notebook, diary)
    last = run_order(order_of(tmp_path), notebook, diary)

    assert changes(alone) == ["Create folder of diaries"]
    assert changes(after) == ["Restart service"]
    assert changes(last) == []


def test_an_error_of_one_node_does_not_end_the_others(tmp_path: Path) -> None:
    """An unreachable node is reported, and the other node is configured."""
    order = ApplyRequest(
        (
            Target(GATE, ("sh", "-c", "echo 'Connection refused' >&2; exit 255")),
            Target(NAS, ("sh", "-c")),
        ),
        "ada",
        folder=str(tmp_path / "run"),
        memory=str(tmp_path / "memory"),
    )

    events = {event.node: event for event in run_order(order, Notebook(tmp_path / "node"))}

    assert events[GATE.name].kind is NodeErrorKind.UNREACHED
    assert events[NAS.name].step is Step.DONE


def test_no_operation_starts_after_a_stop(tmp_path: Path) -> None:
    """At the end of stdin the node stops before its next operation."""
    out = io.StringIO()
    reading, writing = os.pipe()
    os.close(writing)

    with os.fdopen(reading, "rb") as ended:
        run_request(order_of(tmp_path), ended, out, lambda _: (Notebook(tmp_path / "node"),))

    last = json.loads(out.getvalue().splitlines()[-1])
    assert (last["step"], last["kind"]) == ("error", "stopped")
    assert not (tmp_path / "node").exists()


NEEDS = (DiskSpace(1000, 200, 20), DiskSpace(392, 142, 4))
HEAD = "Filesystem 1048576-blocks Used Available Capacity Mounted on\n"
ROOMY = (("/", 90_000), ("/", 90_000))
TMP = "/tmp"  # noqa: S108  as df prints it
IN_MEMORY = ((TMP, 500), ("/run", 100))


def df(*rows: tuple[str, int]) -> str:
    """Return the output of df: the mount and the free space of each folder."""
    all_rows = (*rows, *IN_MEMORY[len(rows) - 2 :])
    return HEAD + "".join(f"/dev/vda1 20000 1000 {free} 5% {mount}\n" for mount, free in all_rows)


@pytest.mark.parametrize(
    ("rows", "message"),
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
def test_a_full_file_system_is_reported(rows: tuple[tuple[str, int], ...], message: str) -> None:
    """The needs of all roles are summed for each file system, plus a minimum for replaced files."""
    error = disk_space_error(df(*rows), NEEDS)

    assert error
    assert (error.kind, error.what.partition(": ")[2]) == (NodeErrorKind.REFUSED, message)
    assert "nothing was changed" in error.what
    assert "free disk space" in error.fix


@pytest.mark.parametrize("text", [df(*ROOMY), df(("/", 1400), ("/var", 350)), "", HEAD, "sh: df: not found\n"])
def test_an_unreadable_df_is_ignored(text: str) -> None:
    """A node with enough space, or with an unusual df, is configured."""
    assert disk_space_error(text, NEEDS) is None


def test_a_change_of_configuration_needs_little_space() -> None:
    """A node with all packages can be configured with 8 MiB free."""
    assert disk_space_error(df(("/usr", 8), ("/var", 8)), ()) is None
    assert disk_space_error(df(("/usr", 8), ("/var", 7)), ())


@dataclass(frozen=True, slots=True)
class Errands(Role):
    """An operation that fails while a file is missing, and another operation."""

    folder: Path
    name: ClassVar[str] = "errands"

    def install(self) -> None:
        """Declare both operations."""
        server.shell(name="Fail", commands=[f"test -e {self.folder}/repaired || exit 1"], _ignore_errors=True)
        server.shell(name="Continue", commands=[f"echo once >> {self.folder}/after"])

    def configure(self) -> Changes:
        """Write nothing."""
        return NO_CHANGES

    def activate(self, changes: Changes) -> None:
        """Start nothing."""


def test_a_deferred_error_is_reported_at_the_end(tmp_path: Path) -> None:
    """The other operations are done; the node fails until the next apply succeeds."""
    first = run_order(order_of(tmp_path), Errands(tmp_path))
    done = (tmp_path / "after").read_text()
    journals = (tmp_path / "memory").rglob("*")
    unfinished = [line for path in journals if path.is_file() for line in path.read_text().splitlines()]
    (tmp_path / "repaired").touch()
    second = run_order(order_of(tmp_path), Errands(tmp_path))

    assert done == "once\n"
    assert unfinished == ["Fail"]
    assert (first[-1].step, first[-1].kind) == (Step.ERROR, NodeErrorKind.FAILED)
    assert first[-1].words == "Fail: failed with no error output"
    assert second[-1].step is Step.DONE


def test_a_change_is_confirmed_over_a_new_connection(tmp_path: Path) -> None:
    """A change that could lock users out is confirmed by a second login."""
    confirm = tmp_path / "run/unconfirmed/trial"
    script = f"#!/bin/sh\\nmv $0 {tmp_path}/confirmed\\n"
    trial = f"mkdir -p {confirm.parent}; printf '{script}' > {confirm}; chmod 700 {confirm}"

    events = run_order(order_of(tmp_path), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].step is Step.DONE
    assert (tmp_path / "confirmed").exists()


def test_the_confirming_login_is_retried(tmp_path: Path) -> None:
    """A daemon that refuses connections during its reload does not fail the confirmation."""
    shell, confirm = tmp_path / "shell", tmp_path / "run/unconfirmed/trial"
    first = f"test ! -e {confirm} || test -e {tmp_path}/failed || {{ touch {tmp_path}/failed; exit 255; }}"
    shell.write_text(f'#!/bin/sh\n{first}\nexec sh -c "$1"\n')
    shell.chmod(0o755)
    trial = f"mkdir -p {confirm.parent}; printf '#!/bin/sh\\nrm $0\\n' > {confirm}; chmod 700 {confirm}"

    events = run_order(order_of(tmp_path, command=(str(shell),)), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].step is Step.DONE
    assert (tmp_path / "failed").exists()


def test_a_failed_confirmation_ends_the_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node reverts the change itself; the error names the operation."""
    monkeypatch.setattr(node_run, "LOGIN_RETRIES", 1.0)
    shell = tmp_path / "shell"
    shell.write_text(f'#!/bin/sh\ntest ! -e {tmp_path}/run/unconfirmed/trial || exit 255\nexec sh -c "$1"\n')
    shell.chmod(0o755)
    trial = f"mkdir -p {tmp_path}/run/unconfirmed; touch {tmp_path}/run/unconfirmed/trial"

    events = run_order(order_of(tmp_path, command=(str(shell),)), Notebook(tmp_path / "node", failing=trial))

    assert events[-1].kind is NodeErrorKind.FAILED
    assert "Run step: no login is possible after this change" in events[-1].words
    assert starts(tmp_path / "node") == 0


def test_a_denied_login_is_not_retried(tmp_path: Path) -> None:
    """A login that the node denies is not retried: more denials block the operator's address."""
    shell, logins = tmp_path / "shell", tmp_path / "logins"
    denial = "{ echo >>" + str(logins) + "; echo 'Permission denied (publickey).' >&2; exit 255; }"
    shell.write_text(f'#!/bin/sh\ntest ! -e {tmp_path}/run/unconfirmed/trial || {denial}\nexec sh -c "$1"\n')
    shell.chmod(0o755)
    trial = f"mkdir -p {tmp_path}/run/unconfirmed; touch {tmp_path}/run/unconfirmed/trial"

    events = run_order(order_of(tmp_path, command=(str(shell),)), Notebook(tmp_path / "node", failing=trial))

    assert "no login is possible after this change (login refused for this account)" in events[-1].words
    assert logins.read_text() == "\n"


BUSY = pytest.mark.parametrize(
    "output",
    [
        "E: Could not get lock /var/lib/dpkg/lock",
        # https://github.com/skypilot-org/skypilot/issues/4237, https://github.com/Azure/aks-engine/issues/1538
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4750 (unattended-upgr)",
        "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?",
        "dpkg: error: dpkg frontend lock was locked by another process with pid 7",
        "debconf: DbDriver config: /var/cache/debconf/config.dat is locked by another process: Resource unavailable",
    ],
    ids=["apt", "apt of today", "another process", "dpkg", "debconf"],
)


@BUSY
def test_a_held_package_lock_is_waited_for(output: str, tmp_path: Path) -> None:
    """A command is retried while another program holds the package lock."""
    refused = f"echo '{output}' >&2; exit 100"
    busy = f"test -e {tmp_path}/free || {{ touch {tmp_path}/free; {refused}; }}"

    events = run_order(order_of(tmp_path), Notebook(tmp_path / "node", failing=busy))

    assert any(event.step is Step.NOTE and "waits" in event.words for event in events)
    assert events[-1].step is Step.DONE


@BUSY
def test_waiting_for_the_package_lock_is_limited(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the timeout, the error names a command that finds the other program."""
    monkeypatch.setattr(connector, "PACKAGES_SECONDS", 1.5)
    busy = f"echo >> {tmp_path}/tries; echo '{output}' >&2; exit 100"

    events = run_order(order_of(tmp_path), Notebook(tmp_path / "node", failing=busy))

    assert "held the package lock for too long" in events[-1].words
    assert "ps -C apt" in events[-1].fix
    assert len((tmp_path / "tries").read_text()) > 1


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("dpkg: error: No space left on device", "disk full"),
        ("E: Failed to fetch http://deb/x  Temporary failure resolving 'deb'", "cannot reach a package repository"),
        ("E: Unable to locate package nvtop", "package not in the node's repositories"),
        ("E: Sub-process /usr/bin/dpkg exited unexpectedly", "dpkg was interrupted"),
        ("ERROR: No matching distribution found for uv==0.9.0", "cannot reach a Python package index"),
        ("no such luck", "no such luck"),
    ],
    ids=["disk", "mirror", "package", "killed", "index", "unknown"],
)
def test_an_error_has_a_message_and_a_fix(output: str, message: str, tmp_path: Path) -> None:
    """The error names the operation and the cause, or the command's own output."""
    node = Notebook(tmp_path / "node", failing=f'echo "{output}" >&2; exit 1')

    events = run_order(order_of(tmp_path), node)

    assert events[-1].words.startswith("Run step: ")
    assert message in events[-1].words
    assert events[-1].fix
    assert events[-1].seconds > 0


@dataclass(frozen=True, slots=True)
class Large(Notebook):
    """A role whose packages fit on no disk."""

    space: ClassVar[DiskSpace] = DiskSpace(programs=10**9)


def test_a_node_without_disk_space_is_refused(tmp_path: Path) -> None:
    """Nothing changes and nothing is recorded as unfinished; `--check` still reports the changes."""
    predicted = run_order(order_of(tmp_path, check=True), Large(tmp_path / "node"))
    events = run_order(order_of(tmp_path), Large(tmp_path / "node"))

    assert predicted[-1].step is Step.DONE
    assert [(event.step, event.kind) for event in events] == [(Step.ERROR, NodeErrorKind.REFUSED)]
    assert "MiB required" in events[-1].words
    assert not (tmp_path / "node").exists()
    assert not (tmp_path / "memory").exists()


def test_only_a_role_with_something_to_install_needs_its_space(tmp_path: Path) -> None:
    """A change of configuration needs no space for packages that are already installed."""
    run_order(order_of(tmp_path), Notebook(tmp_path / "node"))

    events = run_order(order_of(tmp_path), Large(tmp_path / "node", "two\n"))

    assert events[-1].step is Step.DONE
    assert (tmp_path / "node" / "settings").read_text() == "two\n"


def test_a_bug_in_a_role_is_reported_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one line, and the other nodes continue."""

    @dataclass(frozen=True, slots=True)
    class Broken(Notebook):
        def install(self) -> None:
            raise KeyError("missing")

    events = run_order(order_of(tmp_path), Broken(tmp_path / "node"))

    assert (events[-1].kind, events[-1].words) == (NodeErrorKind.DEFECT, "KeyError: 'missing'")
    assert capsys.readouterr().err == ""


def test_too_many_ssh_keys_are_explained() -> None:
    """Sshd disconnects before ssh offers the right key; the fix limits the keys."""
    error = login_error("titan-01.cellar", "Received disconnect: Too many authentication failures\n")

    assert "--identity FILE" in error.fix
    assert "IdentitiesOnly yes" in error.fix


@pytest.mark.parametrize(
    "output",
    [
        "E: Release file for http://deb/InRelease is not valid yet (invalid for another 3d 2h).",
        "SSL: certificate is not yet valid",
    ],
    ids=["apt", "tls"],
)
def test_a_slow_clock_is_recognised(output: str) -> None:
    """Apt and TLS report a certificate or archive that is not valid yet."""
    error = operation_error("titan-01.cellar", "Install packages", output)

    assert error.what == "Install packages: the node's clock is slow"


def test_control_characters_are_replaced() -> None:
    """Control characters in a node's output are shown as question marks."""
    error = operation_error("titan-01.cellar", "Install packages", "\x1b]0;owned\x07 it broke\n")

    assert error.what == "Install packages: ?]0;owned? it broke"


HANGING, WORKING = permanent_nodes(plan_of(EXAMPLES / "lab.yaml"))[:2]
ASLEEP = ("env", "ASLEEP=1", "sh", "-c")
NO_LOGIN = ("sh", "-c", "exec sleep 600", "sh")
Engine = subprocess.Popen[bytes]


@contextmanager
def _engine(folder: Path, hanging: tuple[str, ...], seconds: float) -> Iterator[Engine]:
    """Run a check of a hanging node and a working node; `seconds` is the timeout of a query."""
    targets = (Target(HANGING, hanging), Target(WORKING, ("sh", "-c")))
    order = ApplyRequest(targets, "ada", folder=str(folder / "run"), memory=str(folder / "memory"), check=True)
    program = (sys.executable, "-m", "tests.testlab.fakes.patched_run", str(seconds))
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        write_request(cast("BinaryIO", engine.stdin), order)
        try:
            yield engine
        finally:
            engine.kill()


def _ends(engine: Engine) -> Iterator[Event]:
    """Yield the last event of each node."""
    assert engine.stdout
    yield from (event for event in map(parse_event, map(bytes.decode, engine.stdout)) if _is_end(event))


def _is_end(event: Event) -> bool:
    return event.step in (Step.DONE, Step.ERROR)


@pytest.mark.parametrize("hanging", [ASLEEP, NO_LOGIN], ids=["query", "login"])
def test_a_hanging_node_does_not_delay_others(hanging: tuple[str, ...], tmp_path: Path) -> None:
    """The working node is done while the other one hangs."""
    with _engine(tmp_path, hanging, 500) as engine:
        first = next(_ends(engine))

    assert (first.node, first.step) == (WORKING.name, Step.DONE)


def test_a_query_has_a_timeout(tmp_path: Path) -> None:
    """A hanging package manager or disk is reported as an unreachable node."""
    with _engine(tmp_path, ASLEEP, 2) as engine:
        ends = {event.node: event for event in _ends(engine)}

    assert ends[HANGING.name].kind is NodeErrorKind.UNREACHED
    assert "no answer to a query" in ends[HANGING.name].words
    assert "ps -ef" in ends[HANGING.name].fix
    assert ends[WORKING.name].step is Step.DONE


@pytest.mark.parametrize("hanging", [ASLEEP, NO_LOGIN], ids=["query", "login"])
def test_a_stop_does_not_wait_for_a_hanging_node(hanging: tuple[str, ...], tmp_path: Path) -> None:
    """The node has changed nothing, so one Ctrl-C is enough."""
    with _engine(tmp_path, hanging, 500) as engine:
        ends = _ends(engine)
        next(ends)
        assert engine.stdin
        engine.stdin.close()
        start = time.monotonic()
        last = next(ends)
        status = engine.wait()

    assert (last.node, last.kind, status) == (HANGING.name, NodeErrorKind.STOPPED, 0)
    assert "before any change" in last.words
    assert time.monotonic() - start < 120
