"""The coordinator of a run, in the agent of node 0: all nodes start, stop, restart and end together."""

import random
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread, Timer
from typing import NamedTuple, Protocol

from .checkpoints import complete
from .links import BEAT, LOST, AnyLink, Link, Local, Message, cut
from .ranks import AFTER_FAILURE
from .restarts import (
    AGAIN,
    FABRIC,
    MACHINE,
    NO_LEASE,
    NOTICE,
    NOTICED,
    OVER,
    PEER_LOST,
    PROGRAM,
    STOP,
    Cause,
    History,
    Policy,
    Step,
    begin,
    decide,
    first_cause,
    suspects,
)

JOIN = 3_600.0
"""Seconds for all nodes to join: their machines may have to start, and to pull an image."""
# Seconds: for a node to say that its ranks have ended, for a lease of one machine, and for a program to open its
# checkpoint, at least and if the first attempt does not say.
_END, _TURN, _OPEN_LEAST, _OPEN = 90.0, 60.0, 60.0, 600.0
_PAUSES = (5.0, 30.0)


class Settings(NamedTuple):
    """The size and the limits of a run; `seconds` are those of its program, `wait` those for leases of GPUs.

    `is_mpi`: only node 0 has a command, which starts processes on the others.
    """

    nodes: int
    port: int
    token: str
    policy: Policy
    grace: float
    seconds: float
    takes_leases: bool
    wait: float
    is_mpi: bool


class Record(Protocol):
    """What the coordinator needs of the run."""

    def note(self, tags: Mapping[str, str]) -> None:
        """Keep tags for the record."""

    def stopped_by(self) -> str:
        """Return the person who has stopped the run, by its record; empty without one."""

    def free_port(self) -> int:
        """Return a port for the first rank."""

    def pack(self, name: str) -> Path:
        """Return the file of a pack of the run, once it is there. Raises OSError if it is none, or does not come."""


_Item = tuple[int, AnyLink, Message]


class Coordinator:
    """Leads all nodes. `member` is the link of the agent's own node."""

    def __init__(self, gang: Settings, record: Record, history: History) -> None:
        self.gang, self.record, self.history = gang, record, history
        self._inbox, to_member = SimpleQueue[_Item](), SimpleQueue[Message]()
        own = Local(to_member.put, to_member.get)
        self.member = Local(lambda message: self._inbox.put((0, own, message)), to_member.get)
        self.links, self.machines, self.hosts = dict[int, AnyLink](), dict[int, str](), list[str]()
        self.folder = Path(gang.policy.folder)
        self.checkpoints = complete(self.folder)

    def start(self) -> None:
        """Listen for the other nodes, and lead all of them in a thread. Raises OSError."""
        if self.gang.nodes > 1:
            listener = socket.create_server(("", self.gang.port), backlog=self.gang.nodes)
            Thread(target=self._accept, args=(listener,), daemon=True).start()
        for target in (self._lead, self._look):
            Thread(target=target, daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            with suppress(OSError):
                connection, _ = listener.accept()
                Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Pass on the messages of a node. Whoever has not joined in time was none."""
        timer = Timer(LOST, cut, (connection,))
        try:
            with connection:
                timer.start()
                link = Link(connection, self.gang.token, is_coordinator=True)
                message = link.receive()
                timer.cancel()
                if message["type"] == "fetch":
                    link.send_file(self.record.pack(message["pack"]))
                    return
                if message["type"] == "remote":
                    node = self.hosts.index(message["host"])
                    self._inbox.put((node, self.links[node], {**message, "peer": link}))
                    # It says nothing more, and waits for the end of its command.
                    link.receive(None)
                node = int(message["node"])
                if message["type"] != "join" or not 0 < node < self.gang.nodes:
                    return
                with suppress(OSError, ValueError):
                    while True:
                        self._inbox.put((node, link, message))
                        message = link.receive()
                self._inbox.put((node, link, {"type": "lost"}))
        except (OSError, ValueError, LookupError, TypeError):
            timer.cancel()

    def _look(self) -> None:
        """Send signs of life. Checkpoints have their own thread: a file server may not answer."""
        Thread(target=self._look_for_checkpoints, daemon=True).start()
        while True:
            for link in [*self.links.values()]:
                if isinstance(link, Link):
                    with suppress(OSError):
                        link.send("beat")
            time.sleep(BEAT)

    def _look_for_checkpoints(self) -> None:
        while True:
            self.checkpoints = complete(self.folder)
            time.sleep(BEAT)

    def _lead(self) -> None:
        """Lead the run to its end, or to that of these agents. Without an end from here all would wait for ever."""
        try:
            end = self._lead_attempts()
        except Exception as error:  # noqa: BLE001  such as of a history in the record, which colleagues can write
            cause = f"the agent of node 0 has failed: {error!r}"
            self._wait_for_rest(_END)
            self.send("stop", cause=cause, grace=self.gang.grace)
            end = {"is_over": True, "code": 1, "status": 1, "cause": cause, "is_stopped": False}
        self.send("end", **end)
        # Later nodes hear of it, too. This node itself may be one of them, if it fetched its code slowly.
        while True:
            item = self.next(BEAT)
            if item and item[2]["type"] in {"join", "lost"} and (link := self.links.get(item[0])):
                with suppress(OSError):
                    link.send("end", **end)

    def _lead_attempts(self) -> Message:
        """Return how the attempts end."""
        step, kinds, wait = begin(self.history, self.checkpoints, self.gang.policy), frozenset[str](), JOIN
        if self.history.is_open:
            self._note_end(step)
        if step.action == OVER:
            self._wait_for_rest(_END)
        while step.action == AGAIN:
            self.history = replace(step.history, attempt=step.history.attempt + 1)
            event = self._gather(wait)
            if event and event.kind == STOP:
                # A person who stops one node stops them all.
                self._wait_for_rest(LOST if event.code == NOTICED else _END)
            elif not event and self.gang.takes_leases and wait:
                event = self._lease()
            cause, kinds = (event, frozenset({event.kind})) if event else self._live(step)
            if NOTICE in kinds and STOP not in kinds and (person := self.record.stopped_by()):
                cause, kinds = Cause(STOP, NOTICED, f"stopped by {person}"), frozenset({STOP})
            if len(self.links) < self.gang.nodes:
                kinds |= {MACHINE}
            step, wait = decide(self.history, cause, kinds, complete(self.folder), self.gang.policy), 0.0
            self._note_end(step)
        code = step.code if step.action == OVER else NOTICED if NOTICE in kinds else PEER_LOST
        is_over = step.action == OVER
        facts = {"code": code, "status": step.status, "cause": step.text, "is_stopped": step.is_stopped}
        return {"is_over": is_over, **facts}

    def wait_for_others(self, seconds: float) -> None:
        """Wait until the other nodes have left: they have something for the hub, too."""
        end = time.monotonic() + seconds
        while len(self.links) > 1 and time.monotonic() < end:
            time.sleep(BEAT / 10)

    def _live(self, step: Step) -> tuple[Cause, frozenset[str]]:
        """Live through an attempt; return its cause, and the kinds of all that has happened."""
        self.history = replace(self.history, is_open=True)
        # Who is killed from here on leaves a program that may have run.
        history = replace(self.history, has_run=True).text
        tags = {"state": "running", "attempt": str(self.history.attempt), "history": history}
        if self.history.attempt:
            tags[f"restart.{self.history.attempt}"] = step.text
        self.record.note(tags)
        return _Attempt(self, step).live()

    def _note_end(self, step: Step) -> None:
        """Note how an attempt has ended, and the run: the agent after a killed one starts no program again."""
        self.history = step.history
        if step.action == OVER:
            self.history = replace(step.history, cause=step.text, end=(step.code, step.is_own))
        tags = {"history": self.history.text, "suspect": suspects(self.history)}
        tags["checkpoint"] = self.history.newest.partition("/")[2]
        self.record.note({key: value for key, value in tags.items() if value})

    def next(self, seconds: float) -> "_Item | None":
        """Return the next message of a node that is in the gang; None after these seconds."""
        try:
            node, link, message = self._inbox.get(timeout=max(seconds, 0.001))
        except Empty:
            return None
        if message["type"] == "join":
            former = self.links.get(node)
            self.links[node], self.machines[node] = link, message["machine"]
            if former:
                former.close()
                return node, former, {"type": "lost"}
        elif self.links.get(node) is not link:
            return node, link, {"type": "none"}
        elif message["type"] == "lost":
            del self.links[node]
        return node, link, message

    def event_of(self, item: _Item) -> "Cause | None":
        """Return what a message says of the whole gang: a lost node, a notice or a stop."""
        node, link, message = item
        if message["type"] == "lost":
            machine = self.machines[node]
            return Cause(MACHINE, PEER_LOST, f"node {node} ({machine}) was lost", machine, link.heard)
        if message["type"] == "notice":
            kind = STOP if message["is_over"] else NOTICE
            return Cause(kind, message["code"], message["cause"], at=time.monotonic())
        return None

    def find_hosts(self) -> Sequence[str]:
        """Return the address of each node by which the others reach it, if mpirun needs them."""
        ends = {node: link.addresses for node, link in self.links.items() if isinstance(link, Link)}
        self.hosts = [ends[max(node, 1)][node > 0] for node in range(self.gang.nodes)] if self.gang.is_mpi else []
        return self.hosts

    def send(self, kind: str, **facts: object) -> None:
        """Send a message to all nodes; who does not get it is lost."""
        for link in [*self.links.values()]:
            with suppress(OSError):
                link.send(kind, **facts)

    def _gather(self, seconds: float) -> "Cause | None":
        """Wait until all nodes have their code; return why they cannot start."""
        end, nodes = time.monotonic() + seconds, set(range(self.gang.nodes))
        while left := nodes - self.links.keys():
            item = self.next(end - time.monotonic())
            if not item:
                missing = ", ".join(map(str, sorted(left)))
                return Cause(MACHINE, PEER_LOST, f"node {missing} did not join within {seconds / 60:.0f} minutes")
            event = self.event_of(item)
            # A node that is lost before the start may join again.
            if event and event.kind != MACHINE:
                return event
            if item[2]["type"] == "join" and item[2]["error"]:
                return Cause(STOP, item[2]["code"], item[2]["error"])
        return None

    def _wait_for_rest(self, seconds: float) -> None:
        """Wait for nodes that have not joined: they hear of the end, and do not wait for a start."""
        end = time.monotonic() + seconds
        while len(self.links) < self.gang.nodes and time.monotonic() < end:
            self.next(end - time.monotonic())

    def _lease(self) -> "Cause | None":
        """Let one node after another wait for its GPUs; if one has none in time, all release them, and begin again.

        The order is that of the nodes, so of the names of machines: two gangs do not wait for each other without end.
        """
        end = time.monotonic() + self.gang.wait
        while True:
            for node in range(self.gang.nodes):
                with suppress(OSError):
                    self.links[node].send("lease", seconds=_TURN)
                while not (item := self.next(BEAT)) or item[2]["type"] != "leased":
                    if item and (event := self.event_of(item)):
                        return event
                if not item[2]["is_leased"]:
                    break
            else:
                return None
            self.send("release")
            if time.monotonic() > end:
                return Cause(STOP, NO_LEASE, f"no GPUs were free in time on {self.machines[node]}")
            pause = time.monotonic() + random.uniform(*_PAUSES)  # noqa: S311  no secret
            while time.monotonic() < pause:
                if (item := self.next(pause - time.monotonic())) and (event := self.event_of(item)):
                    return event


class _Attempt:
    """One attempt on all nodes: what happens in it until all ranks have ended."""

    def __init__(self, coordinator: Coordinator, step: Step) -> None:
        self._lead, self._gang, self._resume = coordinator, coordinator.gang, step.resume
        self._left, self._starting = (set(range(self._gang.nodes)) for _ in range(2))
        self._ends, self._events, self._failed = list[Cause](), list[Cause](), dict[int, tuple[float, float]]()
        self._began = self._deadline = float("inf")
        # Of MPI: who waits for the end of a rank, and the next rank of each node.
        self._peers, self._ranks = dict[int, Link](), [self._gang.nodes, *range(1, self._gang.nodes)]
        # Of the newest checkpoint: the last look may be older than the end of the former attempt.
        self._known = int(coordinator.history.newest.partition("/")[0] or 0)
        # An attempt that begins from the beginning has nothing to open.
        is_checked = step.resume and coordinator.history.attempt and not self._gang.policy.is_scratch_ok
        self._ignored_at = float("inf") if is_checked else None

    def live(self) -> tuple[Cause, frozenset[str]]:
        """Return the cause of the end, and the kinds of all events."""
        number, port = self._lead.history.attempt, self._lead.record.free_port()
        self._lead.send("start", attempt=number, port=port, resume=self._resume, hosts=self._lead.find_hosts())
        while self._left:
            if item := self._lead.next(BEAT):
                self._take(item, time.monotonic())
            self._check(time.monotonic())
        used = max(time.monotonic() - self._began, 0.0)
        self._lead.history = replace(self._lead.history, used=self._lead.history.used + used)
        return first_cause(self._ends, self._events), frozenset(event.kind for event in self._events)

    def _take(self, item: _Item, now: float) -> None:
        node, _, message = item
        kind, event = message["type"], self._lead.event_of(item)
        # A node whose ranks have ended may go.
        if event and (kind != "lost" or node in self._left):
            # The command on node 0 has ended: what happens on its hosts changes nothing.
            if not (self._gang.is_mpi and 0 not in self._left):
                self._events.append(event)
            self._stop(event.text, message.get("grace", AFTER_FAILURE), now)
            if kind == "lost":
                self._left.discard(node)
        elif kind == "failed":
            self._failed[node] = now, message["elapsed"]
            self._stop(message["cause"], AFTER_FAILURE, now)
        elif kind == "started":
            self._start(node, now)
        elif kind == "opened":
            self._ignored_at = None
        elif kind == "remote":
            self._start_remote(node, message)
        elif kind == "done" and (peer := self._peers.get(message["rank"])):
            with suppress(OSError):
                peer.send("done", code=message["code"])
        elif kind == "ended":
            self._end(node, message, now)

    def _start(self, node: int, now: float) -> None:
        self._starting.discard(node)
        self._lead.history = replace(self._lead.history, has_run=True)
        if not self._starting:
            self._began = now
            if self._ignored_at:
                first = self._lead.history.first
                self._ignored_at = now + (max(_OPEN_LEAST, 2 * first) if first else _OPEN)

    def _start_remote(self, node: int, message: Message) -> None:
        """Let a node start what mpirun asks for, unless the attempt is being stopped."""
        if self._deadline == float("inf"):
            rank, self._ranks[node] = self._ranks[node], self._ranks[node] + self._gang.nodes
            self._peers[rank] = message["peer"]
            with suppress(OSError):
                self._lead.links[node].send("remote", rank=rank, command=message["command"])

    def _end(self, node: int, message: Message, now: float) -> None:
        """Take the ends of a node's ranks. Its clock is not compared: only seconds between its ends count."""
        self._left.discard(node)
        if self._gang.is_mpi and not node:
            self._stop("the program has ended", AFTER_FAILURE, now)
        machine, tags = self._lead.machines[node], dict[str, str]()
        at, elapsed = self._failed.get(node, (now, None))
        for rank, code, text, kind, seconds, is_torn_down in message["ranks"]:
            when = at if elapsed is None else at + seconds - elapsed
            cause = text.replace("the program", f"the program of node {node}", 1) if self._gang.nodes > 1 else text
            # mpirun prints what all ranks do: errors that name a peer may be those of victims.
            own = PROGRAM if self._gang.is_mpi and kind == FABRIC else kind
            self._ends.append(Cause(own, code, cause, at=when, is_torn_down=is_torn_down))
            name = f"{self._lead.history.attempt}.{rank}"
            tags.update({f"exit.{name}": str(code), f"cause.{name}": cause})
        # What fails on a host of MPI ends the command of node 0.
        if self._gang.is_mpi and node and message["is_out_of_memory"] and (first := self._failed.get(0)):
            text = f"the program of node {node} was out of memory: the kernel has killed a process"
            # Before the end of mpirun, which is its effect.
            self._ends.append(Cause(PROGRAM, 137, text, at=first[0] - 1.0))
        if message["gpu_error"] and (failed := self._failed.get(node) or (self._gang.is_mpi and self._failed.get(0))):
            text, codes = f"GPU error on {machine}: {message['gpu_error']}", [rank[1] for rank in message["ranks"]]
            self._events.append(Cause(MACHINE, next(filter(None, codes), PEER_LOST), text, machine, failed[0]))
        self._lead.record.note(tags)

    def _stop(self, cause: str, grace: float, now: float) -> None:
        grace = min(grace, self._gang.grace)
        self._deadline = min(self._deadline, now + grace + _END)
        self._lead.send("stop", cause=cause, grace=grace)

    def _check(self, now: float) -> None:
        """End what takes too long: the program, a node that does not end, and a program that ignores its checkpoint."""
        if now > self._deadline:
            for node in self._left & self._lead.links.keys():
                self._lead.links[node].close()
        history, newest = self._lead.history, next(iter(self._lead.checkpoints), None)
        if newest and newest.stamp > self._known:
            self._known, used = newest.stamp, max(now - self._began, 0.0)
            self._lead.history = history = replace(history, first=history.first or max(used, BEAT))
            # A killed agent counts nothing any more.
            kept = replace(history, used=history.used + used, has_run=True).text
            self._lead.record.note({"checkpoint": newest.name, "history": kept})
            # The message of the one that has opened it may be on its way.
            self._ignored_at = self._ignored_at and min(self._ignored_at, now + 2 * BEAT)
        if now - self._began + history.used > self._gang.seconds:
            self._began = float("inf")
            self._lead.history = replace(history, used=self._gang.seconds)
            self._ask(Cause(STOP, NOTICED, "stopped: its time was over", at=now))
        if self._ignored_at and now > self._ignored_at:
            self._ignored_at = None
            text = f"attempt {history.attempt} has not opened checkpoint {self._resume}: stopped, so that it does not"
            text += " begin from scratch; open $BEDPLATE_RESUME, touch $BEDPLATE_RESUMED, or allow it by --scratch-ok"
            self._ask(Cause(STOP, 1, text, at=now))

    def _ask(self, event: Cause) -> None:
        self._events.append(event)
        self._stop(event.text, self._gang.grace, event.at)
