"""pyinfra's way to a node: over our own line, whose agent is root already.

While nothing has changed on the node, a question that was asked is not asked again; a package manager that is busy is
waited for.
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
from roles.engine.connection import BUSY, Line, Opening, Result, silence

if TYPE_CHECKING:
    from pyinfra.api.arguments import ConnectorArguments


PACKAGES_SECONDS = 300.0
"""How long another program that installs packages is waited for."""
QUESTION_SECONDS = 120.0
"""How long an answer is waited for where a question names no time of its own."""
_PAUSE = 1.0
_HALF_DONE = re.compile(r"dpkg was interrupted, you must manually run")
_MEND = "dpkg --configure -a --force-confdef --force-confold"

Tell = Callable[[str], None]


def _no_word(_: str) -> None:
    return None


class NodeConnector(BaseConnector):
    """One node's line, as pyinfra uses it."""

    handles_execution = True

    line: Line

    def __init__(self, state: "State", host: "Host") -> None:
        super().__init__(state, host)
        self.operation = ""
        """What is being carried out: the node remembers it before anything changes."""
        self.unconfirmed = False
        """Whether a role waits for somebody to come in anew."""
        self.said = ""
        """What the last command that failed said."""
        self.tell: Tell = _no_word
        self.patience = PACKAGES_SECONDS
        self._known: dict[str, Result] = {}
        self._is_asking = False

    def connect(self) -> None:
        """Open the line; raises Trouble."""
        self.line = Line(self.host.name, self.host.data.argv, self.host.data.opening)

    def disconnect(self) -> None:
        """Hang up."""
        self.line.close()

    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, object], list[str]]]:
        """Yield the node itself; the form is pyinfra's."""
        yield name, {}, []

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Take the commands within for questions, which change nothing."""
        was, self._is_asking = self._is_asking, True
        try:
            yield
        finally:
            self._is_asking = was

    def ask(self, question: str, seconds: float | None = None) -> Result:
        """Put a question to the node; raises Trouble where it takes too long and was given no time of its own."""
        result = self.line.run(question, timeout=seconds or QUESTION_SECONDS)
        if result.late and not seconds:
            raise silence(QUESTION_SECONDS)
        return result

    def run_shell_command(
        self,
        command: StringCommand,
        print_output: bool = False,  # noqa: ARG002, FBT001, FBT002  the form is pyinfra's
        print_input: bool = False,  # noqa: ARG002, FBT001, FBT002
        **arguments: Unpack["ConnectorArguments"],
    ) -> tuple[bool, CommandOutput]:
        """Run a command on the node, or give its answer again where nothing has changed since."""
        arguments.pop("_get_pty", None)
        given, timeout = arguments.pop("_stdin", None), arguments.pop("_timeout", None)
        fine = arguments.pop("_success_exit_codes", None) or [0]
        text = make_unix_command_for_host(self.state, self.host, command, **arguments).get_raw_value()
        if self._is_asking and not given:
            if text not in self._known:
                self._known[text] = self.ask(text, timeout)
            result = self._known[text]
        else:
            self._known.clear()
            result = self._patiently(
                lambda: self.line.run(text, given=_bytes(given), timeout=timeout, note=self.operation)
            )
        if result.status not in fine:
            self.said = result.err or result.out
        self.unconfirmed = result.unconfirmed
        return result.status in fine, _output(result)

    def put_file(  # noqa: D102  pyinfra's own
        self,
        filename_or_io: str | IOBase,
        remote_filename: str,
        remote_temp_filename: str | None = None,  # noqa: ARG002
        print_output: bool = False,  # noqa: ARG002, FBT001, FBT002
        print_input: bool = False,  # noqa: ARG002, FBT001, FBT002
        **arguments: Unpack["ConnectorArguments"],  # noqa: ARG002
    ) -> bool:
        self._known.clear()
        self.said = self.line.put(remote_filename, _read(filename_or_io), note=self.operation)
        return not self.said

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
            content = self.line.get(remote_filename)
        except OSError as error:
            self.said = str(error)
            return False
        _write(filename_or_io, content)
        return True

    def _patiently(self, attempt: Callable[[], Result]) -> Result:
        """Run a command again while another program holds the packages; it has changed nothing so far."""
        deadline, mended = monotonic() + self.patience, False
        while True:
            result = attempt()
            if result.status == 0:
                return result
            if _HALF_DONE.search(result.err) and not mended:
                mended = True
                self.line.run(_MEND)
            elif re.search(BUSY, result.err) and monotonic() < deadline:
                self.tell("waits for another program that installs packages")
                sleep(_PAUSE)
            else:
                return result


def _output(result: Result) -> CommandOutput:
    lines = [OutputLine("stdout", line) for line in result.out.splitlines()]
    return CommandOutput([*lines, *(OutputLine("stderr", line) for line in result.err.splitlines())])


def _bytes(given: object) -> bytes:
    """Return what a command reads; pyinfra takes a text, several, or an open file, and ends each line."""
    if not given:
        return b""
    parts = given.readlines() if isinstance(given, IOBase) else given if isinstance(given, list | tuple) else [given]
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
    except TypeError:  # a text was asked for
        cast("TextIO", target).write(content.decode())


class Lost(Exception):
    """A question to the node failed: its connector knows what was said."""


class NodeHost(Host):
    """A host whose questions are known as such."""

    connector: NodeConnector

    def get_fact(self, name_or_cls, *args, **kwargs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN003, ANN201
        """Ask, as pyinfra does."""
        with self.connector.asking():
            return super().get_fact(name_or_cls, *args, **kwargs)


class Crew(Inventory):
    """The node, by our own connector."""

    def make_hosts_and_groups(
        self, names: Iterable[tuple[str, dict[str, object]]], groups: Mapping[str, object]
    ) -> None:
        """Make the hosts; there are no groups."""
        del groups
        self.hosts = {}
        for name, data in names:
            self.host_data[name] = data
            self.hosts[name] = NodeHost(name, inventory=self, groups=[], connector_cls=NodeConnector)


class Watch(State):
    """pyinfra's books of one node."""

    @property
    def node(self) -> NodeHost:
        """The node itself."""
        return next(host for host in self.inventory if isinstance(host, NodeHost))

    def fail_hosts(self, hosts_to_fail: set[Host], activated_count: int | None = None) -> None:
        """Note a node that failed, and end the work on it."""
        del activated_count
        if hosts_to_fail:
            self.failed_hosts.update(hosts_to_fail)
            self.active_hosts -= hosts_to_fail
            raise Lost


def assemble(target: Target, opening: Opening) -> Watch:
    """Return pyinfra's state of a node; its line is not open yet."""
    named = (target.node.name, {"node": target.node, "argv": target.argv, "opening": opening})
    state = Watch(Crew(([named], {})), Config(PARALLEL=1))  # type: ignore[no-untyped-call]
    state.is_executing = False
    return state


def stand_apart() -> None:
    """Let each greenlet of this process have a state of its own; pyinfra keeps one for all."""
    ctx_state.context._container = local()  # noqa: SLF001  as pyinfra does itself for the host, not for the state


def name_of(state: State, host: Host, key: str) -> str:
    """Return how an operation is called on this node; pyinfra's own table mixes the names of all nodes."""
    named = state.get_op_data_for_host(host, key).global_arguments.get("name")
    return str(named or ", ".join(sorted(state.get_op_meta(key).names)))


def foretell(state: State, host: Host, unfinished: Collection[str] = ()) -> tuple[str, ...]:
    """Return the keys of the operations that would change something, those that answer others' changes included.

    What an earlier apply began counts as a change once more.
    """
    metas = [state.get_op_data_for_host(host, key).operation_meta for key in host.op_hash_order]
    try:
        return tuple(key for key in host.op_hash_order if _would_change(state, host, key, unfinished))
    finally:
        for meta in metas:
            _undo(meta)


def count_as_change(meta: OperationMeta) -> None:
    """Let an operation that found nothing to do pass for a change: it did its work in an apply that was cut off."""
    meta._commands = ["done before"]  # noqa: SLF001  pyinfra has no way to say so


def _would_change(state: State, host: Host, key: str, unfinished: Collection[str]) -> bool:
    data = state.get_op_data_for_host(host, key)
    changes = data.operation_meta.will_change and all(asked() for asked in _conditions(data))
    data.operation_meta.set_complete(
        success=True, commands=["change"] if changes else [], combined_output=CommandOutput([])
    )
    if name_of(state, host, key) in unfinished:
        count_as_change(data.operation_meta)
    return changes


def _conditions(data: StateOperationHostData) -> list[Callable[[], bool]]:
    found = data.global_arguments.get("_if")
    return [] if not found else list(found) if isinstance(found, list) else [found]


def _undo(meta: OperationMeta) -> None:
    """Make an operation as if it had not been looked through."""
    meta._success, meta._commands, meta._combined_output = None, None, None  # noqa: SLF001  as above
