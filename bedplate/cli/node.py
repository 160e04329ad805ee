"""The commands of machines: those that list, start, trust, configure, upgrade and check them."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import By, Json, Pythons, Terminal, WithFleet, WithLogin, WithLoginName, printed
from bedplate.operate import apply as applies
from bedplate.operate import login, nodes
from bedplate.operate import trust as host_keys

Names = Annotated[list[str] | None, typer.Argument(metavar="MACHINE...", help="Machines, such as titan-01.cellar.")]
Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="GROUP", help="Running machines of a group; repeatable.")
]
Sites = Annotated[list[str] | None, typer.Option("--site", metavar="SITE", help="All machines of a site; repeatable.")]
Every = Annotated[bool, typer.Option("--all", help="All permanent machines: gateways, and machines of sites.")]


def list_nodes(
    *,
    live: Annotated[bool, typer.Option("--live", help="Ask AWS for the running machines of groups instead.")] = False,
    operator: WithFleet,
    json: Json = False,
) -> int:
    """Show the fleet's machines."""
    return printed(nodes.list_nodes(operator, is_live=live), as_json=json)


def bootstrap(
    name: Annotated[str, typer.Argument(metavar="MACHINE", help="A machine of a site, such as titan-01.cellar.")],
    *,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Write the script, a bundle and a cloud-init seed to DIR."),
    ] = None,
    python: Pythons = None,
    operator: WithFleet,
) -> int:
    """Print a machine's first-boot script.

    With --folder, the machine configures itself: copy DIR to a USB stick and run its script as root there. A stick with
    the label CIDATA does so by cloud-init.
    """
    return printed(nodes.first_boot(operator, name, folder, python or ()))


def show_ssh_config(
    *,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write to FILE, and host keys to FILE.known_hosts.")
    ] = None,
    operator: WithLoginName,
) -> int:
    """Print OpenSSH settings for the fleet."""
    return printed(nodes.write_settings(operator, write))


def start(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A group of the fleet file.")],
    count: Annotated[int, typer.Argument(metavar="[N]", min=1, help="Machines that run afterwards, in total.")] = 1,
    *,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="8h", help="Stop them after this time. Default: no end.")
    ] = None,
    operator: WithFleet,
) -> None:
    """Start machines of a group.

    Tries the rungs of its ladder in order, until N machines run in total. Running machines count.
    """
    nodes.start(operator, group, count, duration)


def stop(
    name: Annotated[str, typer.Argument(metavar="MACHINE", help="A machine of a group, or its instance id.")],
    operator: Annotated[Terminal, By(("yes",), is_argument=False)],
) -> None:
    """Terminate a machine of a group.

    Its group does not replace it. Gateways, machines of sites and of the control plane are refused.
    """
    nodes.stop(operator, name)


def trust(  # noqa: PLR0913  each is an option of the command line
    name: Annotated[str | None, typer.Argument(metavar="MACHINE", help="A machine, such as titan-01.cellar.")] = None,
    sha256: Annotated[
        str | None,
        typer.Argument(metavar="SHA256:...", help="Fingerprint from the machine's console. Default: ask AWS."),
    ] = None,
    *,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="All running machines of a group; repeatable.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the recorded key of a reinstalled machine.")
    ] = False,
    address: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="Connect to this address instead of the planned one.")
    ] = None,
    operator: Annotated[Terminal, By(("ssh_config",), is_argument=False)],
) -> int:
    """Record a machine's host key."""
    named = login.registered_name(operator, name) if name else None
    return host_keys.trust(operator, named, sha256, group or (), address, replace=replace)


def apply(  # noqa: PLR0913  each is an option of the command line
    names: Names = None,
    *,
    group: Groups = None,
    site: Sites = None,
    every: Every = False,
    check: Annotated[bool, typer.Option("--check", help="Only show what would change.")] = False,
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="Only apply this role; repeatable.")
    ] = None,
    operator: WithLogin,
    json: Json = False,
) -> int:
    """Configure machines as planned."""
    selection = _selection(names, group, site, every=every)
    return printed(applies.apply(operator, selection, role or (), check=check), as_json=json)


def _selection(
    names: list[str] | None, groups: list[str] | None, sites: list[str] | None, *, every: bool
) -> applies.Selection:
    return applies.Selection(names or (), groups or (), sites or (), every)


def audit(  # noqa: PLR0913  each is an option of the command line
    names: Names = None,
    *,
    group: Groups = None,
    site: Sites = None,
    every: Every = False,
    local: Annotated[bool, typer.Option("--local", help="NAME is this machine: check it without SSH.")] = False,
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="Only check rules of this role; repeatable.")
    ] = None,
    operator: WithLogin,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also show rules that are met.")] = False,
    json: Json = False,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit XML report.")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML report.")] = None,
) -> int:
    """Check machines against the plan.

    Without names, all permanent machines. The exit status is 3 if a rule fails, 6 if a machine was not checked.
    """
    selection = _selection(names, group, site, every=every)
    reports = applies.Reports(junit, html, verbose)
    return printed(applies.audit(operator, selection, role or (), reports, is_local=local), as_json=json)


def upgrade(  # noqa: PLR0913  each is an option of the command line
    names: Names = None,
    *,
    group: Groups = None,
    site: Sites = None,
    every: Every = False,
    at_once: Annotated[int, typer.Option("--at-once", metavar="N", min=1, help="Upgrade N machines at a time.")] = 1,
    now: Annotated[bool, typer.Option("--now", help="End the sessions of people instead of waiting for them.")] = False,
    operator: WithLogin,
    json: Json = False,
) -> int:
    """Drain, update and reboot machines.

    Applies all roles, also those whose changes wait. Refuses logins and waits up to an hour until nobody works on the
    machine, reboots it if required, and runs the health gate. Stops at the first machine that fails: exit status 6.
    """
    selection = _selection(names, group, site, every=every)
    return printed(applies.upgrade(operator, selection, at_once, "now" if now else "wait"), as_json=json)
