"""The client of Pulumi's engine: the stacks of one fleet folder, through the Automation API.

Every process of the engine has a session of its own, so that Ctrl-C reaches it once, from here: a second interrupt
would make it forget resources that are being created.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi.automation import CommandResult, LocalWorkspace, PulumiCommand, Stack
from pulumi.automation.errors import CommandError, ConcurrentUpdateError, InvalidVersionError, create_command_error
from pulumi.automation.events import EngineEvent
from semver import VersionInfo

from bedplate.deploy.progress import Operation
from bedplate.errors import BedplateError, HeldError, InputError, MachineError, PartialError

# The first version that streams events over gRPC is 3.206.
OLDEST = VersionInfo(3, 206, 0)
_INSTALL = "install it: https://www.pulumi.com/docs/install/"
# By a part of the text that the command prints.
_ERRORS: Mapping[str, tuple[type[BedplateError], str, str]] = {
    "incorrect passphrase": (
        MachineError,
        "incorrect passphrase for the secrets of the stack",
        "set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE",
    ),
    "passphrase must be set": (
        MachineError,
        "the passphrase for the secrets of the stack is missing",
        "set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE",
    ),
    "PULUMI_ACCESS_TOKEN must be set": (
        MachineError,
        "there is no login to a state backend",
        "run `bedplate backend init`, or `pulumi login URL` for an existing backend",
    ),
    "could not find a Pulumi.yaml": (
        InputError,
        "Pulumi.yaml is missing",
        "run the command in a folder made by `bedplate init`",
    ),
}


class _Command(PulumiCommand):
    """The `pulumi` command; `interrupt` passes one SIGINT to every running process."""

    def __init__(self) -> None:
        super().__init__(version=OLDEST)
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self.is_interrupted = False

    def interrupt(self) -> None:
        """Stop the running operations cleanly: they finish what they began, and start nothing more."""
        with self._lock:
            if self.is_interrupted:
                return
            self.is_interrupted = True
            for process in self._processes:
                process.send_signal(signal.SIGINT)

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: Callable[[str], object] | None = None,
        on_error: Callable[[str], object] | None = None,
    ) -> CommandResult:
        """Run one command. The caller reads events, so the output is read at the end."""
        environment = {**os.environ, **additional_env, "PULUMI_AUTOMATION_API": "true"}
        command = [self.command, "--non-interactive", *args]
        with subprocess.Popen(  # noqa: S603  the operator's own pulumi
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment,
            encoding="utf-8",
            start_new_session=True,
        ) as process:
            with self._lock:
                self._processes.add(process)
            try:
                output, errors = process.communicate()
            finally:
                with self._lock:
                    self._processes.discard(process)
        for text, callback in ((output, on_output), (errors, on_error)):
            if callback:
                callback(text)
        result = CommandResult(stdout=output.rstrip(), stderr=errors.rstrip(), code=process.returncode)
        if result.code:
            raise create_command_error(result)
        return result


@dataclass(frozen=True, slots=True)
class StackState:
    """What the backend has of a stack: the number of its resources, and operations that a killed run left behind."""

    resources: int
    pending: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """The stacks of a fleet folder."""

    folder: Path
    command: _Command = field(repr=False)

    def stack_states(self) -> dict[str, StackState]:
        """Return the stacks that the backend has, by name."""
        with translated():
            summaries = self._workspace().list_stacks()
        return {summary.name: StackState(summary.resource_count or 0) for summary in summaries}

    def pending_operations(self, stack: str) -> tuple[str, ...]:
        """Return `creating aws:ec2/vpc:Vpc lab` for each operation whose result the engine does not know."""
        with translated():
            deployment: Mapping[str, Any] = self._open(stack).export_stack().deployment or {}
        return tuple(
            f"{operation['type']} {operation['resource']['urn']}"
            for operation in deployment.get("pending_operations") or ()
        )

    def outputs(self, stack: str) -> dict[str, Any]:
        """Return the exports of a stack; secrets are in clear text."""
        with translated():
            return {name: output.value for name, output in self._open(stack).outputs().items()}

    def run(self, stack: str, operation: Operation, watch: Callable[[EngineEvent], object]) -> None:
        """Run an operation; a failure is in the events too. Raises BedplateError."""
        with translated():
            opened = self._open(stack)
            arguments: dict[str, Any] = {"on_event": watch, "color": "never"}
            match operation:
                case Operation.PREVIEW:
                    opened.preview(**arguments)
                case Operation.UP:
                    opened.up(**arguments, suppress_outputs=True, show_secrets=False)
                case Operation.CHECK:
                    opened.preview_refresh(**arguments)
                case Operation.REFRESH:
                    opened.refresh(**arguments, show_secrets=False)
                case Operation.DESTROY:
                    opened.destroy(**arguments, exclude_protected=True, show_secrets=False)

    def _workspace(self) -> LocalWorkspace:
        return LocalWorkspace(
            work_dir=str(self.folder),
            pulumi_command=self.command,
            env_vars={"PULUMI_SKIP_UPDATE_CHECK": "true"},
        )

    def _open(self, stack: str) -> Stack:
        return Stack.create_or_select(stack, self._workspace())


class translated:  # noqa: N801  a context manager that reads as a word
    """Translates errors of the `pulumi` command to BedplateError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, CommandError):
            raise _translate(error) from None


def _translate(error: CommandError) -> BedplateError:
    text = str(error)
    if isinstance(error, ConcurrentUpdateError):
        return HeldError(
            "another run of Pulumi holds the lock of the stack",
            fix="wait for its end; if it was killed, run `bedplate recover`",
        )
    for part, (kind, what, fix) in _ERRORS.items():
        if part in text:
            return kind(what, fix=fix)
    last = next((line for line in reversed(text.splitlines()) if line.startswith("error: ")), "")
    return PartialError(last.removeprefix("error: ") or "pulumi failed without a message")


def open_engine(folder: Path) -> Engine:
    """Return the engine for a fleet folder. Raises InputError or MachineError for what is missing."""
    if not (folder / "Pulumi.yaml").is_file():
        raise InputError(
            "Pulumi.yaml is missing", where=str(folder), fix="use a folder made by `bedplate init`, or the clone"
        )
    # Pulumi would create the folder and install packages into it.
    if not (folder / ".venv/bin/python").exists():
        raise InputError(
            "the virtual environment .venv is missing", where=str(folder), fix="run `bedplate init --link`"
        )
    try:
        return Engine(folder, _Command())
    except FileNotFoundError:
        raise MachineError("the program pulumi is missing", fix=_INSTALL) from None
    except InvalidVersionError as error:
        raise MachineError(f"pulumi is too old: {error}", fix=_INSTALL) from None
    except (OSError, subprocess.CalledProcessError) as error:
        raise MachineError(f"cannot run pulumi: {error}", fix=_INSTALL) from None
