"""`bp board`: a session that shows runs in TensorBoard, or a study in optuna-dashboard."""

import argparse
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from .environments import environment_line
from .hub import WRONG, BpError, Hub
from .records import find_run
from .run import add_options as add_options_of_run
from .run import code_of, read_options
from .search import shipped, study_of
from .session import start_session
from .snapshot import open_shadow

# Options of `bp run` that a board does not have, with their values. It has nothing that a restart could lose.
_FIXED: "dict[str, Any]" = {"gpus": "0", "nodes": "1", "array": "", "after": "", "launch": "program", "restarts": "3"}
_FIXED |= {"scratch_ok": True, "priority": "normal", "environment": "", "notify": False, "in": ""}
_FIXED.update({name: list[str]() for name in ("param", "secret", "include")})
_TIME, _MOST, _NAME = "12h", 100, re.compile("[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bp board`."""
    parser.usage = "bp board [options] RUN ..., or bp board [options] --search NAME"
    parser.add_argument("runs", metavar="RUN", nargs="*", help="names or ids of runs, also of colleagues")
    parser.add_argument("--search", metavar="NAME", default="", help="a study, in optuna-dashboard")
    add_options_of_run(parser, [f"--{name.replace('_', '-')}" for name in _FIXED])


def start_board(hub: Hub, options: argparse.Namespace) -> int:
    """Start a board, and show it until it ends; return its exit code."""
    if bool(options.runs) is bool(options.search) or len(options.runs) > _MOST:
        raise BpError("a board shows runs, or one study", f"write 1 to {_MOST} RUNs, or --search NAME", WRONG)
    facts: dict[str, Any] = {**hub.facts}
    if options.search:
        facts["name"], facts["settings"] = study_of(hub, options.search)
    else:
        runs = [find_run(hub, word) for word in options.runs]
        names = [run["name"] for run in runs]
        facts["runs"] = {run["run"] if names.count(run["name"]) > 1 else _folder_of(run): run["run"] for run in runs}
        options.on = options.on or ("" if options.group else _machine_of(hub, runs))
    vars(options).update(_FIXED)
    document = read_options(options, ["python", "board.pyz"])
    what = ("--search", options.search) if options.search else options.runs
    document |= {"session": "board", "most": _TIME, "environment_file": "requirements.txt"}
    document["tags"] = {"command": " ".join(("bp board", *what))}
    document["built"] = environment_line("bp board", has_option=False)
    folder = hub.folder / "board"
    with ExitStack() as stack:
        # Another board waits before it fills the same folder.
        shadow = stack.enter_context(open_shadow(hub.folder, folder))
        shipped(folder, "board", "board.json", facts)
        return start_session(hub, options, hub.fleet(), document, code_of(hub, shadow, (), stack))


def _folder_of(run: Mapping[str, Any]) -> str:
    """Return the name of a run in the board. Colleagues can write names: what is no name of a folder is the id."""
    return str(run["name"] if _NAME.fullmatch(run["name"]) else run["run"])


def _machine_of(hub: Hub, runs: Sequence[Mapping[str, Any]]) -> str:
    """Return a machine for SSH where a run of this person has written files; empty without one."""
    machines = hub.fleet()["machines"]
    own = (run["tags"] for run in runs if run["tags"].get("bedplate.owner") == hub.settings.person)
    names = (str(tags.get("bedplate.machine")) for tags in own)
    return next((name for name in names if machines.get(name, {}).get("ssh")), "")
