"""The work on one node: plan what is to change, change it, and let a change that might shut us out be confirmed."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from time import monotonic, sleep

from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import State
from pyinfra.context import ctx_host

from bedplate.nodes.event import Event, Kind, Step, Trouble
from bedplate.plan.node import NodePlan
from roles.base import Role
from roles.engine.crew import Lost, NodeHost
from roles.engine.disk_space import ASK, lack_of_space
from roles.engine.foretelling import count_as_change, foretell, name_of
from roles.engine.line import Line, Opening
from roles.engine.trouble import BY_HAND, work_trouble
from roles.stages import deploy

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
