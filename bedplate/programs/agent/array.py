"""Arrays: an element is a run with a record of its own, which is a child of the array's; a machine runs some at a time.

The array's record has the exit code of each element, and the cause of each failure.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..connection import HubError
from ..elements import codes_of, elements_of, end_of
from .ends import END, RECORDED, STOP, read, stop_of, write_end
from .links import Message
from .member import GPUS
from .ranks import adopt, children
from .restarts import NOTICED, PEER_LOST
from .run import Run

_API, _TAG, _KILLED = "/api/2.0/mlflow/runs/", "bedplate.", 137
_FILES = ("token", "certificate", "secrets", "params")
# Seconds: for the record of an element, between two tries, before an element is repeated, between looks at processes.
_PATIENCE, _PAUSE, _AGAIN, _LOOK, _TRIES = 600.0, 2.0, 5.0, 0.2, 50


class Element(Run):
    """An element of an array: a run that begins with a search for its own record, which is made once."""

    def __init__(self, folder: Path, variables: Mapping[str, str], element: int) -> None:
        super().__init__(folder, variables)
        self._array, self._element, self._own = self._run, element, {"ELEMENT": str(element)}
        self._output, self._checkpoints = self._output / str(element), self._checkpoints / str(element)

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run a command as this element, unless the element has ended before; return the exit code."""
        try:
            tags = self.find_record()
            if "code" in tags:
                # The agent that has written this may have died before the array had it.
                end = write_end(self._folder, int(tags["code"]), tags.get("cause", ""), {}, is_stopped=False)
                self._close_record(end, _PATIENCE)
                return int(end["code"] != 0)
            if (self._folder / END).exists():
                self.write_record(read(self._folder / END), _PATIENCE)
                return 0
            self._tag_array({"state": "running"}, _PATIENCE)
            self._hub.call(f"{_API}update", {"run_id": self._array, "status": "RUNNING"}, _PATIENCE)
        except HubError as error:
            sys.stderr.write(f"element {self._element} has no record: {error}\n")
            return PEER_LOST
        return super().run(command, environment)

    def find_record(self) -> Mapping[str, str]:
        """Return the tags of the record of this element, which is made if it is missing. Raises HubError."""
        name, end = f"{self._told['ARRAY']}-{self._element}", time.monotonic() + _PATIENCE
        where = f"attributes.run_name = '{name}' AND tags.`{_TAG}parent` = '{self._array}'"
        search = {"experiment_ids": [self._told["EXPERIMENT"]], "filter": where, "max_results": 1}
        while not (found := self._hub.call(f"{_API}search", search, _PATIENCE).get("runs")):
            tags = {f"{_TAG}parent": self._array, f"{_TAG}element": str(self._element)}
            pairs = [{"key": key, "value": value} for key, value in {"mlflow.parentRunId": self._array, **tags}.items()]
            facts = {"run_name": name, "start_time": int(self._hub.now * 1000), "tags": pairs}
            try:
                # The answer may be lost: then the search finds the record.
                self._hub.call(f"{_API}create", {"experiment_id": self._told["EXPERIMENT"], **facts}, 0)
            except HubError:
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE)
        self._run = str(found[0]["info"]["run_id"])
        return {tag["key"].partition(".")[2]: tag["value"] for tag in found[0]["data"].get("tags", ())}

    def close(self, code: int, cause: str) -> None:
        """Write the end of this element, whose agent has not. Raises HubError."""
        self.find_record()
        self.write_record(write_end(self._folder, code, cause, {}, is_stopped=code == NOTICED), _PATIENCE)

    def _log_name(self, rank: int) -> str:
        return f"{self._element}.{rank}" if rank else str(self._element)

    def _tag_array(self, tags: Mapping[str, str], patience: float) -> None:
        super()._set_tags(tags, patience, self._array)

    def _set_tags(self, tags: Mapping[str, str], patience: float, run: str = "") -> None:
        """Write tags of this element; its signs of life are those of the array, too."""
        super()._set_tags(tags, patience, run)
        if "seen" in tags:
            self._tag_array({"seen": tags["seen"], **self._times()}, patience)

    def _times(self) -> Mapping[str, str]:
        """Return what the costs of an array need: each pod is paid for."""
        name, seconds = f"ran.{self._element}.{self._ran.partition('.')[2]}", time.monotonic() - self._start
        return {name: f"{seconds:.0f}"} if self._is_pod else {}

    def _close_record(self, end: Mapping[str, Any], patience: float) -> None:
        """Note the end in the record of the array. In the cluster the last element ends that, and the token."""
        name = f"0.{self._element}"
        failure = {f"cause.{name}": str(end["cause"])} if end["code"] else {}
        self._tag_array({f"exit.{name}": str(end["code"]), **failure, **self._times()}, patience)
        if not self._is_pod:
            return
        tags, elements = self._read_tags(patience, self._array), elements_of(self._told["ELEMENTS"])
        codes = codes_of(tags)
        if tags.get("state") == "ended" or set(elements) - codes.keys():
            return
        code, cause = end_of(elements, codes)
        # Two may be the last at the same time.
        with suppress(HubError):
            self._tag_array({"state": "ended", "code": str(code), "cause": cause}, patience)
            facts = {"status": "FAILED" if code else "FINISHED", "end_time": int(self._hub.now * 1000)}
            self._hub.call(f"{_API}update", {"run_id": self._array, **facts}, patience)
            super()._close_record(end, patience)


class Array(Run):
    """An array on a machine, whose agent starts the elements as agents, each with a lease of its own."""

    def __init__(self, folder: Path, variables: Mapping[str, str], agent: str) -> None:
        super().__init__(folder, variables)
        self._variables, self._agent, self._is_stopped = variables, agent, False
        self._left = [*elements_of(self._told["ELEMENTS"])]
        self._elements, self._going = tuple(self._left), dict[int, subprocess.Popen[bytes]]()
        self._stopped = set[int]()

    def _take_part(self, environment: Mapping[str, str]) -> Message:  # noqa: ARG002  as that of a run
        """Run all elements, so many at a time; return the end of the array."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_stop)
        adopt()
        self._left = [element for element in self._left if not (self._place(element) / RECORDED).exists()]
        while (self._left and not self._is_stopped) or self._going:
            while self._left and not self._is_stopped and len(self._going) < int(self._told["AT_ONCE"]):
                self._start_element(self._left.pop(0))
            time.sleep(_LOOK)
            if self._is_stopped:
                self._stop_elements()
            for element, process in [*self._going.items()]:
                if process.poll() is not None:
                    del self._going[element]
                    self._take_end(element, process.returncode)
        ends = {element: self._place(element) / END for element in self._elements}
        codes = {element: str(read(path)["code"]) for element, path in ends.items() if path.exists()}
        code, cause = end_of(self._elements, codes)
        if self._is_stopped:
            code, cause = NOTICED, stop_of(self._folder)[0]
        return {"is_over": True, "code": code, "status": code, "cause": cause, "is_stopped": self._is_stopped}

    def _place(self, element: int) -> Path:
        return self._folder / "elements" / str(element)

    def _start_element(self, element: int) -> None:
        """Start the agent of an element in a folder of its own, with links to the files of the array."""
        folder = self._place(element)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in _FILES:
            with suppress(FileExistsError):
                os.link(self._folder / name, folder / name)
        words = (GPUS, "run", f"--gpus={self._told['GPUS']}", "--", self._agent, "run", "--folder", str(self._folder))
        environment = {**os.environ, "BEDPLATE_ELEMENT": str(element)}
        self._going[element] = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL)  # noqa: S603

    def _note_stop(self, *_: object) -> None:
        self._is_stopped = True

    def _stop_elements(self) -> None:
        """Tell all elements once to end; those that wait for GPUs end at once."""
        for element in self._going.keys() - self._stopped:
            self._stopped.add(element)
            with suppress(OSError):
                os.link(self._folder / STOP, self._place(element) / STOP)
            self._going[element].terminate()

    def _take_end(self, element: int, code: int) -> None:
        """Write the end of an element whose agent has not. An agent that has lost the hub is started again."""
        folder, has_end = self._place(element), (self._place(element) / END).exists()
        if code == PEER_LOST and not has_end and not self._is_stopped:
            self._left.append(element)
            time.sleep(_AGAIN)
            return
        # One that was stopped while it waited never ran.
        if not has_end and not (self._is_stopped and not (folder / "logs").exists()):
            self._kill_orphans()
            cause = f"its agent ended before its program, with status {code}"
            with suppress(HubError):
                Element(folder, element_variables(folder, self._variables), element).close(_KILLED, cause)
        shutil.rmtree(folder / "work", ignore_errors=True)

    def _kill_orphans(self) -> None:
        """Kill what an agent has left behind that was killed: its program has the GPUs."""
        own = {process.pid for process in self._going.values()}
        for _ in range(_TRIES):
            for orphan in {*children()} - own:
                with suppress(ProcessLookupError, PermissionError, ChildProcessError):
                    os.kill(orphan, signal.SIGKILL)
                    os.waitpid(orphan, os.WNOHANG)
            if not {*children()} - own:
                break
            time.sleep(_LOOK)


def element_variables(folder: Path, variables: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of an element on a machine, by those of its array."""
    own = {name: str(folder / file) for name, file in (("WORK", "work"), ("TOKEN_FILE", "token"))}
    return {**variables, **own}
