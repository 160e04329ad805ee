"""One order carried out on all its nodes side by side: everybody plans first, then everybody works."""

import logging
import os
import resource
import traceback
from collections.abc import Callable
from threading import Event as Flag
from typing import IO, BinaryIO

import gevent
from gevent.os import make_nonblocking, nb_read
from gevent.pool import Pool
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_state

from bedplate.errors import BedplateError
from bedplate.nodes.event import Event, Kind, Trouble, trouble_of
from bedplate.nodes.order import Order
from bedplate.plan.node import NodePlan
from roles.base import Role
from roles.catalog import roles_of
from roles.engine.crew import assemble
from roles.engine.line import Opening
from roles.engine.work import Work

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
    stopped = Flag()
    listening = gevent.spawn(_listen, stopping, stopped)
    gevent.sleep(0)

    def tell(event: Event) -> None:
        out.write(event.line() + "\n")
        out.flush()

    opening = Opening("shared" if order.check else "alone", order.who, folder=order.folder, memory=order.memory)
    state = assemble(order.targets, opening)
    works = [Work(state, host, tell, roles) for host in state.crew]
    with ctx_state.use(state):
        state.set_stage(StateStage.Prepare)
        ready = _each(works, _LOGINS, tell, lambda work: _prepare(work, order, stopped))
        state.set_stage(StateStage.Execute)
        state.is_executing = not order.check
        _each(ready, len(works), tell, lambda work: _finish(work, order, stopped))
    listening.kill()


def _prepare(work: Work, order: Order, stopped: Flag) -> None:
    work.open(stopped.is_set)
    work.plan(order.only)


def _finish(work: Work, order: Order, stopped: Flag) -> None:
    try:
        if order.check:
            work.check()
        else:
            work.carry_out(stopped.is_set)
    finally:
        work.close()


def _each(works: list[Work], at_once: int, tell: Tell, act: Callable[[Work], None]) -> list[Work]:
    """Do something with each node, as many at once; return those with which it went well."""
    pool = Pool(max(1, at_once))

    def one(work: Work) -> Work | None:
        try:
            act(work)
        except Exception as error:  # noqa: BLE001  one node's end is not the others'
            tell(trouble_of(work.host.name, _trouble(error)))
            work.close()
            return None
        return work

    return [done for done in pool.map(one, works) if done is not None]


def _trouble(error: Exception) -> Trouble:
    if isinstance(error, Trouble):
        return error
    if isinstance(error, BedplateError):
        return Trouble(Kind.FAILED, error.what, error.fix)
    if os.environ.get("BEDPLATE_TRACEBACK") == "1":
        traceback.print_exception(error)
    return Trouble(Kind.FAILED, f"a defect in bedplate: {type(error).__name__}: {error}", "please report it")


def _make_quiet() -> None:
    """Let nobody but us speak: pyinfra's log goes nowhere, and a crowd of nodes may have as many files as it needs."""
    log = logging.getLogger("pyinfra")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, most), most))


def _listen(stopping: BinaryIO, stopped: Flag) -> None:
    """Wait for the end of our input; a plain read would hold up every greenlet."""
    make_nonblocking(stopping.fileno())
    nb_read(stopping.fileno(), 1)
    stopped.set()
