"""The run of an order: each node's plan, changes and confirmation, all nodes at the same time.

A node run logs in, lets the roles declare their operations, checks the disk space, and carries out the operations that
would change something. Events go to the operator's process as lines of JSON.
"""

import logging
import os
import resource
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from time import monotonic, sleep
from typing import IO, BinaryIO

import gevent
from gevent.lock import Semaphore
from gevent.os import make_nonblocking, nb_read
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import State, StateStage
from pyinfra.context import ctx_host, ctx_state

from bedplate.errors import BedplateError
from bedplate.nodes.apply import ApplyRequest, Event, NodeError, NodeErrorKind, Step, error_event
from bedplate.nodes.remote import LOGIN_DENIED
from bedplate.plan.nodes import NodePlan
from roles.base import DiskSpace, Role, deploy
from roles.catalog import roles_of
from roles.engine.connection import BY_HAND, AgentOptions, Connection, operation_error
from roles.engine.connector import (
    CommandFailed,
    NodeHost,
    build_state,
    count_as_change,
    dry_run,
    name_of,
    use_state_per_greenlet,
)

_FOLDERS = ("/usr", "/var", "/tmp", "/run")  # noqa: S108  where programs write
DISK_SPACE = f"df --portability --block-size=1M {' '.join(_FOLDERS)}"
# For any change: a file is written beside the one it replaces. systemd reloads units only with 16 MiB of /run free.
# Source: systemd 252, RELOAD_DISK_SPACE_MIN.
_MINIMUM, _RUNTIME = DiskSpace(8, 8, 8), 16


def disk_space_error(output: str, needs: Iterable[DiskSpace]) -> NodeError | None:
    """Return the error of a node with too little space, from the output of `DISK_SPACE`; None if df is unreadable."""
    rows = [line.split() for line in output.splitlines()[1:]]
    if [len(row) for row in rows] != [6] * len(_FOLDERS):
        return None
    needs = (_MINIMUM, *needs)
    amounts = (
        sum(need.programs for need in needs),
        sum(need.state for need in needs),
        sum(need.temporary for need in needs),
        _RUNTIME,
    )
    free = {row[5]: int(row[3]) for row in rows}
    needed: dict[str, int] = {}
    for row, amount in zip(rows, amounts, strict=True):
        needed[row[5]] = needed.get(row[5], 0) + amount
    return _error_of({mount: (free[mount], amount) for mount, amount in needed.items() if free[mount] < amount})


def _error_of(short: Mapping[str, tuple[int, int]]) -> NodeError | None:
    if not short:
        return None
    words = "; ".join(
        f"{mount} has {free:,} MiB free, {amount:,} MiB required" for mount, (free, amount) in short.items()
    )
    fix = f"free disk space (`sudo du -xm {' '.join(short)} | sort -n | tail`) or enlarge the disk, then apply again"
    return NodeError(NodeErrorKind.REFUSED, f"not enough disk space, nothing was changed: {words}", fix)


Report = Callable[[Event], None]
# How long to retry the second login, of the 120 s until an unconfirmed change is reverted: sshd accepts no connection
# for a moment while it reloads.
LOGIN_RETRIES = 20.0


@dataclass
class NodeRun:
    """The run of an order on one node; `report` gets each event."""

    state: State
    host: NodeHost
    report: Report
    roles: Callable[[NodePlan], tuple[Role, ...]]
    started: float = field(default_factory=monotonic)
    only: frozenset[str] | None = None
    """The names of the selected roles; None for all."""
    stages: frozenset[str] | None = None
    """The selected stages; None for all."""
    installs: tuple[tuple[Role, frozenset[str]], ...] = ()
    """Each role with the keys of the operations that its `install` declared."""
    deferred: dict[str, NodeError] = field(default_factory=dict)
    """The errors of operations that no other operation depends on, by the operation's name."""

    def connect(self, is_stopped: Callable[[], bool]) -> None:
        """Log in. Raises NodeError."""
        self._check_stopped(is_stopped)
        self.host.connect()
        self.state.activate_host(self.host)
        self.host.connector.report = lambda words: self._report(Step.NOTE, words=words)
        self._report(Step.OPENED)

    def close(self) -> None:
        """Close the connection."""
        if self.host.connected:
            self.host.disconnect()

    def plan(self, only: frozenset[str] | None, stages: frozenset[str] | None = None) -> None:
        """Let the roles read the node's state and declare their operations. Raises NodeError."""
        self.only, self.stages = only, stages
        with ctx_host.use(self.host):
            self._raise_as_node_error("Read the node's state", self._deploy)

    def changes(self) -> tuple[str, ...]:
        """Return the keys of the operations that would change something now."""
        with ctx_host.use(self.host):
            return dry_run(self.state, self.host, self.host.connector.connection.unfinished)

    def check(self) -> None:
        """Report what would change."""
        changes = self.changes()
        for key in changes:
            self._report(Step.OPERATION, name=name_of(self.state, self.host, key))
        self._report_done(len(changes))

    def apply(self, is_stopped: Callable[[], bool]) -> None:
        """Carry out the operations if there is disk space. Raises NodeError, for deferred errors after the last one."""
        changes = self.changes()
        if not changes:
            self._report_done(0)
            return
        self._check_disk_space(changes)
        with ctx_host.use(self.host):
            changed = sum([self._run_operation(key, is_stopped) for key in list(self.host.op_hash_order)])
        self.host.connector.connection.finish(self._finished())
        for error in self.deferred.values():
            raise error
        self._report_done(changed)

    def _deploy(self) -> None:
        self.installs = deploy(self.roles(self.host.data.node), only=self.only, stages=self.stages)

    def _check_disk_space(self, changes: Collection[str]) -> None:
        """Raise NodeError if the disk lacks the space declared by the roles that have something to install."""
        needs = [role.space for role, keys in self.installs if not keys.isdisjoint(changes)]
        error = disk_space_error(self.host.connector.query(DISK_SPACE).out, needs)
        if error:
            raise error

    def _finished(self) -> tuple[str, ...] | None:
        """Return the names of the operations that are done; None means all, also those of earlier applies."""
        if self.only is None and self.stages is None and not self.deferred:
            return None
        names = (name_of(self.state, self.host, key) for key in self.host.op_hash_order)
        return tuple(name for name in names if name not in self.deferred)

    def _run_operation(self, key: str, is_stopped: Callable[[], bool]) -> bool:
        """Carry out one operation; return whether it changed anything."""
        self._check_stopped(is_stopped)
        connector, name = self.host.connector, name_of(self.state, self.host, key)
        connector.operation, connector.error_output = name, ""
        self._report(Step.BEGINS, name=name)
        succeeded = self._raise_as_node_error(name, lambda: run_host_op(self.state, self.host, key))
        if not succeeded:
            raise operation_error(self.host.name, name, connector.error_output)
        meta = self.state.get_op_data_for_host(self.host, key).operation_meta
        if meta.did_error():
            self.deferred[name] = operation_error(self.host.name, name, connector.error_output)
        changed = meta.did_change()
        if changed:
            self._report(Step.OPERATION, name=name)
        elif name in connector.connection.unfinished:
            count_as_change(meta)
        if connector.unconfirmed:
            self._confirm(name)
        return changed

    def _raise_as_node_error(self, operation: str, act: Callable[[], object]) -> object:
        try:
            return act()
        except CommandFailed:
            raise operation_error(self.host.name, operation, self.host.connector.error_output) from None
        except PyinfraError as error:
            raise NodeError(NodeErrorKind.FAILED, f"{operation}: {error}", BY_HAND) from None

    def _confirm(self, name: str) -> None:
        """Log in again over a new connection, and confirm the change that an operation made."""
        options: AgentOptions = replace(self.host.data.options, lock="none")
        try:
            connection = self._login_again(options)
        except NodeError as error:
            what = f"{name}: no login is possible after this change ({error.what})"
            fix = "the node reverts the change within two minutes; correct the firewall rules or keys in the fleet file"
            raise NodeError(NodeErrorKind.FAILED, what, fix) from None
        try:
            scripts = f"{options.folder}/unconfirmed"
            result = connection.run(f'set -- {scripts}; for script in $1/*; do "$script" || exit; done')
        finally:
            connection.close()
        if result.status:
            raise operation_error(self.host.name, f"{name}: confirm the change", result.err)
        self.host.connector.unconfirmed = False

    def _login_again(self, options: AgentOptions) -> Connection:
        deadline = monotonic() + LOGIN_RETRIES
        while True:
            try:
                return Connection(self.host.name, self.host.data.confirm or self.host.data.argv, options)
            except NodeError as error:
                # After three denied logins OpenSSH 9.8 and later refuses the operator's address for a while
                # (PerSourcePenalties).
                if error.what == LOGIN_DENIED or monotonic() > deadline:
                    raise
                sleep(LOGIN_RETRIES / 40)

    def _report_done(self, changed: int) -> None:
        total, seconds = len(self.host.op_hash_order), monotonic() - self.started
        self.report(Event(self.host.name, Step.DONE, changed=changed, unchanged=total - changed, seconds=seconds))

    def _report(self, step: Step, *, name: str = "", words: str = "") -> None:
        self.report(Event(self.host.name, step, name=name, words=words))

    def _check_stopped(self, is_stopped: Callable[[], bool]) -> None:
        if is_stopped():
            raise NodeError(
                NodeErrorKind.STOPPED, "interrupted between two operations", "apply again: it continues there"
            )


def stopped_before_changes() -> NodeError:
    """Return the error of a node that was interrupted while its state was read."""
    return NodeError(NodeErrorKind.STOPPED, "interrupted before any change", "apply again")


# A login costs CPU time: more of them at once make each slower.
_PARALLEL_LOGINS = 32
_OPEN_FILES = 65536


def run_request(
    order: ApplyRequest,
    stopping: BinaryIO,
    out: IO[str],
    roles: Callable[[NodePlan], tuple[Role, ...]] = roles_of,
) -> None:
    """Run an order. Each event is a line on `out`; end of file on `stopping` stops the run."""
    _silence_pyinfra()
    use_state_per_greenlet()

    def report(event: Event) -> None:
        out.write(event.line() + "\n")
        out.flush()

    run = _Run(order, report)
    listener = gevent.spawn(_wait_for_stop, stopping, run)
    gevent.sleep(0)
    options = AgentOptions("shared" if order.check else "alone", order.holder, folder=order.folder, memory=order.memory)
    states = [build_state(target, options) for target in order.targets]
    node_runs = [NodeRun(state, state.node, report, roles) for state in states]
    gevent.joinall([gevent.spawn(run.run_node, node_run) for node_run in node_runs])
    listener.kill()


@dataclass
class _Run:
    """The run of an order on all its nodes; no node waits for another."""

    order: ApplyRequest
    report: Report
    stopped: Flag = field(default_factory=Flag)
    logins: Semaphore = field(default_factory=lambda: Semaphore(_PARALLEL_LOGINS))
    planning: "set[gevent.Greenlet]" = field(default_factory=set)
    """The greenlets of nodes that have changed nothing so far."""

    def run_node(self, node_run: NodeRun) -> None:
        """Run one node, from its login to its last operation."""
        with ctx_state.use(node_run.state):
            try:
                self._plan(node_run)
                self._apply(node_run)
            except Exception as error:  # noqa: BLE001  an error of one node must not end the others
                event = error_event(node_run.host.name, _to_node_error(error))
                self.report(replace(event, seconds=monotonic() - node_run.started))
            finally:
                node_run.close()

    def stop(self) -> None:
        """Start no more operations, and end the nodes that have changed nothing."""
        self.stopped.set()
        for greenlet in self.planning:
            greenlet.kill(stopped_before_changes(), block=False)

    def _plan(self, node_run: NodeRun) -> None:
        self.planning.add(gevent.getcurrent())
        try:
            node_run.state.set_stage(StateStage.Prepare)
            with self.logins:
                node_run.connect(self.stopped.is_set)
            node_run.plan(self.order.only, self.order.stages)
        finally:
            self.planning.discard(gevent.getcurrent())

    def _apply(self, node_run: NodeRun) -> None:
        node_run.state.set_stage(StateStage.Execute)
        node_run.state.is_executing = not self.order.check
        if self.order.check:
            node_run.check()
        else:
            node_run.apply(self.stopped.is_set)


def _to_node_error(error: Exception) -> NodeError:
    if isinstance(error, NodeError):
        return error
    if isinstance(error, BedplateError):
        return NodeError(NodeErrorKind.FAILED, error.what, error.fix)
    if os.environ.get("BEDPLATE_TRACEBACK") == "1":
        traceback.print_exception(error)
    return NodeError(
        NodeErrorKind.DEFECT, f"{type(error).__name__}: {error}", "please report it: this is a bug in bedplate"
    )


def _silence_pyinfra() -> None:
    """Discard pyinfra's log, and raise the limit of open files: each node needs several."""
    log = logging.getLogger("pyinfra")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OPEN_FILES, hard_limit), hard_limit))


def _wait_for_stop(stopping: BinaryIO, run: _Run) -> None:
    """Stop the run at the end of our input; a plain read would block every greenlet."""
    make_nonblocking(stopping.fileno())
    nb_read(stopping.fileno(), 1)
    run.stop()
