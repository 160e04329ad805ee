"""The operator at the terminal, and the arguments and options that several commands share."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from getpass import getpass
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args

import typer

from bedplate.cli.output import notify, show, show_document
from bedplate.errors import InputError
from bedplate.folder.files import FLEET_FILE, find_fleet_file
from bedplate.operate import Operator, Result, Views


@dataclass(frozen=True, slots=True)
class Terminal(Operator):
    """The operator at this terminal. The progress of stacks and machines is a live table, or lines in a log."""

    json: bool = False
    """Whether stdout is for one JSON document, so that all other output goes to stderr."""

    def show(self, lines: Iterable[str]) -> None:
        """Print lines on stdout."""
        (notify if self.json else show)(lines)

    def show_changes(self, lines: Iterable[str]) -> None:
        """Print lines on stdout, with replacements and deletions in red on a terminal."""
        if self.json or not sys.stdout.isatty():
            self.show(lines)
            return
        # Slow: it imports rich.
        from bedplate.cli.progress import show_red

        show_red(lines)

    def notify(self, lines: Iterable[str]) -> None:
        """Print lines on stderr."""
        notify(lines)

    def confirm(self, question: str, details: Sequence[str] = ()) -> None:
        """Ask on a terminal; raise InputError without one, and if the operator declines. `d` shows the details."""
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise InputError("there is no terminal to confirm this on", fix="add --yes")
        while details and (answer := typer.prompt(f"{question} [y/N/d: details]", "n", err=True, show_default=False)):
            if answer.lower() != "d":
                break
            self.show_changes(details)
        if not (answer.lower() in ("y", "yes") if details else typer.confirm(question, err=True)):
            raise InputError("not confirmed: nothing was done")

    def ask_secret(self, prompt: str) -> bytes:
        """Read a secret at the terminal. Raises InputError without one."""
        if not (self.is_attended and sys.stdin.isatty()):
            raise InputError("a passphrase is required and stdin is no terminal", fix="pass --passphrase-file FILE")
        return getpass(prompt).encode()

    def ask(self, question: str, default: str | None) -> str | None:
        """Ask once at the terminal; without one return the default. No answer is None."""
        if not (self.is_attended and sys.stdin.isatty()):
            return default
        # Without a default, the prompt would ask for ever.
        answer: str = typer.prompt(question, default=default or "", show_default=bool(default), err=True)
        return answer.strip() or None

    @property
    def views(self) -> Views:
        """Live tables, or lines in a log."""
        # Slow: it imports rich.
        from bedplate.cli.progress import Tables

        return Tables()


def printed(result: Result, *, as_json: bool = False) -> int:
    """Print a result, as lines or as one JSON document; return its exit status."""
    if as_json:
        show_document(result.document)
    else:
        show(result.lines)
    notify(result.notes)
    return result.status


DEFAULT_FLEET = Path(FLEET_FILE)

FleetFile = Annotated[Path, typer.Argument(metavar="FLEET", help="The fleet file.", callback=find_fleet_file)]
FleetOption = Annotated[
    Path, typer.Option("--fleet", metavar="FLEET", help="The fleet file.", callback=find_fleet_file)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Parts = Annotated[
    list[str] | None, typer.Option("--stack", metavar="PART", help="shared, a region, or links; repeatable.")
]

Pythons = Annotated[
    list[str] | None,
    typer.Option("--python", metavar="VERSION", help="Also for this Python, such as 3.11; repeatable."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
EndMachines = Annotated[bool, typer.Option("--end-machines", help="With --yes: also end running machines.")]

# How to log in.
User = Annotated[
    str | None,
    typer.Option("--user", metavar="USER", help="Your user name on the machines. Default: as here, or as last given."),
]
LoginName = Annotated[
    str | None,
    typer.Option(
        "--user", metavar="USER", help="Your user name in the fleet file. Default: as here, or as last given."
    ),
]
Identity = Annotated[Path | None, typer.Option("--identity", metavar="FILE", help="The private key to log in with.")]
SshConfig = Annotated[
    Path | None,
    typer.Option("--ssh-config", metavar="FILE", help="Your own OpenSSH configuration, which also names known_hosts."),
]

# Certificates of the VPN.
Person = Annotated[str, typer.Argument(metavar="USER", help="A person in the fleet file.")]
Device = Annotated[str, typer.Option("--device", metavar="NAME", help="The person's device.")]
PassphraseFile = Annotated[
    Path | None,
    typer.Option(
        "--passphrase-file",
        metavar="FILE",
        envvar="BEDPLATE_VPN_PASSPHRASE_FILE",
        help="File with the passphrase of the private keys. Default: a prompt.",
    ),
]

# The field of the operator, the option, and its default.
_OPTIONS: Mapping[str, tuple[str, object, object]] = MappingProxyType(
    {
        "yes": ("yes", Yes, False),
        "end_machines": ("end_machines", EndMachines, False),
        "json": ("json", Json, False),
        "user": ("user", User, None),
        "login_name": ("user", LoginName, None),
        "identity": ("identity", Identity, None),
        "ssh_config": ("ssh_config", SshConfig, None),
        "passphrase_file": ("passphrase_file", PassphraseFile, None),
    }
)


@dataclass(frozen=True, slots=True)
class By:
    """What a command takes to make its operator: these options, and FLEET as an argument or as the last option."""

    options: tuple[str, ...] = ()
    is_argument: bool = True

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters of the command, in their order, by the field of the operator."""
        fleet = ("fleet", FleetFile if self.is_argument else FleetOption, DEFAULT_FLEET)
        options = [_OPTIONS[name] for name in self.options]
        return {
            field: Parameter(field, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for field, annotation, default in ([fleet, *options] if self.is_argument else [*options, fleet])
        }


def with_operator(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Return a command with the options of its operator, which the annotation of its parameter names."""
    parameters: list[Parameter] = []
    made: dict[str, By] = {}
    for parameter in signature(function).parameters.values():
        by = next((mark for mark in get_args(parameter.annotation) if isinstance(mark, By)), None)
        if by:
            made[parameter.name] = by
        parameters += by.parameters.values() if by else [parameter.replace(kind=Parameter.KEYWORD_ONLY)]

    def command(**values: Any) -> int | None:  # noqa: ANN401  what typer has parsed
        for name, by in made.items():
            values[name] = Terminal(**{field: values.pop(field) for field in by.parameters})
        return function(**values)

    command.__doc__ = function.__doc__
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return command


_LOGIN = ("user", "identity", "ssh_config")
OnFleet = Annotated[Terminal, By()]
OnFleetInJson = Annotated[Terminal, By(("json",))]
OnFleetAsking = Annotated[Terminal, By(("yes", "json"))]
OnFleetEnding = Annotated[Terminal, By(("yes", "end_machines", "json"))]
OnFleetByKeys = Annotated[Terminal, By(("passphrase_file",))]
OnGateways = Annotated[Terminal, By(("ssh_config", "passphrase_file"))]
OnMachines = Annotated[Terminal, By((*_LOGIN, "passphrase_file"))]
WithFleet = Annotated[Terminal, By(is_argument=False)]
WithFleetEnding = Annotated[Terminal, By(("yes", "end_machines"), is_argument=False)]
WithLogin = Annotated[Terminal, By(_LOGIN, is_argument=False)]
WithLoginName = Annotated[Terminal, By(("login_name", "identity"), is_argument=False)]
