"""`python3 -m bedplate.machine.freeze`: prepare this machine to become an image.

It runs only the install stage of all roles, checks its compliance rules, and closes the packet filter of the next boot.
Then it reboots and does the same again: what was installed must boot. After that it removes what belongs to this
machine, and writes the status that `bedplate image bake` waits for, next to the packages. The status is written last:
the bake then stops the machine. A mark in the image tells the first run of a new machine which packages it has.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import images
from bedplate.errors import BedplateError
from bedplate.files import read_json, write_whole
from bedplate.machine.calls import apply_roles, audit, reboot_and_run
from bedplate.machine.state import State, Status
from bedplate.nodes.audit import RuleOutcome
from bedplate.nodes.bootstrap import PROGRAM
from bedplate.plan.nodes import NodePlan
from roles.catalog import install_digest
from roles.hardened import firewall

MARK = Path("/usr/share/bedplate/image.json")
"""Written by a bake: the bundle and the digest of the install stage."""


def write_mark(state: State, node: NodePlan, mark: Path = MARK) -> None:
    """Record that the install stage has run with the bundle of this machine."""
    mark.parent.mkdir(parents=True, exist_ok=True)
    write_whole(mark, json.dumps(_installation(state, node)).encode())


def is_installed(state: State, node: NodePlan, mark: Path = MARK) -> bool:
    """Return whether the image has all packages of this machine: the same bundle, and the same digest.

    After a failed run they may be the cause: then the answer is no.
    """
    return read_json(mark) == _installation(state, node) and not (state.folder / "status/run.json").exists()


def _installation(state: State, node: NodePlan) -> dict[str, str]:
    return {"bundle": str(read_json(state.folder / "node.json").get("bundle", "")), "install": install_digest(node)}


SCRIPT = Path(images.__file__).with_name("freeze.sh")
PACKAGES = Path("/var/lib/dpkg/status")
_ATTEMPTS = 3
"""The failed runs after which the bake gets an error; systemd starts the unit again."""
_STAGES = frozenset({"install"})
_MARKER = "installed"
_LONGEST = 500


def main(state: State, program: Path, root: Path = Path("/")) -> int:
    """Freeze this machine; return the exit status, 1 if a later run may succeed."""
    started = time.monotonic()
    status = _prepare(state, root)
    if not status.ok and state.count("attempts") < _ATTEMPTS:
        sys.stdout.write(f"{status.sentence}\n")
        return 1
    if status.ok and not _has_rebooted(state):
        sys.stdout.write("rebooting\n")
        reboot_and_run()
        return 0
    # The script removes both from the disk.
    kept, copy = state.volatile / "frozen", state.volatile / "bootstrap"
    accepted = read_json(state.folder / "node.json")
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, copy)
    if status.ok:
        status = _clean(status)
    status = replace(status, seconds=round(time.monotonic() - started, 1))
    document = {"version": 1, "stage": "install", "time": int(time.time()), **accepted, **asdict(status)}
    report = State(kept / state.folder.relative_to("/"))
    report.write_status("run", document)
    if status.ok:
        report.write_status("packages", {"dpkg": _below(root, PACKAGES).read_text(encoding="utf-8")})
    sys.stdout.write(f"{status.sentence}\n")
    # /run may forbid to execute programs.
    subprocess.run(("bash", copy, "put_status"), env={**os.environ, "ROOT": str(kept)}, check=False)  # noqa: S603, S607
    return 0


def _has_rebooted(state: State) -> bool:
    """Return whether the machine has booted since this was asked for the first time."""
    marker, boot_marker = state.folder / "reboot", state.volatile / "reboot"
    if marker.exists() and not boot_marker.exists():
        return True
    for path in (marker, boot_marker):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return False


def _prepare(state: State, root: Path) -> Status:
    """Install, and check the parts of an image; return the status."""
    try:
        node = state.node()
        result = apply_roles(node, None, stages=_STAGES)
        if not result.is_done:
            return Status(ok=False, sentence=result.error.words if result.error else "stopped")
        if failures := _failed_rules(audit(state, node, marker=_MARKER)):
            return Status(ok=False, sentence=failures[:_LONGEST])
        close_filter(node, root)
        write_mark(state, node, _below(root, MARK))
    except BedplateError as error:
        return Status(ok=False, sentence=f"{error.what}; {error.fix}" if error.fix else error.what)
    return Status(ok=True, sentence=f"{len(result.changed)} changed", changed=tuple(result.changed))


def _failed_rules(document: Mapping[str, Any]) -> str:
    """Return the findings on this machine that refuse an image."""
    (node,) = document["nodes"]
    failed = [verdict for verdict in node["verdicts"] if verdict["outcome"] == RuleOutcome.FAILED]
    return node["unreached"] or "; ".join(f"{verdict['rule']}: {verdict['words']}" for verdict in failed)


def close_filter(node: NodePlan, root: Path) -> None:
    """Write the emergency rules, which allow only SSH: they are active from the next boot to its configuration."""
    for file in firewall.emergency_files(firewall.emergency_ruleset(node.firewall_rules)):
        path = _below(root, Path(file.path))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, file.text.encode(), int(file.mode, 8))
    link = _below(root, Path(firewall.ENABLED))
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(firewall.UNIT_PATH)


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _clean(status: Status) -> Status:
    """Remove what belongs to this machine, and return the status of the check."""
    done = subprocess.run(("bash", SCRIPT, "all"), capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode:
        defects = "; ".join((done.stdout or done.stderr).split("\n")).strip("; ")
        return Status(ok=False, sentence=f"the image is not clean: {defects[:_LONGEST]}")
    return status


if __name__ == "__main__":
    sys.exit(main(State(), Path(PROGRAM)))
