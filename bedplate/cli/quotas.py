"""`bedplate quotas`: what has to be asked of AWS before the fleet can grow."""

from typing import TYPE_CHECKING

from bedplate.cli.options import DEFAULT_FLEET, FleetFile, Json
from bedplate.cli.output import show, show_document, tell
from bedplate.errors import BedplateError, InputError, PartError, ViolationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bedplate.plan import FleetPlan
    from bedplate.plan.quotas import Granted, Need

UNASKED = "no AWS credentials here, so nobody could ask what the account was granted"


def quotas(fleet: FleetFile = DEFAULT_FLEET, *, json: Json = False) -> int:
    """Show the quotas that the fleet needs, and has."""
    from bedplate.catalog import load_catalog
    from bedplate.cli.opening import opened, planned
    from bedplate.plan.quotas import needs
    from bedplate.report.quotas import quota_document, quota_lines, short

    plan = planned(opened(fleet))
    wanted = needs(plan, load_catalog())
    granted, status = _granted(plan, wanted)
    if json:
        show_document(quota_document(wanted, granted))
    else:
        show(quota_lines(wanted, granted))
    return ViolationError.exit_code if short(wanted, granted) else status


def _granted(plan: "FleetPlan", wanted: "tuple[Need, ...]") -> "tuple[Granted, int]":
    """Return what the account has, and 6 where it could not be asked whole; the table is worth having without it."""
    from bedplate.account.door import check_account, open_door
    from bedplate.account.quotas import granted
    from bedplate.account.regions import failure_lines
    from bedplate.account.trouble import NoCredentials

    try:
        door = open_door()
        check_account(door, plan.account, plan.home.name)
    except InputError:
        raise
    except NoCredentials:
        tell([UNASKED])
        return {}, 0
    except BedplateError as error:
        _tell_unanswered([error.what], error)
        return {}, PartError.exit_code
    answers = granted(door, wanted)
    if answers.failures:
        _tell_unanswered(failure_lines(answers.failures), next(iter(answers.failures.values())))
    values = {key: value for each in answers.given.values() for key, value in each.items()}
    return values, PartError.exit_code if answers.failures else 0


def _tell_unanswered(lines: "Iterable[str]", error: BedplateError) -> None:
    fixes = (f"  fix  {error.fix}",) if error.fix else ()
    tell((*(f"not known what was granted: {line}" for line in lines), *fixes))
