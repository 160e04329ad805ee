"""A control plane that grows from one member to three and five: real members, which stay one cluster."""

from collections.abc import Iterator

import pytest

from bedplate.cli import run
from bedplate.lock import lock_path, read_lock
from tests.testlab.machines.control_plane import ControlPlane, control_plane
from tests.testlab.network.netlab import LabHost, until

pytestmark = pytest.mark.nightly
NAMES = tuple(f"control-{number}.us-west-2" for number in range(1, 6))
SWITCH: list[LabHost] = []


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a control plane of one member, with an object."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("kube")
        for plane in control_plane(folder, patch, lambda _, switch: SWITCH.append(switch), count=1):
            assert run(["kube", "init", str(plane.fleet)]) == 0
            plane.kubectl(NAMES[0], "create namespace grace")
            yield plane


@pytest.mark.parametrize("count", [3, 5])
def test_new_members_join_the_cluster(plane: ControlPlane, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """`kube init` lets them copy the data of the first, one after the other: its id and its objects are everywhere."""
    cluster = read_lock(lock_path(plane.fleet), "lab").etcd
    plane.resize(count)
    new = NAMES[len(plane.hosts) : count]
    plane.add(SWITCH[-1], *new)
    # As after `node apply`: the first member has the new number of members in its files.
    plane.kill(NAMES[0])
    for name in (NAMES[0], *new):
        plane.boot(name)
    until(lambda: plane.answers(NAMES[0]), 120, "the first member is ready", every=1)

    assert run(["kube", "init", str(plane.fleet)]) == 0, capsys.readouterr().err

    assert read_lock(lock_path(plane.fleet), "lab").etcd == cluster
    for name in NAMES[:count]:
        assert f'"cluster": "{cluster}"' in plane.shell(name, "bedplate-member status")
        assert "namespace/grace" in plane.kubectl(name, "get namespaces --output name")
    nodes = plane.kubectl(NAMES[0], "get nodes --output name").split()
    assert sorted(nodes) == [f"node/{name}" for name in NAMES[:count]]
