"""`bedplate quotas`: what has to be asked of AWS before the fleet can grow."""

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document


def quotas(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the quotas that the fleet needs."""
    from bedplate.catalog import load_catalog
    from bedplate.cli.opening import opened, planned
    from bedplate.plan.quotas import needs
    from bedplate.report.quotas import quota_document, quota_lines

    plan = planned(opened(fleet))
    wanted = needs(plan, load_catalog())
    if json:
        show_document(quota_document(wanted, {}))
    else:
        show(quota_lines(wanted, {}))
    return 0
