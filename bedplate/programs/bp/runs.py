"""What people do with a run that exists: read its output, stop it, repeat it, look inside, and get its code."""

import argparse
import os
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from ..agent.packs import CodeError, check_out
from ..agent.restarts import WRONG_SETTINGS
from .array import repeated
from .cluster import api_of
from .environments import chosen_environment, former_environment
from .hub import WRONG, BpError, Hub, printable, say, write
from .machine import LOST, POD, Agent, ssh_command, stop_agents
from .pods import NotRunningError, Record, follow, stop_pods
from .records import OUTPUT, change_run, differences, find_run, has_run_ended, output_files, stored_names
from .run import SECRET, Code, read_options, start_code
from .snapshot import Snapshot, empty_shadow
from .terminal import attach

Run = Mapping[str, Any]
# Bytes of a part of a log, and seconds between two looks for new ones.
_PART, _PAUSE = 256 << 10, 2.0
_NUMBER = "[0-9]{6}"
# What `again` repeats, and former records lack.
_DEFAULTS = {"nodes": "1", "priority": "normal", "restarts": "0", "scratch_ok": ""}
# Control characters, and sequences but those of colours and of moves.
_CONTROLS = re.compile(rb"\x1b(?!\[[0-9;]*[A-HJKm])|[\x00-\x07\x0b-\x0c\x0e-\x1a\x1c-\x1f\x7f]|\xc2[\x80-\x9f]")
_REPEATED = ("command", "group", "image", "launch", "env", "given")
# Colleagues can change tags. What a shell or a path gets of them is of these forms.
_FORMS = {
    **dict.fromkeys(("id", "in"), "[a-z_][a-z0-9_-]{0,199}"),
    "machine": "[a-z0-9][a-z0-9.-]{0,250}",
    **dict.fromkeys(("attempt", "gpus", "cpus", "memory", "for", "size", "restarts"), "[0-9]{1,12}"),
    "nodes": "[1-9][0-9]{0,3}",
    "priority": "interactive|normal|spare",
    "scratch_ok": "1|",
    "array": "[0-9,-]{0,4500}",
    "at_once": "[0-9]{1,3}",
    "launch": "ranks|program|mpi|",
    "owner": "[a-z_][a-z0-9_-]{0,31}",
    "tree": "[0-9a-f]{40}",
    "base": "[0-9a-f]{40}",
    "secrets": f"(?:(?:{SECRET})(?: |$))*",
}
# Of a pod, the first process is the agent.
_STACKS = r"""PATH=$PATH:$HOME/.local/bin
command -v py-spy >/dev/null || { echo 'error: py-spy is missing: install it by pipx, or in the image' >&2; exit 4; }
for pid in $(grep -lsz "^BEDPLATE_RUN=$1\$" /proc/[0-9]*/environ | cut -d/ -f3 | grep -vx 1); do
  case $(readlink "/proc/$pid/exe") in *python*) py-spy dump --pid "$pid" && found=1 ;; esac
done
[ "$found" ] || { echo 'error: py-spy shows no Python process of the run' >&2; exit 4; }"""


def act(hub: Hub, options: argparse.Namespace, command: Sequence[str]) -> int:
    """Do what a command of bp does with a run; return its exit code."""
    if options.command == "archive":
        return _archive(hub, [find_run(hub, word) for word in options.run])
    run = find_run(hub, options.run)
    if options.command == "diff":
        return _print_difference(hub, run, find_run(hub, options.other))
    if options.command == "again":
        return _again(hub, options, run)
    if options.command == "attach":
        return _attach(hub, run, options, command)
    actions = {"logs": _print_logs, "stop": _stop, "code": _check_out, "files": _copy_files}
    return actions[options.command](hub, run, options)


def _tag(run: Run, name: str, default: str = "") -> str:
    """Return a tag in its form. Raises BpError if the record has none."""
    value = str(run["tags"].get(f"bedplate.{name}", default))
    if not re.fullmatch(_FORMS["machine" if name.startswith("node.") else name], value):
        raise BpError(f"the record of {run['name'] or run['run']} has no {name}", "select a run of `bp run`", WRONG)
    return value


def _is_own(hub: Hub, run: Run) -> bool:
    return bool(run["tags"].get("bedplate.owner") == hub.settings.person)


def _is_in_cluster(run: Run) -> bool:
    return "bedplate.image" in run["tags"]


def place_of(hub: Hub, run: Run) -> str:
    """Return where the agent of a run of one node is: a machine, or a pod; of one in a session, where that is."""
    if "bedplate.in" in run["tags"]:
        # Colleagues can change tags: of a run in itself there is no end.
        run = find_run(hub, _tag(run, "in"))
        own_id(hub, run)
    return f"{POD}{_tag(run, 'id')}" if _is_in_cluster(run) else _tag(run, "machine")


class _Output:
    """The output of a rank that the hub has, from the end of the last look on."""

    def __init__(self, hub: Hub, run: Run, attempt: str, rank: int) -> None:
        self._hub, self._run, self._folder = hub, run["run"], f"logs/{attempt}/{rank}"
        self._path = f"{run['experiment']}/{run['run']}/artifacts/{self._folder}"
        self.end = 0

    def write(self, data: bytes) -> None:
        """Write what follows, to a terminal without what controls it: who has written the output is not sure."""
        write(_CONTROLS.sub(b"?", data) if sys.stdout.isatty() else data)
        self.end += len(data)

    def print(self) -> None:
        """Write what is new."""
        for name in stored_names(self._hub, self._run, self._folder):
            if re.fullmatch(_NUMBER, name) and int(name) >= self.end // _PART:
                start = max(self.end - int(name) * _PART, 0)
                self.end = int(name) * _PART + start
                self.write(self._hub.get(f"{self._path}/{name}")[start:])


def _print_logs(hub: Hub, run: Run, options: argparse.Namespace) -> int:
    """Print the output that the hub has, and what comes, if that is wanted."""
    attempt = _tag(run, "attempt", "0") if options.attempt is None else str(options.attempt)
    output, is_array = _Output(hub, run, attempt, options.rank), "bedplate.array" in run["tags"]
    is_direct = options.f and _is_own(hub, run) and not has_run_ended(run) and options.attempt is None
    # The log of a container has all of the first rank, and only that.
    is_direct = is_direct and not is_array and not (options.rank and _is_in_cluster(run))
    if not is_direct or not _is_in_cluster(run):
        output.print()
    has_seen_end = is_direct and _follow(hub, run, options.rank, output)
    while options.f and not has_seen_end and not has_run_ended(run):
        time.sleep(_PAUSE)
        # The end is written after the last part.
        run = find_run(hub, run["run"])
        output.print()
    if not output.end:
        say(f"the hub has no output of {'element' if is_array else 'rank'} {options.rank} in attempt {attempt}")
        say(*filter(None, [str(run["tags"].get("bedplate.cause", ""))]))
    return 0


def _follow(hub: Hub, run: Run, rank: int, output: _Output) -> bool:
    """Print what comes of a run where it is; return whether its end was seen."""
    record = Record(hub, run["run"])
    try:
        if _is_in_cluster(run):
            follow(api_of(hub.settings), _tag(run, "id"), output.write, say, record)
            return True
        agent = Agent(hub, place_of(hub, run), "follow", _tag(run, "id"), str(rank), str(output.end))
        count, status = agent.call()
    except BpError as error:
        say(f"{error}: the output comes from the hub")
        if isinstance(error, NotRunningError):
            record.end(str(error))
        return False
    output.end += count
    # The program may have ended with one of these; the record says that.
    return status not in {LOST, WRONG_SETTINGS}


def _stop(hub: Hub, run: Run, options: argparse.Namespace) -> int:
    """Let the program of a run end; say what becomes of it."""
    name = own_id(hub, run)
    if has_run_ended(run):
        say(f"{name} has ended: {run['tags'].get('bedplate.cause', 'the cause is unknown')}")
        return 0
    stop_run(hub, run, name, is_now=options.now)
    say(f"{name} is being stopped: `bp show {name}`")
    return 0


def stop_run(hub: Hub, run: Run, name: str, by: str = "", *, is_now: bool = False) -> None:
    """Stop a run by its checked id where it is; the cause in its record names this person, or says `by`."""
    if _is_in_cluster(run):
        stop_pods(hub, api_of(hub.settings), {**run, "name": name}, by or hub.settings.person, is_now=is_now)
        return
    count = int(_tag(run, "nodes", "1"))
    places = [_tag(run, f"node.{rank}") for rank in range(count)] if count > 1 else [place_of(hub, run)]
    stop_agents(hub, name, places, is_now=is_now, by=by)


def own_id(hub: Hub, run: Run) -> str:
    """Return the id of a run of this person. Raises BpError for one of another."""
    if not _is_own(hub, run):
        owner = run["tags"].get("bedplate.owner", "another person")
        raise BpError(f"{run['name']} is a run of {owner}", f"ask {owner}", WRONG)
    return _tag(run, "id")


def pack_paths(run: Run) -> Sequence[str]:
    """Return the packs of a run on the hub. Raises BpError if its record does not name them."""
    owner, tree, base = (_tag(run, name) for name in ("owner", "tree", "base"))
    changes = [] if tree == base else [f"packs/{owner}/{tree}-{base}.pack"]
    return [f"packs/{owner}/{base}-0.pack", *changes]


def fetch_packs(hub: Hub, run: Run, folder: Path) -> Sequence[Path]:
    """Copy the packs of a run to a folder. Raises BpError."""
    packs = {path: folder / f"pack-{path.rpartition('/')[2]}" for path in pack_paths(run)}
    for path, file in packs.items():
        if not file.exists():
            try:
                hub.fetch(path, file)
            except BpError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                raise BpError(f"the hub has no code of {run['name']} any more", "an operator has removed it") from None
    return [*packs.values()]


def snapshot_of(run: Run) -> Snapshot:
    """Return the snapshot that a record names. Raises BpError."""
    left_out, head, remote = (run["tags"].get(f"bedplate.{name}", "") for name in ("left_out", "head", "remote"))
    return Snapshot(_tag(run, "tree"), 0, int(_tag(run, "size")), [left_out] if left_out else [], (), head, remote)


def _again(hub: Hub, options: argparse.Namespace, run: Run) -> int:
    """Start a run with the code, command, image, place and parameters of another; return its exit code."""
    tags = {name: run["tags"].get(f"bedplate.{name}", "") for name in _REPEATED}
    needed = sorted({*tags["env"].split()} - {word.partition("=")[0] for word in options.env})
    if needed:
        raise BpError(f"the record has no values of {', '.join(needed)}", "give each by --env NAME=VALUE", WRONG)
    if "bedplate.session" in run["tags"]:
        raise BpError(f"{run['name']} was a session", f"start another one: {tags['command']}", WRONG)
    if "bedplate.search" in run["tags"]:
        raise BpError(f"{run['name']} drives a search", "`bp search FILE` with its study goes on with it", WRONG)
    values, secrets = vars(options), _tag(run, "secrets").split()
    if secrets and not options.secret and not _is_own(hub, run):
        raise BpError(f"its owner has the secrets {', '.join(secrets)}", "give yours by --secret NAME", WRONG)
    values["secret"] = options.secret or secrets
    values.update({name: _tag(run, name) for name in ("gpus", "cpus", "memory")})
    values.update({name: _tag(run, name, default) for name, default in _DEFAULTS.items()})
    array, values["array"] = _tag(run, "array", ""), ""
    if array:
        values["array"] = repeated(run, array, _tag(run, "at_once"), is_failed=options.failed)
    elif options.failed:
        raise BpError(f"{run['name']} is no array", "leave --failed out", WRONG)
    if not options.on and not options.group:
        # Machines of a site are in no group.
        machine = _tag(run, "machine") if values["nodes"] == "1" and not tags["group"] else ""
        values.update({"group": tags["group"], "on": machine, "image": options.image or tags["image"]})
    values["for"] = values["for"] or f"{max(int(_tag(run, 'for')) // 60, 1)}m"
    values["launch"] = _tag(run, "launch")
    values["param"] = [f"{name}={run['params'].get(name, '')}" for name in tags["given"].split()]
    try:
        command = shlex.split(tags["command"])
    except ValueError:
        raise BpError(f"the record of {run['name']} has no command", "select another run", WRONG) from None
    document = read_options(options, command)
    word = options.environment
    document["environment_file"] = chosen_environment(hub, word, options.env) if word else former_environment(hub, run)
    say(f"repeats {run['name']}: {tags['command']}", f"with the code of {_tag(run, 'owner')}")
    person, paths = hub.settings.person, pack_paths(run)
    own = [f"packs/{person}/{path.rpartition('/')[2]}" for path in paths]
    with TemporaryDirectory() as folder:
        # A run gets only packs of its own person.
        new = dict(zip(own, fetch_packs(hub, run, Path(folder)))) if own != paths else {}
        code = Code(snapshot_of(run), own, new)
        return start_code(hub, options, hub.fleet(), document, code)


def _archive(hub: Hub, runs: Sequence[Run]) -> int:
    """Leave runs of this person out of lists: all of them, or none."""
    for run in [run for run in runs if own_id(hub, run)]:
        change_run(hub, run["run"], tags={"bedplate.archived": "true"})
    say(f"{len(runs)} archived: `bp runs --archived` lists them, too. Nothing is deleted")
    return 0


def _new_folder(word: str) -> Path:
    folder = Path(word)
    if os.path.lexists(folder) or not folder.parent.is_dir():
        raise BpError(f"{folder} exists, or is in no folder", "name a new folder", WRONG)
    return folder


def _copy_files(hub: Hub, run: Run, options: argparse.Namespace) -> int:
    """Copy what a run has left to a new folder, which gets its name when all is there; a repeat goes on."""
    folder, files = _new_folder(options.folder), output_files(hub, run)
    # A repeat must not go on with the files of another run.
    part = folder.with_name(f"{folder.name}.{_tag(run, 'id')}.part")
    part.mkdir(mode=0o700, exist_ok=True)
    if part.lstat().st_uid != os.getuid():
        raise BpError(f"{part} belongs to another account", "name another folder", WRONG)
    for path, size in files.items():
        file = part / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.stat().st_size != size:
            hub.fetch(quote(f"{run['experiment']}/{run['run']}/artifacts/{OUTPUT}/{path}"), file)
    if len(files) != sum(file.is_file() for file in part.rglob("*")):
        raise BpError(f"{part} has other files than the run", "remove it, and use Linux if names differ by case only")
    part.rename(folder)
    say(f"{folder}: {len(files)} files with {sum(files.values()) / 1e6:.2f} MB")
    return 0


def _check_out(hub: Hub, run: Run, options: argparse.Namespace) -> int:
    """Write the code of a run to a new folder."""
    folder = _new_folder(options.folder)
    with TemporaryDirectory() as packs:
        try:
            check_out(fetch_packs(hub, run, Path(packs)), _tag(run, "tree"), folder)
        except CodeError as error:
            raise BpError(str(error)) from None
    return 0


def _print_difference(hub: Hub, former: Run, run: Run) -> int:
    """Print what differs between two runs: their facts, and their code as git shows it."""
    trees = [_tag(one, "tree") for one in (former, run)]
    rows = differences([former, run]).items()
    lines = [f"{sign} {name}: {value}" for name, row in rows for sign, value in zip("-+", row) if value is not None]
    if len({*trees}) > 1:
        with TemporaryDirectory() as folder, empty_shadow(Path(folder)) as shadow:
            packs = [pack for one in (former, run) for pack in fetch_packs(hub, one, shadow.pack_folder)]
            lines += shadow.difference(packs, *trees)
    # Tabs belong to code; other characters could control a terminal.
    text = "".join("\t".join(map(printable, line.split("\t"))) + "\n" for line in lines)
    write(text.encode(errors="replace"))
    return 0


def _attach(hub: Hub, run: Run, options: argparse.Namespace, command: Sequence[str]) -> int:
    """Run a command, or a shell, beside the program of a run; return its exit code."""
    name = own_id(hub, run)
    if options.stack:
        command = ("sh", "-c", _STACKS, "sh", run["run"])
    place = place_of(hub, run)
    if not place.startswith(POD):
        base = f"/scratch/{hub.settings.person}/runs/{name}/work", f'/var/cache/bedplate/runs/"$(id -u)"/{name}/work'
        program = shlex.join(command) if command else '"${SHELL:-sh}" -l'
        script = f"cd {base[0]} 2>/dev/null || cd {base[1]} && exec {program}"
        has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        words = ssh_command(hub, place, *(["-t"] if has_terminal else []))
        os.execvp("ssh", (*words, script))  # noqa: S606, S607  a machine of the fleet
    # A pod has the folders of runs in its session beside its own.
    script = f'cd /bedplate/{"" if _is_in_cluster(run) else f"runs/{name}/"}work; [ "$#" = 0 ] || exec "$@"; '
    script += 'exec "$(command -v bash || echo sh)"'
    return attach(api_of(hub.settings), place[len(POD) :], ("sh", "-c", script, "sh", *command))
