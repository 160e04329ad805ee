"""pyinfra's connector, host, inventory and state for one node, which is reached by our own connection.

The connector caches the answers to queries until something changes on the node, and retries commands while another
program holds the package lock. `dry_run` predicts which operations would change something.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import IOBase
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

from gevent.local import local
from pyinfra.api.command import StringCommand
from pyinfra.api.config import Config
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.operation import OperationMeta
from pyinfra.api.state import State, StateOperationHostData
from pyinfra.connectors.base import BaseConnector
from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command_for_host
from pyinfra.context import ctx_state
from typing_extensions import Unpack

from bedplate.nodes.apply import Target
from bedplate.nodes.remote import timeout_error
from roles.engine.connection import BUSY, AgentOptions, Connection, Result

if TYPE_CHECKING:
    from pyinfra.api.arguments import ConnectorArguments


PACKAGES_SECONDS = 300.0
"""How long to wait for another program that holds the package lock."""
QUERY_SECONDS = 120.0
"""How long to wait for the answer to a query without a timeout of its own."""
_PAUSE = 1.0
_DPKG_INTERRUPTED = re.compile(r"dpkg was interrupted, you must manually run")
_DPKG_CONFIGURE = "dpkg --configure -a --force-confdef --force-confold"

Report = Callable[[str], None]


def _ignore(_: str) -> None:
    return None


class NodeConnector(BaseConnector):
    """One node's connection, as pyinfra uses it."""

    handles_execution = True

    connection: Connection

    def __init__(self, state: "State", host: "Host") -> None:
        super().__init__(state, host)
        self.operation = ""
        """The name of the current operation; the node records it before the first change."""
        self.unconfirmed = False
        """Whether a role waits for a new login to confirm its change."""
        self.error_output = ""
        """The output of the last command that failed."""
        self.report: Report = _ignore
        self._answers: dict[str, Result] = {}
        self._is_query = False

    def connect(self) -> None:
        """Log in. Raises NodeError."""
        self.connection = Connection(self.host.name, self.host.data.argv, self.host.data.options)

    def disconnect(self) -> None:
        """Close the connection."""
        self.connection.close()

    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, object], list[str]]]:
        """Yield the node itself, in the form that pyinfra expects."""
        yield name, {}, []

    @contextmanager
    def queries(self) -> Iterator[None]:
        """Treat the commands of the block as queries, which change nothing."""
        before, self._is_query = self._is_query, True
        try:
            yield
        finally:
            self._is_query = before

    def query(self, command: str, timeout: float | None = None) -> Result:
        """Run a command that changes nothing. Raises NodeError if it exceeds the default timeout."""
        result = self.connection.run(command, timeout=timeout or QUERY_SECONDS)
        if result.late and not timeout:
            raise timeout_error(QUERY_SECONDS)
        return result

    def run_shell_command(
        self,
        command: StringCommand,
        print_output: bool = False,  # noqa: ARG002, FBT001, FBT002  pyinfra's signature
        print_input: bool = False,  # noqa: ARG002, FBT001, FBT002
        **arguments: Unpack["ConnectorArguments"],
    ) -> tuple[bool, CommandOutput]:
        """Run a command on the node; a query is answered from the cache if nothing has changed since."""
        arguments.pop("_get_pty", None)
        stdin, timeout = arguments.pop("_stdin", None), arguments.pop("_timeout", None)
        success = arguments.pop("_success_exit_codes", None) or [0]
        text = make_unix_command_for_host(self.state, self.host, command, **arguments).get_raw_value()
        if self._is_query and not stdin:
            if text not in self._answers:
                self._answers[text] = self.query(text, timeout)
            result = self._answers[text]
        else:
            self._answers.clear()
            result = self._retry_while_locked(
                lambda: self.connection.run(text, stdin=_to_bytes(stdin), timeout=timeout, note=self.operation)
            )
        if result.status not in success:
            self.error_output = result.err or result.out
        self.unconfirmed = result.unconfirmed
        return result.status in success, _to_output(result)

    def put_file(  # noqa: D102  pyinfra's own
        self,
        filename_or_io: str | IOBase,
        remote_filename: str,
        remote_temp_filename: str | None = None,  # noqa: ARG002
        print_output: bool = False,  # noqa: ARG002, FBT001, FBT002
        print_input: bool = False,  # noqa: ARG002, FBT001, FBT002
        **arguments: Unpack["ConnectorArguments"],  # noqa: ARG002
    ) -> bool:
        self._answers.clear()
        self.error_output = self.connection.put(remote_filename, _read(filename_or_io), note=self.operation)
        return not self.error_output

    def get_file(  # noqa: D102  pyinfra's own
        self,
        remote_filename: str,
        filename_or_io: str | IOBase,
        remote_temp_filename: str | None = None,  # noqa: ARG002
        print_output: bool = False,  # noqa: ARG002, FBT001, FBT002
        print_input: bool = False,  # noqa: ARG002, FBT001, FBT002
        **arguments: Unpack["ConnectorArguments"],  # noqa: ARG002
    ) -> bool:
        try:
            content = self.connection.get(remote_filename)
        except OSError as error:
            self.error_output = str(error)
            return False
        _write(filename_or_io, content)
        return True

    def _retry_while_locked(self, attempt: Callable[[], Result]) -> Result:
        """Repeat a command while another program holds the package lock: it has changed nothing so far."""
        deadline, configured = monotonic() + PACKAGES_SECONDS, False
        while True:
            result = attempt()
            if result.status == 0:
                return result
            if _DPKG_INTERRUPTED.search(result.err) and not configured:
                configured = True
                self.connection.run(_DPKG_CONFIGURE)
            elif re.search(BUSY, result.err) and monotonic() < deadline:
                self.report("waits for another program that holds the package lock")
                sleep(_PAUSE)
            else:
                return result


def _to_output(result: Result) -> CommandOutput:
    lines = [OutputLine("stdout", line) for line in result.out.splitlines()]
    return CommandOutput([*lines, *(OutputLine("stderr", line) for line in result.err.splitlines())])


def _to_bytes(stdin: object) -> bytes:
    """Return the input of a command; pyinfra takes a text, several texts or an open file, and ends each line."""
    if not stdin:
        return b""
    parts = stdin.readlines() if isinstance(stdin, IOBase) else stdin if isinstance(stdin, list | tuple) else [stdin]
    return "".join(f"{part}" if str(part).endswith("\n") else f"{part}\n" for part in parts).encode()


def _read(source: str | IOBase) -> bytes:
    if isinstance(source, str):
        return Path(source).read_bytes()
    source.seek(0)
    content: str | bytes = cast("BinaryIO", source).read()
    return content.encode() if isinstance(content, str) else content


def _write(target: str | IOBase, content: bytes) -> None:
    if isinstance(target, str):
        Path(target).write_bytes(content)
        return
    try:
        cast("BinaryIO", target).write(content)
    except TypeError:  # a text stream
        cast("TextIO", target).write(content.decode())


class CommandFailed(Exception):
    """A query failed; the connector has its output."""


class NodeHost(Host):
    """A host that marks the commands of facts as queries."""

    connector: NodeConnector

    def get_fact(self, name_or_cls, *args, **kwargs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN003, ANN201
        """Return the value of a fact."""
        with self.connector.queries():
            return super().get_fact(name_or_cls, *args, **kwargs)


class NodeInventory(Inventory):
    """An inventory of one node, with our connector."""

    def make_hosts_and_groups(
        self, names: Iterable[tuple[str, dict[str, object]]], groups: Mapping[str, object]
    ) -> None:
        """Create the hosts; there are no groups."""
        del groups
        self.hosts = {}
        for name, data in names:
            self.host_data[name] = data
            self.hosts[name] = NodeHost(name, inventory=self, groups=[], connector_cls=NodeConnector)


class NodeState(State):
    """pyinfra's state of one node."""

    @property
    def node(self) -> NodeHost:
        """The node itself."""
        return next(host for host in self.inventory if isinstance(host, NodeHost))

    def fail_hosts(self, hosts_to_fail: set[Host], activated_count: int | None = None) -> None:
        """Record a failed node and end its run. Raises CommandFailed."""
        del activated_count
        if hosts_to_fail:
            self.failed_hosts.update(hosts_to_fail)
            self.active_hosts -= hosts_to_fail
            raise CommandFailed


def build_state(target: Target, options: AgentOptions) -> NodeState:
    """Return pyinfra's state of a node that is not connected yet."""
    data = {"node": target.node, "argv": target.argv, "confirm": target.confirm, "options": options}
    named = (target.node.name, data)
    state = NodeState(NodeInventory(([named], {})), Config(PARALLEL=1))  # type: ignore[no-untyped-call]
    state.is_executing = False
    return state


def use_state_per_greenlet() -> None:
    """Give each greenlet a current state of its own; pyinfra has one for the whole process."""
    ctx_state.context._container = local()  # noqa: SLF001  pyinfra does the same for the host


def name_of(state: State, host: Host, key: str) -> str:
    """Return the name of an operation on this node; pyinfra's own table mixes the names of all nodes."""
    name = state.get_op_data_for_host(host, key).global_arguments.get("name")
    return str(name or ", ".join(sorted(state.get_op_meta(key).names)))


def dry_run(state: State, host: Host, unfinished: Collection[str] = ()) -> tuple[str, ...]:
    """Return the keys of the operations that would change something, restarts after a change included.

    An operation that an interrupted apply left unfinished counts as a change.
    """
    metas = [state.get_op_data_for_host(host, key).operation_meta for key in host.op_hash_order]
    try:
        return tuple(key for key in host.op_hash_order if _would_change(state, host, key, unfinished))
    finally:
        for meta in metas:
            _reset(meta)


def count_as_change(meta: OperationMeta) -> None:
    """Make an unchanged operation count as changed: it made its change in an apply that was interrupted."""
    meta._commands = ["done before"]  # noqa: SLF001  pyinfra has no public way


def _would_change(state: State, host: Host, key: str, unfinished: Collection[str]) -> bool:
    data = state.get_op_data_for_host(host, key)
    changes = data.operation_meta.will_change and all(condition() for condition in _conditions(data))
    data.operation_meta.set_complete(
        success=True, commands=["change"] if changes else [], combined_output=CommandOutput([])
    )
    if name_of(state, host, key) in unfinished:
        count_as_change(data.operation_meta)
    return changes


def _conditions(data: StateOperationHostData) -> list[Callable[[], bool]]:
    condition = data.global_arguments.get("_if")
    return [] if not condition else list(condition) if isinstance(condition, list) else [condition]


def _reset(meta: OperationMeta) -> None:
    """Remove the results that a dry run entered."""
    meta._success, meta._commands, meta._combined_output = None, None, None  # noqa: SLF001  as above
