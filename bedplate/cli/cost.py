"""`bedplate cost`: what the fleet costs at list price, at its minimum and at its maximum."""

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document


def cost(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the list price by group, rung and region."""
    from bedplate.catalog import load_catalog
    from bedplate.cli.opening import opened, planned
    from bedplate.plan import bill
    from bedplate.report.cost import cost_document, cost_lines

    plan = planned(opened(fleet))
    costs = bill(plan, load_catalog())
    if json:
        show_document(cost_document(plan, costs))
    else:
        show(cost_lines(plan, costs))
    return 0
