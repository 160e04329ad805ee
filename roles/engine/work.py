"""The work on one node: plan what is to change, change it, and let a change that might shut us out be confirmed."""

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
from bedplate.nodes.apply import Event, Kind, Order, Step, Trouble, trouble_of
from bedplate.plan.nodes import NodePlan
from roles.base import DiskSpace, Role, deploy
from roles.catalog import roles_of
from roles.engine.connection import BY_HAND, Line, Opening, work_trouble
from roles.engine.connector import Lost, NodeHost, assemble, count_as_change, foretell, name_of, stand_apart

_FOLDERS = ("/usr", "/var", "/tmp", "/run")  # noqa: S108  where programs write
ASK = f"df --portability --block-size=1M {' '.join(_FOLDERS)}"
# Any change: files are written beside those that they replace. systemd reads units only while 16 MiB of /run are free.
# Source: systemd 252, RELOAD_DISK_SPACE_MIN.
_LEAST, _RUNTIME = DiskSpace(8, 8, 8), 16


def lack_of_space(told: str, needs: Iterable[DiskSpace]) -> Trouble | None:
    """Return why the node has too little space, from the output of `ASK`; None if it has enough or df is unreadable."""
    rows = [line.split() for line in told.splitlines()[1:]]
    if [len(row) for row in rows] != [6] * len(_FOLDERS):
        return None
    needs = (_LEAST, *needs)
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
    return _disk_space_trouble(
        {mount: (free[mount], amount) for mount, amount in needed.items() if free[mount] < amount}
    )


def _disk_space_trouble(short: Mapping[str, tuple[int, int]]) -> Trouble | None:
    if not short:
        return None
    words = "; ".join(
        f"{mount} has {free:,} MiB free, {amount:,} MiB required" for mount, (free, amount) in short.items()
    )
    fix = f"free disk space (`sudo du -xm {' '.join(short)} | sort -n | tail`) or enlarge the disk, then apply again"
    return Trouble(Kind.REFUSED, f"not enough disk space, nothing was changed: {words}", fix)


Tell = Callable[[Event], None]
# Seconds for which it is tried to come in anew, of the 120 that a change on trial has: sshd takes nobody for a moment
# while it reads its settings.
KNOCKING = 20.0


@dataclass
class Work:
    """One node's share of an order; `tell` is given each event."""

    state: State
    host: NodeHost
    tell: Tell
    roles: Callable[[NodePlan], tuple[Role, ...]]
    began: float = field(default_factory=monotonic)
    only: frozenset[str] | None = None
    """The roles that are wanted; None for all."""
    installs: tuple[tuple[Role, frozenset[str]], ...] = ()
    """Each role with the keys of the operations that its install declared."""
    behind: dict[str, Trouble] = field(default_factory=dict)
    """What failed of that which nothing else waits for, by the name of its operation."""

    def open(self, is_stopped: Callable[[], bool]) -> None:
        """Log in; raises Trouble."""
        self._heed(is_stopped)
        self.host.connect()
        self.state.activate_host(self.host)
        self.host.connector.tell = lambda words: self._tell(Step.NOTE, words=words)
        self._tell(Step.OPENED)

    def close(self) -> None:
        """Hang up."""
        if self.host.connected:
            self.host.disconnect()

    def plan(self, only: frozenset[str] | None) -> None:
        """Let the roles look at the node and say what is to be; raises Trouble."""
        self.only = only
        with ctx_host.use(self.host):
            self._guarded("looking at it", self._deploy)

    def changes(self) -> tuple[str, ...]:
        """Return the keys of the operations that would change something now."""
        with ctx_host.use(self.host):
            return foretell(self.state, self.host, self.host.connector.line.unfinished)

    def check(self) -> None:
        """Tell what would change."""
        changes = self.changes()
        for key in changes:
            self._tell(Step.OPERATION, name=name_of(self.state, self.host, key))
        self._end(len(changes))

    def carry_out(self, is_stopped: Callable[[], bool]) -> None:
        """Do what is to be done where there is room; raises Trouble at a failure, or at the end if nothing waits."""
        changes = self.changes()
        if not changes:
            self._end(0)
            return
        self._check_disk_space(changes)
        with ctx_host.use(self.host):
            changed = sum([self._one(key, is_stopped) for key in list(self.host.op_hash_order)])
        self.host.connector.line.finish(self._done())
        for trouble in self.behind.values():
            raise trouble
        self._end(changed)

    def _deploy(self) -> None:
        self.installs = deploy(self.roles(self.host.data.node), only=self.only)

    def _check_disk_space(self, changes: Collection[str]) -> None:
        """Raise Trouble where the disk lacks the space that the roles with something to install declare."""
        needs = [role.space for role, keys in self.installs if not keys.isdisjoint(changes)]
        lack = lack_of_space(self.host.connector.ask(ASK).out, needs)
        if lack:
            raise lack

    def _done(self) -> tuple[str, ...] | None:
        """Return the operations that are done; None for every one that was ever begun, where no role was left out."""
        if self.only is None and not self.behind:
            return None
        names = (name_of(self.state, self.host, key) for key in self.host.op_hash_order)
        return tuple(name for name in names if name not in self.behind)

    def _one(self, key: str, is_stopped: Callable[[], bool]) -> bool:
        """Carry out one operation; tell whether it changed anything."""
        self._heed(is_stopped)
        connector, name = self.host.connector, name_of(self.state, self.host, key)
        connector.operation, connector.said = name, ""
        self._tell(Step.BEGINS, name=name)
        fine = self._guarded(name, lambda: run_host_op(self.state, self.host, key))
        if not fine:
            raise work_trouble(self.host.name, name, connector.said)
        meta = self.state.get_op_data_for_host(self.host, key).operation_meta
        if meta.did_error():
            self.behind[name] = work_trouble(self.host.name, name, connector.said)
        changed = meta.did_change()
        if changed:
            self._tell(Step.OPERATION, name=name)
        elif name in connector.line.unfinished:
            count_as_change(meta)
        if connector.unconfirmed:
            self._confirm(name)
        return changed

    def _guarded(self, what: str, act: Callable[[], object]) -> object:
        try:
            return act()
        except Lost:
            raise work_trouble(self.host.name, what, self.host.connector.said) from None
        except PyinfraError as error:
            raise Trouble(Kind.FAILED, f"{what}: {error}", BY_HAND) from None

    def _confirm(self, name: str) -> None:
        """Come in anew, as anybody would, and say so to whoever waits for it."""
        opening: Opening = replace(self.host.data.opening, lock="none")
        try:
            line = self._enter(opening)
        except Trouble as trouble:
            what = f"{name}: after it nobody can log in any more ({trouble.what})"
            fix = "the node goes back to what it had within two minutes; let the plan let you in"
            raise Trouble(Kind.FAILED, what, fix) from None
        try:
            result = line.run(f'set -- {opening.folder}/unconfirmed; for each in $1/*; do "$each" || exit; done')
        finally:
            line.close()
        if result.status:
            raise work_trouble(self.host.name, f"{name}: confirming it", result.err)
        self.host.connector.unconfirmed = False

    def _enter(self, opening: Opening) -> Line:
        deadline = monotonic() + KNOCKING
        while True:
            try:
                return Line(self.host.name, self.host.data.argv, opening)
            except Trouble:
                if monotonic() > deadline:
                    raise
                sleep(KNOCKING / 40)

    def _end(self, changed: int) -> None:
        total, seconds = len(self.host.op_hash_order), monotonic() - self.began
        self.tell(Event(self.host.name, Step.DONE, changed=changed, unchanged=total - changed, seconds=seconds))

    def _tell(self, step: Step, *, name: str = "", words: str = "") -> None:
        self.tell(Event(self.host.name, step, name=name, words=words))

    def _heed(self, is_stopped: Callable[[], bool]) -> None:
        if is_stopped():
            raise Trouble(Kind.STOPPED, "it was stopped between two operations", "apply again: it goes on there")


def stopped_before() -> Trouble:
    """Return how a node is told that was being looked at when it was stopped."""
    return Trouble(Kind.STOPPED, "it was stopped before anything changed", "apply again")


# Handshakes are work for the processor; more of them at once only makes each slower.
_LOGINS = 32
_FILES = 65536


def work_through(
    order: Order,
    stopping: BinaryIO,
    out: IO[str],
    roles: Callable[[NodePlan], tuple[Role, ...]] = roles_of,
) -> None:
    """Carry out an order; each event is a line on `out`, and the end of `stopping` stops it."""
    _make_quiet()
    stand_apart()

    def tell(event: Event) -> None:
        out.write(event.line() + "\n")
        out.flush()

    shift = _Shift(order, tell)
    listening = gevent.spawn(_listen, stopping, shift)
    gevent.sleep(0)
    opening = Opening("shared" if order.check else "alone", order.who, folder=order.folder, memory=order.memory)
    states = [assemble(target, opening) for target in order.targets]
    works = [Work(state, state.node, tell, roles) for state in states]
    gevent.joinall([gevent.spawn(shift.work, work) for work in works])
    listening.kill()


@dataclass
class _Shift:
    """All nodes of an order, of which none waits for another."""

    order: Order
    tell: Tell
    stopped: Flag = field(default_factory=Flag)
    logins: Semaphore = field(default_factory=lambda: Semaphore(_LOGINS))
    looking: "set[gevent.Greenlet]" = field(default_factory=set)
    """Those that have changed nothing so far."""

    def work(self, work: Work) -> None:
        """Do one node from its login to its end."""
        with ctx_state.use(work.state):
            try:
                self._look(work)
                self._finish(work)
            except Exception as error:  # noqa: BLE001  one node's end is not the others'
                ended = trouble_of(work.host.name, _trouble(error))
                self.tell(replace(ended, seconds=monotonic() - work.began))
            finally:
                work.close()

    def stop(self) -> None:
        """Let no operation begin any more, and wait for no node that is only looked at."""
        self.stopped.set()
        for each in self.looking:
            each.kill(stopped_before(), block=False)

    def _look(self, work: Work) -> None:
        self.looking.add(gevent.getcurrent())
        try:
            work.state.set_stage(StateStage.Prepare)
            with self.logins:
                work.open(self.stopped.is_set)
            work.plan(self.order.only)
        finally:
            self.looking.discard(gevent.getcurrent())

    def _finish(self, work: Work) -> None:
        work.state.set_stage(StateStage.Execute)
        work.state.is_executing = not self.order.check
        if self.order.check:
            work.check()
        else:
            work.carry_out(self.stopped.is_set)


def _trouble(error: Exception) -> Trouble:
    if isinstance(error, Trouble):
        return error
    if isinstance(error, BedplateError):
        return Trouble(Kind.FAILED, error.what, error.fix)
    if os.environ.get("BEDPLATE_TRACEBACK") == "1":
        traceback.print_exception(error)
    return Trouble(Kind.DEFECT, f"{type(error).__name__}: {error}", "please report it: it is a fault of bedplate's")


def _make_quiet() -> None:
    """Let nobody but us speak: pyinfra's log goes nowhere, and a crowd of nodes may have as many files as it needs."""
    log = logging.getLogger("pyinfra")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, most), most))


def _listen(stopping: BinaryIO, shift: _Shift) -> None:
    """Wait for the end of our input; a plain read would hold up every greenlet."""
    make_nonblocking(stopping.fileno())
    nb_read(stopping.fileno(), 1)
    shift.stop()
