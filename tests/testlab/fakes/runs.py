"""A stand-in for the hub that keeps runs and files, and runs of the agent in folders and processes of a test."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bedplate.programs.connection import FILES
from tests.testlab.fakes.laptop import HOST, TOKEN, Answer, FakeHub, oldest_python

ROOT = Path(__file__).parents[3]
RUN_ID = "0123456789abcdef0123456789abcdef"
ARTIFACTS = f"7/{RUN_ID}/artifacts"
_API = "/api/2.0/mlflow/runs/"
_TREE = "40000"
_KINDS = {"tree": 2, "blob": 3}


class RunHub(FakeHub):
    """Keeps the tags and the status of the one run, each status that it had, and files by path."""

    def __init__(self, folder: Path, address: str = "127.0.0.1", listener: socket.socket | None = None) -> None:
        self.tags: dict[str, str] = {}
        # Those of other runs by their ids.
        self.tags_of: dict[str, dict[str, str]] = {}
        self.statuses: list[str] = []
        self.files: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.refusal = self.first_refusals = self.ends = 0
        self.seconds_of_put, self.stop = 0.0, ""
        super().__init__(folder, address=address, listener=listener)

    def respond(self, method: str, path: str, body: bytes) -> Answer:
        """Answer as the hub does; refuse everything by the status `refusal`, or so many of the first reports."""
        name = path.removeprefix(f"{FILES}/")
        answer: Answer = (200, {}, b"{}")
        if self.refusal:
            return self.refusal, {}, b'{"message": "no person of the fleet"}'
        if path == f"{_API}log-batch" and self.first_refusals:
            self.first_refusals -= 1
            return 403, {}, b"{}"
        if name != path and method == "PUT":
            time.sleep(self.seconds_of_put)
            self.files[name] = body
        elif name != path:
            self.fetched.append(name)
            answer = (200, {}, self.files[name]) if name in self.files else (404, {}, b"{}")
        elif path == f"{_API}log-batch":
            self.tags |= {tag["key"].removeprefix("bedplate."): tag["value"] for tag in json.loads(body)["tags"]}
        elif path == f"{_API}get":
            found = self.tags_of.get(self.requests[-1][0].rpartition("run_id=")[2], self.tags)
            tags = [{"key": f"bedplate.{key}", "value": value} for key, value in found.items()]
            info = {"status": [*self.statuses, "RUNNING"][0]}
            answer = 200, {}, json.dumps({"run": {"info": info, "data": {"tags": tags}}}).encode()
        elif path == "/bedplate/stop":
            answer = 200, {}, json.dumps({"cause": self.stop} if self.stop else {}).encode()
        elif path == f"{_API}update":
            self.statuses.append(json.loads(body)["status"])
        elif path == "/bedplate/end":
            self.ends += 1
        else:
            return super().respond(method, path, body)
        return answer

    def log(self, rank: int = 0) -> bytes:
        """Return the output of a rank as the hub has it."""
        path = f"{ARTIFACTS}/logs/0/{rank}/"
        return b"".join(data for name, data in sorted(self.files.items()) if name.startswith(path))


Tree = Mapping[str, "bytes | Tree"]


def pack(tree: Tree | list[tuple[str, str, bytes]]) -> tuple[str, bytes]:
    """Return a tree and a pack with all of it; a list has the modes, names and contents of files as they are."""
    objects: dict[str, bytes] = {}
    name = _add(tree, objects)
    data = b"PACK" + (2).to_bytes(4, "big") + len(objects).to_bytes(4, "big") + b"".join(objects.values())
    return name, data + hashlib.sha1(data).digest()  # noqa: S324  of git


def _add(tree: Any, objects: dict[str, bytes]) -> str:  # noqa: ANN401  a recursive type
    entries = tree
    if isinstance(tree, dict):
        entries = [(_TREE if isinstance(content, dict) else "100644", name, content) for name, content in tree.items()]
    lines = b""
    for mode, name, content in entries:
        key = _object("blob", content, objects) if isinstance(content, bytes) else _add(content, objects)
        lines += f"{mode} ".encode() + os.fsencode(name) + b"\0" + bytes.fromhex(key)
    return _object("tree", lines, objects)


def _object(kind: str, content: bytes, objects: dict[str, bytes]) -> str:
    key, size = hashlib.sha1(f"{kind} {len(content)}\0".encode() + content).hexdigest(), len(content)  # noqa: S324
    head = [_KINDS[kind] << 4 | size & 15]
    size >>= 4
    while size:
        head[-1] |= 128
        head.append(size & 127)
        size >>= 7
    objects[key] = bytes(head) + zlib.compress(content, 1)
    return key


_MAIN = """
import sys
from pathlib import Path
from bedplate.programs.agent import ranks, run
from bedplate.programs.agent.__main__ import main
vars(run).update({pauses})
{before}
ranks.own_cgroup = lambda: Path({cgroup!r})
sys.exit(main(sys.argv[1:]))
"""


class AgentRun:
    """A run of the agent in a folder, as `start` makes it, whose code is a tree. Its processes are those of a unit."""

    def __init__(self, hub: RunHub, folder: Path, code: Tree, command: list[str], **given: object) -> None:
        self.hub, self.folder = hub, folder
        tree, data = pack(code)
        name = f"packs/ada/{tree}-0.pack"
        hub.files[name] = data
        self.given: dict[str, Any] = {
            "schema": 1,
            "id": folder.name,
            "run": RUN_ID,
            "experiment": "7",
            "tree": tree,
            "packs": [name],
            "hub": f"https://{HOST}:{hub.server_address[1]}",
            "address": "127.0.0.1",
            "command": command,
            "gpus": 0,
            "cpus": 1,
            "memory": 1,
            "for": 3600,
            "grace": 5,
            "attempt": 0,
            "launch": "",
            "wait": None,
            "environment": {},
            "secrets": {},
            "params": {},
            "token": TOKEN,
            "certificate": hub.certificate.read_text(),
            **given,
        }
        self.environment: dict[str, str] = {}
        self.pauses: dict[str, float] = {}
        """Other seconds for what the agent repeats, by the name of the constant."""
        self.cgroup = Path("/nonexistent")
        self.before = ""
        """A statement of Python before the start of the agent."""

    def prepare(self) -> None:
        """Write what `start` writes."""
        self.folder.mkdir(parents=True)
        given = dict(self.given)
        for name in ("token", "certificate", "secrets", "params"):
            value = given.pop(name)
            (self.folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
        (self.folder / "run.json").write_text(json.dumps({**given, "boot": "a-former-one"}))

    def agent(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401  as Popen
        """Start a command of the agent, by the oldest Python that it supports."""
        command = (
            oldest_python(),
            "-c",
            _MAIN.format(pauses=self.pauses, cgroup=str(self.cgroup), before=self.before),
            *words,
        )
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LEFT": "yes", **self.environment}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stderr=pipe, start_new_session=True, cwd="/", **options)

    def start(self, **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401  as Popen
        """Start the first process of the unit."""
        self.prepare()
        return self.agent("run", "--folder", str(self.folder), **options)

    def run(self) -> int:
        """Run to the end; return the exit code of the agent."""
        return self.end_of(self.start())

    def end_of(self, process: subprocess.Popen[bytes]) -> int:
        """Return the exit code of a process that prints no traceback and no token."""
        _, errors = process.communicate(timeout=60)
        assert b"Traceback" not in errors, errors.decode()
        assert TOKEN.encode() not in errors
        return process.returncode

    @property
    def end(self) -> Any:  # noqa: ANN401  a document
        """The end in the folder."""
        return json.loads((self.folder / "end.json").read_text())


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not become true in time"
        time.sleep(0.02)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process at once."""
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
