"""The Python environment of a run: from which file of a folder, or from which other run, the agent builds it."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path, PurePath
from typing import Any

from ..agent.sources import FILES, LIST, BuildError, environment_file, read_sources
from .hub import WRONG, BpError, Hub
from .records import find_run

FORM = "none|[A-Za-z0-9_.-]{1,200}|"
"""The form of the option: none, the name of a run, or nothing."""
_SOURCE = re.compile(rf"{'|'.join(map(re.escape, FILES))}|[0-9]{{1,19}}/[0-9a-f]{{32}}/artifacts/{re.escape(LIST)}|")


def choose_environment(hub: Hub, options: argparse.Namespace, folder: Path, left_out: Sequence[str]) -> str:
    """Return what the environment of a run of a folder is built from; empty without one. Raises BpError.

    `left_out` is what its snapshot has left out; `include` of the options is what it has nevertheless.
    """
    if options.environment:
        return chosen_environment(hub, options.environment, options.env)
    try:
        name = environment_file(folder)
        sources = read_sources(folder, name) if name else {}
    except (BuildError, OSError) as error:
        fix = "leave that out, as a run starts in its folder, or write --environment none"
        raise BpError(f"no environment: {error}", fix, WRONG) from None
    # Folders that are left out end with a slash.
    ignored = {part.rstrip("/") for part in left_out}
    sent = {os.path.relpath(folder / word, folder) for word in options.include}
    for file in sources:
        if file not in sent and not ignored.isdisjoint({file, *map(str, PurePath(file).parents)}):
            fix = f"add --include {file}, remove it from .gitignore, or write --environment none"
            raise BpError(f"no environment: git ignores {file}, so it stays behind", fix, WRONG)
    return name


def chosen_environment(hub: Hub, word: str, given: Sequence[str]) -> str:
    """Return what the option names: none, or the list of packages of a run. Raises BpError.

    `given` are variables, which must have those of that run for uv: a list has no index, and a record no values.
    """
    if word == "none":
        return ""
    run = find_run(hub, word)
    names = {name for name in str(run["tags"].get("bedplate.env", "")).split() if name.startswith("UV_")}
    if needed := sorted(names - {part.partition("=")[0] for part in given}):
        raise BpError(f"the record has no values of {', '.join(needed)}", "give each by --env NAME=VALUE", WRONG)
    if path := _list_of(hub, run):
        return path
    raise BpError(f"the hub has no list of packages of {word}", "select another run, or none", WRONG)


def former_environment(hub: Hub, run: Mapping[str, Any]) -> str:
    """Return the environment of a run that is repeated: its list, or the file if none was built. Raises BpError."""
    source = str(run["tags"].get("bedplate.environment", ""))
    if not _SOURCE.fullmatch(source):
        raise BpError(f"the record of {run['name']} has no environment", "write --environment none", WRONG)
    return source and (_list_of(hub, run) or source)


def _list_of(hub: Hub, run: Mapping[str, Any]) -> str:
    """Return where the hub has the list of packages of a run; empty without one."""
    path = f"{run['experiment']}/{run['run']}/artifacts/{LIST}"
    try:
        hub.get(path)
    except BpError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return ""
    return path


def environment_line(source: str, *, has_option: bool = True) -> str:
    """Return what becomes of the environment of a run, or of a program of bp, whose command may have no such option."""
    name = source if source in FILES or not has_option else f"the list of a run, {source}"
    fix = "; --environment none leaves it out" if has_option else ""
    return f"environment of {name}: kept on each machine, and built if it is missing{fix}"
