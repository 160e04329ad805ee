"""pyinfra's way to a node: over our own line, whose agent is root already.

While nothing has changed on the node, a question that was asked is not asked again; a package manager that is busy is
waited for.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import IOBase
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

from pyinfra.api.command import StringCommand
from pyinfra.connectors.base import BaseConnector
from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command_for_host
from typing_extensions import Unpack

from roles.engine.line import Line, Result
from roles.engine.trouble import BUSY, silence

if TYPE_CHECKING:
    from pyinfra.api.arguments import ConnectorArguments
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

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
