"""The agent on a machine, by ssh: the start of a run and its output, through lost connections."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from tempfile import NamedTemporaryFile
from typing import Any
from zlib import crc32

from ..agent.restarts import WRONG_SETTINGS
from .hub import PARTLY, BpError, Hub, PrintedError, check_ssh, write
from .places import FOLDER
from .records import find_run, has_run_ended

POD = "pod/"
"""What is before the name of a run in place of a machine: its pod."""
LOST = 255
"""The exit status of ssh without a connection."""
# Below the ports that kernels give to connections. Two runs of a machine rarely have the same.
_PORTS = range(20_000, 32_768)
_INTERRUPTED = 130
# Seconds for which a lost connection is made again.
_PATIENCE = 30
# The name of a socket has at most 104 bytes on macOS, of which ssh needs 60.
_LONGEST_FOLDER = 44
_OPTIONS = "-T -a -x -o ClearAllForwardings=yes -o RemoteCommand=none -o LogLevel=ERROR -o ServerAliveInterval=15"


def ssh_command(hub: Hub, machine: str, *options: str) -> Sequence[str]:
    """Return the command of a connection to a machine, which others share. Raises BpError."""
    folder = str(hub.folder).replace("%", "%%")
    shared = "none" if len(os.fsencode(folder)) > _LONGEST_FOLDER else f"{folder}/%C"
    settings = ("-o", "ControlMaster=auto", "-o", "ControlPersist=600", "-o", f"ControlPath={shared}")
    return ("ssh", *_OPTIONS.split(), *settings, *options, *hub.ssh_words(machine))


def agent_command(hub: Hub, place: str, *options: str) -> Sequence[str]:
    """Return the command that starts the agent on a machine, or in the pod of a run of this name. Raises BpError."""
    if place.startswith(POD):
        return (sys.executable, sys.argv[0], "attach", place[len(POD) :], "--", "python3", f"{FOLDER}/agent")
    return (*ssh_command(hub, place, *options), "bedplate-agent")


class Agent:
    """A command of the agent on a machine, whose connection opens at once. Methods raise BpError."""

    def __init__(self, hub: Hub, machine: str, *words: str) -> None:
        self.machine, self._hub = machine, hub
        # The words of ssh alone: stderr has those of the machine, too.
        self._errors = NamedTemporaryFile()  # noqa: SIM115  for as long as there are connections
        self._command = (*agent_command(hub, machine, "-E", self._errors.name), *words)
        self._open()

    def run(self, document: Mapping[str, Any]) -> int:
        """Start a run, print its output until it ends, and return the exit code. The agent starts a run once.

        The document is the input of the agent: everyone on the machine can read its words.
        """
        is_started, count, end = False, 0, time.monotonic() + _PATIENCE
        while True:
            with suppress(OSError), self.process.stdin as stdin:
                stdin.write(json.dumps(document).encode())
            for line in self.process.stdout:
                # Shells print lines of their own before.
                with suppress(ValueError, LookupError, TypeError):
                    is_started = bool(json.loads(line)["unit"])
                    break
            if part := self.copy():
                count, end = count + part, time.monotonic() + _PATIENCE
            is_lost = (status := self._wait(is_checked=not is_started)) == LOST
            if is_started and (not is_lost or self._has_ended(document["run"])):
                return status
            if not is_lost:
                raise self.refusal("does not start the run", status)
            if time.monotonic() > end:
                what = "the run goes on" if is_started else "the run may have started"
                raise BpError(f"no connection to {self.machine}: {what}", f"`bp show {document['id']}`", PARTLY)
            time.sleep(1)
            self._open(*([str(count)] if count else []))

    def copy(self) -> int:
        """Write the output to the end of the connection; return how many bytes there were."""
        count = 0
        while part := self.process.stdout.read1(1 << 16):
            write(part)
            count += len(part)
        return count

    def call(self) -> tuple[int, int]:
        """Run a command without input; return the bytes of its output, and its exit status."""
        self.process.stdin.close()
        return self.copy(), self._wait(is_checked=True)

    def refusal(self, what: str, status: int) -> BpError:
        """Return the exception for what the machine does not do, with the exit status of ssh."""
        # By this status an agent has printed why it does nothing.
        is_printed = status == WRONG_SETTINGS
        kind = PrintedError if is_printed else BpError
        return kind(f"{self.machine} {what}: status {status}", "" if is_printed else "its message is above")

    def _wait(self, *, is_checked: bool) -> int:
        """Return the exit status of ssh. Raises BpError if that is checked, and it can never connect."""
        status = int(self.process.wait())
        if status == LOST and is_checked:
            check_ssh(self._errors.read().decode(errors="replace"), self.machine, "ask your operator")
        # A negative one is that of a killed ssh.
        return LOST if status < 0 else status

    def _has_ended(self, run: str) -> bool:
        with suppress(BpError):
            return has_run_ended(find_run(self._hub, run))
        return False

    def close(self) -> None:
        """End the connection; the run goes on."""
        self.process.terminate()

    def _open(self, *words: str) -> None:
        pipe = subprocess.PIPE
        self.process: Any = subprocess.Popen((*self._command, *words), stdin=pipe, stdout=pipe)  # noqa: S603


class Gang:
    """A run on several machines, with the methods of an agent on one. Methods raise BpError."""

    def __init__(self, hub: Hub, machines: Sequence[str], *, is_followed: bool) -> None:
        self._hub, self._machines = hub, machines
        follow = ["--follow"] if is_followed else []
        self._agents = [Agent(hub, name, "start", *([] if rank else follow)) for rank, name in enumerate(machines)]

    def run(self, document: Mapping[str, Any]) -> int:
        """Start the agents, print the output of the first node, and return the exit code.

        The first one is the last: it starts no program before all others have reached it, and they wait for it.
        """
        run, first = str(document["id"]), self._hub.fleet()["machines"][self._machines[0]]["address"]
        shared = {**document, "master": first, "port": _PORTS[crc32(run.encode()) % len(_PORTS)]}
        documents = [{**shared, "rank": rank, "machine": name} for rank, name in enumerate(self._machines)]
        pairs = [*zip(self._agents, documents)]
        with ThreadPoolExecutor(len(pairs)) as pool:
            starts = [pool.submit(agent.run, own) for agent, own in pairs[1:]]
            try:
                wait(starts)
                errors = [error for start in starts if (error := start.exception())]
                if errors:
                    raise errors[0]
            except (BpError, OSError, KeyboardInterrupt) as error:
                self.close()
                self._stop(run)
                raise error if str(error) else BpError("Ctrl-C", "", _INTERRUPTED) from None
        try:
            return self._agents[0].run(documents[0])
        except BpError as error:
            if error.code != PARTLY:
                self._stop(run)
            raise

    def _stop(self, run: str) -> None:
        with suppress(BpError):
            stop_agents(self._hub, run, self._machines[1:], is_now=True)

    def close(self) -> None:
        """End the connections; the run goes on."""
        for agent in self._agents:
            agent.close()


def stop_agents(hub: Hub, run: str, machines: Sequence[str], *, is_now: bool, by: str = "") -> None:
    """Stop a run on each of its machines. Raises BpError unless one of them does: that one tells the others."""

    def stop(machine: str) -> "BpError | None":
        try:
            # ssh joins words, and a shell parts them.
            words = [*(["--now"] if is_now else []), *(["--by", shlex.quote(by)] if by else [])]
            agent = Agent(hub, machine, "stop", shlex.quote(run), *words)
            _, status = agent.call()
        except BpError as error:
            return error
        if status == LOST:
            what = f"{machine} does not answer: {run} is not stopped"
            return BpError(what, f"`bp show {run}` says when it last did")
        return agent.refusal(f"does not stop {run}", status) if status else None

    with ThreadPoolExecutor(max(len(machines), 1)) as pool:
        errors = [*pool.map(stop, machines)]
    if error := None if None in errors else next(iter(errors), None):
        raise error
