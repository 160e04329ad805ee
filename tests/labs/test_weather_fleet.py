"""A whole fleet made while replies are lost, against the same fleet in fair weather."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli.waves import waves
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal.call import Call
from bedplate.rehearsal.rehearse import Rehearsal
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import World
from bedplate.rehearsal.weather import FAIR, Fault, Trouble, Weather
from tests.support.inventory import inventory
from tests.support.sketch import group, laptops, sketch

pytestmark = pytest.mark.nightly


@dataclass(frozen=True, slots=True)
class Made:
    """What a fleet came to: moto's whole content, the resources by stack, and every fault that was met."""

    content: Counter[str]
    resources: Mapping[str, frozenset[str]]
    met: Mapping[str, int]
    calls: frozenset[str]


REGIONS = {"us-west-2": ("us-west-2a",), "us-east-1": ("us-east-1a",)}


def _lab() -> FleetPlan:
    """Return a fleet in which every part of a lab is there once, and two regions that transit gateways link."""
    fleet = sketch(
        REGIONS,
        sites={"cellar": "192.168.40.0/22"},
        vpn=laptops({"region": "us-west-2"}),
        groups={"bench": group({"region": "us-west-2"})},
        storage={
            "home": {"kind": "efs", "region": "us-west-2", "mount": "/home"},
            "data": {"kind": "s3", "regions": ("us-west-2", "us-east-1")},
        },
    )
    return plan_fleet(fleet, Record({}), load_catalog())


def _peered() -> FleetPlan:
    """Return a fleet of two regions whose networks are peered."""
    return plan_fleet(sketch(REGIONS, network={"interconnect": "peering"}), Record({}), load_catalog())


def _made(plan: FleetPlan, weather: Weather) -> Made:
    with running(plan.account) as simulation:
        heard: set[str] = set()
        simulation.climate.weather = weather
        rehearsal = Rehearsal(World(simulation), lambda *_: None, weather)
        ask = simulation._ask  # noqa: SLF001  # to hear of every call

        def hearing(call: Call) -> dict[str, object]:
            heard.update(() if call.is_reading else (call.name,))
            return ask(call)

        simulation._ask = hearing  # type: ignore[method-assign]  # noqa: SLF001
        rehearsal.create(waves(plan))
        assert not [report.failures for report in rehearsal.reports.values() if report.failures]
        resources = {name: frozenset(state.entries) for name, state in rehearsal.world.snapshots.items()}
        return Made(inventory(plan.account), resources, dict(simulation.climate.met), frozenset(heard))


@pytest.fixture(scope="module", params=[_lab, _peered], ids=["lab", "peered"])
def plan(request: pytest.FixtureRequest) -> FleetPlan:
    """Return the fleet to be made."""
    made: FleetPlan = request.param()
    return made


@pytest.fixture(scope="module")
def fair(plan: FleetPlan) -> Made:
    """Make the fleet while all is well."""
    return _made(plan, FAIR)


@pytest.fixture(scope="module")
def stormy(plan: FleetPlan, fair: Made) -> Made:
    """Make it while the reply to every call that changes anything is lost once."""
    return _made(plan, Weather(tuple(Fault(Trouble.LOST_REPLIES, call) for call in sorted(fair.calls))))


def test_no_call_makes_anything_twice(fair: Made, stormy: Made) -> None:
    """Whatever moto holds, class by class and region by region, is there as often as in fair weather."""
    assert +(stormy.content - fair.content) == Counter()
    assert +(fair.content - stormy.content) == Counter()


def test_every_call_lost_its_reply(fair: Made, stormy: Made) -> None:
    """The promise is kept for each call of the fleet, not for some."""
    assert {f"lost-replies:{call}" for call in fair.calls} == {fault for fault, met in stormy.met.items() if met}
    assert {"ec2.create_vpc", "iam.create_role", "kms.create_key"} <= fair.calls


def test_the_stacks_know_all_of_it(fair: Made, stormy: Made) -> None:
    """Every stack has the resources that it has in fair weather."""
    assert stormy.resources == fair.resources
