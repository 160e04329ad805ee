"""Alarms that ring unheard: the plan says so where there is anything to ring about, and nobody to hear it."""

from dataclasses import replace

from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.report.plan import unheard_lines
from tests.support.sketch import LANS, ZONES, catalog, group, sketch

ALONE: FleetPlan = plan_fleet(sketch(ZONES), Record({}), catalog())
SITED: FleetPlan = plan_fleet(sketch(ZONES, sites=LANS), Record({}), catalog())
POOLED: FleetPlan = plan_fleet(sketch(ZONES, groups={"box": group({"region": "us-west-2"})}), Record({}), catalog())


def test_tunnels_and_machines_are_worth_telling_somebody_of() -> None:
    """One line, with what to add."""
    for plan in (SITED, POOLED):
        (line,) = unheard_lines(plan)
        assert "`alarms: {email: ...}`" in line


def test_nothing_is_said_where_somebody_is_told_or_nothing_can_fail() -> None:
    """It is advice, not noise."""
    assert not list(unheard_lines(ALONE))
    assert not list(unheard_lines(replace(SITED, alarms="infra@lab.example")))
