"""Fixtures for tests of the rehearsal: one simulated AWS for each file, and resources for examples of kinds."""

from collections.abc import Iterator

import pytest

from bedplate.rehearsal.simulation import Simulation, running
from tests.testlab.kinds.world import World
from tests.testlab.rehearsal.programs import ACCOUNT


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    """Run one simulated AWS for all tests of a file, because the first use of a region is slow."""
    with running(ACCOUNT) as simulation:
        yield simulation


@pytest.fixture
def world(simulation: Simulation) -> World:
    """Return new resources for the examples of kinds, in a separate VPC."""
    return World(simulation.region("us-west-2"))
