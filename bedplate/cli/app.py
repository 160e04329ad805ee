"""The commands, each with the example that its help shows."""

from collections.abc import Callable
from typing import Annotated

import typer

from bedplate import __version__
from bedplate.cli.catalog import record, refresh
from bedplate.cli.graph import audit_graph, graph, reach
from bedplate.cli.node import bootstrap, list_nodes, ssh_config, trust
from bedplate.cli.node_apply import apply, audit
from bedplate.cli.output import show
from bedplate.cli.plan import check, cost, diff, plan, quotas, schema
from bedplate.cli.rehearse import rehearse
from bedplate.cli.vpn import add, guard, init, list_certificates, renew, revoke
from bedplate.cli.vpn import record as record_doors
from bedplate.cli.vpn import show as show_profile
from bedplate.cli.vpn_tunnels import status, sync, timer, tunnels

EXAMPLES: tuple[tuple[Callable[..., int], str], ...] = (
    (check, "bedplate check examples/lab.yaml"),
    (plan, "bedplate plan examples/lab.yaml"),
    (cost, "bedplate cost examples/lab.yaml"),
    (quotas, "bedplate quotas examples/lab.yaml"),
    (diff, "bedplate diff examples/lab-grown.yaml examples/lab.yaml"),
    (schema, "bedplate schema > fleet.schema.json"),
    (rehearse, "bedplate rehearse examples/lab.yaml --stack us-west-2"),
    (graph, "bedplate graph examples/lab.yaml --stack us-west-2"),
    (reach, "bedplate reach titan-01.cellar us-east-1a examples/lab.yaml"),
    (audit_graph, "bedplate graph examples/lab.yaml --all | bedplate audit-graph -"),
)
# Commands of a noun: what the noun is, its verbs.
NOUNS: dict[str, tuple[str, tuple[tuple[Callable[..., int], str], ...]]] = {
    "node": (
        "The fleet's machines.",
        (
            (audit, "bedplate node audit titan-01.cellar --fleet examples/lab.yaml"),
            (list_nodes, "bedplate node list --fleet examples/lab.yaml"),
            (apply, "bedplate node apply --site cellar --fleet examples/lab.yaml"),
            (trust, "bedplate node trust titan-01.cellar SHA256:..."),
            (bootstrap, "bedplate node bootstrap titan-01.cellar"),
            (ssh_config, "bedplate node ssh-config --write ~/.ssh/lab"),
        ),
    ),
    "image": ("Images that machines start from.", ((record, "bedplate image record fleet.yaml"),)),
    "vpn": (
        "The VPN: who may join by a laptop, and how its gateways are.",
        (
            (init, "bedplate vpn init fleet.yaml"),
            (add, "bedplate vpn add ada fleet.yaml --device phone"),
            (renew, "bedplate vpn renew ada"),
            (revoke, "bedplate vpn revoke ada --device phone"),
            (list_certificates, "bedplate vpn list"),
            (show_profile, "bedplate vpn show ada > ada.ovpn"),
            (sync, "bedplate vpn sync"),
            (timer, "bedplate vpn timer"),
            (tunnels, "bedplate vpn tunnels"),
            (status, "bedplate vpn status"),
            (record_doors, "bedplate vpn record"),
            (guard, "bedplate vpn guard > lab.nft"),
        ),
    ),
    "catalog": ("Facts about AWS.", ((refresh, "bedplate catalog refresh --region us-west-2"),)),
}

app = typer.Typer(
    name="bedplate",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Example: bedplate check examples/lab.yaml",
)

for command, example in EXAMPLES:
    app.command(epilog=f"Example: {example}")(command)

for noun, (meaning, verbs) in NOUNS.items():
    group = typer.Typer(help=meaning, rich_markup_mode=None)
    for command, example in verbs:
        # Python has a `list` of its own, so these functions are called after what they list.
        verb = "list" if command.__name__.startswith("list_") else None
        group.command(verb, epilog=f"Example: {example}")(command)
    # A group of one verb is still a group.
    group.callback()(lambda: None)
    app.add_typer(group, name=noun)


def _show_version(*, asked: bool) -> None:
    if asked:
        show([f"bedplate {__version__}"])
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option("--traceback", help="Print the traceback of a defect.", envvar="BEDPLATE_TRACEBACK"),
    ] = False,
) -> None:
    """Declare and run a deep-learning lab's infrastructure from one file, FLEET (default: fleet.yaml)."""
