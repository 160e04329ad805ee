"""The Python environment of a run: from which file of a folder, or from which other run, the agent builds it."""

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


def choose_environment(hub: Hub, word: str, folder: Path, left_out: Sequence[str], include: Sequence[str]) -> str:
    """Return what the environment of a run of a folder is built from; empty without one. Raises BpError.

    `left_out` is what its snapshot has left out, and `include` what it has nevertheless.
    """
    if word:
        return chosen_environment(hub, word)
    try:
        name = environment_file(folder)
        sources = read_sources(folder, name) if name else {}
    except (BuildError, OSError) as error:
        fix = "leave that out, as a run starts in its folder, or write --environment none"
        raise BpError(f"no environment: {error}", fix, WRONG) from None
    # Folders that are left out end with a slash.
    ignored = {part.rstrip("/") for part in left_out}
    sent = {os.path.relpath(folder / word, folder) for word in include}
    for file in sources:
        if file not in sent and not ignored.isdisjoint({file, *map(str, PurePath(file).parents)}):
            fix = f"add --include {file}, remove it from .gitignore, or write --environment none"
            raise BpError(f"no environment: git ignores {file}, so it stays behind", fix, WRONG)
    return name


def chosen_environment(hub: Hub, word: str) -> str:
    """Return what the option names: none, or the list of packages of a run. Raises BpError."""
    path = "" if word == "none" else _list_of(hub, find_run(hub, word))
    if not path and word != "none":
        raise BpError(f"the hub has no list of packages of {word}", "select another run, or none", WRONG)
    return path


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


def environment_line(source: str) -> str:
    """Return what becomes of the environment of a run."""
    name = source if source in FILES else f"the list of a run, {source}"
    return f"environment of {name}: kept on each machine, and built if it is missing; --environment none leaves it out"
