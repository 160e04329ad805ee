"""The order of stacks: each change of regions and of the interconnect works, and another order fails."""

from collections.abc import Mapping

import pytest

from bedplate.catalog import load_catalog
from bedplate.operate.rehearsal import teardown_waves, waves, waves_of_change
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal.rehearse import Course, Report, Wave, rehearse
from tests.testlab.fleets.sketch import LANS, ZONES, laptops, sketch

NOTHING = Record({})
WEST, EAST = ({name: ZONES[name][:1]} for name in list(ZONES)[:2])


def with_site(regions: Mapping[str, tuple[str, ...]], interconnect: str, record: Record = NOTHING) -> FleetPlan:
    """Return the plan of a fleet with laptop gateways in these regions and a site."""
    vpn = laptops(*({"region": name} for name in regions))
    fleet = sketch(regions, sites=LANS, network={"interconnect": interconnect}, vpn=vpn)
    return plan_fleet(fleet, record, load_catalog())


def codes_of(report: Report) -> set[str]:
    """Return the error codes of a rehearsal."""
    return {failure.code for stack in report.stacks for failure in stack.failures}


@pytest.mark.parametrize(
    ("regions", "before", "after"),
    [
        (WEST | EAST, "transit", "peering"),
        (WEST | EAST, "peering", "transit"),
        (WEST, "transit", "transit"),
    ],
    ids=["transit to peering", "peering to transit", "two regions to one"],
)
def test_a_change_works_in_its_order(regions: Mapping[str, tuple[str, ...]], before: str, after: str) -> None:
    """Regions, interconnect and VPN connections change without an error, and everything can be destroyed."""
    plan = with_site(WEST | EAST, before)
    changed = with_site(regions, after, plan.recorded())

    course = Course(waves_of_change(plan, changed), teardown_waves(changed))
    report = rehearse(plan.account, waves(plan), course)

    assert report.ok, codes_of(report)


def test_transit_gateways_in_use_are_not_deleted() -> None:
    """In the order of creation, the regions would delete transit gateways that `links` still uses."""
    plan, changed = (
        plan_fleet(sketch(WEST | EAST, network={"interconnect": name}), NOTHING, load_catalog())
        for name in ("transit", "peering")
    )

    report = rehearse(plan.account, waves(plan), Course([Wave(wave) for wave in waves(changed)]))

    assert codes_of(report) == {"IncorrectState"}
