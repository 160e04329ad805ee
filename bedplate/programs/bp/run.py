"""`bp run`: from a folder to a recorded run on a machine, and its output."""

import argparse
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ..agent.restarts import NO_CODE
from .array import FORM, array_tags, follow_array, read_array, set_pace
from .environments import FORM as ENVIRONMENT
from .environments import choose_environment, environment_line
from .hub import PARTLY, WRONG, BpError, Hub, say
from .limits import limit_lines, paid_seconds
from .machine import Agent, Gang
from .places import Place, checkpoint_mount, choose_place, wait_line
from .records import create_run, end_run, find_run, has_run_ended
from .secret import NAME, read_secrets
from .snapshot import Shadow, Snapshot, listed, open_shadow, pack_name

if TYPE_CHECKING:
    from .pods import JobSet

# Seconds between the signal to a program and its end by force.
_GRACE = 30
_INTERRUPTED, _LONGEST = 130, 5_000
_UNITS = {"m": 60, "h": 3_600, "d": 86_400}
# Seconds for which the hub has a pack: an operator may remove old ones, and a run with `-d` tells nobody of it.
_STAYS = 30 * 86_400
# The token of a run is valid for 60 days.
_TIME, _LONGEST_TIME = "24h", "59d"
# Programs that start ranks themselves; those of MPI do so on all nodes.
_MPI = {"mpirun", "mpiexec"}
_LAUNCHERS = {"torchrun", *_MPI}
# The policy of the cluster ends pods of this priority after 4 hours, with the time that an agent has to end.
_INTERACTIVE, _INTERACTIVE_GPUS = "225m", 8
_TAGS = ("gpus", "cpus", "memory", "for", "launch", "nodes", "priority", "restarts", "scratch_ok", "after")
_NUMBER, _VALUE, _OWN = "[0-9]{1,4}", "[A-Za-z_][A-Za-z0-9_]{0,200}=.{0,5000}", "BEDPLATE[_-]|MLFLOW[_-]|CUDA[_-]V"
# Capitals: a value that is written here by mistake reaches no record.
SECRET = f"(?!{_OWN}){NAME}|{NAME}=(?!{_OWN})[A-Z_][A-Z0-9_]{{0,200}}"
"""The form of a secret of a run: its name, and that of its variable."""
# Each option with the name of its value, what that must be, and its default; a flag has none of them.
_OPTIONS: Sequence[tuple[str, str, str, Any, str]] = (
    ("--on", "MACHINE", ".*", "", "this machine"),
    ("--group", "G", ".*", "", "this group: a machine, or the cluster; default: the smallest that is enough"),
    ("--in", "SESSION", "[A-Za-z0-9_.-]{1,200}|", "", "in your session of this name, with its GPUs; it ends with it"),
    ("--gpus", "N", _NUMBER, "0", "GPUs for this run alone; default: none"),
    ("--nodes", "N", "[1-9][0-9]{0,3}", "1", "machines, each with these GPUs, CPUs and memory; default: 1"),
    ("--cpus", "N", _NUMBER, "0", "at most so many CPUs"),
    ("--memory", "N", _NUMBER, "0", "at most so many GiB of memory"),
    ("--image", "I", ".*", "", "for the cluster: a name of `jobs.images`, or repository@sha256:DIGEST"),
    ("--environment", "E", ENVIRONMENT, "", "none, or that of a run by its name; default: by a file of the folder"),
    ("--launch", "HOW", "ranks|program|mpi|", "", "once a GPU (ranks), a machine (program), or a run (mpi)"),
    ("--priority", "P", "interactive|normal|spare", "normal", "in the cluster: interactive, normal, or spare"),
    ("--array", "A-B,C%N", FORM, "", "a run for each of these numbers, N at a time; default: all of a machine"),
    ("--restarts", "N", "[0-9]{1,3}", "0", "repeat a program that fails, from its checkpoint; default: 0"),
    ("--scratch-ok", "", "", False, "let the program start from the beginning after a lost machine"),
    (
        "--after",
        "RUN",
        "[A-Za-z0-9_.-]{1,200}(:(ok|any))?|",
        "",
        "when RUN has succeeded; RUN:any: when it has ended",
    ),
    ("--for", "8h", "[1-9][0-9]{0,3}[mhd]|", "", "the longest time, in m, h or d; default: the operator's, or 24h"),
    ("--max-cost", "USD", r"[0-9]{1,6}([.][0-9]{1,2})?|", "", "the most US dollars, which shortens its time"),
    ("--name", "NAME", "[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?|", "", "the end of its name, at most 24 of a-z, 0-9 and -"),
    ("--param", "K=V", _VALUE, [], "a parameter, which the record has; several times"),
    ("--env", "K=V", f"(?!{_OWN}){_VALUE}", [], "a variable, not BEDPLATE_*, MLFLOW_* or CUDA_V*; several times"),
    ("--secret", "NAME", SECRET, [], "a secret as a variable; NAME=VARIABLE: as another one; several times"),
    ("--include", "FILE", ".+", [], "send a file that is ignored, or named as a secret; several times"),
    ("--notify", "", "", False, "send you a message at the end, even if that is soon"),
    ("-d", "", "", False, "do not wait for the end"),
    ("--dry-run", "", "", False, "say where and what, and start nothing"),
    ("-y", "", "", False, "do not ask"),
)


@dataclass(frozen=True)
class Code:
    """What a run executes: its packs on the hub, and the files of those that the hub lacks; `release` forgets these."""

    snapshot: Snapshot
    packs: Sequence[str]
    new: Mapping[str, Path]
    release: Callable[[], object] = lambda: None


def add_options(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Add the options of `bp run` without those of these names."""
    for name, value, pattern, default, text in _OPTIONS:
        if name in without:
            continue
        kind: dict[str, Any] = {"action": "store_true"}
        if value:
            action = "append" if isinstance(default, list) else "store"
            kind = {"action": action, "metavar": value, "type": partial(_check, pattern, f"{value}: {text}")}
        parser.add_argument(name, default=default, help=text, **kind)


def _check(pattern: str, form: str, text: str) -> str:
    if re.fullmatch(pattern, text, re.DOTALL):
        return text
    # The value may be secret.
    raise argparse.ArgumentTypeError(f"the value is not of the form {form}")


def start_run(hub: Hub, options: argparse.Namespace, command: Sequence[str]) -> int:
    """Start a run of this folder, and follow it; return the exit code of its program."""
    return start_folder(hub, options, read_options(options, command), start_code)


def start_folder(hub: Hub, options: argparse.Namespace, document: dict[str, Any], start: Callable[..., int]) -> int:
    """Start a run of this folder by a function like `start_code`; return the exit code of its program."""
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        raise BpError("this folder does not exist any more", "change to another folder", WRONG) from None
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        asked = pool.submit(hub.fleet)
        if not options.dry_run:
            # It takes longer than a snapshot. Without a use it ends with bp.
            hub.prepare_token()
        shadow = stack.enter_context(open_shadow(hub.folder, folder))
        code = code_of(hub, shadow, options.include, stack)
        document["environment_file"] = choose_environment(hub, options, folder, code.snapshot.left_out)
        status = start(hub, options, asked.result(), document, code)
    if status == NO_CODE:
        # The hub may have lost a pack that this laptop counts as sent.
        shadow.forget()
    return status


def code_of(hub: Hub, shadow: Shadow, include: Sequence[str], stack: ExitStack) -> Code:
    """Return the code of a folder as it is now; its release closes the stack."""
    snapshot = shadow.take(include)
    packs = {f"packs/{hub.settings.person}/{pack_name(pack)}": pack for pack in shadow.packs(snapshot.tree)}
    new = {name: pack for name, pack in packs.items() if not _is_sent(pack)}
    return Code(snapshot, [*packs], new, stack.close)


def start_code(
    hub: Hub, options: argparse.Namespace, fleet: Mapping[str, Any], document: dict[str, Any], code: Code
) -> int:
    """Start a run of code, and follow it; return the exit code of its program.

    The document may have more `tags`, the `cost` of what the run itself starts, the line of its environment if that is
    bp's own (`built`), and functions for its `place`, and to `begin` what follows once it has all of the run.
    """
    run, more_tags, begin = dict[str, Any](), document.pop("tags", {}), document.pop("begin", lambda _: None)
    more_cost, source = document.pop("cost", 0.0), document["environment_file"]
    built = document.pop("built", environment_line(source) if source else "")
    if options.notify and hub.settings.person not in fleet.get("notify", ()):
        raise BpError("--notify has no effect: the fleet file has no `notify` for you", "ask your operator", WRONG)
    place = document.pop("place", set_place)(hub, options, fleet, document)
    cost = document["nodes"] * document["turns"] * (place.facts["price"] or 0) * document["for"] / 3_600
    sent_bytes = sum(pack.stat().st_size for pack in code.new.values())
    say(*_plan_lines(place, document, cost, code.snapshot, sent_bytes))
    say(*filter(None, [built, wait_line(fleet, place)]))
    cost += more_cost
    say(*limit_lines(hub, fleet, options.max_cost, document["for"], cost))
    if options.dry_run:
        return 0
    if not options.y and fleet["ask_above"] is not None and cost > fleet["ask_above"]:
        say("Start it? [y/N]")
        if not sys.stdin.isatty() or sys.stdin.readline().strip() not in {"y", "yes"}:
            raise BpError("not started: it may cost more than `ask_above` of the fleet", "answer y, or add -y", WRONG)
    with ThreadPoolExecutor() as pool:
        # The connections are made while packs travel and the record is written.
        hub.prepare_token()
        agent = _agent(hub, place, is_followed=not options.d and not document["elements"])
        try:
            sent = [pool.submit(_send, hub, name, pack) for name, pack in code.new.items()]
            tags = {**run_tags(options, place, document, code), **more_tags}
            run |= create_run(hub, options.name, tags, document["params"])
            say(f"run {run['name']}")
            document |= {"id": run["name"], "run": run["run"], "experiment": run["experiment"]}
            document |= {"tree": code.snapshot.tree}
            document["checkpoints"] = document["checkpoints"] and f"{document['checkpoints']}/{run['name']}"
            document |= {"packs": code.packs, "token": hub.run_token(run["run"]), **hub.facts}
            for task in sent:
                task.result()
            code.release()
            begin(document)
            return _follow(hub, agent, document, is_followed=not options.d)
        except BaseException as error:
            agent.close()
            # Without an output that can be written to, the run goes on.
            if run and getattr(error, "code", 0) != PARTLY and not isinstance(error, OSError):
                with suppress(BpError):
                    end_run(hub, run["run"], f"it did not start: {str(error) or 'Ctrl-C'}")
            raise
        finally:
            # Uploads that are under way would be waited for.
            hub.abort()


def run_tags(options: argparse.Namespace, place: Place, document: Mapping[str, Any], code: Code) -> dict[str, Any]:
    """Return the tags of a new record."""
    snapshot = code.snapshot
    tags = {name: document[name] for name in _TAGS}
    tags |= {"command": shlex.join(document["command"]), "notify": options.notify or ""}
    tags |= {f"node.{rank}": name for rank, name in enumerate(place.members)}
    tags |= {**array_tags(document), "environment": document["environment_file"]}
    tags |= {"env": " ".join(document["environment"]), "given": " ".join(document["params"])}
    tags |= {"secrets": " ".join(options.secret), "max_cost": options.max_cost}
    tags |= {"group": place.group, "price": place.facts["price"], "tree": snapshot.tree}
    # A pod waits for a machine, and a unit for GPUs or packages: for that long the hub does not miss it.
    waits = place.selector or document["gpus"] or document["predecessor"] or document["environment_file"]
    tags |= {"state": "queued"} if waits else {}
    tags |= {"image": place.facts["image"]} if place.selector else {"machine": place.name}
    tags |= {"base": code.packs[0].rpartition("/")[2].partition("-")[0], "size": snapshot.size}
    tags |= {"in": document["in"]} if "in" in document else {}
    return {**tags, "left_out": ", ".join(snapshot.left_out), "head": snapshot.head, "remote": snapshot.remote}


def set_place(hub: Hub, options: argparse.Namespace, fleet: Mapping[str, Any], document: dict[str, Any]) -> Place:
    """Return the place of a run, and add to its document what follows from that."""
    nodes, is_interactive = document["nodes"], document["priority"] == "interactive"
    if options.on and nodes > 1:
        raise BpError("--on names one machine, and --nodes needs several", "write --group G, or leave --on out", WRONG)
    place = choose_place(fleet, options.on, options.group, document, options.image)
    document["turns"] = set_pace(document, place)
    if is_interactive and max(nodes, document["at_once"]) * document["gpus"] > _INTERACTIVE_GPUS:
        what = f"--priority interactive has at most {_INTERACTIVE_GPUS} GPUs"
        raise BpError(what, "write fewer --nodes or --gpus, or --priority normal", WRONG)
    if not place.selector and document["priority"] != "normal":
        what = f"--priority is for the cluster, and {place.name} is a machine for SSH"
        raise BpError(what, "select a --group of the cluster, or leave --priority out", WRONG)
    if options.after and place.selector and not fleet.get("after", True):
        what = "nothing starts a run after another one here: the cluster of this fleet has no group of instances"
        raise BpError(what, "leave --after out, and start it later", WRONG)
    mount = checkpoint_mount(fleet, place)
    if nodes > 1 and not mount and not document["scratch_ok"]:
        what = f"{place.group or place.name} has no shared store for checkpoints of several nodes"
        raise BpError(what, "add --scratch-ok, or ask your operator for `jobs.checkpoints`", WRONG)
    document["checkpoints"] = mount and f"{mount}/{hub.settings.person}/.bedplate/checkpoints"
    document["after"], document["predecessor"] = "", ""
    if options.after:
        document["after"], document["predecessor"] = _predecessor(hub, options.after, is_pod=bool(place.selector))
    if options.secret:
        document["secrets"] |= read_secrets(hub, "" if place.selector else place.name, options.secret)
    limits = [limit for limit in (fleet["for"], _INTERACTIVE if is_interactive else "") if limit]
    limit = _time_limit(vars(options)["for"], min(limits, key=seconds_of, default=""))
    document["for"] = paid_seconds(limit, nodes * document["turns"] * (place.facts["price"] or 0), options.max_cost)
    document.update(place.shares(document) if place.selector else {"machine": place.name})
    return place


def _predecessor(hub: Hub, word: str, *, is_pod: bool) -> tuple[str, str]:
    """Return the run to wait for: its id with the condition, as in the label, and its id in MLflow.

    Both are empty if it has ended as it must. Raises BpError.
    """
    name, _, mode = word.partition(":")
    run = find_run(hub, name)
    tags = run["tags"]
    # Machines ask the record; the controller of the cluster knows its own runs only.
    if tags.get("bedplate.owner") != hub.settings.person or (is_pod and "bedplate.image" not in tags):
        where = " in the cluster" if is_pod else ""
        fix = "--after takes one of `bp runs`" + (" with an image" if is_pod else "")
        raise BpError(f"{name} is no run of yours{where}", fix, WRONG)
    # The end is two requests, and the status is the second.
    if not has_run_ended(run) or run["status"] == "RUNNING":
        return f"{tags['bedplate.id']}:{mode or 'ok'}", str(run["run"])
    if mode != "any" and run["status"] != "FINISHED":
        cause = tags.get("bedplate.cause", "the cause is unknown")
        raise BpError(f"{name} has not succeeded: {cause}", f"write --after {name}:any", WRONG)
    return "", ""


def _agent(hub: Hub, place: Place, *, is_followed: bool) -> Union[Agent, Gang, "JobSet"]:
    """Return what starts runs in a place."""
    if place.members:
        return Gang(hub, place.members, is_followed=is_followed)
    if not place.selector:
        return Agent(hub, place.name, "start", *(["--follow"] if is_followed else []))
    # Slow to import, and of no use on machines.
    from .pods import JobSet  # noqa: PLC0415

    return JobSet(hub, place, Path(sys.argv[0]), is_followed=is_followed)


def _follow(hub: Hub, agent: Union[Agent, Gang, "JobSet"], document: Mapping[str, Any], *, is_followed: bool) -> int:
    """Start a run, and follow it if the agent does; return its exit code. Ctrl-C leaves the run alone."""
    try:
        code = agent.run(document)
        if not (document["elements"] and is_followed):
            return code
        look = getattr(agent, "look", lambda _: "")
        return follow_array(hub, document["run"], partial(look, document))
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        agent.close()
        say("", f"{document['id']} goes on: `bp logs -f {document['id']}`, or `bp stop {document['id']}`")
        return _INTERRUPTED


def _is_sent(pack: Path) -> bool:
    with suppress(FileNotFoundError):
        return time.time() - pack.with_suffix(".sent").stat().st_mtime < _STAYS
    return False


def _send(hub: Hub, place: str, pack: Path) -> None:
    try:
        hub.send(place, pack)
    except BpError as error:
        # The answer to a former upload may be lost.
        if error.status != HTTPStatus.CONFLICT:
            raise
    pack.with_suffix(".sent").touch()


def read_options(options: argparse.Namespace, command: Sequence[str]) -> dict[str, Any]:
    """Return what the agent gets of the options."""
    if not command or len(shlex.join(command).encode(errors="replace")) > _LONGEST:
        what = f"the command is longer than {_LONGEST} bytes" if command else "there is no command"
        raise BpError(what, "write `bp run -- python train.py`, or call a script of this folder", WRONG)
    name, is_gang = Path(command[0]).name, int(options.nodes) > 1
    default = "mpi" if name in _MPI and is_gang else "program" if name in _LAUNCHERS else ""
    document = {"command": command, "launch": options.launch or default, "grace": _GRACE}
    document |= {name: int(vars(options)[name]) for name in ("gpus", "cpus", "memory", "nodes", "restarts")}
    document |= {"priority": options.priority, "scratch_ok": "1" if options.scratch_ok else ""}
    document |= read_array(options.array, int(options.nodes))
    document |= {"params": dict(word.split("=", 1) for word in options.param), "attempt": 0, "wait": None}
    return {**document, "environment": dict(word.split("=", 1) for word in options.env), "secrets": {}}


def _time_limit(time: str, limit: str) -> int:
    """Return the seconds of a run, by its person, or else by the fleet, whose limit is for all."""
    longest = limit or _LONGEST_TIME
    seconds, most = seconds_of(time or limit or _TIME), seconds_of(longest)
    if seconds > most:
        raise BpError(
            f"a run has at most {longest}", f"write --for {longest}, and start again from a checkpoint", WRONG
        )
    return seconds


def seconds_of(time: str) -> int:
    """Return the seconds of a time such as 30m, 8h or 2d."""
    return int(time[:-1]) * _UNITS[time[-1]]


def _plan_lines(place: Place, document: Mapping[str, Any], cost: float, snapshot: Snapshot, size: int) -> Iterator[str]:
    """Yield where a run goes, what that costs, what travels, and what does not."""
    nodes = document["nodes"]
    price = nodes * (place.facts["price"] or 0)
    money = f"{price:.2f} USD an hour, at most {cost:.2f} USD" if cost else "without a known price"
    where = "in the cluster" if place.selector else f"of {place.group or place.facts['place']}"
    names = ", ".join(place.members) or place.name
    on = f"on {f'{nodes} machines: {names}' if nodes > 1 else names} {where}, {money}"
    yield f"in the session {document['in']}, which pays" if "in" in document else on
    if document["elements"]:
        yield f"an array of elements {document['elements']}, {document['at_once']} at a time"
    yield from ([f"image {place.facts['image']}"] if place.selector else [])
    if place.selector and not document["checkpoints"]:
        yield "note: no store here has checkpoints: a run whose machine is lost has to start from the beginning"
    what = f"{snapshot.files} files" if snapshot.files else "the code"
    yield f"sends {size / 1e6:.2f} MB of {what} with {snapshot.size / 1e6:.2f} MB"
    yield from ([f"left out: {listed(snapshot.left_out)}"] if snapshot.left_out else [])
    yield from (f"note: {warning}" for warning in snapshot.warnings)
