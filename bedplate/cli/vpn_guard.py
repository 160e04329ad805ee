"""`bedplate vpn guard`: what a Linux laptop may load so that nothing for the fleet leaves past its tunnel."""

from bedplate.cli.options import DEFAULT_FLEET, FleetFile
from bedplate.cli.output import show
from bedplate.errors import InputError


def guard(fleet: FleetFile = DEFAULT_FLEET) -> int:
    """Print a Linux laptop's packet filter."""
    from bedplate.cli.opening import opened, planned
    from bedplate.plan.laptops import laptop_gateways
    from vpn.laptops.guard import laptop_rules

    gateways = laptop_gateways(planned(opened(fleet)))
    if not gateways:
        raise InputError("the fleet has no gateway of laptops", fix="name one: `vpn.laptops.gateways`")
    show(laptop_rules(gateways).splitlines())
    return 0
