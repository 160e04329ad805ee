"""What every compliance check is told: the machine, as testinfra's `host`, and what it ought to be, as `node`."""

from pathlib import Path

import pytest
from testinfra.host import Host

from bedplate.catalog import load_catalog
from bedplate.cli.opening import opened, planned
from bedplate.plan import FleetPlan
from bedplate.plan.node import NodePlan
from bedplate.plan.nodes import node_of


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the fleet file that says what each machine ought to be."""
    parser.addoption("--fleet", default="fleet.yaml", help="the fleet file that the machines belong to")
    parser.addoption("--node", default=None, help="the machine's name in the plan, where its host name is another")


@pytest.fixture(scope="session")
def plan(request: pytest.FixtureRequest) -> FleetPlan:
    """Give the plan of the fleet."""
    return planned(opened(Path(request.config.getoption("--fleet"))))


@pytest.fixture
def node(request: pytest.FixtureRequest, host: Host, plan: FleetPlan) -> NodePlan:
    """Give what the machine under test ought to be."""
    name = request.config.getoption("--node") or host.backend.hostname
    return node_of(plan, name, load_catalog())
