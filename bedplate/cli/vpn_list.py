"""`bedplate vpn list`: whose certificates there are, until when, and what is amiss."""

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document
from bedplate.cli.vpn_opening import keys_of, now, users_of
from bedplate.errors import ViolationError


def list(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:  # noqa: A001  # the verb
    """Show certificates, and how long they last."""
    from bedplate.report.vpn import roll_document, roll_lines
    from vpn.standing import standing

    users = users_of(fleet)
    told = standing(keys_of(users.fleet, fleet), users.people, now())
    if json:
        show_document(roll_document(told))
    else:
        show(roll_lines(told))
    return ViolationError.exit_code if told.is_failing else 0
