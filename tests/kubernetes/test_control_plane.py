"""Three real members from the output of the roles: init, losses, restore, renewal, encryption.

Containers are replaced by processes: see `tests.testlab.machines.control_plane`. The tests run in this order on one
control plane, because its start takes most of the time.
"""

from collections.abc import Iterator

import pytest

from bedplate.cli import run
from tests.testlab.machines.control_plane import NAMES, ControlPlane, control_plane

pytestmark = pytest.mark.nightly
FIRST, SECOND, THIRD = NAMES


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield the control plane of this module."""
    with pytest.MonkeyPatch.context() as patch:
        yield from control_plane(tmp_path_factory.mktemp("kube"), patch)


def test_one_command_starts_the_cluster(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    """While a member is away, the other two form the cluster (exit 6); the second run completes it."""
    plane.kill(THIRD)
    assert run(["kube", "init", str(plane.fleet)]) == 6
    assert f"{THIRD} not reached" in capsys.readouterr().err
    assert plane.kubectl(FIRST, "get --raw /readyz") == "ok"

    plane.boot(THIRD)
    assert run(["kube", "init", str(plane.fleet)]) == 0

    nodes = plane.kubectl(THIRD, "get nodes --output name --selector node-role.kubernetes.io/control-plane").split()
    assert nodes == [f"node/{name}" for name in NAMES]
