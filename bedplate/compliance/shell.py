"""Testinfra backends that run all commands of an audit as root by one agent, because a login takes several round trips.

The agent is that of an apply (`bedplate.programs.apply_agent`), without its lock: commands get no input, English output
and a time limit, and do not affect each other.
"""

import weakref
from functools import cached_property
from typing import Any

from testinfra.backend.base import BaseBackend, CommandResult

from bedplate.nodes.apply import NodeError, NodeErrorKind
from bedplate.nodes.ssh import OPTIONS
from roles.engine.connection import AgentOptions, Connection

# Timeout of a command, and of all later commands on a node where one timed out: each access to a failed file server
# would wait again.
_TIMEOUT_SECONDS, _SHORT_TIMEOUT_SECONDS = 60, 5


class NoAnswerError(Exception):
    """A command that timed out, so its rule cannot be judged."""


class ShellBackend(BaseBackend):  # type: ignore[misc]  # testinfra ships no types
    """Testinfra backend `shell://NAME`: one SSH connection."""

    NAME = "shell"

    def __init__(self, hostspec: str, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  testinfra's own signature
        target = self.parse_hostspec(hostspec)
        super().__init__(target.name, *args, **kwargs)
        settings = {"-F": kwargs.get("ssh_config"), "-i": kwargs.get("ssh_identity_file")}
        settings |= {"-l": target.user, "-p": target.port}
        words = (word for option, value in settings.items() if value for word in (option, value))
        self._argv: tuple[str, ...] = ("ssh", *OPTIONS, *words, target.name)
        self._timeout: float = _TIMEOUT_SECONDS

    def run(self, command: str, *args: str, **kwargs: Any) -> CommandResult:  # noqa: ANN401, ARG002  as above
        """Run a command on the node.

        Raises NodeError if the node is unreachable, and NoAnswerError after a timeout.
        """
        line = self.quote(command, *args)
        if self.sudo_user:
            line = self.get_sudo_command(line, self.sudo_user)
        try:
            result = self._connection.run(line, timeout=self._timeout)
        except NodeError as error:
            if error.kind is NodeErrorKind.CUT:
                raise NodeError(error.kind, "the connection was lost", "run the audit again") from None
            raise
        if result.late:
            message = f"no answer within {self._timeout} s: {line}"
            self._timeout = _SHORT_TIMEOUT_SECONDS
            raise NoAnswerError(message)
        return self.result(result.status, self.encode(line), result.out, result.err)

    @cached_property
    def _connection(self) -> Connection:
        # Without a lock the agent needs no folder of its own: an audit leaves none behind.
        connection = Connection(self.hostname, self._argv, AgentOptions("none", "audit", folder="/run"))
        weakref.finalize(self, connection.close)
        return connection


class LocalBackend(ShellBackend):
    """Testinfra backend `here://NAME`: this machine, without SSH."""

    NAME = "here"

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  as above
        super().__init__(*args, **kwargs)
        # The folder of the bundle's modules is not for the programs of the rules.
        self._argv = ("env", "--unset=PYTHONPATH", "sh", "-c")
