"""A run: fetch the code, start the ranks, report to the hub that it goes on, and write how it ended."""

import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import quote

from ..connection import Connection, HubError
from ..program import write_text
from .packs import CodeError, check_out
from .ranks import Ranks
from .spool import Spool

STOPPED, NO_LEASE, NO_CODE, WRONG_SETTINGS, REFUSED = 201, 202, 203, 204, 205
END, STARTED, STOP, RECORDED = "end.json", "started", "stop.json", "recorded"
_API, _PREFIX, _DENIED = "/api/2.0/mlflow/runs/", "BEDPLATE_", frozenset({401, 403})
_DEFAULTS = {"RANK": "0", "NODES": "1", "ATTEMPT": "0", "MASTER": "127.0.0.1", "FOR": "inf"}
_DEFAULTS.update(dict.fromkeys(("MACHINE", "MASTER_PORT", "LAUNCH", "LEASE_FDS", "ADDRESS"), ""))
# Seconds: for packs, for the end of a record, between reports, after one that failed, and between parts of logs.
_PATIENCE, _PATIENCE_AT_END, _REPORT, _REPEAT, _UPLOAD = 600.0, 86_400.0, 30.0, 10.0, 5.0


class Run:
    """A run in its folder, by the agent's variables without their prefix, and those of this process; in a pod by these.

    Raises KeyError, ValueError, OSError or HubError if they are wrong.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        own = {name[len(_PREFIX) :]: value for name, value in os.environ.items() if name.startswith(_PREFIX)}
        # While a folder is locked, systemd-tmpfiles removes nothing of it: code may be older than its limit.
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)
        self._told = {**_DEFAULTS, "CACHE": f"{folder}/packs", **own, **variables}
        self._folder, self._beside, self._start = folder, Path(self._told["TOKEN_FILE"]).parent, time.monotonic()
        self._node, self._nodes, self._attempt = (int(self._told[name]) for name in ("RANK", "NODES", "ATTEMPT"))
        self._grace, self._seconds, gpus = float(self._told["GRACE"]), float(self._told["FOR"]), int(self._told["GPUS"])
        launch = self._told["LAUNCH"] or ("ranks" if gpus > 1 else "program")
        self._ranks, self._run = max(gpus, 1) if launch == "ranks" else 0, self._told["RUN"]
        certificate = Path(self._told["CERT"]).read_text(encoding="ascii")
        self._hub = Connection(self._told["HUB"], certificate, self._token, self._told["ADDRESS"])
        self._over, self._is_refused, self._spools = Event(), False, dict[str, Spool]()
        self._logs = folder / "logs" / str(self._attempt)
        self._is_pod, machine = not variables, self._told["MACHINE"] or socket.gethostname()
        self._tags = {"machine": machine, f"node.{self._node}": machine}

    def _token(self, _: str = "") -> str:
        return Path(self._told["TOKEN_FILE"]).read_text(encoding="ascii").strip()

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run a command with these variables, secrets, and those of this process; return the exit code."""
        # Once: whoever repeats a start must not start the program twice.
        (self._folder / STARTED).touch(exist_ok=False)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        is_stopped = False
        try:
            secrets = read(self._beside / "secrets")
            # Those of a pod end with it.
            with suppress(OSError):
                (self._beside / "secrets").unlink()
            self._fetch()
            code, cause, is_stopped = self._execute(command, {**environment, **secrets})
        except KeyboardInterrupt:
            code, cause, is_stopped = STOPPED, stop_of(self._folder)[0], True
        except (CodeError, HubError, OSError) as error:
            code, cause = NO_CODE, f"no code: {error}"
        end = write_end(self._folder, code, cause, self._tags, is_stopped=is_stopped)
        try:
            self.write_record(end, _PATIENCE_AT_END)
        except HubError as error:
            sys.stderr.write(f"the end of the run is not recorded: {error}\n")
        return code

    def _fetch(self) -> None:
        """Check out the code, from packs that are kept for the person's other runs."""
        cache = Path(self._told["CACHE"])
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        packs = {cache / Path(path).name: path for path in self._told["PACKS"].split(",")}
        for file, path in packs.items():
            if not file.exists():
                self._hub.fetch(path, file, _PATIENCE)
            os.utime(file)
        self._note_time("fetched")
        try:
            check_out(packs, self._told["TREE"], Path(self._told["WORK"]))
        except CodeError:
            for file in packs:
                file.unlink()
            raise
        self._note_time("unpacked")

    def _note_time(self, name: str) -> None:
        key = f"times.{self._node}"
        self._tags[key] = f"{self._tags.get(key, '')} {name}={time.monotonic() - self._start:.3f}".strip()

    def _execute(self, command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, bool]:
        """Run the ranks to their end; return exit code, cause, and whether they were stopped."""
        ranks = Ranks(self._folder / "stop", self._seconds, self._grace)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ranks.asked.append(stop_of(self._folder, self._grace)))
        for rank, own in self._environments(environment):
            # Runs of machines have no log but their parts.
            is_copied = self._is_pod and not self._spools
            self._spools[str(rank)] = Spool(self._logs / str(rank), is_copied=is_copied)
            ranks.start(rank, command, own, self._spools[str(rank)])
        self._note_time("started")
        report = Thread(target=self._report, args=(ranks,), daemon=True)
        report.start()
        ranks.wait()
        self._over.set()
        report.join()
        # While the record waits for the hub, the GPUs are for others.
        for handle in filter(None, self._told["LEASE_FDS"].split(",")):
            os.close(int(handle))
        self._note_time("ended")
        for rank, (code, cause) in ranks.ended.items():
            self._tags.update({f"exit.{self._attempt}.{rank}": str(code), f"cause.{self._attempt}.{rank}": cause})
        code = REFUSED if self._is_refused else STOPPED if ranks.is_stopped else ranks.code
        return code, ranks.cause, ranks.is_stopped

    def _environments(self, environment: Mapping[str, str]) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Yield each rank of this node with the environment of its process."""
        (self._folder / "output").mkdir(exist_ok=True)
        # One value a call would be more requests than the hub admits.
        shared = {"PYTHONUNBUFFERED": "1", "MLFLOW_ENABLE_ASYNC_LOGGING": "true"}
        shared.update({name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)})
        shared.update({**environment, "PWD": self._told["WORK"], "MLFLOW_RUN_ID": self._run})
        shared.update({"MLFLOW_TRACKING_URI": self._told["HUB"], "MLFLOW_TRACKING_TOKEN": self._token()})
        files = {"STOP": self._folder / "stop", "OUTPUT": self._folder / "output", "PARAMS": self._beside / "params"}
        told = {**files, "RUN": self._run, "ATTEMPT": self._attempt}
        shared.update({f"{_PREFIX}{name}": str(value) for name, value in told.items()})
        shared["MLFLOW_TRACKING_SERVER_CERT_PATH"] = self._told["CERT"]
        if not self._ranks:
            yield self._node, shared
            return
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = self._told["MASTER_PORT"] or str(free.getsockname()[1])
        shared.update({"MASTER_ADDR": self._told["MASTER"], "MASTER_PORT": port})
        for local in range(self._ranks):
            rank, world = self._node * self._ranks + local, self._nodes * self._ranks
            sizes = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": self._ranks, "RANK": rank, "LOCAL_RANK": local}
            yield rank, {**shared, **{name: str(value) for name, value in sizes.items()}}

    def _report(self, ranks: Ranks) -> None:
        """Give the hub the output, and report that the run goes on.

        If the hub refuses that twice, the person may not run it any more.
        """
        running = tags = {**self._tags, "state": "running"}
        due, is_refused, was_away = 0.0, False, False
        while not self._over.wait(_UPLOAD if due else 0):
            self._put_logs(0, due)
            if time.monotonic() < due:
                continue
            try:
                self._set_tags({**tags, "seen": str(int(self._hub.now * 1000))}, _REPEAT)
                if was_away:
                    self._hub.call(f"{_API}update", {"run_id": self._run, "status": "RUNNING"}, _REPEAT)
                tags, due, is_refused, was_away = {}, time.monotonic() + _REPORT, False, False
            except HubError as error:
                # The hub ends records of runs of which it has heard nothing.
                tags, is_denied = {**running, "cause": "unknown"}, error.status in _DENIED
                if is_denied and is_refused:
                    self._is_refused = True
                    ranks.asked.append((f"stopped: {error}", min(self._grace, _REPEAT)))
                due, is_refused, was_away = time.monotonic() + _REPEAT, is_denied, was_away or not is_denied

    def _put_logs(self, patience: float, until: float = float("inf")) -> None:
        """Give the hub what it lacks of the output. What it refuses now, such as on a full disk, it gets later."""
        for folder in self._logs.glob("*"):
            path = f"{self._told['ARTIFACTS']}/{folder.relative_to(self._folder)}"
            with suppress(HubError):
                for name, data in self._spools.setdefault(folder.name, Spool(folder)).missing():
                    if time.monotonic() > until:
                        return
                    self._hub.put(f"{path}/{name}", data, patience)

    def _put_output(self, patience: float) -> None:
        """Give the hub the files that the program has left for it; a tag says what it refuses."""
        left = [self._folder / "output"]
        # Folders may be deeper than the calls of Python.
        while left:
            path = left.pop()
            name = quote(os.fsencode(path.relative_to(self._folder)))
            try:
                if path.is_dir() and not path.is_symlink():
                    left += sorted(path.iterdir(), reverse=True)
                elif path.is_file() and not path.is_symlink():
                    self._hub.send(f"{self._told['ARTIFACTS']}/{name}", path, patience)
            except (HubError, OSError) as error:
                self._tags["output"] = f"not all files are kept, such as {name}: {error}"

    def _set_tags(self, tags: Mapping[str, str], patience: float) -> None:
        items = [{"key": f"bedplate.{key}", "value": value[:5000]} for key, value in tags.items()]
        self._hub.call(f"{_API}log-batch", {"run_id": self._run, "tags": items}, patience)

    def write_record(self, end: Mapping[str, Any], patience: float) -> None:
        """Give the hub the rest of the output, and the end, once. Raises HubError."""
        if (self._folder / RECORDED).exists():
            return
        self._put_logs(patience)
        self._put_output(patience)
        self._set_tags({**self._tags, **end["tags"], "state": "ended", "cause": end["cause"]}, patience)
        update = {"run_id": self._run, "status": end["status"], "end_time": int(self._hub.now * 1000)}
        self._hub.call(f"{_API}update", update, patience)
        self._hub.call("/bedplate/end", {}, patience)
        with suppress(OSError):
            (self._folder / RECORDED).touch()


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


def stop_of(folder: Path, grace: float = 0.0) -> tuple[str, float]:
    """Return why a run is stopped, and the seconds that its program gets."""
    try:
        stop = read(folder / STOP)
    except (OSError, ValueError):
        return "stopped by SIGTERM, as at a shutdown", grace
    return f"stopped by {stop['by']}", 0.0 if stop["now"] else grace
