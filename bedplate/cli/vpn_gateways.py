"""Telling a fleet's gateways what its keys have come to: one step of several commands."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from bedplate.cli.output import show
from bedplate.cli.vpn_opening import now

if TYPE_CHECKING:
    from bedplate.plan import FleetPlan
    from vpn.pki import Pki


def tell_gateways(plan: "FleetPlan", pki: "Pki", cut: Iterable[str] = ()) -> None:
    """Send every gateway whom it lets in and what was revoked, and say what was cut; PartError names the unreached."""
    from bedplate.plan.laptops import laptop_gateways
    from bedplate.report.vpn import carried_lines
    from vpn.laptops.carry import carry
    from vpn.ssh_way import SshWay
    from vpn.told import book_of, host_of

    gateways = laptop_gateways(plan)
    if not gateways:
        return
    carried = carry(gateways, book_of(pki, now()), lambda gateway: SshWay(host_of(plan, gateway)), cut=cut)
    show(carried_lines(carried))
    carried.check()
