"""Leases of GPUs: no GPU is given out twice, nobody passes, and what is unknown is not free. nvidia-smi is a fake."""

import ctypes
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bedplate.programs import gpus as program
from bedplate.programs.gpus import gpu_files, is_locked, main, places
from roles.base import file_text
from tests.testlab.run import need_root

DAEMON, NOBODY = 1, 65534
_SMI = """case $1 in
--query-gpu=*) cat "{folder}/gpus" ;;
*) cat "{folder}/processes" ;;
esac
"""
# Marks each of its GPUs as used, and says if somebody else has marked one.
_PROOF = """
import fcntl, os, sys, time
for uuid in filter(None, os.environ["CUDA_VISIBLE_DEVICES"].split(",")):
    handle = os.open(f"{sys.argv[1]}/proof-{uuid}", os.O_RDWR | os.O_CREAT)
    for attempt in range(100):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.01)
    else:
        open(f"{sys.argv[1]}/twice", "a").write(f"{uuid}\\n")
open(f"{sys.argv[1]}/started", "a").write("x")
time.sleep(float(sys.argv[2]))
"""


@dataclass
class Machine:
    """A machine with GPUs, and the processes that were started on it."""

    folder: Path
    processes: list[int] = field(default_factory=list)

    @property
    def root(self) -> Path:
        """The folder of leases."""
        return self.folder / "leases"

    def has(self, count: int, **problems: str) -> None:
        """Set what nvidia-smi says about GPUs: `mig1="Enabled"`, `display0="Enabled"`."""
        rows = (
            f"GPU-{number}, {number}, {problems.get(f'mig{number}', '[N/A]')}, "
            f"{problems.get(f'display{number}', 'Disabled')}\n"
            for number in range(count)
        )
        (self.folder / "gpus").write_text("".join(rows))

    def use(self, gpu: int, process: int) -> None:
        """Set the process that computes on a GPU."""
        (self.folder / "processes").write_text(f"GPU-{gpu}, {process}\n")

    def start(self, *words: str, uid: int | None = None, ready: Callable[[], bool] | None = None) -> int:
        """Run the program in a process of a person; wait until it is `ready`."""
        process = os.fork()
        if not process:
            self._run(words, uid)
        self.processes.append(process)
        if ready:
            wait_until(ready)
        return process

    def _run(self, words: Sequence[str], uid: int | None) -> None:
        """Never return: this is a copy of the test."""
        code = 70
        with suppress(BaseException):
            os.dup2(os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            sys.stderr = os.fdopen(2, "w", buffering=1)
            if uid is not None:
                os.setgid(uid)
                os.setuid(uid)
            code = main(words, self.root)
        os._exit(code)

    def run(self, *words: str, uid: int | None = None) -> int:
        """Run the program; return its exit code."""
        return self.end(self.start(*words, uid=uid))

    def end(self, process: int) -> int:
        """Return the exit code of a process, when it ends."""
        self.processes.remove(process)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def kill(self, process: int) -> None:
        """End a process at once."""
        os.kill(process, signal.SIGKILL)
        self.end(process)

    @property
    def errors(self) -> str:
        """What the processes wrote to stderr."""
        return (self.folder / "output").read_text() if (self.folder / "output").exists() else ""

    @property
    def leased(self) -> list[int]:
        """The GPUs with a lease."""
        return [index for index, path in gpu_files(self.root).items() if is_locked(path)]

    @property
    def waiting(self) -> int:
        """How many places of the line are taken."""
        return sum(map(is_locked, places(self.root)))


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Return a machine with three GPUs, whose leases are prepared."""
    made = Machine(tmp_path)
    made.has(3)
    (tmp_path / "processes").touch()
    smi(made, _SMI.format(folder=tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(program, "_POLL", 0.02)
    monkeypatch.setattr(program, "_POLL_OF_DEVICES", 0.05)
    assert main(["prepare"], made.root) == 0
    for folder in (tmp_path, *tmp_path.parents):
        with suppress(OSError):
            folder.chmod(folder.stat().st_mode | 0o55)
    yield made
    for process in tuple(made.processes):
        made.kill(process)


def smi(machine: Machine, script: str) -> None:
    """Write a fake nvidia-smi."""
    path = machine.folder / "bin" / "nvidia-smi"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)


def shown(machine: Machine, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return what `show --json` prints."""
    capsys.readouterr()
    assert main(["show", "--json"], machine.root) == 0
    state: dict[str, Any] = json.loads(capsys.readouterr().out)
    return state


def states(machine: Machine, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the state of each GPU."""
    return [gpu["state"] for gpu in shown(machine, capsys)["gpus"]]


def test_a_program_gets_its_gpus_and_their_locks(machine: Machine) -> None:
    """The program has the UUIDs of its GPUs, their number, and the open files that keep the leases."""
    script = 'printf "$CUDA_VISIBLE_DEVICES $BEDPLATE_GPUS $(ls -l /proc/$$/fd | grep -c gpu-)" >$0'

    code = machine.run("run", "--gpus", "2", "--", "sh", "-c", script, str(machine.folder / "said"))

    assert code == 0
    assert (machine.folder / "said").read_text() == "GPU-0,GPU-1 2 2"
    assert machine.leased == []


def test_a_program_without_gpus_sees_none(machine: Machine) -> None:
    """A run on CPUs waits for nobody, and CUDA shows it no GPU."""
    machine.start("run", "--gpus", "3", "--", "sleep", "60", ready=lambda: len(machine.leased) == 3)

    assert machine.run("run", "--gpus", "0", "--", "sh", "-c", 'test "$CUDA_VISIBLE_DEVICES" = ""') == 0


def test_the_exit_code_is_that_of_the_program(machine: Machine) -> None:
    """The lease program becomes the program: no process stays between."""
    assert machine.run("run", "--gpus", "1", "--", "sh", "-c", "exit 7") == 7
    assert machine.run("run", "--gpus", "1", "--", "no-such-program") == 1
    assert "error: no-such-program is not installed" in machine.errors


def test_a_child_of_a_killed_program_keeps_the_lease(machine: Machine) -> None:
    """The lease ends with the last process of the program, not with the first."""
    marker = machine.folder / "child"
    parent = machine.start(
        "run", "--gpus", "1", "--", "sh", "-c", f"sleep 60 & echo $! >{marker}.new; mv {marker}.new {marker}; wait"
    )
    wait_until(marker.exists)

    machine.kill(parent)
    kept = machine.leased
    os.kill(int(marker.read_text()), signal.SIGKILL)

    assert kept == [0]
    wait_until(lambda: machine.leased == [])


def test_nobody_passes_a_large_wish(machine: Machine) -> None:
    """A small wish waits behind a large one, although a GPU is free: else the large one would wait for ever."""
    first = machine.start("run", "--gpus", "1", "--", "sleep", "60", ready=lambda: machine.leased == [0])
    large = machine.start("run", "--gpus", "3", "--", "sleep", "60", ready=lambda: machine.waiting == 1)
    small = machine.start("run", "--gpus", "1", "--", "sleep", "60", ready=lambda: machine.waiting == 2)
    time.sleep(0.3)
    before = machine.leased

    machine.kill(first)
    wait_until(lambda: machine.leased == [0, 1, 2])
    machine.kill(large)

    assert before == [0]
    wait_until(lambda: machine.leased == [0] and machine.waiting == 0)
    machine.kill(small)


def test_wishes_get_gpus_in_the_order_of_arrival(machine: Machine) -> None:
    """Also if some of them give up in between."""
    order, holder = machine.folder / "order", machine.start("run", "--gpus", "3", "--", "sleep", "60")
    wait_until(lambda: len(machine.leased) == 3)
    wishes = [
        machine.start(
            *("run", "--gpus", "3", "--", "sh", "-c", f"echo {number} >>{order}"),
            ready=lambda number=number: machine.waiting == number + 1,  # type: ignore[misc]
        )
        for number in range(8)
    ]

    for number in (2, 0, 5):
        machine.kill(wishes[number])
    machine.kill(holder)

    wait_until(lambda: order.exists() and len(order.read_text().split()) == 5)
    assert order.read_text().split() == ["1", "3", "4", "6", "7"]


def test_who_waits_is_told_the_place(machine: Machine) -> None:
    """The place is told when it changes, and the end of the patience with its reason."""
    machine.start("run", "--gpus", "3", "--", "sleep", "60", ready=lambda: len(machine.leased) == 3)
    machine.start("run", "--gpus", "1", "--", "sleep", "60", ready=lambda: machine.waiting == 1)

    assert machine.run("run", "--gpus", "2", "--wait", "0.2", "--", "true") == 202
    assert machine.errors.count("waiting for 2 GPUs, place 2\n") == 1
    assert "error: no lease of 2 GPUs in time: place 2\n" in machine.errors


def test_a_wish_that_no_machine_can_meet_is_refused(machine: Machine) -> None:
    """It would keep the line for ever."""
    assert machine.run("run", "--gpus", "4", "--", "true") == 202
    assert "4 GPUs wanted, and 3 have leases here" in machine.errors


def test_a_full_line_refuses(machine: Machine) -> None:
    """Who takes all places by hand is shown; nobody can add files."""
    handles = [os.open(path, os.O_RDONLY) for path in places(machine.root)]
    for handle in handles:
        fcntl.flock(handle, fcntl.LOCK_EX)

    code = machine.run("run", "--gpus", "1", "--", "true")
    for handle in handles:
        os.close(handle)

    assert code == 202
    assert "no place in the line: `bedplate-gpus show` says who has them" in machine.errors


def test_a_gpu_that_others_use_is_not_given_out(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """Its users are named; the wish gets another GPU, or waits with the reason."""
    stranger = machine.start("run", "--gpus", "0", "--", "sleep", "60")
    machine.use(0, stranger)
    gpu = shown(machine, capsys)["gpus"][0]
    main(["show"], machine.root)
    text = capsys.readouterr().out

    machine.start("run", "--gpus", "2", "--", "sleep", "60", ready=lambda: machine.leased == [1, 2])
    code = machine.run("run", "--gpus", "1", "--wait", "0.1", "--", "true")

    assert (gpu["state"], [user["process"] for user in gpu["processes"]]) == ("unleased", [stranger])
    assert f"GPU 0: unleased: used without a lease by process {stranger} of root\n" in text
    assert code == 202
    assert "place 1: `bedplate-gpus show` says why GPUs without a lease cannot be used" in machine.errors


def test_who_uses_the_leased_gpu_of_another_is_named(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """The holder's own processes are no news."""
    need_root()
    lease = machine.start("run", "--gpus", "1", "--", "sleep", "60", ready=lambda: machine.leased == [0])
    stranger = machine.start("run", "--gpus", "0", "--", "sleep", "60", uid=DAEMON)
    wait_until(lambda: "sleep" in Path(f"/proc/{stranger}/cmdline").read_text())

    machine.use(0, stranger)
    strange = shown(machine, capsys)["gpus"][0]
    machine.use(0, lease)
    own = shown(machine, capsys)["gpus"][0]

    assert (strange["state"], strange["person"]) == ("leased", "root")
    assert [(user["person"], user["process"]) for user in strange["processes"]] == [("daemon", stranger)]
    assert own["processes"] == []


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("sleep 30", "nvidia-smi --query-gpu=uuid,index,mig.mode.current,display_active did not end within 0 s"),
        ("echo broken; exit 9", "failed: broken"),
        ("echo strange", "nvidia-smi prints something unexpected"),
        (None, "nvidia-smi is not installed"),
        ("true", "nvidia-smi does not list it"),
    ],
    ids=["hangs", "fails", "strange", "missing", "lists none"],
)
def test_an_unknown_gpu_is_never_free(
    machine: Machine,
    script: str | None,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without an answer of nvidia-smi nobody gets a GPU, and the reason is told."""
    monkeypatch.setattr(program, "_SMI_SECONDS", 0.2)
    (machine.folder / "bin" / "nvidia-smi").unlink()
    if script:
        smi(machine, script)

    code = machine.run("run", "--gpus", "1", "--wait", "0.1", "--", "touch", str(machine.folder / "ran"))

    gpu = shown(machine, capsys)["gpus"][0]
    assert gpu["state"] == "unknown"
    assert problem in gpu["problem"]
    assert code == 202
    assert not (machine.folder / "ran").exists()


def test_a_leased_gpu_stays_leased_without_nvidia_smi(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """Who has a lease is what the kernel says."""
    machine.start("run", "--gpus", "1", "--", "sleep", "60", ready=lambda: machine.leased == [0])
    smi(machine, "exit 1")

    assert states(machine, capsys) == ["leased", "unknown", "unknown"]


def test_gpus_with_mig_or_a_display_are_refused_in_words(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """They get no file at boot; what changes later is shown, and not given out."""
    machine.has(5, mig3="Enabled", display4="Enabled", mig1="Enabled", display2="[Unknown Error]")
    assert main(["prepare"], machine.root) == 0

    code = machine.run("run", "--gpus", "2", "--wait", "0.1", "--", "true")

    problem = "nvidia-smi does not list it, or it has MIG or a display"
    state = {gpu["gpu"]: (gpu["state"], gpu["problem"]) for gpu in shown(machine, capsys)["gpus"]}
    assert state == {0: ("free", ""), 1: ("unknown", problem), 2: ("unknown", problem)}
    assert code == 202
    assert machine.run("run", "--gpus", "5", "--", "true") == 202
    assert "5 GPUs wanted, and 3 have leases here, none with MIG or a display" in machine.errors


def test_preparing_again_changes_no_lease(machine: Machine) -> None:
    """The file of a GPU stays the same one: a new one would have a lock of its own."""
    machine.start("run", "--gpus", "1", "--", "sleep", "60", ready=lambda: machine.leased == [0])

    assert main(["prepare"], machine.root) == 0

    assert machine.leased == [0]


def test_preparing_fails_without_an_answer(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """Systemd then starts it again."""
    smi(machine, "echo 'No devices were found'; exit 6")

    assert main(["prepare"], machine.root) == 1
    assert "error: nvidia-smi --query-gpu" in capsys.readouterr().err


def test_a_machine_without_leases_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine without GPUs has no folder."""
    assert main(["run", "--gpus", "1", "--", "true"], tmp_path) == 202
    assert "1 GPUs wanted, and 0 have leases here" in capsys.readouterr().err


def test_a_login_says_how_many_gpus_have_no_lease(machine: Machine) -> None:
    """It asks no other program; a machine without GPUs says nothing, nor does a shell that only runs a script."""
    machine.start("run", "--gpus", "1", "--", "sleep", "60", ready=lambda: machine.leased == [0])
    script = file_text("jobs/login.sh").replace("/run/bedplate/gpus", str(machine.root))

    def said(text: str, *options: str) -> str:
        return subprocess.run(["sh", *options, "-c", text], capture_output=True, text=True, check=True).stdout

    assert said(script, "-i") == "2 of 3 GPUs have no lease: `bedplate-gpus show`\n"
    assert said(script) == ""
    assert said(file_text("jobs/login.sh"), "-i") == ""


def test_people_cannot_write_what_others_read(machine: Machine) -> None:
    """No person can change a text, or add a file: they can only lock, and the kernel says who does."""
    need_root()
    process = os.fork()
    if not process:
        changed = 70
        with suppress(BaseException):
            os.setuid(NOBODY)
            changed = sum(map(_can_write, (*machine.root.glob("*-*"), *places(machine.root))))
            changed += sum(_can_add(folder) for folder in (machine.root, machine.root / "wait"))
        os._exit(changed)

    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def _can_write(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR))
    except PermissionError:
        return False
    return True


def _can_add(folder: Path) -> bool:
    try:
        (folder / "mine").touch()
    except PermissionError:
        return False
    return True


def _keep(path: Path, *, is_hidden: bool = False) -> int:
    """Keep the lock of a file in a process of nobody, which does not use the program."""
    process = os.fork()
    if not process:
        with suppress(BaseException):
            os.setuid(NOBODY)
            ctypes.CDLL(None).prctl(4, 0 if is_hidden else 1)
            fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)
            time.sleep(60)
        os._exit(0)
    wait_until(lambda: is_locked(path))
    return process


@pytest.mark.parametrize("is_hidden", [False, True], ids=["plain", "hidden"])
@pytest.mark.parametrize("name", ["0", "line", "wait/3"])
def test_who_locks_by_hand_is_named_and_released(
    machine: Machine, name: str, capsys: pytest.CaptureFixture[str], *, is_hidden: bool
) -> None:
    """Also if the process hides its memory; an administrator ends it, and others cannot."""
    need_root()
    path = machine.root / (f"gpu-{name}" if name == "0" else name)
    machine.processes.append(process := _keep(path, is_hidden=is_hidden))
    state = shown(machine, capsys)
    entry = state["gpus"][0] if name == "0" else state["waiting"][0]
    refused = machine.run("release", name, uid=DAEMON)
    errors, kept = machine.errors, is_locked(path)

    assert main(["release", name], machine.root) == 0

    assert (entry["person"], entry["process"]) == ("nobody", process)
    assert (refused, kept) == (1, True)
    assert f"no process of yours keeps {path}; `sudo bedplate-gpus release` ends those of others" in errors
    assert machine.end(process) == -signal.SIGTERM


def test_people_release_their_own(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root, also against a program that ignores the first signal."""
    need_root()
    monkeypatch.setattr(program, "_KILL_AFTER", 0.2)
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    process = machine.start("run", "--gpus", "1", "--", "python3", "-Sc", script, uid=DAEMON)
    status = Path(f"/proc/{process}/status")
    wait_until(lambda: bool(int(status.read_text().split("SigIgn:")[1].split()[0], 16) & 1 << 14))

    assert machine.run("release", "0", uid=DAEMON) == 0

    assert machine.end(process) == -signal.SIGKILL
    assert machine.leased == []


def test_what_has_no_lease_is_not_released(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says that there is nothing to end."""
    assert main(["release", "1"], machine.root) == 1
    assert "no process of yours keeps" in capsys.readouterr().err


def _control_groups() -> Path:
    """Return where control groups of version 2 are."""
    rows = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next(Path(row[1]) for row in rows if row[2] == "cgroup2")


def _lie(machine: Machine, name: str, words: Sequence[bytes], group: bytes = b"") -> int:
    """Keep a lock in a process with these words, in a control group with this name."""
    path = machine.root / name
    process = os.fork()
    if not process:
        with suppress(BaseException):
            if group:
                (_control_groups() / os.fsdecode(group) / "cgroup.procs").write_text(str(os.getpid()))
            handle = os.open(path, os.O_RDONLY)
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.set_inheritable(handle, True)  # noqa: FBT003  positional only
            os.execv(sys.executable, [b"python", b"-ISc", b"import time; time.sleep(60)", *words])  # noqa: S606  as people can
        os._exit(70)
    machine.processes.append(process)
    wait_until(lambda: is_locked(path))
    return process


@pytest.mark.parametrize("words", [[b"--gpus", b"9" * 5_000], [b"--gpus=\xff\n"], [b"--gpus", b"-1"]])
def test_words_of_a_process_keep_nobody_from_the_list(
    machine: Machine, words: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """Who waits with a wish that is no number, or a very long one, has an unknown wish."""
    process = _lie(machine, "line", words)

    (wish,) = shown(machine, capsys)["waiting"]

    assert (wish["process"], wish["wish"]) == (process, None)


def test_a_control_group_that_is_not_in_utf_8_keeps_nobody_from_the_list(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """People name control groups below their own one."""
    need_root()
    group = b"bedplate-\xff-" + str(os.getpid()).encode()
    folder = _control_groups() / os.fsdecode(group)
    folder.mkdir()
    try:
        _lie(machine, "gpu-0", [], group)
        gpu = shown(machine, capsys)["gpus"][0]
        machine.kill(machine.processes[-1])
    finally:
        wait_until(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()

    assert (gpu["state"], gpu["run"][:11]) == ("leased", "bedplate-?-")


def test_a_lock_in_a_message_is_taken_away_with_its_file(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """No process has it open, so none can be ended. A new file has a new lock, and one that computes is shown."""
    here, there = socket.socketpair()
    handle = os.open(machine.root / "gpu-0", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    socket.send_fds(here, [b"x"], [handle])
    os.close(handle)
    states_before, code = states(machine, capsys), main(["release", "0"], machine.root)

    (machine.root / "gpu-0").unlink()
    assert main(["prepare"], machine.root) == 0

    assert (states_before[0], code, states(machine, capsys)[0]) == ("leased", 1, "free")
    here.close()
    there.close()


def test_an_administrator_sees_who_keeps_a_lock(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel names the process that took it, which has ended: another process may have its number now."""
    need_root()
    marker = machine.folder / "child"
    script = f"sleep 60 & echo $! >{marker}.new; mv {marker}.new {marker}; sleep 0.3"
    machine.folder.chmod(0o777)
    assert machine.run("run", "--gpus", "1", "--", "sh", "-c", script, uid=DAEMON) == 0

    gpu = shown(machine, capsys)["gpus"][0]
    os.kill(int(marker.read_text()), signal.SIGKILL)

    assert (gpu["person"], gpu["process"]) == ("daemon", int(marker.read_text()))


@pytest.mark.parametrize("kills", [10, pytest.param(1000, marks=pytest.mark.nightly)])
def test_random_kills_neither_double_nor_leak_a_gpu(machine: Machine, kills: int) -> None:
    """Programs and wishes are killed at any moment: no GPU has two programs, and at last all are free."""
    machine.has(5)
    assert main(["prepare"], machine.root) == 0
    choice = random.Random(kills)  # noqa: S311  a test that can be repeated
    alive, killed = list[int](), 0
    while killed < kills:
        while len(alive) < 8:
            words = ("python3", "-ISc", _PROOF, str(machine.folder), str(choice.uniform(0, 0.3)))
            alive.append(machine.start("run", "--gpus", str(choice.randint(1, 5)), "--", *words))
        time.sleep(choice.uniform(0, 0.05))
        for process in tuple(alive):
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                alive.remove(process)
                machine.end(process)
        if alive:
            process = alive.pop(choice.randrange(len(alive)))
            killed += 1
            machine.kill(process)
    for process in alive:
        machine.kill(process)

    assert not (machine.folder / "twice").exists()
    assert (machine.folder / "started").stat().st_size > kills / 20
    assert (machine.leased, machine.waiting) == ([], 0)
    assert machine.run("run", "--gpus", "5", "--wait", "5", "--", "true") == 0
