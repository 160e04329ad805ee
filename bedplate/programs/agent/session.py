"""The program of a session: what its person asks for by sockets in a folder that no other account can enter."""

import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread, current_thread
from typing import IO

from ..program import write_text
from .changes import keep_changes
from .ends import END, FOLDER, PREFIX, STOP, read
from .notebook import Notebook
from .sockets import ACTIVE, PAGE, RUN, SSH, is_locked, say
from .sshd import PRIVATE, Sshd
from .witness import used_seconds

WARNING = "warning"
"""The file of a warning, in the folder of sockets."""
# Seconds: between two looks, before the stop of an idle session, for the ends of its runs, and between looks at one.
_LOOK, _WARNED, _LAST, _TICK = 30.0, 600.0, 25.0, 0.5
# The part of one processor that servers of notebooks and editors use while nobody works.
_LEAST, _SIGNALLED = 0.05, 128
# Variables of a session itself: a person's shell has all others of a program.
_OWN = {f"BEDPLATE_{name}" for name in ("AGENT", "IDLE", "JUPYTER", "KEY", "SESSION")}


class Session:
    """A session in the folder of its run. `told` are the variables of the agent for it."""

    def __init__(self, folder: Path, told: Mapping[str, str]) -> None:
        self._folder, self._agent = folder, shlex.split(told["BEDPLATE_AGENT"])
        self._limit, self._since = float(told["BEDPLATE_IDLE"]), time.time()
        self._lead, self._warned = min(_WARNED, self._limit / 2), 0.0
        self._used, self._at = used_seconds(os.getppid()), time.monotonic()
        runtime = told.get("XDG_RUNTIME_DIR", "")
        # The name of a socket has at most 107 bytes.
        self._sockets = Path(tempfile.mkdtemp(prefix=PREFIX, dir=runtime if os.access(runtime, os.W_OK) else None))
        (self._sockets / ACTIVE).touch()
        (folder / FOLDER).unlink(missing_ok=True)
        (folder / FOLDER).symlink_to(self._sockets)
        self._told = {**told, "BEDPLATE_PAGE": str(self._sockets / PAGE)}
        self._plain = {name: value for name, value in told.items() if not name.startswith("BEDPLATE_")}
        self._runs, self._is_over = dict[Thread, Path](), False
        self._notebook: Notebook | None = None

    def run(self, command: Sequence[str]) -> int:
        """Run until the command ends, or this session is stopped; return the exit code."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        self._listen(RUN, self._start_run)
        if key := self._told.get("BEDPLATE_KEY"):
            given = {name: value for name, value in self._told.items() if name not in _OWN}
            self._listen(SSH, Sshd(self._sockets, key, given).start)
        if jupyter := self._told.get("BEDPLATE_JUPYTER"):
            self._notebook = Notebook(Path(jupyter), self._sockets, self._plain)
            command, self._told = self._notebook.command(PAGE), {**self._told, **self._notebook.variables}
        program = subprocess.Popen(command, env=self._told)  # noqa: S603  of bp
        code = 0
        try:
            while program.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    program.wait(_LOOK)
                self._look()
            code = program.returncode if program.returncode >= 0 else _SIGNALLED - program.returncode
        except KeyboardInterrupt:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            program.terminate()
        finally:
            self._end(program)
        return code

    def _listen(self, name: str, serve: Callable[[socket.socket], object]) -> None:
        """Serve each connection to a socket in a thread."""
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(self._sockets / name))
        server.listen()

        def accept() -> None:
            while True:
                Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        Thread(target=accept, daemon=True).start()

    def _start_run(self, link: socket.socket) -> None:
        """Start the run in the folder that a connection names, once, and follow it to its end."""
        with link, link.makefile() as stream:
            folder = Path(stream.readline().strip())
            try:
                process = self._start_agent(folder)
            except OSError as error:
                say(f"{folder.name} does not start: {error}")
                return
            # Only of a run that goes on. Who has asked may be away.
            with suppress(OSError):
                link.sendall(b"\n")
        if process:
            self._runs[current_thread()] = folder
            self._follow(process, folder)
            del self._runs[current_thread()]

    def _start_agent(self, folder: Path) -> "subprocess.Popen[bytes] | None":
        """Start the agent of a run, unless it has one. Raises OSError."""
        with (folder / "unit").open("ab") as log:
            while True:
                try:
                    fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    # A look has the lock for a moment, too.
                    if is_locked(folder / "unit"):
                        return None
            # The agent has the lock for as long as it lives, and its program does not: who follows looks at it.
            return self._popen("run", folder, log)

    def _follow(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        """Wait for the end of an agent, and stop it if that is asked for, or if this session ends."""
        is_told = False
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TICK)
            if self._is_over and not (folder / STOP).exists():
                write_text(folder / STOP, json.dumps({"by": "the end of its session", "now": False}))
            if (folder / STOP).exists() and not is_told:
                process.terminate()
                is_told = True
        # As ExecStopPost of a unit.
        self._popen("end", folder, subprocess.DEVNULL).wait()

    def _popen(self, command: str, folder: Path, log: "IO[bytes] | int") -> "subprocess.Popen[bytes]":
        words = (*self._agent, command, "--folder", str(folder))
        return subprocess.Popen(words, env=self._plain, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603

    def _look(self) -> None:
        """Warn before an idle session ends, and end it. What is unknown counts as work."""
        active, now = self._sockets / ACTIVE, time.monotonic()
        # What has left its parent, such as tmux or the server of an editor, is a child of the agent.
        used, runs = used_seconds(os.getppid()), [*self._runs.values()]
        seen = self._notebook.look(PAGE) if self._notebook else "no program is busy"
        # A run whose end waits for the hub is over.
        is_busy = any(not (folder / END).exists() for folder in runs)
        if is_busy or not seen or used - self._used > _LEAST * (now - self._at):
            active.touch()
        self._used, self._at = used, now
        idle = time.time() - active.stat().st_mtime
        if idle < self._limit - self._lead:
            self._warned = 0.0
            (self._sockets / WARNING).unlink(missing_ok=True)
        elif not self._warned:
            self._warned = now
            what = f"idle for {idle / 60:.0f} min: no key, request or run, {seen}, under {_LEAST:.0%} of a processor"
            text = f"{what}. It ends in {self._lead / 60:.0f} min, unless it is used or extended"
            write_text(self._sockets / WARNING, text)
            say(f"the session is {text}")
        elif idle >= self._limit and now - self._warned >= self._lead:
            cause = f"its limit: a session that is idle for {self._limit / 60:.0f} min"
            write_text(self._folder / STOP, json.dumps({"by": cause, "now": False}))
            os.kill(os.getppid(), signal.SIGTERM)

    def _end(self, program: "subprocess.Popen[bytes]") -> None:
        """End what runs here, and keep what was changed."""
        end, self._is_over = time.monotonic() + _LAST, True
        for thread in [*self._runs]:
            thread.join(max(end - time.monotonic(), 0))
        with suppress(subprocess.TimeoutExpired):
            program.wait(max(end - time.monotonic(), 0))
        # Copies take a while, and these have the variables and the key.
        for name in PRIVATE:
            (self._sockets / name).unlink(missing_ok=True)
        # A board has programs there.
        if self._told["BEDPLATE_SESSION"] != "board":
            keep_changes(Path.cwd(), Path(self._told["BEDPLATE_OUTPUT"]), self._since, self._secrets())
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _secrets(self) -> "Sequence[str] | None":
        """Return what must be in no file that everyone may read; None if that is unknown."""
        try:
            secrets = read(Path(self._told["BEDPLATE_PARAMS"]).with_name("secrets")).values()
        except (OSError, ValueError):
            return None
        return [value for value in (self._told.get("MLFLOW_TRACKING_TOKEN", ""), *secrets) if value]
