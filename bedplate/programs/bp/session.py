"""`bp session`: runs in which a person works by hand, with a page or by ssh, and their way from this laptop."""

import argparse
import os
import pkgutil
import secrets
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from ..agent.channels import Channels
from ..agent.sockets import EXTEND, PAGE, READY, SSH
from ..agent.sources import REQUIREMENTS
from .hub import MISSING, WRONG, BpError, Hub, say
from .machine import POD, Agent, agent_command
from .places import Place
from .proxy import serve
from .records import find_run, has_run_ended, run_lines, tagged_runs
from .run import Code, read_options, seconds_of, start_code, start_folder
from .run import add_options as add_options_of_run
from .runs import own_id, place_of
from .secret import read_secrets

JUPYTER = "jupyter"
# Options of `bp run` that a session does not have, with their values.
_OF_RUNS: "dict[str, Any]" = {"nodes": "1", "array": "", "launch": "program", "restarts": "0", "scratch_ok": False}
_OF_RUNS |= {"after": "", "in": ""}
# Options that a run in a session does not have, with what they are then.
_OF_PLACES = {"on": "", "group": "", "gpus": "0", "nodes": "1", "cpus": "0", "memory": "0", "image": "", "array": ""}
_OF_PLACES |= {"after": "", "max_cost": "", "priority": "normal", "restarts": "0"}
_COMMANDS = {JUPYTER: ["python3", "-m", "jupyterlab"], SSH: ["sleep", "infinity"]}
# Seconds: until an idle session ends where the fleet has no other limit, and between two tries.
_IDLE, _PAUSE, _TIME = 3_600, 2.0, "8h"
# Seconds for which a session waits for GPUs at most, as far as its key is concerned.
_WAIT = 60 * 86_400
# Of a run in a session: it has less time to end than that, and cannot live longer.
_GRACE, _LONGEST = 15, "59d"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bp session`."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    start = verbs.add_parser("start", help="start a session with the files of this folder", allow_abbrev=False)
    kinds = start.add_mutually_exclusive_group()
    kinds.add_argument("--ssh", action="store_true", help="with a way for ssh and editors; the default")
    kinds.add_argument("--jupyter", action="store_true", help="with JupyterLab in your browser")
    add_options_of_run(start, [f"--{name.replace('_', '-')}" for name in _OF_RUNS])
    for verb, text in (
        ("open", "show its page in a browser until Ctrl-C"),
        ("connect", "be the connection of ssh to a session"),
        ("extend", "put off the end of an idle session"),
    ):
        verbs.add_parser(verb, help=text, allow_abbrev=False).add_argument("run", metavar="NAME")
    verbs.add_parser("list", help="list your sessions").add_argument("--json", action="store_true")


def act_on_session(hub: Hub, options: argparse.Namespace) -> int:
    """Do what a command of bp does with a session; return the exit code."""
    if options.verb == "start":
        return _start(hub, options)
    name, place, kind = _way(hub, options.run)
    if options.verb == "open":
        if kind == SSH:
            raise BpError(f"{name} has no page: it was started for ssh", f"ssh {name}", WRONG)
        return _open(hub, place, name)
    if options.verb == "connect":
        if kind != SSH:
            raise BpError(f"{name} was not started for ssh", "start one by `bp session start --ssh`", WRONG)
        command = (*agent_command(hub, place), "connect", name, SSH)
        os.execvp(command[0], command)  # noqa: S606  without a shell
    return _extend(hub, place, name)


def _session(hub: Hub, word: str) -> "tuple[Mapping[str, Any], str]":
    """Return a session of this person that goes on, and its id. Raises BpError for another run."""
    # By its id the hub finds a run at once.
    run = find_run(hub, _noted(hub, word).get("run", word))
    name = own_id(hub, run)
    if "bedplate.session" not in run["tags"]:
        raise BpError(f"{name} is no session", "`bp session list`", WRONG)
    if has_run_ended(run):
        cause = run["tags"].get("bedplate.cause") or "by itself"
        raise BpError(f"the session {name} has ended: {cause}", "start another one by `bp session start`", WRONG)
    return run, name


def _way(hub: Hub, word: str) -> tuple[str, str, str]:
    """Return id, place and kind of a session; without the hub as this laptop has noted them at its start."""
    try:
        run, name = _session(hub, word)
    except BpError as error:
        if error.code != MISSING or error.status:
            raise
        if noted := _noted(hub, word):
            return word, noted["place"], noted["kind"]
        raise
    return name, place_of(hub, run), run["tags"]["bedplate.session"]


def _noted(hub: Hub, name: str) -> Mapping[str, str]:
    """Return place, kind and MLflow's id of a session that this laptop has started; nothing for another one."""
    words: list[str] = []
    with suppress(OSError, ValueError):
        words = (hub.folder / "sessions" / Path(name).name).read_text(encoding="utf-8").split()
    names = ("place", "kind", "run")
    return dict(zip(names, words)) if len(words) == len(names) else {}


def run_in(hub: Hub, options: argparse.Namespace, command: Sequence[str]) -> int:
    """Start a run of this folder in a session, and follow it; return the exit code of its program."""
    document = read_options(options, command)
    with ThreadPoolExecutor() as pool:
        # While this folder is read.
        asked = pool.submit(_session, hub, vars(options)["in"])
        document["place"] = partial(_place_in, asked)
        return start_folder(hub, options, document, start_code)


def _place_in(
    asked: "Future[tuple[Mapping[str, Any], str]]",
    hub: Hub,
    options: argparse.Namespace,
    _: object,
    document: dict[str, Any],
) -> Place:
    """Return the place of a run in a session, and add to its document what follows from that."""
    values = vars(options)
    wrong = [f"--{name.replace('_', '-')}" for name, value in _OF_PLACES.items() if values[name] != value]
    if wrong:
        raise BpError(
            f"a run in a session has no {', '.join(wrong)}", "it has all of the session: leave that out", WRONG
        )
    run, name = asked.result()
    place = place_of(hub, run)
    if options.secret:
        document["secrets"] |= read_secrets(hub, "" if place.startswith(POD) else place, options.secret)
    document |= {"in": name, "gpus": int(run["tags"].get("bedplate.gpus", 0)), "grace": _GRACE, "checkpoints": ""}
    document |= {"machine": run["tags"].get("bedplate.machine", ""), "after": "", "predecessor": "", "turns": 1}
    document["for"] = seconds_of(values["for"] or _LONGEST)
    return Place(place, {"price": 0, "place": name}, "")


def sessions(hub: Hub) -> Sequence[Mapping[str, Any]]:
    """Return the sessions of this person that go on."""
    runs = tagged_runs(hub, is_running=True, owner=hub.settings.person)
    return [run for run in runs if "bedplate.session" in run["tags"]]


def session_lines(runs: Sequence[Mapping[str, Any]], now: float) -> Iterator[str]:
    """Yield a table of sessions with their kinds and GPUs; `now` is the hub's clock."""
    for kind, line in zip(("KIND", *(str(run["tags"]["bedplate.session"]) for run in runs)), run_lines(runs, now)):
        yield f"{kind:8} {line}"


def _start(hub: Hub, options: argparse.Namespace) -> int:
    kind = JUPYTER if options.jupyter else SSH
    vars(options).update(_OF_RUNS)
    document = read_options(options, _COMMANDS[kind])
    if kind == JUPYTER:
        document[REQUIREMENTS] = (pkgutil.get_data(__name__, "jupyter.txt") or b"").decode()
    document["tags"] = {"command": f"bp session start --{kind}"}
    document["session"] = kind
    return start_folder(hub, options, document, start_session)


def start_session(
    hub: Hub, options: argparse.Namespace, fleet: Mapping[str, Any], document: dict[str, Any], code: Code
) -> int:
    """Start a session of code, and follow it with its page; return its exit code. The document has its kind.

    `most` of the document is its time if neither the person nor the operator has another limit.
    """
    limit, kind, most = fleet["for"], document["session"], document.pop("most", _TIME)
    vars(options)["for"] = vars(options)["for"] or (min(limit, most, key=seconds_of) if limit else most)
    document |= {"idle": (fleet.get("idle") or {"after": _IDLE})["after"], "launch": "program"}
    document["tags"] = {**document.get("tags", {}), "session": kind}
    key = _make_key(hub, seconds_of(vars(options)["for"])) if kind == SSH else None
    document["begin"] = partial(_begin, hub, key, is_followed=not options.d)
    if key:
        document["key"] = key.with_suffix(".pub").read_text(encoding="utf-8").strip()
    return start_code(hub, options, fleet, document, code)


def _make_key(hub: Hub, seconds: float) -> Path:
    """Return the file of a new key pair for a session of so many seconds; remove those of sessions that have ended."""
    folder = hub.folder / "sessions"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in (*folder.iterdir(), *_entries(hub).glob("*")):
        # Another bp may do the same.
        with suppress(FileNotFoundError):
            if file.stat().st_mtime < time.time():
                file.unlink()
    key = folder / secrets.token_hex(8)
    words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", hub.settings.person, "-f", str(key))
    try:
        subprocess.run(words, check=True)  # noqa: S603  of OpenSSH
    except (OSError, subprocess.CalledProcessError) as error:
        raise BpError(f"no key for the session: {error}", "install OpenSSH 8.5 or newer") from None
    _keep(seconds, key, key.with_suffix(".pub"))
    return key


def _keep(seconds: float, *files: Path) -> None:
    """Let files stay until a session of so many seconds has ended, which may wait for its GPUs first."""
    for file in files:
        os.utime(file, (time.time(), time.time() + seconds + _WAIT))


def _entries(hub: Hub) -> Path:
    """Return the folder of settings that the `config` of the archive includes."""
    return hub.settings.folder / "sessions"


def _write_entry(hub: Hub, key: Path, name: str, seconds: float) -> None:
    """Write how ssh reaches a session by its name, and say that."""
    program = shlex.join((sys.executable, str(Path(sys.argv[0]).resolve())))
    lines = [f"Host {name}", f"User {hub.settings.person}", f"ProxyCommand {program} session connect %n"]
    # The connection is that of bp, which trusts its machine or pod by then. A sign of life would be one of work.
    lines += [f'IdentityFile "{key}"', "IdentitiesOnly yes", "StrictHostKeyChecking no", "LogLevel ERROR"]
    lines += ["UserKnownHostsFile /dev/null", "ServerAliveInterval 0", "ControlPath none", "ForwardAgent no"]
    entry = _entries(hub) / name
    entry.parent.mkdir(mode=0o700, exist_ok=True)
    entry.write_text("\n  ".join(lines) + "\n", encoding="utf-8")
    _keep(seconds, key, key.with_suffix(".pub"), entry)
    say(f"ssh {name}, if ~/.ssh/config includes {hub.settings.folder / 'config'}; else ssh -F {entry} {name}")
    say(f"for Remote-SSH of VS Code: ssh-remote+{name}")


def _begin(hub: Hub, key: "Path | None", document: Mapping[str, Any], *, is_followed: bool) -> None:
    """Show the page of a session that starts, or the way for ssh, and let a line of input extend it."""
    place, name = document.get("machine") or f"{POD}{document['id']}", str(document["id"])
    note = hub.folder / "sessions" / name
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    note.write_text(f"{place} {document['session']} {document['run']}", encoding="utf-8")
    _keep(document["for"], note)
    if key:
        _write_entry(hub, key, name, document["for"])
    elif not is_followed:
        say(f"its page: bp session open {name}")
    else:
        Thread(target=_show, args=(hub, Page(hub, place, name)), daemon=True).start()
    if is_followed and sys.stdin.isatty():
        Thread(target=_extend_by_lines, args=(hub, place, name), daemon=True).start()


def _extend_by_lines(hub: Hub, place: str, name: str) -> None:
    for _ in sys.stdin:
        with suppress(BpError):
            _extend(hub, place, name)


def _extend(hub: Hub, place: str, name: str) -> int:
    """Put off the end of an idle session; return the exit code, whose message is that of the agent."""
    _, status = Agent(hub, place, "connect", name, EXTEND).call()
    say(*([] if status else [f"{name} is extended"]))
    return status


class Page:
    """The page of a session, by one connection to its machine or pod, which is made again if it is lost."""

    def __init__(self, hub: Hub, place: str, name: str) -> None:
        self._hub, self._place, self._name, self._lock = hub, place, name, Lock()
        self._channels: Channels | None = None

    def open(self) -> socket.socket:
        """Return a new connection to the page. Raises BpError."""
        with self._lock:
            if not (self._channels and self._channels.is_open):
                self._channels = self._connect()
            return self._channels.open()

    def _connect(self) -> Channels:
        command = (*agent_command(self._hub, self._place), "connect", self._name, PAGE)
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)  # noqa: S603
        if not process.stdin or not process.stdout or READY not in process.stdout:
            raise BpError(f"{self._name} has no page now", f"`bp show {self._name}`")
        channels = Channels(process.stdout, process.stdin)
        Thread(target=channels.run, daemon=True).start()
        return channels


def _open(hub: Hub, place: str, name: str) -> int:
    page = Page(hub, place, name)
    say(f"waits until the page of {name} answers")
    page.open().close()
    serve(hub, page=page.open)
    return 0


def _show(hub: Hub, page: Page) -> None:
    """Serve a page as soon as it answers."""
    while True:
        with suppress(BpError, OSError):
            page.open().close()
            break
        time.sleep(_PAUSE)
    serve(hub, page=page.open)
