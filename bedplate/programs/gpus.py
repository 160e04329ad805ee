"""`bedplate-gpus`: leases of the GPUs of a machine, and the line of who waits, without a daemon.

They are locks, which the kernel frees with the last process that has them, in /run/bedplate/gpus:

    gpu-<index>    its lock is the lease; the text is the UUID
    line           its lock is the first place in the line: only who has it takes GPUs
    wait/<number>  the places behind it: who has one takes that before it when it is free, then leaves its own

All files are root's: people can lock them, and neither write nor add any. Who has a lock is what the kernel says.
Nobody passes, for everyone arrives behind the last place: else small wishes would keep a large one waiting for ever.
"""

import argparse
import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .program import ProgramError, output, run

_NO_LEASE, _INTERRUPTED = 202, 130
# Seconds between two looks at the line, between two questions to nvidia-smi, for an answer of it, and until a kill.
_POLL, _POLL_OF_DEVICES, _SMI_SECONDS, _KILL_AFTER = 0.25, 5.0, 10.0, 10.0
_PLACES = 256
_LOCK = re.compile(r"\d+: FLOCK +\w+ +\w+ +(\d+) (\S+) ")
_WISH = re.compile(rb"\0--gpus[=\0](\d{1,3})\0")
# A GPU that is split by MIG, or drives a display, is not lent out; nor one in a state that nvidia-smi does not know.
_OFF = frozenset({"Disabled", "[N/A]", "N/A", "[Not Supported]"})


def main(words: Sequence[str], root: Path = Path("/run/bedplate/gpus")) -> int:
    """Run a command on a folder of leases; return the exit code."""
    options = _options(words)
    try:
        options.do(root, options)
    except (ProgramError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return _NO_LEASE if options.do is _run and isinstance(error, ProgramError) else 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bedplate-gpus", description="Leases of the GPUs of this machine.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    start = commands.add_parser("run", help="wait in line for GPUs, then execute a program that has them")
    start.add_argument("--gpus", type=int, choices=range(17), metavar="N", required=True)
    start.add_argument("--wait", type=float, metavar="SECONDS", default=float("inf"), help="default: without end")
    start.add_argument("program", nargs="+", metavar="PROGRAM", help="with its words, after `--`")
    show = commands.add_parser("show", help="show who has GPUs, who waits, and who uses GPUs without a lease")
    show.add_argument("--json", action="store_true")
    release = commands.add_parser("release", help="end your lease, or your place in the line; as root, those of others")
    release.add_argument("name", metavar="NAME", help="number of a GPU, or a place as `show` has it")
    prepare = commands.add_parser("prepare", help="create the files of leases, as root")
    for command, do in ((start, _run), (show, _show), (release, _release), (prepare, _prepare)):
        command.set_defaults(do=do)
    return parser.parse_args(words)


def _run(root: Path, options: argparse.Namespace) -> None:
    """Execute a program with GPUs. Raises ProgramError if there is no lease in time."""
    gpus, program = options.gpus, options.program
    if not shutil.which(program[0]):
        raise FileNotFoundError(f"{program[0]} is not installed")
    taken = _wait(root, gpus, options.wait) if gpus else {}
    for handle in taken:
        os.set_inheritable(handle, True)  # noqa: FBT003  positional only
    # CUDA numbers GPUs in an order of its own, without broken ones: UUIDs mean the same to all.
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(taken.values())
    os.environ["BEDPLATE_GPUS"] = str(gpus)
    os.environ["BEDPLATE_LEASE_FDS"] = ",".join(map(str, taken))
    os.execvp(program[0], program)  # noqa: S606  the caller's program, without a shell


def _wait(root: Path, gpus: int, seconds: float) -> Mapping[int, str]:
    """Return the UUIDs of GPUs by the open files that lease them; say on the way what they wait for."""
    if gpus > (count := len(gpu_files(root))):
        raise ProgramError(f"{gpus} GPUs wanted, and {count} have leases here, none with MIG or a display")
    # A moment at least: somebody may just look at the lock of a free GPU.
    end, last, place = time.monotonic() + max(seconds, _POLL), "", _Place(root)
    while True:
        try:
            if place.advance() and (taken := _take(root, gpus)):
                return taken
            pause, reason = _POLL, f"place {place.number + 1}"
        except ProgramError as error:
            pause, reason = _POLL_OF_DEVICES, f"place 1: {error}"
        if reason != last:
            sys.stderr.write(f"waiting for {gpus} GPUs, {reason}\n")
        last, left = reason, end - time.monotonic()
        if left <= 0:
            raise ProgramError(f"no lease of {gpus} GPUs in time: {reason}")
        time.sleep(min(pause, left))


def _show(root: Path, options: argparse.Namespace) -> None:
    """Print who has and uses GPUs, and who waits."""
    gpus, taken = list(_gpus(root)), enumerate(filter(is_locked, places(root)), 1)
    waiting = [{"place": place, "name": str(path.relative_to(root)), **holder_of(path)} for place, path in taken]
    document = json.dumps({"gpus": gpus, "waiting": waiting})
    sys.stdout.write("".join(f"{line}\n" for line in ([document] if options.json else _lines(gpus, waiting))))


def _gpus(root: Path) -> Iterator[Mapping[str, Any]]:
    """Yield who has and uses each GPU; without an answer of nvidia-smi none is free."""
    problem, uses = "nvidia-smi does not list it, or it has MIG or a display", list[tuple[str, int]]()
    known = dict[str, int]()
    try:
        known, uses = _read_gpus(), _read_uses()
    except ProgramError as error:
        problem = str(error)
    for index, path in gpu_files(root).items():
        uuid = path.read_text(encoding="ascii")
        lease = holder_of(path) if is_locked(path) else {"person": "", "run": "", "since": None}
        users = [facts_of(process) for gpu, process in uses if gpu == uuid]
        others = [user for user in users if user["person"] != lease["person"]]
        state = "leased" if lease["person"] else "unknown" if uuid not in known else "unleased" if others else "free"
        why = "" if uuid in known else problem
        yield {"gpu": index, **lease, "state": state, "problem": why, "processes": others}


def _lines(gpus: Sequence[Mapping[str, Any]], waiting: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each GPU and each wish."""
    for gpu in gpus:
        users = ", ".join(f"process {user['process']} of {user['person']}" for user in gpu["processes"])
        facts = (gpu["person"] and _who(gpu), gpu["problem"], users and f"used without a lease by {users}")
        yield ": ".join((f"GPU {gpu['gpu']}", gpu["state"], *filter(None, facts)))
    for wish in waiting:
        yield f"place {wish['place']} ({wish['name']}): {wish['wish'] or '?'} GPUs for {_who(wish)}"


def _who(facts: Mapping[str, Any]) -> str:
    since = time.strftime("%d %b %H:%M", time.localtime(facts["since"])) if facts["since"] else "?"
    return f"{facts['person']} since {since}, process {facts['process']} of {facts['run'] or '?'}"


def _release(root: Path, options: argparse.Namespace) -> None:
    """End the processes that keep a lock, in the end by force."""
    path = root / (f"gpu-{options.name}" if options.name.isdecimal() else options.name)
    if not _keepers(path):
        raise ProgramError(f"no process of yours keeps {path}; `sudo bedplate-gpus release` ends those of others")
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in _keepers(path):
            os.kill(process, number)
        end = time.monotonic() + _KILL_AFTER
        while _keepers(path) and time.monotonic() < end:
            time.sleep(_POLL)


def _keepers(path: Path, processes: str = "[0-9]*") -> set[int]:
    """Return the processes that keep the lock of a file: one's own, for root everyone's."""
    options = "--recursive --files-with-matches --no-messages"
    # Status 2: a process has ended meanwhile, or belongs to another person.
    files = run("sh", "-c", f"grep {options} ' {_key(path)} ' /proc/{processes}/fdinfo")
    return {int(file.split("/")[2]) for file in files.text.splitlines()}


def _prepare(root: Path, _: argparse.Namespace) -> None:
    """Create what is missing: nothing for a GPU that cannot be leased. Raises ProgramError if nvidia-smi fails."""
    gpus = {root / f"gpu-{index}": uuid for uuid, index in _read_gpus().items()}
    os.umask(0o022)
    (root / "wait").mkdir(parents=True, exist_ok=True)
    for path, text in {**dict.fromkeys(places(root), ""), **gpus}.items():
        # A new file would have a lock of its own.
        if not path.exists():
            path.write_text(text, encoding="ascii")


def _read_gpus() -> dict[str, int]:
    """Return the indexes of the GPUs that can be leased, by UUID. Raises ProgramError without a clear answer."""
    rows = _ask("--query-gpu=uuid,index,mig.mode.current,display_active", 4)
    return {uuid: int(index) for uuid, index, *modes in rows if _OFF.issuperset(modes)}


def _read_uses() -> list[tuple[str, int]]:
    """Return the UUID of a GPU and a process that computes on it, for each. Raises ProgramError as `_read_gpus`."""
    # Not those that draw: a display server has memory of each GPU.
    return [(uuid, int(process)) for uuid, process in _ask("--query-compute-apps=gpu_uuid,pid", 2)]


def _ask(query: str, columns: int) -> Sequence[Sequence[str]]:
    text = output("nvidia-smi", query, "--format=csv,noheader", seconds=_SMI_SECONDS)
    rows = [line.split(", ") for line in text.splitlines()]
    if any(len(row) != columns or not row[1].isdecimal() for row in rows):
        raise ProgramError("nvidia-smi prints something unexpected")
    return rows


def gpu_files(root: Path) -> Mapping[int, Path]:
    """Return the files of GPUs by index."""
    return dict(sorted((int(path.name[4:]), path) for path in root.glob("gpu-*")))


def places(root: Path) -> Sequence[Path]:
    """Return the files of the places in the line."""
    return [root / "line", *(root / "wait" / str(number) for number in range(1, _PLACES))]


class _Place:
    """One's own place in the line, at first the last one. Raises ProgramError if there is none."""

    def __init__(self, root: Path) -> None:
        self._files, handle = places(root), -1
        while handle < 0:
            self.number = 1 + max((number for number, path in enumerate(self._files) if is_locked(path)), default=-1)
            if self.number == _PLACES:
                raise ProgramError("no place in the line: `bedplate-gpus show` says who has them")
            handle = _lock(self._files[self.number])
        self._handle = handle

    def advance(self) -> bool:
        """Take free places before one's own; return whether it is the first."""
        while self.number and (handle := _lock(self._files[self.number - 1])) >= 0:
            os.close(self._handle)
            self.number, self._handle = self.number - 1, handle
        return not self.number


def _take(root: Path, gpus: int) -> Mapping[int, str]:
    """Return the UUIDs of GPUs by the open file that keeps each lease: as many as asked for, or none."""
    files = [path for path in gpu_files(root).values() if not is_locked(path)]
    if len(files) < gpus:
        return {}
    usable = _read_gpus().keys() - {uuid for uuid, _ in _read_uses()}
    taken: dict[int, str] = {}
    for path in files:
        uuid = path.read_text(encoding="ascii")
        if len(taken) < gpus and uuid in usable and (handle := _lock(path)) >= 0:
            taken[handle] = uuid
    if len(taken) == gpus:
        return taken
    for handle in taken:
        os.close(handle)
    raise ProgramError("`bedplate-gpus show` says why GPUs without a lease cannot be used")


def _lock(path: Path) -> int:
    """Return an open file that keeps a lock; -1 if another process has it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return -1
    return handle


def is_locked(path: Path) -> bool:
    """Return whether a process has a file locked; the look itself may keep others from it for a moment."""
    handle = _lock(path)
    if handle >= 0:
        os.close(handle)
    return handle < 0


def holder_of(path: Path) -> Mapping[str, Any]:
    """Return the facts of the process that has a file locked.

    The kernel names the one that took the lock. Root sees if it has ended, and another keeps the lock.
    """
    rows = filter(None, map(_LOCK.match, Path("/proc/locks").read_text(encoding="ascii").splitlines()))
    process, keepers = next((int(row[1]) for row in rows if row[2] == _key(path)), 0), set[int]()
    # A look at all processes takes long.
    if not os.getuid() and not _keepers(path, str(process)):
        keepers = _keepers(path)
    return facts_of(process if process in keepers else min(keepers, default=process))


def _key(path: Path) -> str:
    """Return the name of a file in the kernel's lists of locks."""
    facts = path.stat()
    return f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"


def facts_of(process: int) -> Mapping[str, Any]:
    """Return the person of a process, its run or other unit, its start, and the number of GPUs it waits for."""
    folder = Path(f"/proc/{process}")
    facts = {"process": process, "person": "unknown", "run": "", "since": None, "wish": None}
    with suppress(OSError, KeyError):
        unit = (folder / "cgroup").read_text(encoding="utf-8", errors="replace").strip().rpartition("/")[2]
        facts["run"] = re.sub(r"[^\w.@:-]", "?", unit.removeprefix("bp-").removesuffix(".service"))
        ticks = (folder / "stat").read_bytes().rpartition(b")")[2].split()[19]
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
        facts["since"] = int(time.time() - age)
        wish = _WISH.search((folder / "cmdline").read_bytes())
        facts["wish"] = int(wish[1]) if wish else None
        # The owner of the folder is root if the process hides its memory. Names of processes have no line break.
        uid = (folder / "status").read_bytes().split(b"\nUid:")[1].split()[0]
        facts["person"] = pwd.getpwuid(int(uid)).pw_name
    return facts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
