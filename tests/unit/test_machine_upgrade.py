"""`node upgrade` on a worker: its pods are evicted before, and uncordoned after."""

from pathlib import Path

import pytest

from bedplate.machine import upgrade
from bedplate.machine.state import State
from bedplate.machine.upgrade import Operator, Upgrade
from bedplate.nodes.apply import NodeError, NodeResult
from bedplate.programs.worker.leaving import Shutdown
from roles.base import Disruption
from tests.testlab.fleets.variants import lab_node

NAME = "titan-01.cellar"


class Cluster:
    """An API server: evictions that a budget refuses, and the calls that were made."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.refusals = 0

    def drain(self, node: str, shutdown: Shutdown, *_: object) -> bool:
        """Evict the pods."""
        self.calls.append(f"drain {node}")
        assert shutdown.seconds
        self.refusals -= 1
        return self.refusals < 0

    def admit(self, node: str) -> bool:
        """Take pods again."""
        self.calls.append(f"admit {node}")
        return True


@pytest.fixture(params=[True, False], ids=["reboot", "no reboot"])
def needs_reboot(request: pytest.FixtureRequest) -> bool:
    """Return whether the changes need a reboot."""
    return bool(request.param)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, needs_reboot: bool) -> Cluster:
    """Return the cluster of a worker on which a role waits for a drain."""
    cluster = Cluster()
    monkeypatch.setattr(upgrade, "drain", cluster.drain)
    monkeypatch.setattr(upgrade, "uncordon_self", cluster.admit)
    monkeypatch.setattr(upgrade, "node_name", lambda: NAME)
    monkeypatch.setattr(upgrade, "NO_LOGIN", tmp_path / "nologin")
    monkeypatch.setattr(upgrade, "check_machine", lambda *_, **__: {"ok": True})
    waiting = {Disruption.DRAIN: ("Install EFA",), Disruption.REBOOT: ("Install the driver",) * needs_reboot}
    monkeypatch.setattr(upgrade.Upgrade, "_waiting", lambda _, disruption: waiting[disruption])
    monkeypatch.setattr(upgrade.Upgrade, "_requires_reboot", lambda *_: False)

    def apply(*_: object, **__: object) -> NodeResult:
        cluster.calls.append("apply")
        return NodeResult(NAME, [], is_done=True)

    monkeypatch.setattr(upgrade, "apply_roles", apply)
    return cluster


def _upgrade(tmp_path: Path, operator: Operator) -> Upgrade:
    return Upgrade(State(tmp_path, tmp_path), lab_node(NAME), operator, lambda: iter(()))


def test_a_worker_is_upgraded_without_its_pods(cluster: Cluster, tmp_path: Path, *, needs_reboot: bool) -> None:
    """An eviction that a budget refuses is repeated. The node is uncordoned; after a reboot its agent does it."""
    cluster.refusals = 2
    status = _upgrade(tmp_path, Operator()).run("wait")

    end = [] if needs_reboot else [f"admit {NAME}"]
    assert cluster.calls == [*[f"drain {NAME}"] * 3, "apply", *end]
    assert (status is None) == needs_reboot


@pytest.mark.parametrize("has_gone", [True, False])
def test_pods_that_stay_end_the_upgrade(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_gone: bool
) -> None:
    """After the time, or Ctrl-C: nothing is applied, and the node is uncordoned."""
    cluster.refusals = 100
    monkeypatch.setattr(upgrade, "_WAIT", 0.0)
    operator = Operator()
    if has_gone:
        operator.has_gone.set()
    with pytest.raises(NodeError, match="interrupted" if has_gone else "disruption budgets keep its pods"):
        _upgrade(tmp_path, operator).run("wait")
    assert cluster.calls == [f"drain {NAME}", f"admit {NAME}"]


def test_now_ends_pods_that_stay(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upgrade goes on in any case."""
    cluster.refusals = 100
    monkeypatch.setattr(upgrade, "_GRACE", 0.01)
    _upgrade(tmp_path, Operator()).run("now")
    assert "apply" in cluster.calls
