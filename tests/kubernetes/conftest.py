"""Fixtures of tests on a real API server: one control plane for all, and a namespace for each test."""

from collections.abc import Iterator
from itertools import count

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace

from tests.testlab.kubernetes.binaries import find_programs
from tests.testlab.kubernetes.control_plane import ControlPlane
from tests.testlab.kubernetes.queues import Queues, queue_folder
from tests.testlab.run import lack

_NUMBERS = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests at night only, on one worker: they share a control plane."""
    for item in items:
        item.add_marker(pytest.mark.nightly)
        item.add_marker(pytest.mark.xdist_group("kubernetes"))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Yield a control plane with kwok and without nodes, for all tests."""
    programs = find_programs()
    if programs is None:
        lack("needs the programs of Kubernetes: `python -m tests.testlab.kubernetes` builds them")
    with ControlPlane(programs) as plane:
        plane.start_kwok()
        yield plane


@pytest.fixture(scope="module")
def queues() -> Iterator[Queues]:
    """Yield Kueue and JobSet with a control plane and kwok of their own, without nodes, for the tests of a module."""
    programs, folder = find_programs(), queue_folder()
    if programs is None:
        lack("needs the programs of Kubernetes: `python -m tests.testlab.kubernetes` builds them")
    with ControlPlane(programs) as plane, Queues(plane, folder) as queues:
        plane.start_kwok()
        yield queues


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Yield a namespace of one test, in which pods are accepted; it is deleted after the test."""
    client, name = control_plane.client(), f"test-{next(_NUMBERS)}"
    client.create(Namespace(metadata=ObjectMeta(name=name)))
    control_plane.wait_for_namespace(name)
    yield name
    client.delete(Namespace, name)
