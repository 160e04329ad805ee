"""The client of Pulumi's engine: the stacks of one fleet folder, by the Automation API, and errors of its backend.

Every process of the engine has a session of its own, so that Ctrl-C reaches it once, from here: a second interrupt
would make it forget resources that are being created.
"""

import json
import os
import re
import signal
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from pulumi.automation import CommandResult, ConfigValue, LocalWorkspace, PulumiCommand, Stack, StackSummary
from pulumi.automation.errors import CommandError, InvalidVersionError, create_command_error
from pulumi.automation.events import EngineEvent
from semver import Version, VersionInfo

from bedplate.deploy.progress import Operation
from bedplate.deploy.state import LockedError, StackState, lock_holders, remove_damaged_files
from bedplate.errors import BedplateError, InputError, MachineError, PartialError
from bedplate.files import login_name
from bedplate.folder.files import (
    FLEET_FILE,
    FLEET_KEY,
    require_project,
    secrets_provider,
    settings_file,
    write_settings,
)

# Pulumi's SDK says so when the engine is killed; the operation fails with its own error.
warnings.filterwarnings("ignore", "Error in event stream", UserWarning)


class NoBackend(MachineError):
    """Pulumi has no backend to keep its state in."""


# How the engine begins a message about its own state or key. The errors of resources contain similar words.
_STATE = re.compile(
    r'error: (?:.*?(?:read "\.pulumi/|could not list bucket|unable to open (?:state directory|bucket)|'
    r"failed to (?:load|save) (?:checkpoint|snapshot)|unsupported checkpoint|state store unsupported).*)"
)
_KEY = re.compile(r"error: .*secrets manager.*?: (?:open keeper|secrets \().*")
_LOGIN = "log in to AWS, or set AWS_PROFILE"
# By a pattern of the message: the error, {what} replaced by the state or the secrets, and the fix. AWS's codes come
# first: many of them have the status 403. Sources: Amazon S3 API reference, error responses; AWS KMS, common errors.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"NoSuchBucket|no such file or directory",
        "the backend of {what} does not exist",
        "correct `backend: url` in Pulumi.yaml, or mount its folder; `bedplate backend init` makes a new backend",
    ),
    (
        r"RequestTimeTooSkewed|RequestExpired|Signature (?:expired|not yet current)",
        "AWS refuses the clock of this machine",
        "set the clock, such as with `timedatectl set-ntp true`, then run it again",
    ),
    (
        r"InvalidAccessKeyId|UnrecognizedClient|InvalidClientTokenId|InvalidToken|SignatureDoesNotMatch",
        "AWS does not know the credentials for {what}",
        _LOGIN,
    ),
    (
        r"PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|BucketRegionError|StatusCode: 301",
        "the bucket of {what} is in another region",
        "write its region into `backend: url` of Pulumi.yaml: s3://BUCKET?region=REGION",
    ),
    (r"no space left on device", "the disk is full", "free space on the disk of {what}, then run it again"),
    (r"ExpiredToken|expired", "the AWS credentials have expired", "log in again with `aws sso login`"),
    (r"get credentials|IMDS", "no AWS credentials found for {what}", _LOGIN),
    (
        # The status alone says so only without another code.
        r"AccessDenied|permission denied|StatusCode: 403(?!.*api error (?!Forbidden))",
        "no permission for {what}",
        "allow it to your role: docs/state.md of bedplate lists the actions",
    ),
    (
        r"NotFoundException|DisabledException|KMSInvalidStateException",
        "the KMS key of the secrets is missing or disabled",
        "`bedplate backend init` checks the key of the fleet; otherwise correct `secretsprovider`",
    ),
    (
        r"request send failed|dial tcp|no such host",
        "cannot connect to the backend of {what}",
        "check the network and the proxy of this machine, then run it again",
    ),
    (
        r"SlowDown|StatusCode: 50\d|status code: 50\d",
        "AWS has an internal error, or too many calls",
        "run it again later",
    ),
    (
        r"unsupported checkpoint version|needs support for the following features|is not supported by this version",
        "a newer Pulumi wrote the state",
        "update pulumi: https://www.pulumi.com/docs/install/",
    ),
)


def access_error(text: str) -> MachineError | None:
    """Return the operator's error for the output of a command that could not use its state or key, else None."""
    for pattern, what in ((_STATE, "the state"), (_KEY, "the secrets")):
        if match := pattern.search(text):
            for cause, message, fix in _CAUSES:
                if re.search(cause, match[0]):
                    return MachineError(message.format(what=what), fix=fix.format(what=what))
    return None


def check_provider(stack: str, deployment: Mapping[str, Any], version: str) -> None:
    """Raise MachineError if a newer AWS provider than the given version wrote a state: older ones cannot read it."""
    versions = (
        str(resource.get("inputs", {}).get("version"))
        for resource in deployment.get("resources") or ()
        if resource.get("type") == "pulumi:providers:aws"
    )
    newest = max((Version.parse(text) for text in versions if Version.is_valid(text)), default=None)
    if newest and newest > Version.parse(version):
        raise MachineError(
            f"pulumi-aws {newest} wrote the state of {stack}, and this clone of bedplate has {version}",
            fix="run `git pull` and `make setup` in the clone of bedplate",
        )


# The first version that streams events over gRPC is 3.206.
OLDEST = VersionInfo(3, 206, 0)
_INSTALL = "install it: https://www.pulumi.com/docs/install/"
_PASSPHRASE = "set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE"  # noqa: S105  not a secret
_HELD = (
    LockedError,
    "another run of Pulumi holds the lock of {stack}",
    "wait for its end. If no run is alive, a killed one left the lock: run `bedplate recover`",
)
_DAMAGED = (PartialError, "a killed run left a damaged file in the folder of Pulumi's state", "run `bedplate recover`")
_ENVIRONMENT = {"PULUMI_SKIP_UPDATE_CHECK": "true"}
# By a part of the text that the command prints.
_ERRORS: Mapping[str, tuple[type[BedplateError], str, str]] = {
    "incorrect passphrase": (MachineError, "incorrect passphrase for the secrets of the stack", _PASSPHRASE),
    "passphrase must be set": (MachineError, "the passphrase for the secrets of the stack is missing", _PASSPHRASE),
    "PULUMI_ACCESS_TOKEN must be set": (
        NoBackend,
        "there is no backend for Pulumi's state",
        "run `bedplate backend init`, or `pulumi login URL` for a backend that exists",
    ),
    # The texts of a file or bucket, and of Pulumi Cloud.
    "the stack is currently locked by": _HELD,
    "Another update is currently in progress": _HELD,
    "snapshot integrity failure": (
        PartialError,
        "the state of {stack} contradicts itself, so Pulumi refuses it",
        "run `pulumi stack export -s {stack} >copy.json` and `pulumi state repair -s {stack}`, then `bedplate recover`",
    ),
    "(code=NotFound): NoSuchKey": (
        PartialError,
        "the state of {stack} is missing in its backend",
        "copy its last version, or the .bak beside it, to its place, then run `bedplate recover`",
    ),
    "error: EOF": _DAMAGED,
    "checkpoint: EOF": _DAMAGED,
    "unexpected EOF": _DAMAGED,
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
        with self._lock:
            if self.is_interrupted:
                raise PartialError("interrupted before it began")
            process = subprocess.Popen(  # noqa: S603  the operator's own pulumi
                [self.command, "--non-interactive", *args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=environment,
                encoding="utf-8",
                start_new_session=True,
            )
            self._processes.add(process)
        with process:
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


BY = "by "
"""What the message of an operation begins with in Pulumi's history, before the name of the operator."""


class _Workspace(LocalWorkspace):
    """A fleet folder; the settings of new stacks name the fleet file, as the program requires."""

    def create_stack(self, stack_name: str) -> None:
        super().create_stack(stack_name)
        self.set_config(stack_name, FLEET_KEY, ConfigValue(FLEET_FILE))


@dataclass(frozen=True, slots=True)
class Engine:
    """The stacks of a fleet folder."""

    folder: Path
    command: _Command = field(repr=False)

    def resource_counts(self, fleet: str) -> dict[str, int]:
        """Return the number of resources of each stack of a fleet; a backend may have several fleets.

        Raises InputError for a stack without its settings file: Pulumi would write one with another encryption key.
        """
        summaries = self._summaries(fleet)
        for summary in summaries:
            settings = settings_file(self.folder, summary.name)
            # Pulumi Cloud, which has a URL for each stack, keeps the key itself.
            if summary.resource_count and not summary.url and not settings.is_file():
                raise InputError(
                    f"the settings of the existing stack {summary.name} are missing",
                    where=str(settings),
                    fix="run `bedplate backend init`, which restores the file from the state, and commit it",
                )
        return {summary.name: summary.resource_count or 0 for summary in summaries}

    def states(self, fleet: str) -> dict[str, StackState]:
        """Return the state of each stack of a fleet, by its name without that of the fleet.

        Raises MachineError for a state that a newer clone wrote.
        """
        names = tuple(self.resource_counts(fleet))
        with ThreadPoolExecutor(max(1, len(names))) as pool:
            states = tuple(pool.map(self._state, names))
        return {name.removeprefix(f"{fleet}."): state for name, state in zip(names, states, strict=True)}

    def _state(self, stack: str) -> StackState:
        deployment = self.deployment(stack)
        check_provider(stack, deployment, version("pulumi-aws"))
        return StackState(deployment)

    def has_login(self) -> bool:
        """Return whether Pulumi has a backend."""
        try:
            with _translated():
                self._workspace().who_am_i()
        except NoBackend:
            return False
        return True

    def remove_damaged_files(self) -> tuple[str, ...]:
        """Delete the parts of a file backend that a killed run left damaged; return their names."""
        with _translated():
            scheme, _, folder = (self._workspace().who_am_i().url or "").partition("://")
        return remove_damaged_files(Path(folder)) if scheme == "file" else ()

    def is_deployed(self, fleet: str) -> bool:
        """Return whether a stack of a fleet has resources."""
        return any(summary.resource_count for summary in self._summaries(fleet))

    def _summaries(self, fleet: str) -> tuple[StackSummary, ...]:
        with _translated():
            stacks = self._workspace().list_stacks()
        return tuple(summary for summary in stacks if summary.name.startswith(f"{fleet}."))

    def prepare_stacks(self, fleet: str, stacks: Iterable[str], provider: str) -> Iterator[str]:
        """Create the missing stacks, restore missing settings of a fleet's stacks from their states; yield each change.

        `provider` is the secrets provider of new stacks; empty for Pulumi's default.
        """
        existing = [summary.name for summary in self._summaries(fleet)]
        for stack in existing:
            if self._restore_settings(stack):
                yield f"restored {settings_file(self.folder, stack).name}"
        for stack in (stack for stack in stacks if stack not in existing):
            with _translated(stack):
                self._workspace(provider).create_stack(stack)
            yield f"created the stack {stack}"

    def _restore_settings(self, stack: str) -> bool:
        """Write the missing settings file of a stack as its state has it; return whether it was written."""
        if settings_file(self.folder, stack).is_file():
            return False
        provider = self.deployment(stack).get("secrets_providers") or {}
        # Pulumi Cloud keeps the key itself.
        write_settings(self.folder, stack, provider if provider.get("type") in ("passphrase", "cloud") else {})
        return True

    def deployment(self, stack: str) -> dict[str, Any]:
        """Return the resources of a stack, their secrets encrypted; empty for a stack that was never deployed."""
        deployment: dict[str, Any] = self.export_state(stack)["deployment"] or {}
        return deployment

    def export_state(self, stack: str) -> dict[str, Any]:
        """Return the exported state of a stack, its secrets encrypted."""
        with _translated(stack):
            state: dict[str, Any] = json.loads(self._call("stack", "export", "--stack", stack))
        return {"deployment": {}, **state}

    def import_state(self, stack: str, state: Mapping[str, Any]) -> None:
        """Replace the state of a stack; the engine drops unfinished operations in it."""
        with _translated(stack), NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(state, file)
            file.flush()
            self._call("stack", "import", "--stack", stack, "--file", file.name)

    def refresh(self, stack: str, urns: Iterable[str]) -> None:
        """Read resources from AWS into the state. Raises LockedError if another run holds the lock."""
        targets = [argument for urn in urns for argument in ("--target", urn)]
        with _translated(stack):
            self._call("refresh", "--stack", stack, "--yes", "--skip-preview", "--color", "never", *targets)

    def last_change(self, stack: str) -> Mapping[str, Any]:
        """Return the last operation that ended, as Pulumi's history has it; empty for a stack without one."""
        with _translated(stack):
            entries = json.loads(self._call("stack", "history", "--stack", stack, "--json", "--page-size", "1"))
        return next(iter(entries or ()), {})

    def release_lock(self, stack: str) -> None:
        """Remove the lock of a stack, whoever holds it."""
        with _translated(stack):
            self._call("cancel", "--yes", "--stack", stack)

    def _call(self, *arguments: str) -> str:
        return self.command.run([*arguments], str(self.folder), _ENVIRONMENT).stdout

    def run(self, stack: str, operation: Operation, watch: Callable[[EngineEvent], object]) -> None:
        """Run an operation; a failure is in the events too. Raises BedplateError."""
        with _translated(stack):
            # Without a provider Pulumi creates a stack with a passphrase, whatever its settings file names.
            provider = secrets_provider(self.folder, stack.partition(".")[0])
            opened = Stack.create_or_select(stack, self._workspace(provider))
            self._restore_settings(stack)
            arguments: dict[str, Any] = {"on_event": watch, "color": "never"}
            author = f"{BY}{login_name()}"
            match operation:
                case Operation.PREVIEW:
                    opened.preview(**arguments)
                case Operation.UP:
                    opened.up(**arguments, message=author, suppress_outputs=True, show_secrets=False)
                case Operation.DESTROY:
                    opened.destroy(**arguments, message=author, exclude_protected=True, show_secrets=False)
                case Operation.REFRESH:
                    opened.refresh(**arguments, message=author, suppress_outputs=True, show_secrets=False)
                case Operation.CHECK:
                    opened.preview_refresh(**arguments)

    def _workspace(self, provider: str = "") -> LocalWorkspace:
        return _Workspace(
            work_dir=str(self.folder),
            secrets_provider=provider or None,
            pulumi_command=self.command,
            env_vars=_ENVIRONMENT,
        )


@contextmanager
def _translated(stack: str = "STACK") -> Iterator[None]:
    """Raise errors of the `pulumi` command as BedplateError."""
    try:
        yield
    except CommandError as error:
        raise _translate(str(error), stack) from None
    except json.JSONDecodeError as error:
        what = f"pulumi printed {error.doc[:40]!r} instead of JSON"
        raise MachineError(what, fix="run `pulumi whoami --json`, and remove what prints more than JSON") from None


def _translate(text: str, stack: str) -> BedplateError:
    if error := access_error(text):
        return error
    for part, (kind, what, fix) in _ERRORS.items():
        if part in text:
            known_error = kind(what.format(stack=stack), fix=fix.format(stack=stack))
            if isinstance(known_error, LockedError):
                known_error.holders = lock_holders(text)
            return known_error
    errors = re.findall(r"\berror: (.+)", text)
    if errors:
        return PartialError(errors[-1])
    return PartialError("pulumi was killed" if "code: -" in text else "pulumi failed without a message")


def open_engine(folder: Path) -> Engine:
    """Return the engine for a fleet folder. Raises InputError or MachineError for what is missing."""
    require_project(folder)
    # Pulumi would create the folder and install packages into it.
    if not (folder / ".venv/bin/python").exists():
        raise InputError(
            "the virtual environment .venv is missing", where=str(folder), fix="run `bedplate init --link`"
        )
    try:
        return Engine(folder, _Command())
    except FileNotFoundError:
        raise MachineError("the program pulumi is missing", fix=_INSTALL) from None
    except InvalidVersionError:
        raise MachineError(f"pulumi is too old: bedplate needs {OLDEST} or newer", fix=_INSTALL) from None
    except (OSError, subprocess.CalledProcessError) as error:
        raise MachineError(f"cannot run pulumi: {error}", fix=_INSTALL) from None
