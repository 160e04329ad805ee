"""The files that a machine keeps between configuration runs, and the status that it writes for operators."""

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from bedplate.errors import InputError
from bedplate.files import read_json, write_whole
from bedplate.plan.node_document import read_node_document
from bedplate.plan.nodes import NodePlan


@dataclass(frozen=True, slots=True)
class Status:
    """The result of a run, in one sentence; `waiting` are the roles whose changes need a drain or a reboot."""

    ok: bool
    sentence: str
    changed: Sequence[str] = ()
    waiting: Sequence[str] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    """The files of a machine; `volatile` is cleared at boot."""

    folder: Path = Path("/var/lib/bedplate")
    volatile: Path = Path("/run/bedplate")

    @property
    def document(self) -> Path:
        """The node document; that of a pool has no host name."""
        return self.folder / "document.json"

    def node(self) -> NodePlan:
        """Return the plan of this machine, with the host name that the bootstrap has set. Raises InputError."""
        try:
            node = read_node_document(self.document.read_text(encoding="utf-8"))
        except OSError as error:
            fix = "run `systemctl start bedplate-node` again: it fetches the document"
            raise InputError(f"cannot read {self.document}: {error.strerror}", fix=fix) from None
        return replace(node, name=f"{socket.gethostname().partition('.')[0]}.{node.place}")

    def write_status(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a status file, `run`, `gate` or `audit`."""
        folder = self.folder / "status"
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{name}.json", (json.dumps(document, indent=1) + "\n").encode())

    def read_status(self, name: str) -> Mapping[str, Any]:
        """Return a status file; empty if there is none."""
        return read_json(self.folder / "status" / f"{name}.json")

    def write_run(self, status: Status, time: float, *, is_ready: bool) -> None:
        """Write the status of a run, with the bundle that it used."""
        accepted = read_json(self.folder / "node.json")
        head = {"version": 1, "time": int(time), "ready": is_ready, **accepted}
        self.write_status("run", {**head, **asdict(status)})

    @property
    def audited(self) -> Path:
        """The file about the last audit since boot, if that found nothing."""
        return self.volatile / "audited.json"

    def audit_subject(self) -> dict[str, str]:
        """Return the bundle and the document that an audit compares this machine with."""
        bundle = str(read_json(self.folder / "node.json").get("bundle", ""))
        return {"bundle": bundle, "document": sha256(self.document.read_bytes()).hexdigest()}

    def count(self, name: str) -> int:
        """Count an event since boot, and return how often it has happened."""
        return _count(self.volatile / f"{name}.count")

    def count_ever(self, name: str) -> int:
        """Count an event of this machine's life, and return how often it has happened."""
        return _count(self.folder / f"{name}.count")


def _count(path: Path) -> int:
    number = int(read_json(path).get("count", 0)) + 1
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps({"count": number}).encode())
    return number
