"""`bedplate vpn tunnels`: tunnels, carried to the gateways that end them: to AWS, and between the fleet's own."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.cli.vpn_gateways import SshConfig, ways_to
from bedplate.cli.vpn_opening import PassphraseFile, known_passphrase
from bedplate.errors import InputError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from bedplate.cli.vpn_ends import Asked
    from bedplate.plan import FleetPlan

NewKeys = Annotated[
    bool,
    typer.Option("--new-keys", help="Make new keys for the tunnels between gateways of the fleet, and carry them."),
]


def tunnels(
    fleet: FleetFile = DEFAULT_FLEET,
    *,
    new_keys: NewKeys = False,
    ssh_config: SshConfig = None,
    passphrase_file: PassphraseFile = None,
) -> int:
    """Bring tunnels, with their keys, to the gateways at their ends.

    Those to AWS have its keys, those between gateways the fleet's own.
    """
    with turn_of(fleet):
        return _carried(fleet, ssh_config, passphrase_file, new_keys=new_keys)


def turn_of(fleet: Path) -> "AbstractContextManager[None]":
    """Return the turn of one who carries tunnels; HeldError while somebody else does from the same file.

    Whoever comes second would bring an older plan, or other keys, after the newer.
    """
    from bedplate.hold import held

    return held(fleet.with_suffix(".tunnels"))


def _carried(fleet: Path, config: Path | None, passphrase: Path | None, *, new_keys: bool) -> int:
    from bedplate.cli.opening import opened, planned
    from bedplate.cli.vpn_ends import asked_gateways, door_of
    from bedplate.cli.vpn_proofs import proofs_of

    plan = planned(opened(fleet))
    door = door_of(plan)
    proofs = proofs_of(plan, fleet, cache(known_passphrase(passphrase)), anew=new_keys)
    asked = asked_gateways(plan, door, proofs)
    if not asked:
        fix = "`sites` makes some, and so do gateways of laptops in two regions where `interconnect` is none"
        raise InputError("the fleet has no tunnels", fix=fix)
    bring(plan, asked, config)
    return 0


def bring(plan: "FleetPlan", asked: "dict[str, Asked]", config: Path | None) -> None:
    """Bring gateways their tunnels, and say what was done; PartError names those that have not all of theirs."""
    from bedplate.plan.nodes import standing_nodes
    from bedplate.report.tunnels import carried_tunnel_lines
    from vpn.sites.carry import CarriedTunnels, carry_tunnels

    known = {name: gateway for name, (gateway, _) in asked.items() if gateway}
    amiss = {name: trouble for name, (_, trouble) in asked.items() if trouble}
    nodes = [node for node in standing_nodes(plan) if node.name in known]
    with ways_to(plan, nodes, config) as way:
        done = carry_tunnels(known, way)
    carried = CarriedTunnels(done.laid, {**amiss, **done.failures})
    show(carried_tunnel_lines(carried))
    carried.check()
