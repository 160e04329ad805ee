"""The commands around the controller of capacity: status, explain, run, pause, resume."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bedplate.account.client import open_client
from bedplate.account.groups import FleetGroups
from bedplate.capacity.controller import Controller, Metrics, Outcome, Round, log_entry, round_warnings
from bedplate.capacity.observation import Decision
from bedplate.capacity.planner import Memory, decide
from bedplate.capacity.protocol import memory_document, observation_document, read_memory
from bedplate.capacity.shrink import end_unused, split_people
from bedplate.catalog import load_catalog
from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.output import DEFAULT_FLEET, FleetFile, FleetOption, Json, notify, show, show_document
from bedplate.cluster.client import open_cluster
from bedplate.cluster.lease import IDLE, MEMORY, Leadership, StateStore, read_holder
from bedplate.cluster.live import LiveCluster
from bedplate.errors import BedplateError, InputError, MachineError, nearest, nearest_fix
from bedplate.files import login_name, write_whole
from bedplate.foreign import one_line
from bedplate.plan import FleetPlan
from bedplate.plan.capacity import CapacityPlan, capacity_plan, read_capacity_document
from bedplate.report.capacity_state import (
    CapacityState,
    explain_group,
    explain_pod,
    status_document,
    status_lines,
)
from bedplate.rounds import run_round
from bedplate.spec.sites import Use

PERIOD = 30.0
"""Seconds between two rounds."""
_TICK = 10.0

Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", metavar="FILE", envvar="KUBECONFIG", help="How to reach the cluster's API."),
]
Group = Annotated[str | None, typer.Argument(metavar="[GROUP]", help="A group of the fleet file. Default: all.")]


def status(fleet: FleetFile = DEFAULT_FLEET, *, kubeconfig: Kubeconfig = None, as_json: Json = False) -> int:
    """Show the machines of each rung, and whether it can have more.

    Without a kubeconfig, pods and nodes are not read.
    """
    state = _read_state(plan_of(fleet), kubeconfig)
    if as_json:
        show_document(status_document(state))
    else:
        show(status_lines(state))
    return 0


def explain(
    name: Annotated[str | None, typer.Argument(metavar="[GROUP|POD]", help="A group, or NAMESPACE/POD.")] = None,
    *,
    kubeconfig: Kubeconfig = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Explain in sentences what each rung does, what happens next, and why."""
    plan = plan_of(fleet)
    groups = tuple(dict.fromkeys(pool.group for pool in plan.pools))
    if name is not None and "/" in name and kubeconfig is None:
        raise InputError(f"{name}: pods are not known without a kubeconfig", fix="set KUBECONFIG, or add --kubeconfig")
    if name is not None and "/" not in name and name not in groups:
        raise _unknown_name(name, groups)
    state = _read_state(plan, kubeconfig)
    pods = {pod.id: pod for pod in state.observation.pods}
    if name is None:
        for number, group in enumerate(state.groups):
            show([*([""] if number else []), *explain_group(state, group)])
    elif name in state.groups:
        show(explain_group(state, name))
    elif name in pods:
        show(explain_pod(state, pods[name]))
    else:
        raise _unknown_name(name, tuple(pods))
    return 0


def _unknown_name(name: str, names: tuple[str, ...]) -> InputError:
    fix = nearest_fix(name, names)
    if "/" in name and nearest(name, names) is None:
        fix = "`kubectl get pods -A` lists all"
    return InputError(f"no group or pod named {name}", fix=fix)


def pause(group: Group = None, *, fleet: FleetOption = DEFAULT_FLEET) -> int:
    """Let the controller leave a group alone: it starts and ends nothing there."""
    show(f"paused {name}" for name in _groups_of(fleet, group).pause(group, login_name()))
    return 0


def resume(group: Group = None, *, fleet: FleetOption = DEFAULT_FLEET) -> int:
    """Continue the controller's work after `capacity pause`."""
    show(f"resumed {name}" for name in _groups_of(fleet, group).resume(group))
    return 0


def _groups_of(fleet: Path, group: str | None) -> FleetGroups:
    plan = plan_of(fleet)
    capacity = capacity_plan(plan, load_catalog())
    names = tuple(dict.fromkeys(pool.group for pool in capacity.pools))
    if not names:
        raise _no_groups()
    if group is not None and group not in names:
        if group in {pool.group for pool in plan.pools}:
            what = f"the controller does not manage {group}: it has neither `use: kubernetes` nor `idle`"
            raise InputError(what, fix=f"add `idle` to {group}, or write one of {', '.join(names)}")
        raise InputError(f"no group named {group}", fix=nearest_fix(group, names))
    return FleetGroups(open_account(plan), capacity)


def _read_state(plan: FleetPlan, kubeconfig: Path | None) -> CapacityState:
    """Read AWS, and the cluster if there is a kubeconfig, and print decisions without acting."""
    groups = FleetGroups(open_account(plan), capacity_plan(plan, load_catalog(), *Use))
    observation = groups.observe(time.time())
    if kubeconfig is None:
        people, _ = split_people(observation)
        return CapacityState(observation, Decision(tuple(end_unused(people))), groups.paused, has_cluster=False)
    client = open_cluster(kubeconfig)
    live = LiveCluster(client, time.time(), time.time)
    texts = StateStore(client).read()
    live.restore(texts.get(IDLE, ""))
    observation = live.observe_once(observation)
    workers = frozenset(pool.name for pool in plan.pools if pool.use is Use.KUBERNETES)
    # A pod that the controller has reported is explained again.
    decision, memory = decide(observation, replace(_memory(texts), reported=frozenset()))
    leader = read_holder(client)
    live.stop()
    return CapacityState(observation, decision, groups.paused, leader, workers=workers, breakers=memory.breakers)


def _memory(texts: Mapping[str, str]) -> Memory:
    """Return the memory of the last leader; without it, or from another version, a new memory."""
    with suppress(InputError):
        return read_memory(texts.get(MEMORY, ""))
    return Memory()


def run(  # noqa: PLR0913  each is an option of the command line
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    once: Annotated[bool, typer.Option("--once", help="One round, then end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide and print, change nothing.")] = False,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Append each observation as a JSON line.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="The plan on a member, instead of FLEET.")
    ] = None,
    etcd_cluster: Annotated[
        Path | None, typer.Option("--etcd-cluster", metavar="FILE", help="The id of the etcd cluster of this member.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option("--metrics", metavar="FILE", help="File of metrics for the node exporter.")
    ] = None,
) -> int:
    """Run the controller: start and end machines as pods need them.

    It also ends machines for SSH that nobody uses. Prints one JSON line for each action, with its reason. Of several
    controllers one acts.
    """
    capacity, client = _plan_and_account(plan_file, fleet)
    if etcd_cluster:
        _check_cluster(capacity, etcd_cluster)
    outputs = Outputs(record, metrics)
    if kubeconfig is None:
        return _run_without_cluster(FleetGroups(client, capacity), outputs, once=once, is_dry=dry_run)
    cluster = open_cluster(kubeconfig)
    live = LiveCluster(cluster, time.time(), time.time)
    leader = Leadership(cluster, f"{socket.gethostname()}-{os.getpid()}")
    groups = FleetGroups(client, capacity)
    controller = Controller(
        cloud=groups,
        decide=decide,
        memory=Memory(),
        workloads=live,
        leader=None if dry_run else leader,
        is_dry=dry_run,
    )
    live.start()
    loop = Loop(controller, outputs, live, StateStore(cluster))
    try:
        if not once:
            return loop.run()
        if loop.run_once() is None:
            notify([f"nothing is done: the controller {leader.holder} acts"])
        return 0
    finally:
        leader.release()
        live.stop()


def _check_cluster(capacity: CapacityPlan, file: Path) -> None:
    """Raise InputError if a member has another etcd cluster than the fleet: it would lack the nodes of the fleet."""
    try:
        cluster = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        cluster = ""
    if capacity.etcd and cluster != capacity.etcd:
        what = f"this member has etcd cluster {one_line(cluster) or 'unknown'}, and the fleet has {capacity.etcd}"
        raise InputError(
            what, where=str(file), fix="run `bedplate kube status`; after a restore `bedplate bundle push`"
        )


def _run_without_cluster(groups: FleetGroups, outputs: "Outputs", *, once: bool, is_dry: bool) -> int:
    """Run the controller of a fleet that has no Kubernetes workers."""
    if any(not pool.is_ssh for pool in groups.plan.pools):
        raise InputError("the controller needs the cluster's API", fix="set KUBECONFIG, or add --kubeconfig FILE")
    controller = Controller(groups, decide, Memory(), is_dry=is_dry)
    loop = Loop(controller, outputs)
    if not once:
        return loop.run()
    loop.run_once()
    return 0


def _no_groups() -> InputError:
    fix = "add `idle: 2h` to a group with `use: ssh`, to end machines that nobody uses"
    return InputError("no group of the fleet file has `use: kubernetes` or `idle`", fix=fix)


def _plan_and_account(plan_file: Path | None, fleet: Path) -> tuple[CapacityPlan, Any]:
    if plan_file:
        try:
            text = plan_file.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot read the plan: {error.strerror}", where=str(plan_file)) from None
        return read_capacity_document(text, str(plan_file)), open_client()
    plan = plan_of(fleet)
    capacity = capacity_plan(plan, load_catalog())
    if not capacity.pools:
        raise _no_groups()
    return capacity, open_account(plan)


def _now() -> float:
    return time.time()


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where rounds are written: observations, and metrics."""

    record: Path | None
    metrics: Path | None


@dataclass
class Loop:
    """Rounds until a signal; `live` and `store` belong to the cluster, if the fleet has one."""

    controller: Controller[Memory]
    outputs: Outputs
    live: LiveCluster | None = None
    store: StateStore | None = None
    clock: Callable[[], float] = _now

    def __post_init__(self) -> None:
        self.counts = Metrics()
        self._stopped = threading.Event()
        self._leads = False
        self._warnings: tuple[str, ...] = ()

    def run(self) -> int:
        """Run rounds until SIGTERM or SIGINT; a round that cannot observe is reported and tried again."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stopped.set())
        while not self._stopped.is_set():
            run_round(self.run_once, self._report_error, fatal=MachineError)
            self._wait()
        return 0

    def _report_error(self, error: BedplateError) -> None:
        self.counts.errors += 1
        show([json.dumps({"time": round(self.clock(), 1), "error": error.what})])
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
        if self.live and self.store and is_leader and not self._leads:
            texts = self.store.read()
            self.live.restore(texts.get(IDLE, ""))
            self.controller.memory = _memory(texts)
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
            show(json.dumps({"time": round(now, 1), "warning": warning}) for warning in warnings)
        self._warnings = warnings
        if self.controller.is_dry:
            show(json.dumps({**log_entry(Outcome(action), now), "dry_run": True}) for action in result.decision.actions)
        else:
            show(json.dumps(log_entry(outcome, now)) for outcome in result.outcomes)
            if self.live and self.store:
                self.live.forget_stale_cordons()
                self.store.write({IDLE: self.live.state(), MEMORY: memory_document(self.controller.memory)})
        if self.outputs.record:
            _append(self.outputs.record, json.dumps(observation_document(result.observation)))

    def _write_metrics(self) -> None:
        if self.outputs.metrics:
            write_whole(self.outputs.metrics, self.counts.text().encode())


def _append(path: Path, line: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    except OSError as error:
        notify([f"warning: cannot write to {path}: {error.strerror}"])
