"""What tests of the rehearsal share: one simulated AWS for all of a file, and a world of a kind's specimens in it."""

from collections.abc import Iterator

import pytest

from bedplate.rehearsal.simulation import Simulation, running
from tests.testlab.kinds.world import World
from tests.testlab.rehearsal.programs import ACCOUNT


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    """Run one simulated AWS for all of a file: a region's first use is slow."""
    with running(ACCOUNT) as simulation:
        yield simulation


@pytest.fixture
def world(simulation: Simulation) -> World:
    """Return a fresh world; whatever it holds is in a VPC of its own."""
    return World(simulation.region("us-west-2"))
