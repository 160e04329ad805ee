"""Fixtures of tests on booted nodes: required programs, a node lab for each module, and shared sets of nodes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.testlab.machines.gateways import LaptopGateways, laptop_gateways
from tests.testlab.machines.lab import WORKBENCH, Departure, FleetFolder, Lab, applied_lab, make_fleet_folder
from tests.testlab.machines.layers import baked
from tests.testlab.machines.node_lab import Node, NodeLab
from tests.testlab.machines.whole_hub import Laptop, WholeHub, whole_hub
from tests.testlab.machines.whole_runs import WholeRuns, whole_runs
from tests.testlab.run import need_program, need_root

# Modules that share the nodes of a session-scoped fixture.
_SHARED_NODES = {
    "test_lab": "lab",
    "test_planted_defects": "lab",
    "test_laptop_gateway": "gateways",
    "test_laptop_client": "gateways",
    "test_laptop_revoked": "gateways",
    "test_person": "gateways",
    "test_hub_chain": "hub",
    "test_hub_faults": "hub",
    "test_experiments": "runs",
    "test_run_whole": "runs",
    "test_run_whole_kills": "runs",
}

Layers = Callable[[], tuple[Path, ...]]
# These take minutes, so they start first; otherwise one worker would run alone at the end.
_SLOW = ("test_apply_brittle", "test_judges", "lab", "gateways", "hub", "runs", "test_homes", "test_run_gang")


# pytest-xdist reads the markers in the same hook, later.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share nodes on one worker, and start slow ones first."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: _SLOW.index(_group(item)) if _group(item) in _SLOW else len(_SLOW))


def _group(item: pytest.Item) -> str:
    if item.path.stem == "test_whole_machines":
        # Each case has a machine of its own.
        return item.name
    return _SHARED_NODES.get(item.path.stem, item.path.stem)


@pytest.fixture(scope="module")
def layers() -> Layers:
    """Return what makes the layers of the nodes; a module may have others."""
    return baked


@pytest.fixture(scope="module")
def node_lab(layers: Layers) -> Iterator[NodeLab]:
    """Yield a node lab without nodes; nodes run until the end of the module."""
    _require_programs()
    with NodeLab(layers()) as opened:
        yield opened


@pytest.fixture(scope="module")
def node(node_lab: NodeLab) -> Node:
    """Return a fresh workbench of the site, for this module."""
    return node_lab.boot(WORKBENCH, "192.168.40.23")


@pytest.fixture(scope="module")
def fleet_folder(node_lab: NodeLab, node: Node, tmp_path_factory: pytest.TempPathFactory) -> FleetFolder:
    """Return an operator's folder whose lock has the host key of that node."""
    folder = make_fleet_folder(node_lab, tmp_path_factory.mktemp("lab"))
    folder.trust(node)
    return folder


@pytest.fixture
def drifted(node: Node) -> None:
    """Remove node_exporter, so that an apply has to install a package."""
    node.run("apt-get purge --yes --quiet prometheus-node-exporter >/dev/null 2>&1 || true")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield four applied nodes of a site; all modules share them, so tests must restore their state."""
    _require_programs()
    with applied_lab(tmp_path_factory.mktemp("lab")) as applied:
        yield applied


@pytest.fixture(scope="session")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaptopGateways]:
    """Yield two laptop gateways with running daemons; all modules share them, so tests must restore their state."""
    _require_programs("openvpn")
    with laptop_gateways(tmp_path_factory.mktemp("gateways")) as applied:
        yield applied


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeHub]:
    """Yield a hub that has configured itself; two modules share it, so tests must restore its state."""
    _require_programs("dnsmasq", "openssl")
    with whole_hub(tmp_path_factory.mktemp("hub")) as configured:
        yield configured


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeRuns]:
    """Yield a hub, a workbench and two laptops; two modules share them, so tests must restore their state."""
    _require_programs("dnsmasq", "openssl")
    with whole_runs(tmp_path_factory.mktemp("runs")) as configured:
        yield configured


@pytest.fixture(scope="session")
def laptop(hub: WholeHub) -> Laptop:
    """Return the laptop of grace, who is no administrator."""
    return hub.invite("grace")


@pytest.fixture(scope="session")
def departure(lab: Lab) -> Departure:
    """Remove cora from the fleet file; return the result of `--check`, the apply and the audit."""
    lab.remove_person("cora")
    checked = lab.operator.changes("--check", *lab.nodes)
    return Departure(checked, lab.operator.changes(*lab.nodes), lab.operator.findings(*lab.nodes))


def _require_programs(*more: str) -> None:
    need_root()
    for program in ("systemd-nspawn", "mmdebstrap", "slirp4netns", "nft", "ssh", *more):
        need_program(program)
