"""All commands: where each is implemented, and an example.

A command module imports what it needs at its top, which can take seconds: Pulumi, boto3, rich. `make_app` therefore
imports only the module of the command that the arguments name. All other commands are entries of the help text.
"""

import ast
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from bedplate import __version__
from bedplate.cli.options import with_operator
from bedplate.cli.output import show
from bedplate.errors import InputError

Function = Callable[..., int | None]


@dataclass(frozen=True, slots=True)
class Command:
    """One command: `target` is the module in `bedplate.cli` and its function."""

    name: str
    target: str
    example: str

    @property
    def summary(self) -> str:
        """The first line of the function's docstring, read from the source: an import can take seconds."""
        module, _, function = self.target.partition(":")
        return _summaries(module)[function]

    def load(self) -> Function:
        """Import the command's module and return its function."""
        module, _, function = self.target.partition(":")
        return with_operator(getattr(import_module(f"bedplate.cli.{module}"), function))

    def placeholder(self) -> Function:
        """Return a function that represents the command in a help text."""

        def unloaded() -> int:
            raise AssertionError(self.name)

        return unloaded


@cache
def _summaries(module: str) -> Mapping[str, str]:
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {function.name: (ast.get_docstring(function) or "").partition("\n")[0] for function in functions}


COMMANDS = (
    Command("init", "init:init", "bedplate init ~/lab --example gpu-box"),
    Command("check", "plan:check", "bedplate check examples/lab.yaml"),
    Command("plan", "plan:plan", "bedplate plan examples/lab.yaml"),
    Command("cost", "plan:cost", "bedplate cost examples/lab.yaml"),
    Command("quotas", "account:quotas", "bedplate quotas examples/lab.yaml"),
    Command("diff", "plan:diff", "bedplate diff examples/lab.yaml examples/lab-grown.yaml"),
    Command("preview", "deploy:preview", "bedplate preview --stack us-west-2"),
    Command("up", "deploy:up", "bedplate up --stack shared"),
    Command("refresh", "deploy:refresh", "bedplate refresh --check"),
    Command("destroy", "deploy:destroy", "bedplate destroy"),
    Command("recover", "deploy:recover", "bedplate recover"),
    Command("status", "status:status", "bedplate status --json"),
    Command("doctor", "status:doctor", "bedplate doctor"),
    Command("top", "watch:top", "bedplate top --fleet examples/lab.yaml"),
    Command("smoke", "smoke:smoke", "bedplate smoke --plan"),
    Command("ssh", "ssh:ssh", "bedplate ssh box -- nvidia-smi"),
    Command("schema", "plan:schema", "bedplate schema > fleet.schema.json"),
    Command("rehearse", "rehearse:rehearse", "bedplate rehearse examples/lab.yaml --stack us-west-2"),
    Command("graph", "reach:graph", "bedplate graph examples/lab.yaml --stack us-west-2"),
    Command("reach", "reach:reach", "bedplate reach titan-01.cellar us-east-1a examples/lab.yaml"),
    Command("audit-graph", "reach:audit_graph", "bedplate graph examples/lab.yaml --all | bedplate audit-graph -"),
)
NODE_COMMANDS = (
    Command("audit", "node:audit", "bedplate node audit titan-01.cellar --fleet examples/lab.yaml"),
    Command("list", "node:list_nodes", "bedplate node list --fleet examples/lab.yaml"),
    Command("apply", "node:apply", "bedplate node apply --site cellar --fleet examples/lab.yaml"),
    Command("start", "node:start", "bedplate node start workbench-gpu --for 8h"),
    Command("stop", "node:stop", "bedplate node stop box-1.us-west-2"),
    Command("trust", "node:trust", "bedplate node trust titan-01.cellar SHA256:..."),
    Command("bootstrap", "node:bootstrap", "bedplate node bootstrap titan-01.cellar"),
    Command("upgrade", "node:upgrade", "bedplate node upgrade --group workbench-gpu --at-once 2"),
    Command("burn-in", "ssh:burn_in", "bedplate node burn-in box-1.us-west-2"),
    Command("logs", "ssh:show_logs", "bedplate node logs box-1.us-west-2"),
    Command("ssh-config", "node:show_ssh_config", "bedplate node ssh-config --write ~/.ssh/lab"),
)
BUNDLE_COMMANDS = (
    Command("build", "bundle:build", "bedplate bundle build --python 3.11"),
    Command("push", "bundle:push", "bedplate bundle push fleet.yaml"),
    Command("promote", "bundle:promote", "bedplate bundle promote canary"),
    Command("list", "bundle:list_bundles", "bedplate bundle list --json"),
    Command("diff", "bundle:diff", "bedplate bundle diff stable"),
)
IMAGE_COMMANDS = (
    Command("record", "account:record_image_ids", "bedplate image record fleet.yaml"),
    Command("plan", "images:plan", "bedplate image plan fleet.yaml"),
    Command("bake", "images:bake", "bedplate image bake worker-x86_64"),
    Command("list", "images:list_images", "bedplate image list fleet.yaml"),
    Command("promote", "images:promote", "bedplate image promote lab-worker-x86_64-1f2e3d4c5b6a"),
    Command("rollback", "images:rollback", "bedplate image rollback worker-x86_64"),
    Command("diff", "images:diff", "bedplate image diff lab-worker-x86_64-1f2e lab-worker-x86_64-6a5b"),
    Command("prune", "images:prune", "bedplate image prune fleet.yaml --keep 3"),
    Command("sweep", "images:sweep", "bedplate image sweep fleet.yaml"),
    Command("container", "images:container", "bedplate image container build torch"),
)
BACKEND_COMMANDS = (Command("init", "deploy:init", "bedplate backend init"),)
VPN_COMMANDS = (
    Command("up", "vpn:up", "bedplate vpn up"),
    Command("init", "vpn:init", "bedplate vpn init fleet.yaml"),
    Command("add", "vpn_certificates:add", "bedplate vpn add ada fleet.yaml --device phone"),
    Command("renew", "vpn_certificates:renew", "bedplate vpn renew ada"),
    Command("revoke", "vpn:revoke", "bedplate vpn revoke ada --device phone"),
    Command("list", "vpn_certificates:list_certificates", "bedplate vpn list"),
    Command("show", "vpn:show_profile", "bedplate vpn show ada --write ada.ovpn"),
    Command("sync", "vpn:sync", "bedplate vpn sync"),
    Command("timer", "vpn:timer", "bedplate vpn timer"),
    Command("tunnels", "vpn:tunnels", "bedplate vpn tunnels"),
    Command("status", "vpn:status", "bedplate vpn status"),
    Command("record", "vpn:record_addresses", "bedplate vpn record"),
    Command("guard", "vpn:guard", "bedplate vpn guard > lab.nft"),
)
KUBE_COMMANDS = (
    Command("init", "kube:init", "bedplate kube init"),
    Command("member", "kube:member", "bedplate kube member replace control-2.us-west-2"),
    Command("join", "kube:join", "bedplate kube join titan-01.cellar"),
    Command("restore", "kube:restore", "bedplate kube restore"),
    Command("addons", "kube:addons", "bedplate kube addons apply"),
    Command("status", "kube:status", "bedplate kube status"),
    Command("access", "kube:access", "bedplate kube access ada"),
    Command("upgrade", "kube:upgrade", "bedplate kube upgrade --check"),
)
PERSON_COMMANDS = (
    Command("invite", "person:invite", "bedplate person invite ada --apply"),
    Command("remove", "person:remove", "bedplate person remove ada"),
)
HUB_COMMANDS = (
    Command("status", "hub:status", "bedplate hub status --json"),
    Command("logs", "hub:logs", "bedplate hub logs --follow mlflow"),
    Command("restore", "hub:restore", "bedplate hub restore --at 20261127T020000Z"),
    Command("rotate", "hub:rotate", "bedplate hub rotate"),
    Command("prune", "hub:prune", "bedplate hub prune --older 90d --dry-run"),
    Command("purge", "hub:purge", "bedplate hub purge 4b825dc642cb6eb9a060e54bf8d69288fbee4904"),
)
REPORT_COMMANDS = (
    Command("idle", "watch:idle", "bedplate report idle --week --by run"),
    Command("cost", "watch:cost", "bedplate report cost --week --by group"),
)
WATCH_COMMANDS = (
    Command("silence", "watch:silence", "bedplate watch silence NodeDown --place cellar --why 'power work'"),
    Command("test", "watch:send_test", "bedplate watch test GpuMissing"),
)
CAPACITY_COMMANDS = (
    Command("status", "capacity_run:status", "bedplate capacity status fleet.yaml"),
    Command("explain", "capacity_run:explain", "bedplate capacity explain train --fleet fleet.yaml"),
    Command("run", "capacity_run:run", "bedplate capacity run --once --dry-run"),
    Command("pause", "capacity_run:pause", "bedplate capacity pause train"),
    Command("resume", "capacity_run:resume", "bedplate capacity resume train"),
    Command("decide", "capacity:decide", "bedplate capacity decide < observations.jsonl"),
    Command("simulate", "capacity:simulate", "bedplate capacity simulate burst-1600"),
)
CATALOG_COMMANDS = (Command("refresh", "account:refresh_catalog", "bedplate catalog refresh --region us-west-2"),)
GROUPS: Mapping[str, tuple[str, tuple[Command, ...]]] = MappingProxyType(
    {
        "node": ("Configure and check machines.", NODE_COMMANDS),
        "bundle": ("Deliver code to machines.", BUNDLE_COMMANDS),
        "backend": ("Prepare Pulumi's state.", BACKEND_COMMANDS),
        "image": ("Build images.", IMAGE_COMMANDS),
        "capacity": ("Scale machines with pods.", CAPACITY_COMMANDS),
        "vpn": ("Manage VPN and gateways.", VPN_COMMANDS),
        "kube": ("Run the Kubernetes cluster.", KUBE_COMMANDS),
        "person": ("Give or remove access.", PERSON_COMMANDS),
        "hub": ("Keep the records of runs.", HUB_COMMANDS),
        "report": ("Say who uses GPUs, and pays.", REPORT_COMMANDS),
        "watch": ("Silence and test alerts.", WATCH_COMMANDS),
        "catalog": ("Update facts about AWS.", CATALOG_COMMANDS),
    }
)


class _Command(TyperCommand):
    """A command whose argument FLEET can also be passed as `--fleet`."""

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401  as typer passes them
        super().__init__(*args, **settings)
        if "_BEDPLATE_COMPLETE" in os.environ:
            # Slow: it imports the reader of fleet files.
            from bedplate.cli.completion import VALUES, complete

            for param in self.params:
                if getattr(param, "metavar", None) in VALUES:
                    param._custom_shell_complete = complete  # noqa: SLF001  typer has it in declarations only
        argument = next((param for param in self.params if param.opts == ["fleet"]), None)
        if argument is not None:
            text = "Same as the argument FLEET."
            self.params.append(TyperOption(param_decls=["--fleet", _OPTION], metavar="FLEET", help=text, type=str))

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  as typer declares them
        """Run the command with the value of `--fleet` as FLEET."""
        given = [param for param in self.params if ctx.get_parameter_source(param.name).name == "COMMANDLINE"]
        for param in given:
            value = ctx.params[param.name]
            words = value if isinstance(value, list | tuple) else [value]
            # The command of `ssh` may have empty words.
            if param.metavar != "[-- COMMAND]" and any(isinstance(word, str) and not word.strip() for word in words):
                name = param.metavar if param.param_type_name == "argument" else param.opts[0]
                raise InputError(f"{name} is empty", fix="write a value; a variable of your shell may have none")
        fleet = ctx.params.pop(_OPTION, None)
        if fleet is not None:
            if ctx.get_parameter_source("fleet").name == "COMMANDLINE":
                raise InputError("FLEET and --fleet exclude each other", fix="pass the fleet file once")
            ctx.params["fleet"] = fleet
        return super().invoke(ctx)


_OPTION = "fleet_option"
_OTHER_WORDS = {"apply": "up", "deploy": "up"}


class _Group(TyperGroup):
    """A group of commands that suggests one for a misspelt word only: `deploy` is not `destroy`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  as typer declares them
        """Return the command of the first word; raise TyperException, with the similar command, for none."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            # Slow: it imports the catalog.
            from bedplate.errors import edits, nearest

            near = nearest(_OTHER_WORDS.get(args[0], args[0]), self.commands)
            is_typo = near and near[0] == args[0][:1] and edits(args[0], near) <= 2  # noqa: PLR2004  letters
            if near and (is_typo or args[0] in _OTHER_WORDS):
                error.message = f"{error.message.rstrip('.')}. Did you mean '{near}'?"
            raise


def command_path(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the command that the arguments name, such as ("vpn", "sync"); () if they name none."""
    words = [word for word in arguments if not word.startswith("-")]
    if words and words[0] in GROUPS:
        _, commands = GROUPS[words[0]]
        return tuple(words[: 2 if _is_name(words[1:2], commands) else 1])
    return tuple(words[:1]) if _is_name(words[:1], COMMANDS) else ()


def _is_name(words: Sequence[str], commands: Iterable[Command]) -> bool:
    return any([command.name] == list(words) for command in commands)


def make_app(arguments: Sequence[str]) -> TyperGroup:
    """Return the command line, with the command that the arguments name loaded."""
    path = command_path(arguments)
    app = typer.Typer(
        name="bedplate",
        cls=_Group,
        suggest_commands=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        epilog="Example: bedplate check examples/lab.yaml",
        callback=_root,
    )
    _add_commands(app, COMMANDS, path, is_listed=not path)
    for name, (summary, commands) in GROUPS.items():
        group = typer.Typer(
            help=summary, cls=_Group, suggest_commands=False, rich_markup_mode=None, callback=_do_nothing
        )
        _add_commands(group, commands, path[1:] if path[:1] == (name,) else (), is_listed=path == (name,))
        app.add_typer(group, name=name)
    root = cast("TyperGroup", typer.main.get_command(app))
    for param in root.params:
        if isinstance(param, TyperOption) and param.name in {"install_completion", "show_completion"}:
            param.hidden = True  # docs/commands.md describes them
    return root


def _add_commands(app: typer.Typer, commands: Iterable[Command], path: tuple[str, ...], *, is_listed: bool) -> None:
    """Add commands; their summaries are read if the arguments name none of them, so that a help text may list them."""
    for command in commands:
        is_named = path == (command.name,)
        function = command.load() if is_named else command.placeholder()
        summary = command.summary if is_listed else None
        # Without `help` typer shows the whole docstring.
        app.command(command.name, cls=_Command, help=summary, short_help=summary, epilog=f"Example: {command.example}")(
            function
        )


def _do_nothing() -> None:
    """Make a Typer with one command a group of commands."""


def _show_version(*, is_requested: bool) -> None:
    if is_requested:
        show([f"bedplate {__version__}"])
        raise typer.Exit


def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option("--traceback", help="Print a traceback after an internal error.", envvar="BEDPLATE_TRACEBACK"),
    ] = False,
) -> None:
    """Declare and run the infrastructure of a deep-learning lab from one file, FLEET (default: fleet.yaml)."""
