"""The end of a run and the request to stop it, as files in its folder, which has secrets until then."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..program import write_text

FOLDER, PREFIX = "session", "bp-"
"""A link in the folder of a run to that of a session, and how that is named."""
END, STARTED, STOP, RECORDED = "end.json", "started", "stop.json", "recorded"


def read(path: Path) -> Any:  # noqa: ANN401  the document of a file that the agent has written
    """Return the document of a file. Raises OSError or ValueError."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_end(folder: Path, code: int, cause: str, tags: Mapping[str, str], *, is_stopped: bool) -> Mapping[str, Any]:
    """Return the end of a run, which its folder keeps, unless its disk is full; the end that is there stays."""
    status = "KILLED" if is_stopped else "FAILED" if code else "FINISHED"
    end = {"code": code, "cause": cause, "status": status, "tags": tags}
    with suppress(OSError):
        if (folder / END).exists():
            return dict(read(folder / END))
        write_text(folder / END, json.dumps(end))
    return end


def remove_secrets(folder: Path) -> None:
    """Remove the secrets of a run at its end, until which a restarted agent needs them. Those of a pod end with it."""
    for path in (folder / "secrets", *folder.glob("elements/*/secrets")):
        with suppress(OSError):
            path.unlink()
    # A session that was killed has left its variables there.
    sockets = Path(os.path.realpath(folder / FOLDER))
    if sockets.name.startswith(PREFIX):
        shutil.rmtree(sockets, ignore_errors=True)


def stop_of(folder: Path, grace: float = 0.0) -> tuple[str, float]:
    """Return why a run is stopped, and the seconds that its program gets."""
    try:
        stop = read(folder / STOP)
    except (OSError, ValueError):
        return "stopped by SIGTERM, as at a shutdown", grace
    return f"stopped by {stop['by']}", 0.0 if stop["now"] else grace
