"""One order carried out on all its nodes side by side; none waits for what another is at, or hangs in."""

import logging
import os
import resource
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Event as Flag
from time import monotonic
from typing import IO, BinaryIO

import gevent
from gevent.lock import Semaphore
from gevent.os import make_nonblocking, nb_read
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_state

from bedplate.errors import BedplateError
from bedplate.nodes.event import Event, Kind, Trouble, trouble_of
from bedplate.nodes.order import Order
from bedplate.plan.node import NodePlan
from roles.base import Role
from roles.catalog import roles_of
from roles.engine.crew import assemble, stand_apart
from roles.engine.line import Opening
from roles.engine.work import Work, stopped_before

# Handshakes are work for the processor; more of them at once only makes each slower.
_LOGINS = 32
_FILES = 65536

Tell = Callable[[Event], None]


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
