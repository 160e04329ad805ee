"""The command `bedplate-agent`, for bp and for units: start, follow and stop runs; be the first process of one.

run [-- PROGRAM ...]     be the first process of a run, by BEDPLATE_*, or by its folder: run --folder FOLDER
wait --folder FOLDER -- PROGRAM ...  wait for the run after which one starts, then be that program
prepare --folder FOLDER -- PROGRAM ...  build the environment of a run before it has GPUs, then be that program
end --folder FOLDER      write the end of a run whose first process has ended without it
end                      write the ends of runs of former boots, and those that the record lacks
start [--follow [BYTE]]  start the run that stdin has as JSON, once; print its output from a byte on
follow RUN [RANK [BYTE]] print the output of a run from a byte on; exit as its program
stop RUN [--now] [--by WHO]  stop a run: its program gets SIGTERM, and its time to end, or none
connect RUN SOCKET       join stdin and stdout to a socket of a session; extend: put off its end
session PROGRAM ...      be the program of a session, by its variables
secrets                  print the secrets of this account as JSON, then change them as stdin says
"""

import json
import os
import pwd
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..connection import AWAY, HubError
from ..elements import element_of_pod
from ..program import ProgramError, output, run, write_text
from .array import Array, Element, element_variables
from .ends import END, RECORDED, STARTED, STOP, read, remove_secrets, stop_of, write_end
from .member import GPUS
from .restarts import NO_CODE, NO_LEASE, NOTICED, PEER_LOST, WRONG_SETTINGS
from .run import AGENT, Run
from .sockets import connect, is_locked, start_in
from .sources import REQUIREMENTS
from .spool import follow_attempts

# Settings that a run need not have: of several nodes, of repeats, of environments, and of arrays.
_OF_GANGS = (
    *("RANK", "NODES", "MASTER", "PORT", "RESTARTS", "SCRATCH_OK", "CHECKPOINTS", "WAIT"),
    *("ENVIRONMENT_FILE", "ELEMENTS", "AT_ONCE", "SESSION", "IDLE", "KEY"),
)
_KILLS = {"signal", "core-dump"}
_ID, _KILLED, _LOOK = re.compile("[a-z_][a-z0-9_-]{0,199}"), 137, 2.0
_GOING_ON, _OVER = {"active", "activating", "deactivating", "reloading"}, {"inactive", "failed"}


def main(words: Sequence[str], scratch: Path = Path("/scratch"), cache: Path = Path("/var/cache/bedplate/runs")) -> int:
    """Run a command; return the exit code."""
    command, *rest = [*words, "", ""]
    if command not in {"run", "wait", "prepare", "end", "start", "follow", "stop", "secrets", "connect", "session"}:
        sys.stderr.write(f"{__doc__}\n")
        return WRONG_SETTINGS
    own, pod = scratch / _person(), os.environ.get("BEDPLATE_WORK")
    base = Path(pod).parent / "runs" if pod else own / "runs" if own.is_dir() else cache / str(os.getuid())
    folder = Path(rest[1]) if rest[:1] == ["--folder"] else base / rest[0]
    try:
        if command in {"run", "wait", "prepare", "session"}:
            return _begin(command, folder, rest)
        if command == "connect":
            return connect(_session_folder(base, rest[0]), rest[1])
        if command == "start":
            folder = _start(base, json.load(sys.stdin))
            return _follow(folder, "0", int(rest[1] or 0)) if rest[0] == "--follow" else 0
        if command == "follow":
            return _follow(folder, rest[1] or "0", int(words[3]) if words[3:] else 0)
        if command == "stop":
            _stop(folder, rest[rest.index("--by") + 1] if "--by" in rest else _person(), is_now="--now" in rest)
        elif command == "secrets":
            sys.stdout.write(json.dumps(_secrets(json.load(sys.stdin))) + "\n")
        else:
            return _end(folder) if rest[0] == "--folder" else _end_cut(base)
    except (ProgramError, HubError, OSError, ValueError, TypeError, KeyError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        sys.stderr.write(f"error: {what}\n")
    else:
        return 0
    return WRONG_SETTINGS


def _session_folder(base: Path, name: str) -> Path:
    """Return the folder of a session; a pod has one run besides those in it."""
    return base / name if "BEDPLATE_WORK" not in os.environ else base.parent


def _person() -> str:
    """Return the name of this account; images do not know the people of a fleet."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _begin(command: str, folder: Path, words: Sequence[str]) -> int:
    """Be the first process of a run, or wait to become it, or be the program of a session."""
    if command == "session":
        # Other commands start without it.
        from .session import Session  # noqa: PLC0415

        return Session(Path(os.environ["BEDPLATE_STOP"]).parent, os.environ).run(words[:-2])
    if words[0] != "--folder":
        return _run_here(words[1:-2])
    if command == "run":
        return _run(folder)
    program, do = [*words[3:-2]], _wait if command == "wait" else _prepare
    if not (code := do(folder)):
        os.execvp(program[0], program)  # noqa: S606  of the unit, without a shell
    return code


def _run_here(program: Sequence[str]) -> int:
    """Be the first process of a pod."""
    folder, element = Path(os.environ["BEDPLATE_WORK"]).parent, element_of_pod(os.environ)
    return (Run(folder, {}) if element is None else Element(folder, {}, element)).run(program, {})


def _run(folder: Path) -> int:
    """Be the first process of a unit, or of an element of its array."""
    given, element = read(folder / "run.json"), os.environ.get("BEDPLATE_ELEMENT")
    variables, own = _variables(folder, given), folder / f"elements/{element}"
    if element:
        one: Run = Element(own, element_variables(own, variables), int(element))
    else:
        one = Array(folder, variables, AGENT) if given.get("elements") else Run(folder, variables)
    return one.run(given["command"], given["environment"])


def _wait(folder: Path) -> int:
    """Wait for the run after which this one starts; return the exit code of one that never does."""
    given, cause = read(folder / "run.json"), ""
    name, _, condition = given["after"].partition(":")
    # The unit of a run that has started may start again.
    if not (folder / STARTED).exists():
        sys.stderr.write(f"waits until {name} has {'ended' if condition == 'any' else 'succeeded'}\n")
        sys.stderr.flush()
        cause = Run(folder, _variables(folder, given)).wait_for(given["predecessor"], name, condition)
    return _end_before(folder, NO_LEASE, cause)


def _prepare(folder: Path) -> int:
    """Build the environment of a run; return the exit code if that fails."""
    given = read(folder / "run.json")
    return _end_before(folder, NO_CODE, Run(folder, _variables(folder, given)).prepare(given["environment"]))


def _end_before(folder: Path, code: int, cause: str) -> int:
    """Write the end of a run that does not start for this cause, if there is one; return its exit code."""
    if cause:
        write_end(folder, code, cause, {}, is_stopped=False)
    return code if cause else 0


def _variables(folder: Path, given: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the variables of an agent for what `start` was given."""
    names = ("HUB", "ADDRESS", "RUN", "TREE", "GPUS", "ATTEMPT", "GRACE", "FOR", "EXPERIMENT")
    files = {"CERT": "certificate", "TOKEN_FILE": "token", "WORK": "work", "CACHE": "../packs"}
    files["CHECKPOINTS"] = "checkpoints"
    return {
        **{name: str(given[name.lower()]) for name in names},
        **{name: str(folder / file) for name, file in files.items()},
        **{name: str(given[name.lower()]) for name in _OF_GANGS if given.get(name.lower())},
        "LAUNCH": given.get("launch", ""),
        "ARRAY": given["id"],
        "ENVIRONMENTS": str(folder.parent / "environments"),
        "MACHINE": given.get("machine", ""),
        "PACKS": ",".join(given["packs"]),
        "ARTIFACTS": f"{given['experiment']}/{given['run']}/artifacts",
    }


def _end(folder: Path) -> int:
    """Write the end of a run whose first process has ended, as systemd says how, unless it has; return 0."""
    given = read(folder / "run.json")
    result, status = (os.environ.get(name, "unknown") for name in ("SERVICE_RESULT", "EXIT_STATUS"))
    if (result in _KILLS or status == str(PEER_LOST)) and not any((folder / name).exists() for name in (END, STOP)):
        # The unit starts again, and its agent decides what becomes of the run.
        return 0
    remove_secrets(folder)
    code, cause = _KILLED, f"the agent ended before its program: {result}, {status}"
    if (folder / STOP).exists():
        code, cause = NOTICED, stop_of(folder)[0]
    elif status == str(NO_LEASE):
        code, cause = NO_LEASE, "no GPUs were free in time"
    elif given["boot"] != _boot():
        cause = "the machine lost power or restarted"
    end = write_end(folder, code, cause, {}, is_stopped=code == NOTICED)
    Run(folder, _variables(folder, given)).write_record(end, given["grace"])
    return 0


def _end_cut(base: Path) -> int:
    """Write what the ends of runs lack; return 0 unless the hub is away, and a repeat may help."""
    status = 0
    for path in sorted(base.glob("[a-z_]*/run.json")):
        folder = path.parent
        try:
            is_cut = (folder / END).exists() or read(path)["boot"] != _boot()
            if is_cut and not (folder / RECORDED).exists() and _is_over(folder):
                _end(folder)
        except (HubError, OSError, ValueError, LookupError) as error:
            sys.stderr.write(f"{folder.name}: {error}\n")
            status = WRONG_SETTINGS if getattr(error, "reason", "") == AWAY else status
    return status


def _boot() -> str:
    """Return what no other boot of this machine has; a container has the id of its host."""
    start = Path("/proc/1/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() + f"-{start}"


def _start(base: Path, given: dict[str, Any]) -> Path:
    """Start the unit of a run, and print its name. A run that was started stays as it is."""
    name, program = str(given["id"]), str(given["command"][0])
    path = given["environment"].get("PATH", os.environ["PATH"])
    # Debian and Ubuntu have `python` only by a package.
    if program == "python" and not shutil.which(program, path=path):
        program = given["command"][0] = "python3"
    found = shutil.which(program, path=path)
    # The environment of a run may have it.
    if not found and "/" not in program and not given.get("environment_file"):
        raise ValueError(
            f"{socket.gethostname()} has no program {program}: install it there, or name a file by its path"
        )
    if not _ID.fullmatch(name):
        raise ValueError(f"{name!r} is no id of a run")
    folder, new, unit = base / name, base / f".{name}.{os.getpid()}", f"bp-{name}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.lstat().st_uid != os.getuid():
        raise ValueError(f"{base} belongs to another account")
    new.mkdir(mode=0o700)
    for file in ("token", "certificate", "secrets", "params", *({REQUIREMENTS} & given.keys())):
        value = given.pop(file)
        write_text(new / file, value if isinstance(value, str) else json.dumps(value), 0o600)
    write_text(new / "run.json", json.dumps({**given, "boot": _boot()}), 0o600)
    try:
        new.rename(folder)
    except OSError:
        shutil.rmtree(new)
    if not any((folder / name).exists() for name in (STARTED, END)) and not _is_going_on(folder):
        if found and program.startswith("python") and not given.get("environment_file"):
            sys.stderr.write(f"{program} is {found}: {run(found, '--version').text.strip()}\n")
        _start_unit(base, folder, given)
    sys.stdout.write(json.dumps({"unit": unit, "machine": socket.gethostname()}) + "\n")
    sys.stdout.flush()
    return folder


def _start_unit(base: Path, folder: Path, given: Mapping[str, Any]) -> None:
    """Start the unit of a run, or let a session start it. Raises ProgramError."""
    if given.get("in"):
        try:
            start_in(_session_folder(base, given["in"]), folder)
        except ProgramError as error:
            # bp may be away by now.
            _end_before(folder, NO_CODE, f"no start: {error}")
            _end(folder)
            raise
        return
    started = run(*_unit(f"bp-{folder.name}", folder, given))
    # Another start may have been first.
    if started.error and not (folder / END).exists() and not _is_going_on(folder):
        raise ProgramError(started.error)


def _unit(unit: str, folder: Path, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the command that starts a unit."""
    yield from ("systemd-run", "--user", "--quiet", "--collect", "--service-type=exec", f"--unit={unit}")
    # The agent itself says why a process was killed for memory, and its program gets SIGTERM from it.
    yield from ("-pOOMPolicy=continue", "-pKillMode=mixed", f"-pExecStopPost={AGENT} end --folder {folder}")
    yield from (f"-pTimeoutStopSec={given['grace'] + 10}", f"-pStandardError=append:{folder}/unit")
    # The agent itself ends a run that comes to nothing.
    yield from (
        f"-pRestartForceExitStatus={PEER_LOST}",
        "-pRestart=on-abnormal",
        "-pRestartSec=5",
        "-pStartLimitIntervalSec=0",
    )
    # As in the session of SSH that has looked for the program.
    yield f"-EPATH={os.environ['PATH']}"
    count = given.get("at_once") or 1
    if given["cpus"]:
        yield f"-pCPUQuota={100 * given['cpus'] * count:.0f}%"
    if given["memory"]:
        yield from (f"-pMemoryMax={given['memory'] * 1024 * count:.0f}M", "-pMemorySwapMax=0")
    if given.get("predecessor"):
        yield from (AGENT, "wait", "--folder", str(folder), "--")
    # The agents of several nodes take their leases in turn, and those of elements have their own.
    gpus = 0 if given.get("nodes", 1) > 1 or given.get("elements") else given["gpus"]
    has_environment = given.get("environment_file") or (folder / REQUIREMENTS).exists()
    if has_environment and given["gpus"] and given.get("nodes", 1) == 1:
        yield from (AGENT, "prepare", "--folder", str(folder), "--")
    yield from (GPUS, "run", f"--gpus={gpus}", *([] if given["wait"] is None else [f"--wait={given['wait']}"]))
    yield from ("--", AGENT, "run", "--folder", str(folder))


def _is_going_on(folder: Path) -> bool:
    return _state_of_unit(folder) in _GOING_ON


def _is_over(folder: Path) -> bool:
    # A manager that does not answer, such as during an update of systemd, says nothing of the run.
    return _state_of_unit(folder) in _OVER


def _state_of_unit(folder: Path) -> str:
    if read(folder / "run.json").get("in"):
        return "active" if is_locked(folder / "unit") else "inactive"
    return run("systemctl", "--user", "is-active", f"bp-{folder.name}").text.strip()


def _follow(folder: Path, rank: str, start: int) -> int:
    """Print the output of a rank, of all attempts, from a byte on until the end; return the exit code of the run."""
    read(folder / "run.json")
    looked = [time.monotonic()]

    def is_over() -> bool:
        sys.stderr.write(unit.read())
        sys.stderr.flush()
        if (folder / END).exists() or time.monotonic() - looked[0] < _LOOK:
            return (folder / END).exists()
        looked[0] = time.monotonic()
        return _is_over(folder)

    with (folder / "unit").open("a+", errors="replace") as unit:
        unit.seek(0, os.SEEK_END if start else os.SEEK_SET)
        for data in follow_attempts(folder / "logs", rank, start, is_over):
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
    if not (folder / END).exists():
        _end(folder)
    end = read(folder / END)
    sys.stderr.write(f"{end['cause']}\n" if end["code"] else "")
    return int(end["code"])


def _stop(folder: Path, by: str, *, is_now: bool) -> None:
    if _is_over(folder):
        _end(folder)
        return
    write_text(folder / STOP, json.dumps({"by": by, "now": is_now}))
    # A session looks for it.
    if read(folder / "run.json").get("in"):
        return
    output("systemctl", "--user", "stop", "--no-block", f"bp-{folder.name}")
    # A unit that is being stopped gets no second signal from `stop`.
    run("systemctl", "--user", "kill", "--kill-who=main", f"bp-{folder.name}")


def _secrets(changes: Mapping[str, str]) -> Mapping[str, tuple[str, str]]:
    """Change the secrets of this account, each a file; return time and value of each before. An empty value removes."""
    folder, found = Path.home() / ".config/bedplate/secrets", {}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A write that was interrupted leaves a name with a dot.
    for file in folder.glob("[!.]*"):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(file.stat().st_mtime))
        found[file.name] = (at, file.read_bytes().decode())
    for name, value in changes.items():
        if value:
            write_text(folder / name, value, 0o600)
        else:
            (folder / name).unlink(missing_ok=True)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
