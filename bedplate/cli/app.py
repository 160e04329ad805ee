"""All commands: where each is implemented, its summary and an example.

A command module imports what it needs at its top, which can take seconds: Pulumi, boto3, rich. `make_app` therefore
imports only the module of the command that the arguments name. All other commands are entries of the help text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from bedplate import __version__
from bedplate.cli.output import show
from bedplate.errors import InputError

Function = Callable[..., int]


@dataclass(frozen=True, slots=True)
class Command:
    """One command: `target` is the module in `bedplate.cli` and its function.

    `summary` is the first line of the function's docstring.
    """

    name: str
    target: str
    summary: str
    example: str

    def load(self) -> Function:
        """Import the command's module and return its function."""
        module, _, function = self.target.partition(":")
        return cast("Function", getattr(import_module(f"bedplate.cli.{module}"), function))

    def placeholder(self) -> Function:
        """Return a function that represents the command in a help text."""

        def unloaded() -> int:
            raise AssertionError(self.name)

        return unloaded


COMMANDS = (
    Command("init", "init:init", "Make a fleet folder.", "bedplate init ~/lab --example gpu-box"),
    Command("check", "plan:check", "Check the fleet file; print every error.", "bedplate check examples/lab.yaml"),
    Command("plan", "plan:plan", "Show addresses, machines and pools.", "bedplate plan examples/lab.yaml"),
    Command("cost", "plan:cost", "Show the hourly list price.", "bedplate cost examples/lab.yaml"),
    Command("quotas", "account:quotas", "Show required and granted quotas.", "bedplate quotas examples/lab.yaml"),
    Command(
        "diff",
        "plan:diff",
        "Show the effects of an edit.",
        "bedplate diff examples/lab.yaml examples/lab-grown.yaml",
    ),
    Command("preview", "deploy:preview", "Show what `up` would change.", "bedplate preview --stack us-west-2"),
    Command("up", "deploy:up", "Deploy the fleet.", "bedplate up --stack shared"),
    Command("refresh", "recover:refresh", "Adopt the real state of AWS.", "bedplate refresh --check"),
    Command("destroy", "deploy:destroy", "Delete what was deployed, except for data.", "bedplate destroy"),
    Command("recover", "recover:recover", "Repair the state after a killed run.", "bedplate recover"),
    Command("ssh", "ssh:ssh", "Log in to a machine.", "bedplate ssh box -- nvidia-smi"),
    Command("schema", "plan:schema", "Print the fleet file's JSON Schema.", "bedplate schema > fleet.schema.json"),
    Command(
        "rehearse",
        "rehearse:rehearse",
        "Run the stacks in a simulated AWS.",
        "bedplate rehearse examples/lab.yaml --stack us-west-2",
    ),
    Command(
        "graph",
        "reach:graph",
        "Print a stack's resources as JSON.",
        "bedplate graph examples/lab.yaml --stack us-west-2",
    ),
    Command(
        "reach",
        "reach:reach",
        "Trace a packet and its reply.",
        "bedplate reach titan-01.cellar us-east-1a examples/lab.yaml",
    ),
    Command(
        "audit-graph",
        "reach:audit_graph",
        "Check the resources that `graph` printed.",
        "bedplate graph examples/lab.yaml --all | bedplate audit-graph -",
    ),
)
NODE_COMMANDS = (
    Command(
        "audit",
        "node_apply:audit",
        "Check machines against the plan.",
        "bedplate node audit titan-01.cellar --fleet examples/lab.yaml",
    ),
    Command("list", "node:list_nodes", "Show the fleet's machines.", "bedplate node list --fleet examples/lab.yaml"),
    Command(
        "apply",
        "node_apply:apply",
        "Configure machines as planned.",
        "bedplate node apply --site cellar --fleet examples/lab.yaml",
    ),
    Command("start", "node_capacity:start", "Start machines of a group.", "bedplate node start workbench-gpu --for 8h"),
    Command("stop", "node_capacity:stop", "Terminate a machine of a group.", "bedplate node stop box-1.us-west-2"),
    Command("trust", "trust:trust", "Record a machine's host key.", "bedplate node trust titan-01.cellar SHA256:..."),
    Command(
        "bootstrap",
        "node:bootstrap",
        "Print a machine's first-boot script.",
        "bedplate node bootstrap titan-01.cellar",
    ),
    Command(
        "upgrade",
        "node_apply:upgrade",
        "Drain, update and reboot machines.",
        "bedplate node upgrade --group workbench-gpu --at-once 2",
    ),
    Command("burn-in", "ssh:burn_in", "Test a machine's GPUs for minutes.", "bedplate node burn-in box-1.us-west-2"),
    Command("logs", "ssh:show_logs", "Show how a machine configured itself.", "bedplate node logs box-1.us-west-2"),
    Command(
        "ssh-config",
        "node:show_ssh_config",
        "Print OpenSSH settings for the fleet.",
        "bedplate node ssh-config --write ~/.ssh/lab",
    ),
)
BUNDLE_COMMANDS = (
    Command("build", "bundle:build", "Build the bundle of this installation.", "bedplate bundle build --python 3.11"),
    Command("push", "bundle:push", "Build the bundle and upload it to all regions.", "bedplate bundle push fleet.yaml"),
    Command(
        "promote", "bundle:promote", "Let the machines of a ring follow a bundle.", "bedplate bundle promote canary"
    ),
    Command("list", "bundle:list_bundles", "Show the bundle of each ring.", "bedplate bundle list --json"),
    Command("diff", "bundle:diff", "Show the files that differ between two bundles.", "bedplate bundle diff stable"),
)
IMAGE_COMMANDS = (
    Command(
        "record", "account:record_image_ids", "Record Ubuntu images in fleet.lock.", "bedplate image record fleet.yaml"
    ),
    Command("plan", "images:plan", "Show the images that the fleet needs.", "bedplate image plan fleet.yaml"),
    Command("bake", "images:bake", "Bake images, copy and record them.", "bedplate image bake worker-x86_64"),
    Command("list", "images:list_images", "Show the fleet's images.", "bedplate image list fleet.yaml"),
    Command(
        "promote",
        "images:promote",
        "Use a finished image for new machines, and replace workers on other images.",
        "bedplate image promote lab-worker-x86_64-1f2e3d4c5b6a",
    ),
    Command(
        "rollback",
        "images:rollback",
        "Return to the previous image of a kind.",
        "bedplate image rollback worker-x86_64",
    ),
    Command(
        "diff",
        "images:diff",
        "Compare two images: inputs, packages, and files of roles.",
        "bedplate image diff lab-worker-x86_64-1f2e lab-worker-x86_64-6a5b",
    ),
    Command("prune", "images:prune", "Delete old images.", "bedplate image prune fleet.yaml --keep 3"),
    Command("sweep", "images:sweep", "Remove what killed bakes have left.", "bedplate image sweep fleet.yaml"),
)
BACKEND_COMMANDS = (Command("init", "account:init", "Prepare the state of the deployments.", "bedplate backend init"),)
VPN_COMMANDS = (
    Command("up", "vpn:up", "Set up the gateways of laptops.", "bedplate vpn up"),
    Command("init", "vpn:init", "Create the certificate authority.", "bedplate vpn init fleet.yaml"),
    Command(
        "add",
        "vpn_certificates:add",
        "Issue a certificate to a laptop.",
        "bedplate vpn add ada fleet.yaml --device phone",
    ),
    Command("renew", "vpn_certificates:renew", "Replace a certificate and its key.", "bedplate vpn renew ada"),
    Command(
        "revoke",
        "vpn:revoke",
        "Revoke a person's certificates, or a gateway's.",
        "bedplate vpn revoke ada --device phone",
    ),
    Command("list", "vpn_certificates:list_certificates", "Show certificates and expiry dates.", "bedplate vpn list"),
    Command("show", "vpn:show_profile", "Print a laptop's OpenVPN profile.", "bedplate vpn show ada --write ada.ovpn"),
    Command("sync", "vpn_sync:sync", "Update certificates and all gateways.", "bedplate vpn sync"),
    Command("timer", "vpn_sync:timer", "Write a systemd timer for daily syncs.", "bedplate vpn timer"),
    Command("tunnels", "vpn_sync:tunnels", "Send gateways their tunnels and keys.", "bedplate vpn tunnels"),
    Command("status", "vpn_sync:status", "Show sessions, tunnels and expiry dates.", "bedplate vpn status"),
    Command("record", "vpn:record_addresses", "Record public gateway addresses.", "bedplate vpn record"),
    Command("guard", "vpn:guard", "Print nftables rules for Linux laptops.", "bedplate vpn guard > lab.nft"),
)
KUBE_COMMANDS = (
    Command("init", "kube:init", "Make the cluster's authorities and start it.", "bedplate kube init"),
    Command(
        "member",
        "kube:member",
        "Replace a member's lost volume, or its data of another cluster.",
        "bedplate kube member replace control-2.us-west-2",
    ),
    Command("join", "kube:join", "Let a machine of a site join the cluster.", "bedplate kube join titan-01.cellar"),
    Command("restore", "kube:restore", "Restore the cluster from a snapshot.", "bedplate kube restore"),
    Command("addons", "kube:addons", "Apply the cluster's add-ons, or pin them.", "bedplate kube addons apply"),
    Command(
        "status",
        "kube:status",
        "Show members, etcd, versions, certificates, nodes by pool, and add-ons.",
        "bedplate kube status",
    ),
    Command("access", "kube:access", "Write the kubeconfig of a person.", "bedplate kube access ada"),
    Command(
        "upgrade",
        "kube:upgrade",
        "Upgrade Kubernetes and containerd on all machines.",
        "bedplate kube upgrade --check",
    ),
)
PERSON_COMMANDS = (
    Command(
        "invite", "person:invite", "Write an archive with a person's access.", "bedplate person invite ada --apply"
    ),
    Command("remove", "person:remove", "Remove a person's access.", "bedplate person remove ada"),
)
CAPACITY_COMMANDS = (
    Command(
        "status",
        "capacity_run:status",
        "Show the machines of each rung, and whether it can have more.",
        "bedplate capacity status fleet.yaml",
    ),
    Command(
        "explain",
        "capacity_run:explain",
        "Explain in sentences what each rung does, what happens next, and why.",
        "bedplate capacity explain train --fleet fleet.yaml",
    ),
    Command(
        "run",
        "capacity_run:run",
        "Run the controller: start and end machines as pods need them.",
        "bedplate capacity run --once --dry-run",
    ),
    Command(
        "pause",
        "capacity_run:pause",
        "Let the controller leave a group alone: it starts and ends nothing there.",
        "bedplate capacity pause train",
    ),
    Command(
        "resume",
        "capacity_run:resume",
        "Continue the controller's work after `capacity pause`.",
        "bedplate capacity resume train",
    ),
    Command(
        "decide",
        "capacity:decide",
        "Decide on observations from stdin.",
        "bedplate capacity decide < observations.jsonl",
    ),
    Command("simulate", "capacity:simulate", "Simulate a scenario.", "bedplate capacity simulate burst-1600"),
)
CATALOG_COMMANDS = (
    Command(
        "refresh",
        "account:refresh_catalog",
        "Update types, offers, prices and checksums.",
        "bedplate catalog refresh --region us-west-2",
    ),
)
GROUPS: Mapping[str, tuple[str, tuple[Command, ...]]] = MappingProxyType(
    {
        "node": ("Configure and check machines.", NODE_COMMANDS),
        "bundle": ("The code that machines run.", BUNDLE_COMMANDS),
        "backend": ("State of the deployments.", BACKEND_COMMANDS),
        "image": ("Machine images.", IMAGE_COMMANDS),
        "capacity": ("Machines as pods need them.", CAPACITY_COMMANDS),
        "vpn": ("VPN certificates and gateways.", VPN_COMMANDS),
        "kube": ("The Kubernetes cluster.", KUBE_COMMANDS),
        "person": ("Access of people.", PERSON_COMMANDS),
        "catalog": ("Facts about AWS.", CATALOG_COMMANDS),
    }
)


class _Command(TyperCommand):
    """A command whose argument FLEET can also be passed as `--fleet`."""

    def __init__(self, *args: Any, **settings: Any) -> None:  # noqa: ANN401  as typer passes them
        super().__init__(*args, **settings)
        argument = next((param for param in self.params if param.opts == ["fleet"]), None)
        if argument is not None:
            text = "As the argument FLEET."
            self.params.append(TyperOption(param_decls=["--fleet", _OPTION], metavar="FLEET", help=text, type=str))

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  as typer declares them
        """Run the command with the value of `--fleet` as FLEET."""
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
    _add_commands(app, COMMANDS, path)
    for name, (summary, commands) in GROUPS.items():
        group = typer.Typer(
            help=summary, cls=_Group, suggest_commands=False, rich_markup_mode=None, callback=_do_nothing
        )
        _add_commands(group, commands, path[1:] if path[:1] == (name,) else ())
        app.add_typer(group, name=name)
    root = cast("TyperGroup", typer.main.get_command(app))
    for param in root.params:
        if isinstance(param, TyperOption) and param.name in {"install_completion", "show_completion"}:
            param.hidden = True  # docs/commands.md describes them
    return root


def _add_commands(app: typer.Typer, commands: Iterable[Command], path: tuple[str, ...]) -> None:
    for command in commands:
        is_named = path == (command.name,)
        function = command.load() if is_named else command.placeholder()
        # Without `help` typer shows the whole docstring.
        text = None if is_named else command.summary
        app.command(
            command.name, cls=_Command, help=text, short_help=command.summary, epilog=f"Example: {command.example}"
        )(function)


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
