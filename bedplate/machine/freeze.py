"""`python3 -m bedplate.machine.freeze`: prepare this machine to become an image.

It runs only the install stage of all roles, removes what belongs to this machine, and writes the status that
`bedplate image bake` waits for. The status is written last: the bake then stops the machine.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import bedplate.images
from bedplate.errors import BedplateError
from bedplate.machine.calls import apply_roles
from bedplate.machine.state import State, Status
from bedplate.nodes.bootstrap import PROGRAM

SCRIPT = Path(bedplate.images.__file__).with_name("freeze.sh")
_ATTEMPTS = 3
"""The failed runs after which the bake is told; systemd starts the unit again."""
_STAGES = frozenset({"install"})
_LONGEST = 500


def main(state: State, program: Path) -> int:
    """Freeze this machine; return the exit status, 1 if a later run may succeed."""
    status = _install(state)
    if not status.ok and state.count("attempts") < _ATTEMPTS:
        sys.stdout.write(f"{status.sentence}\n")
        return 1
    # The script removes both from the disk.
    kept, copy = state.volatile / "frozen", state.volatile / "bootstrap"
    accepted = _read(state.folder / "node.json")
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, copy)
    if status.ok:
        status = _clean(status)
    document = {"version": 1, "stage": "install", "time": int(time.time()), **accepted, **asdict(status)}
    State(kept / state.folder.relative_to("/")).write_status("run", document)
    sys.stdout.write(f"{status.sentence}\n")
    # /run may forbid to execute programs.
    subprocess.run(("bash", copy, "put_status"), env={**os.environ, "ROOT": str(kept)}, check=False)  # noqa: S603, S607
    return 0


def _install(state: State) -> Status:
    try:
        result = apply_roles(state.node(), None, stages=_STAGES)
    except BedplateError as error:
        return Status(ok=False, sentence=f"{error.what}; {error.fix}" if error.fix else error.what)
    if not result.is_done:
        return Status(ok=False, sentence=result.trouble.words if result.trouble else "stopped")
    return Status(ok=True, sentence=f"{len(result.changed)} changed", changed=tuple(result.changed))


def _clean(status: Status) -> Status:
    """Remove what belongs to this machine, and return the status of the check."""
    done = subprocess.run(("bash", SCRIPT, "all"), capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode:
        defects = "; ".join((done.stdout or done.stderr).split("\n")).strip("; ")
        return Status(ok=False, sentence=f"the image is not clean: {defects[:_LONGEST]}")
    return status


def _read(path: Path) -> dict[str, object]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


if __name__ == "__main__":
    sys.exit(main(State(), Path(PROGRAM)))
