"""The capacity controller, round after round: `bedplate capacity run`, and the daemon on members."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bedplate.account.client import AwsClient
from bedplate.account.groups import FleetGroups
from bedplate.capacity.controller import Controller, Metrics, Outcome, Round, log_entry, round_warnings
from bedplate.capacity.planner import Memory, decide
from bedplate.capacity.protocol import memory_document, observation_document, read_memory
from bedplate.errors import BedplateError, InputError, MachineError
from bedplate.files import write_whole
from bedplate.foreign import one_line
from bedplate.kubernetes.client import open_cluster
from bedplate.kubernetes.lease import IDLE, MEMORY, Leadership, StateStore
from bedplate.kubernetes.live import LiveCluster
from bedplate.plan.capacity import CapacityPlan, read_capacity_document
from bedplate.report.queue import queued_work, wait_sentences
from bedplate.rounds import run_round

PERIOD = 30.0
"""Seconds between two rounds."""
_TICK = 10.0


def read_plan(file: Path) -> CapacityPlan:
    """Return the plan of the groups from its file on a member. Raises InputError."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read the plan: {error.strerror}", where=str(file)) from None
    return read_capacity_document(text, str(file))


def check_cluster(capacity: CapacityPlan, file: Path) -> None:
    """Raise InputError if a member has another etcd cluster than the fleet: it would lack the nodes of the fleet."""
    try:
        cluster = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        cluster = ""
    if capacity.etcd and cluster != capacity.etcd:
        what = f"this control plane member has etcd cluster {one_line(cluster) or 'unknown'}, the fleet {capacity.etcd}"
        raise InputError(
            what, where=str(file), fix="run `bedplate kube status`; after a restore `bedplate bundle push`"
        )


def _now() -> float:
    return time.time()


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where rounds are written: entries of the log, notes for an operator, observations, and metrics."""

    log: Callable[[Mapping[str, object]], object]
    note: Callable[[str], object]
    record: Path | None = None
    metrics: Path | None = None


def run_controller(  # noqa: PLR0913  all that a run consists of
    capacity: CapacityPlan,
    account: AwsClient,
    kubeconfig: Path | None,
    outputs: Outputs,
    *,
    once: bool = False,
    is_dry: bool = False,
) -> None:
    """Run rounds until SIGTERM or SIGINT, or one."""
    if kubeconfig is None:
        raise InputError("the controller needs the cluster's API", fix="set KUBECONFIG, or add --kubeconfig FILE")
    groups, cluster = FleetGroups(account, capacity), open_cluster(kubeconfig)
    live = LiveCluster(cluster, time.time(), time.time)
    leader = Leadership(cluster, f"{socket.gethostname()}-{os.getpid()}")
    controller = Controller(groups, decide, Memory(), live, None if is_dry else leader, is_dry=is_dry)
    live.start()
    loop = Loop(controller, outputs, live, StateStore(cluster))
    try:
        if not once:
            loop.run()
        elif loop.run_once() is None:
            outputs.note(f"nothing is done: the controller {leader.holder} acts")
    finally:
        leader.release()
        live.stop()


def last_memory(texts: Mapping[str, str]) -> Memory:
    """Return the memory of the last leader; without it, or from another version, a new memory."""
    with suppress(InputError):
        return read_memory(texts.get(MEMORY, ""))
    return Memory()


@dataclass
class Loop:
    """Rounds until a signal; `live` and `store` belong to the cluster."""

    controller: Controller[Memory]
    outputs: Outputs
    live: LiveCluster
    store: StateStore
    clock: Callable[[], float] = _now

    def __post_init__(self) -> None:
        self.counts = Metrics()
        self._stopped = threading.Event()
        self._leads = False
        self._warnings: tuple[str, ...] = ()

    def run(self) -> None:
        """Run rounds until SIGTERM or SIGINT; a round that cannot observe is reported and tried again."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopped.set())
        while not self._stopped.is_set():
            run_round(self.run_once, self._report_error, fatal=MachineError)
            self._wait()

    def _report_error(self, error: BedplateError) -> None:
        self.counts.errors += 1
        self.outputs.log({"time": round(self.clock(), 1), "error": error.what})
        self._write_metrics()

    def _wait(self) -> None:
        """Wait for the next round, and keep the Lease meanwhile."""
        for _ in range(round(PERIOD / _TICK)):
            if self._stopped.wait(_TICK):
                return
            if self._leads and self.controller.leader:
                self.controller.leader.hold()

    def run_once(self) -> Round | None:
        """Run one round and write its results; return None if another controller is the leader."""
        begun = time.monotonic()
        is_leader = not self.controller.leader or self.controller.leader.hold()
        if is_leader and not self._leads:
            texts = self.store.read()
            self.live.restore(texts.get(IDLE, ""))
            self.controller.memory = last_memory(texts)
        self._leads = is_leader
        result = self.controller.round(self.clock()) if is_leader else None
        self.counts.add(result, time.monotonic() - begun)
        if result:
            self._report(result)
        self._write_metrics()
        return result

    def _report(self, result: Round) -> None:
        now = result.observation.time
        warnings = round_warnings(result)
        if warnings != self._warnings:
            self._log({"time": round(now, 1), "warning": warning} for warning in warnings)
        self._warnings = warnings
        if self.controller.is_dry:
            self._log({**log_entry(Outcome(action), now), "dry_run": True} for action in result.decision.actions)
        else:
            self._log(log_entry(outcome, now) for outcome in result.outcomes)
            self.live.forget_stale_cordons()
            self.store.write({IDLE: self.live.state(), MEMORY: memory_document(self.controller.memory)})
            self._serve_queues(result)
        if self.outputs.record:
            self._append(self.outputs.record, json.dumps(observation_document(result.observation)))

    def _serve_queues(self, result: Round) -> None:
        """Explain queued work to its owners, and let runs start that follow others."""
        sentences = wait_sentences(result.observation, result.decision)
        self.live.note_waits(sentences, queued_work(result.observation).keys())
        now = round(result.observation.time, 1)
        self._log({"time": now, "queue": line} for line in self.live.start_followers())

    def _log(self, entries: Iterable[Mapping[str, object]]) -> None:
        for entry in entries:
            self.outputs.log(entry)

    def _append(self, path: Path, line: str) -> None:
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:
            self.outputs.note(f"warning: cannot write to {path}: {error.strerror}")

    def _write_metrics(self) -> None:
        if self.outputs.metrics:
            write_whole(self.outputs.metrics, self.counts.text().encode())
