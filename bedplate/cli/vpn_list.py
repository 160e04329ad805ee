"""`bedplate vpn list`: whose certificates there are, until when, who was there lately, and what is amiss."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document, tell
from bedplate.cli.vpn_gateways import SshConfig, ask_gateways
from bedplate.cli.vpn_opening import keys_of, now, users_of
from bedplate.errors import BedplateError, PartError, ViolationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

NOBODY_ASKED: "Mapping[str, datetime]" = {}


def list(  # noqa: A001  # the verb
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    seen: Annotated[bool, typer.Option("--seen", help="Ask gateways when each laptop was last there.")] = False,
    ssh_config: SshConfig = None,
    json: Json = False,
) -> int:
    """Show certificates, and how long they last."""
    from bedplate.report.vpn import roll_document, roll_lines
    from vpn.standing import standing

    users = users_of(fleet)
    told = standing(keys_of(users.fleet, fleet), users.people, now())
    there, status = _seen(fleet, ssh_config) if seen else (NOBODY_ASKED, 0)
    if json:
        show_document(roll_document(told, there))
    else:
        show(roll_lines(told, there))
    return ViolationError.exit_code if told.is_failing else status


def _seen(fleet: Path, config: Path | None) -> "tuple[Mapping[str, datetime], int]":
    """Return when each laptop was last at any gateway, and 6 where one did not say; those are named on stderr."""
    from bedplate.cli.opening import opened, planned
    from bedplate.plan.laptops import laptop_gateways
    from vpn.condition import last_seen
    from vpn.told import node_of_gateway

    plan = planned(opened(fleet))
    nodes = tuple(node_of_gateway(plan, gateway) for gateway in laptop_gateways(plan))
    answers = ask_gateways(plan, nodes, config)
    failures = {name: each for name, each in answers.items() if isinstance(each, BedplateError)}
    tell(f"not known who was at {name}: {error.what}" for name, error in failures.items())
    known = last_seen(each for each in answers.values() if not isinstance(each, BedplateError))
    return known, PartError.exit_code if failures else 0
