"""What an image tells the first configuration run of a machine: which packages it has."""

import json
from pathlib import Path

from bedplate.machine.state import State, read_json
from bedplate.plan.nodes import NodePlan
from bedplate.writer import write_whole
from roles.catalog import install_digest

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
