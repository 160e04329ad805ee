"""A run: fetch the code, start the ranks, report to the hub that it goes on, and write how it ended."""

import fcntl
import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from ..connection import Connection, HubError
from ..elements import ENDS
from ..program import write_text
from .ends import END, RECORDED, STARTED, STOP, read, remove_secrets, stop_of, write_end
from .environments import Environments
from .fabric import fabric_note
from .gang import JOIN, Coordinator, Settings
from .links import AnyLink, Link, Message, connect, interface_to
from .member import Member
from .mpi import mpi_variables
from .packs import Code, CodeError
from .ranks import Ranks
from .restarts import NO_CODE, NOTICED, PEER_LOST, REFUSED, REPEATED, History, Policy, history_of
from .sources import LIST, REQUIREMENTS, BuildError
from .spool import Spool
from .uploads import Uploads
from .witness import Witness

AGENT = "/usr/local/bin/bedplate-agent"
_UNPACKED, _HISTORY = "unpacked", "history.json"
_API, _PREFIX, _DENIED = "/api/2.0/mlflow/runs/", "BEDPLATE_", frozenset({401, 403})
_DEFAULTS = {"RANK": "0", "NODES": "1", "ATTEMPT": "0", "MASTER": "127.0.0.1", "FOR": "inf"}
_DEFAULTS.update(dict.fromkeys(("MACHINE", "MASTER_PORT", "LAUNCH", "LEASE_FDS", "ADDRESS", "CHECKPOINTS"), ""))
_DEFAULTS.update(dict.fromkeys(("PORT", "RESTARTS", "SCRATCH_OK", "WAIT", "ENVIRONMENT_FILE", "ENV", "SESSION"), ""))
_OF_SESSIONS = ("SESSION", "IDLE", "KEY")
_PORT = 29_399
# Seconds: for packs, for the end of a record, between reports, after one that failed, and between parts of logs; for a
# note before an attempt, before agents leave that are made again, and between looks for a pack.
_PATIENCE, _PATIENCE_AT_END, _REPORT, _REPEAT, _UPLOAD = 600.0, 86_400.0, 30.0, 10.0, 5.0
_NOTE, _LEAVE, _LOOK = 2.0, 10.0, 0.1
# Seconds from which the hub hears of an idle program.
_IDLE = 600.0
# MLflow takes so many tags in one request. Once, a hub may refuse by mistake.
_MOST_TAGS, _MOST_REFUSALS = 100, 2


class Run:
    """A run in its folder, by the agent's variables without their prefix, and those of this process; in a pod by these.

    Raises KeyError, ValueError, OSError or HubError if they are wrong.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        own = {name[len(_PREFIX) :]: value for name, value in os.environ.items() if name.startswith(_PREFIX)}
        # While a folder is locked, systemd-tmpfiles removes nothing of it: code may be older than its limit.
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)
        caches = {
            "CACHE": f"{folder}/packs",
            "ENVIRONMENTS": f"{os.environ.get('HOME', folder)}/.cache/bedplate/environments",
        }
        self._told = {**_DEFAULTS, **caches, **own, **variables}
        self._folder, self._beside, self._start = folder, Path(self._told["TOKEN_FILE"]).parent, time.monotonic()
        self._node, self._nodes, self._attempt = (int(self._told[name]) for name in ("RANK", "NODES", "ATTEMPT"))
        self._grace, self._seconds, gpus = float(self._told["GRACE"]), float(self._told["FOR"]), int(self._told["GPUS"])
        launch = self._told["LAUNCH"] or ("ranks" if gpus > 1 or self._nodes > 1 else "program")
        self._slots, self._is_mpi = max(gpus, 1), launch == "mpi" and self._nodes > 1
        self._ranks, self._run = self._slots if launch == "ranks" else 0, self._told["RUN"]
        self._checkpoints = Path(self._told["CHECKPOINTS"] or folder / "checkpoints")
        self._output, self._own = folder / "output", dict[str, str]()
        self._code = Code(Path(self._told["CACHE"]), self._told["PACKS"].split(","))
        certificate = Path(self._told["CERT"]).read_text(encoding="ascii")
        self._hub = Connection(self._told["HUB"], certificate, self._token, self._told["ADDRESS"])
        self._uploads = Uploads(self._hub, folder, self._told["ARTIFACTS"])
        self._over, self._wake = Event(), Event()
        self._witness, self._ran = Witness(folder / "logs"), f"ran.{time.time():.0f}"
        self._is_pod, self._machine = not variables, self._told["MACHINE"] or socket.gethostname()
        # Agents on machines wait for each other, and for GPUs, before they have any. A pod has its own meanwhile.
        self._had = self._start if self._is_pod else float("inf")
        self._tags = {} if self._node else {"machine": self._machine, "nodes": str(self._nodes)}
        self._tags[f"node.{self._node}"] = self._machine
        if self._is_pod and self._nodes > 1 and not self._node:
            self._tags.update(fabric_note(os.environ, self._told["ENV"].split()))
        self._pending, self._noting = dict(self._tags), Lock()
        self._reporting, self._command = Thread(target=self._report, daemon=True), tuple[str, ...]()
        self._environment = ""
        # Those that it has while it takes part.
        self._member: Any = None
        self._coordinator: Any = None

    def _token(self, _: str = "") -> str:
        return Path(self._told["TOKEN_FILE"]).read_text(encoding="ascii").strip()

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run a command with these variables, secrets, and those of this process; return the exit code."""
        # One at a time, and none after the end: whoever repeats a start must not start the program twice.
        fcntl.flock(os.open(self._folder / STARTED, os.O_WRONLY | os.O_CREAT, 0o600), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (self._folder / END).exists():
            raise FileExistsError(f"the run has ended: {self._folder / END}")
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            self._command = (*self._session(), *command)
            message = self._take_part(self._with_secrets(environment))
        except KeyboardInterrupt:
            message = self._end_of_interrupt()
        except (HubError, OSError, ValueError, TypeError) as error:
            message = {"is_over": True, "code": NO_CODE, "status": NO_CODE, "cause": f"no start: {error}"}
        # While the record waits for the hub, the GPUs are for others.
        for handle in filter(None, self._told["LEASE_FDS"].split(",")):
            os.close(int(handle))
        code = int(message["code"])
        if not message["is_over"]:
            self._leave(str(message["cause"]))
            # The unit starts again by this one.
            return code if self._is_pod else PEER_LOST
        end = write_end(self._folder, code, message["cause"], self._tags, is_stopped=message.get("is_stopped", False))
        # An agent that is started again without an end needs them.
        remove_secrets(self._beside)
        try:
            self.write_record(end, _PATIENCE_AT_END)
        except HubError as error:
            sys.stderr.write(f"the end of the run is not recorded: {error}\n")
        # A pod that ends by one of these is made again, also one with the code of a program that was killed.
        return 1 if self._is_pod and message["status"] in REPEATED else int(message["status"])

    def _session(self) -> Sequence[str]:
        """Return the words before the command of a session, whose program starts it; nothing for other runs."""
        if not self._told["SESSION"]:
            return ()
        own = (sys.executable, sys.argv[0]) if self._is_pod else (AGENT,)
        self._own |= {name: self._told.get(name, "") for name in _OF_SESSIONS} | {"AGENT": shlex.join(own)}
        return (*own, "session")

    def _end_of_interrupt(self) -> Message:
        """Return the end of a run that is told to end before it takes part. Its pods may be made again."""
        person = self.stopped_by()
        if self._is_pod and not person and time.monotonic() - self._start > self._seconds:
            # The next pod would reach its deadline, too.
            cause = "no start: code, environment or other nodes were not ready in the time of the run"
            return {"is_over": True, "code": NO_CODE, "status": NO_CODE, "cause": cause}
        cause, is_over = (
            f"stopped by {person}" if person else stop_of(self._folder)[0],
            not self._is_pod or bool(person),
        )
        return {"is_over": is_over, "code": NOTICED, "status": NOTICED, "cause": cause, "is_stopped": True}

    def _with_secrets(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        return {**environment, **read(self._beside / "secrets")}

    def prepare(self, environment: Mapping[str, str]) -> str:
        """Fetch the code and build its environment before this run has GPUs; return why that fails."""
        return self._prepare(self._with_secrets(environment), None)

    def _prepare(self, environment: Mapping[str, str], connect_to_first: "Callable[[float], Link] | None") -> str:
        """Fetch the code once, build its environment, and make the folder of checkpoints; return why that fails."""
        try:
            if not (self._folder / _UNPACKED).exists():
                shutil.rmtree(self._told["WORK"], ignore_errors=True)
                self._fetch(connect_to_first)
                (self._folder / _UNPACKED).touch()
            self._checkpoints.mkdir(parents=True, exist_ok=True)
        except (CodeError, HubError) as error:
            return f"no code: {error}"
        except OSError as error:
            return f"no code, or no folder for checkpoints: {error}"
        try:
            if self._told["ENVIRONMENT_FILE"]:
                self._provide_environment({**os.environ, **environment})
            # JupyterLab has an environment of its own.
            if self._told["SESSION"] and (self._beside / REQUIREMENTS).exists():
                cache = Environments(Path(self._told["ENVIRONMENTS"]), self._hub, self._say, "JupyterLab")
                self._own["JUPYTER"] = str(cache.provide(REQUIREMENTS, self._beside, {**os.environ, **environment}))
        except (BuildError, OSError) as error:
            return f"no environment: {error}"
        return ""

    def _provide_environment(self, variables: Mapping[str, str]) -> None:
        """Build what the cache lacks. The list of packages is with the run, so that a later one may have the same."""
        cache = Environments(Path(self._told["ENVIRONMENTS"]), self._hub, self._say)
        found = cache.provide(self._told["ENVIRONMENT_FILE"], Path(self._told["WORK"]), variables)
        self._environment, packages = str(found), (found / LIST).read_text(encoding="utf-8")
        write_text(self._folder / LIST, packages)
        self._note_time("environment")
        if not self._node:
            # The end has it, too: a program may be killed with its machine.
            with suppress(HubError):
                self._hub.send(f"{self._told['ARTIFACTS']}/{LIST}", self._folder / LIST, _NOTE)

    def _say(self, text: str) -> None:
        # The log of a pod has the output of its program, too.
        sys.stderr.write(f"bedplate: {text}\n" if self._is_pod else f"{text}\n")
        sys.stderr.flush()

    def _take_part(self, environment: Mapping[str, str]) -> Message:
        """Be a node of the gang until its end, which is returned; on node 0 also lead it."""
        policy = Policy(int(self._told["RESTARTS"] or 0), bool(self._told["SCRATCH_OK"]), str(self._checkpoints))
        port, wait = int(self._told["PORT"] or _PORT), float(self._told["WAIT"] or "inf")
        gpus = int(self._told["GPUS"]) if self._nodes > 1 and not self._is_pod else 0
        limits = self._grace, self._seconds, bool(gpus), wait
        gang = Settings(self._nodes, port, self._token(), policy, *limits, self._is_mpi)
        if not self._node:
            self._coordinator = Coordinator(gang, self, self._history())
            self._coordinator.start()
        connect_to_first = partial(connect, self._told["MASTER"], port, gang.token)
        link, error = self._join(environment, connect_to_first)
        self._member = Member(link, self._folder, self._grace, gpus, self._stop_of_signal)
        start = partial(self._start_ranks, environment=environment)
        end: Message = self._member.take_part(self._node, self._machine, error, self._checkpoints, start)
        self._over.set()
        self._wake.set()
        if self._reporting.is_alive():
            self._reporting.join()
        self._member.end_lease()
        self._note_time("ended")
        if not self._node:
            self._tags.update(self._signs())
        return end

    def _join(
        self, environment: Mapping[str, str], connect_to_first: Callable[[float], Link]
    ) -> tuple[AnyLink, tuple[str, int]]:
        """Return the link to node 0 once this node has its code, and why it cannot start, with the exit code."""
        try:
            error = self._prepare(environment, connect_to_first), NO_CODE
            return connect_to_first(JOIN) if self._node else self._coordinator.member, error
        except KeyboardInterrupt:
            # The others would wait for this node. Those of pods are made again.
            if self._is_pod:
                raise
            # `bp stop` sends the signal twice.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            error = stop_of(self._folder)[0], NOTICED
        try:
            return connect_to_first(0) if self._node else self._coordinator.member, error
        except OSError:
            raise KeyboardInterrupt from None

    def _stop_of_signal(self) -> tuple[str, float, bool]:
        return (*stop_of(self._folder, self._grace), not self._is_pod or (self._folder / STOP).exists())

    def _history(self) -> History:
        """Return what former agents of this run have noted: on the hub, in this folder, or beside the checkpoints."""
        texts = []
        for file in (self._folder / _HISTORY, self._checkpoints / f".{_HISTORY}"):
            with suppress(OSError):
                texts.append(file.read_text(encoding="utf-8"))
        try:
            # A restart needs no hub: the files have the same, but for the last end in a pod.
            patience = _PATIENCE if self._is_pod or not texts else _REPEAT
            texts.append(self._read_tags(patience).get("history", ""))
        except HubError:
            if not texts:
                raise
        return max(map(history_of, texts), key=lambda history: (history.attempt, not history.is_open, history.has_run))

    def _read_tags(self, patience: float, run: str = "") -> Mapping[str, str]:
        found = self._hub.call(f"{_API}get?run_id={run or self._run}", patience=patience)["run"]
        tags = {tag["key"].partition(".")[2]: tag["value"] for tag in found["data"].get("tags", ())}
        return {**tags, "status": str(found.get("info", {}).get("status"))}

    def wait_for(self, run: str, name: str, condition: str) -> str:
        """Wait until another run has ended as the condition says; return why this one never starts, else nothing.

        While the hub is away, it is asked again without a limit: an unknown state is not an end.
        """
        refusals = 0
        while refusals < _MOST_REFUSALS:
            try:
                own, other = self._read_tags(_REPORT), self._read_tags(_REPORT, run)
            except HubError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return f"it did not run: {name} is in no record"
                refusals, cause = refusals + (error.status in _DENIED), f"it did not run: {error}"
            else:
                refusals = 0
                if own.get("state") == "ended":
                    return own.get("cause", "its record has ended")
                # The end is two requests, and the status is the second.
                if other.get("state") == "ended" and other["status"] in ENDS:
                    how = "" if condition == "any" else ENDS[other["status"]]
                    return how and f"it did not run: {name} {how}"
            time.sleep(_REPORT)
        return cause

    def stopped_by(self) -> str:
        """Return the person who has stopped this run, by its record: a stop in a pod is a notice for all others."""
        with suppress(HubError):
            return self._read_tags(_NOTE).get("stopped_by", "") if self._is_pod else ""
        return ""

    def note(self, tags: Mapping[str, str]) -> None:
        """Keep tags for the record. What is known of an attempt is there before it starts, if the hub answers."""
        if "history" in tags:
            with suppress(OSError):
                write_text(self._folder / _HISTORY, tags["history"])
        with self._noting:
            self._tags.update(tags)
            self._pending.update(tags)
        if tags.get("state") == "running":
            # The folder of a pod ends with it, and the hub may be away.
            with suppress(OSError):
                write_text(self._checkpoints / f".{_HISTORY}", tags["history"])
            with suppress(HubError):
                self._set_tags(tags, _NOTE)
        self._wake.set()

    def _fetch(self, connect_to_first: "Callable[[float], Link] | None") -> None:
        self._code.fetch(self._hub, _PATIENCE, connect_to_first if self._node else None)
        self._note_time("fetched")
        self._code.check_out(self._told["TREE"], Path(self._told["WORK"]))
        self._note_time("unpacked")

    def pack(self, name: str) -> Path:
        """Return the file of a pack of this run, once it is there. Raises OSError if it is none, or does not come."""
        return self._code.pack(name, _PATIENCE)

    def _note_time(self, name: str) -> None:
        key = f"times.{self._node}"
        self._tags[key] = f"{self._tags.get(key, '')} {name}={time.monotonic() - self._start:.3f}".strip()

    def _start_ranks(self, ranks: Ranks, start: Message, resume: str, environment: Mapping[str, str]) -> None:
        """Start the ranks of this node for an attempt, from the path of a checkpoint if there is one."""
        self._attempt, self._had = start["attempt"], min(self._had, time.monotonic())
        command = ("sh", "-c", start["command"]) if "command" in start else self._command
        spools = self._uploads.spools
        for rank, own in self._environments(environment, start, resume):
            name = f"{self._attempt}/{self._log_name(rank)}"
            # Runs of machines have no log but their parts.
            spools[name] = Spool(self._folder / "logs" / name, is_copied=self._is_pod and not rank)
            if not rank and (note := self._tags.get("note")):
                spools[name].write(f"bedplate: {note}\n".encode())
            ranks.start(rank, command, own, spools[name])
        self._note_time("started")
        if not self._reporting.is_alive():
            self._reporting.start()

    def _log_name(self, rank: int) -> str:
        return str(rank)

    def _environments(
        self, environment: Mapping[str, str], start: Message, resume: str
    ) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Yield each rank of this node with the environment of its process."""
        self._output.mkdir(parents=True, exist_ok=True)
        # One value a call would be more requests than the hub admits.
        shared = {"PYTHONUNBUFFERED": "1", "MLFLOW_ENABLE_ASYNC_LOGGING": "true"}
        shared.update({name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)})
        shared.update({**environment, "PWD": self._told["WORK"], "MLFLOW_RUN_ID": self._run})
        if self._environment:
            shared.update(
                {"VIRTUAL_ENV": self._environment, "PATH": f"{self._environment}/bin:{shared.get('PATH', '')}"}
            )
        shared.update({"MLFLOW_TRACKING_URI": self._told["HUB"], "MLFLOW_TRACKING_TOKEN": self._token()})
        files = {name: self._folder / name.lower() for name in ("STOP", "RESUMED")}
        files.update({"OUTPUT": self._output, "PARAMS": self._beside / "params", "CHECKPOINTS": self._checkpoints})
        told = {**files, "RUN": self._run, "ATTEMPT": self._attempt, **self._own}
        told |= {"RESUME": resume} if resume else {}
        shared.update({f"{_PREFIX}{name}": str(value) for name, value in told.items()})
        shared["MLFLOW_TRACKING_SERVER_CERT_PATH"] = self._told["CERT"]
        if not self._ranks and not self._is_mpi:
            yield self._node, shared
            return
        shared.update({"MASTER_ADDR": self._told["MASTER"], "MASTER_PORT": str(start["port"])})
        # By itself, gloo uses the address of the host name, which is 127.0.1.1 on Debian and Ubuntu, and NCCL may use
        # a tunnel. NCCL takes a name without `=` as a prefix: "NCCL_SOCKET_IFNAME" in its environment variables.
        if self._nodes > 1 and (interface := interface_to(self._told["MASTER"])):
            shared.setdefault("GLOO_SOCKET_IFNAME", interface)
            shared.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
        if self._is_mpi:
            first = self._told["MASTER"], int(self._told["PORT"] or _PORT), self._told["TOKEN_FILE"]
            shared.update(mpi_variables(self._folder, start["hosts"], self._slots, first))
            # The other nodes start what mpirun asks for.
            if "rank" in start or not self._node:
                yield start.get("rank", 0), shared
        for local in range(self._ranks):
            rank, world = self._node * self._ranks + local, self._nodes * self._ranks
            sizes = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": self._ranks, "RANK": rank, "LOCAL_RANK": local}
            yield rank, {**shared, **{name: str(value) for name, value in sizes.items()}}

    def free_port(self) -> int:
        """Return a port for the first rank, another one for each attempt: sockets of a former one may linger."""
        with socket.create_server(("", 0)) as free:
            return int(self._told["MASTER_PORT"] or free.getsockname()[1])

    def _report(self) -> None:
        """Give the hub the output, and report that the run goes on; other nodes than the first report nothing more.

        If the hub refuses that twice, the person may not run it any more.
        """
        due, is_refused, was_away = 0.0, False, False
        while not self._over.is_set():
            if due:
                self._wake.wait(_UPLOAD)
            self._wake.clear()
            self._uploads.put_logs(0, due)
            self._uploads.put_events(due)
            is_late = is_refused or was_away or self._node or not self._pending
            if (time.monotonic() < due and is_late) or self._over.is_set():
                continue
            try:
                seen = {} if self._node else {"seen": str(int(self._hub.now * 1000)), **self._signs()}
                self._send_pending(seen, _REPEAT)
                if was_away and not self._node:
                    self._hub.call(f"{_API}update", {"run_id": self._run, "status": "RUNNING"}, _REPEAT)
                due, is_refused, was_away = time.monotonic() + _REPORT, False, False
                self._ask_for_stop()
            except HubError as error:
                # The hub ends records of runs of which it has heard nothing.
                is_denied = error.status in _DENIED
                if not self._node:
                    self._pending = {**self._tags, "state": "running", "cause": "unknown", **self._pending}
                if is_denied and is_refused:
                    self._member.ask(f"stopped: {error}", min(self._grace, _REPEAT), is_over=True, code=REFUSED)
                due, is_refused, was_away = time.monotonic() + _REPEAT, is_denied, was_away or not is_denied

    def _signs(self) -> Mapping[str, str]:
        """Return what limits of the hub need: for how long this agent has run, since when its program is idle."""
        idle = self._witness.idle()
        since = f"{(self._hub.now - idle) * 1000:.0f}" if idle >= _IDLE else "-"
        signs = {self._ran: f"{max(time.monotonic() - self._had, 0):.0f}", "idle_since": since}
        if self._told["SESSION"]:
            signs["warning"] = "-"
            # The session may remove it at any time.
            with suppress(OSError):
                signs["warning"] = (self._folder / "session/warning").read_text(encoding="utf-8")
        return signs

    def _send_pending(self, more: Mapping[str, str], patience: float) -> None:
        with self._noting:
            pending, self._pending = self._pending, {}
        try:
            self._set_tags({**pending, **more}, patience)
        except HubError:
            with self._noting:
                self._pending = {**pending, **self._pending}
            raise

    def _ask_for_stop(self) -> None:
        """Stop if the hub asks for it: its limits are over. A hub that does not know the question has none."""
        with suppress(HubError, AttributeError):
            # An idle run is stopped by its own word only.
            question = f"/bedplate/stop?idle={self._witness.idle():.0f}"
            if not self._node and (cause := self._hub.call(question, patience=0).get("cause")):
                self._member.ask(str(cause), self._grace, is_over=True)

    def _leave(self, cause: str) -> None:
        """Say that the run waits again: its agents are made again."""
        self._uploads.put_logs(_LEAVE)
        with suppress(HubError):
            self._send_pending({} if self._node else {"state": "queued", "cause": cause}, _LEAVE)

    def _set_tags(self, tags: Mapping[str, str], patience: float, run: str = "") -> None:
        # A database refuses text that is not UTF-8. Names of checkpoints may be such.
        texts = {key: value.encode(errors="replace").decode().replace("\0", "?") for key, value in tags.items()}
        items = [{"key": f"bedplate.{key}", "value": value[:5000]} for key, value in texts.items()]
        body = {"run_id": run or self._run}
        for at in range(0, len(items), _MOST_TAGS):
            self._hub.call(f"{_API}log-batch", body | {"tags": items[at : at + _MOST_TAGS]}, patience)

    def write_record(self, end: Mapping[str, Any], patience: float) -> None:
        """Give the hub the rest of the output, and the end, once. Raises HubError."""
        if (self._folder / RECORDED).exists():
            return
        self._uploads.put_logs(patience)
        if refused := self._uploads.put_output(patience):
            self._tags["output"] = refused
        tags = {**self._tags, **end["tags"]}
        if self._node:
            self._set_last_tags(tags, patience)
        else:
            ended = {"state": "ended", "cause": end["cause"], "code": str(end["code"])}
            self._set_tags({**tags, **ended}, patience)
            update = {"run_id": self._run, "status": end["status"], "end_time": int(self._hub.now * 1000)}
            self._hub.call(f"{_API}update", update, patience)
            if self._coordinator:
                self._coordinator.wait_for_others(patience)
            self._close_record(end, patience)
        with suppress(OSError):
            (self._folder / RECORDED).touch()

    def _set_last_tags(self, tags: Mapping[str, str], patience: float) -> None:
        try:
            self._set_tags(tags, patience)
        except HubError as error:
            # Node 0 has ended the token of a run that was stopped before all nodes had joined.
            if error.status != HTTPStatus.UNAUTHORIZED:
                raise

    def _close_record(self, end: Mapping[str, Any], patience: float) -> None:  # noqa: ARG002  for elements of an array
        """End the token of the run, whose record has the end."""
        self._hub.call("/bedplate/end", {}, patience)
