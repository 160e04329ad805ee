"""What tests on booted machines share: the programs they need, and a stand of nodes for each module that asks."""

from collections.abc import Iterator

import pytest

from tests.testlab.machines.gateways import LaptopGateways, laptop_gateways
from tests.testlab.machines.lab import BENCH, Lab, LabFolder, Parting, applied_lab, lab_folder
from tests.testlab.machines.stand import Node, Stand
from tests.testlab.run import need_program, need_root

# The modules that share what a session makes but once: its lab, and its gateways of laptops.
_SHARING = {
    "test_lab": "lab",
    "test_planted_defects": "lab",
    "test_laptop_gateway": "gateways",
    "test_laptop_client": "gateways",
    "test_laptop_revoked": "gateways",
}

# Minutes each: begun last, one of them would keep a single worker busy after all others are done.
_LONG = ("test_apply_brittle", "test_judges", "lab", "gateways", "test_homes")


# First, for pytest-xdist reads the marks in its own turn at this hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep together whoever shares machines, a module's own or those of several; put those first that take long."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: _LONG.index(_group(item)) if _group(item) in _LONG else len(_LONG))


def _group(item: pytest.Item) -> str:
    return _SHARING.get(item.path.stem, item.path.stem)


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    """Give a stand without nodes yet; what is booted in it stands until the module ends."""
    _need_what_it_takes()
    with Stand() as opened:
        yield opened


@pytest.fixture(scope="module")
def node(stand: Stand) -> Node:
    """Give one machine of the cellar, fresh for this module: a workbench."""
    return stand.boot(BENCH, "192.168.40.23")


@pytest.fixture(scope="module")
def lab_of_one(stand: Stand, node: Node, tmp_path_factory: pytest.TempPathFactory) -> LabFolder:
    """Give the folder of a fleet whose lock knows that machine."""
    made = lab_folder(stand, tmp_path_factory.mktemp("lab"))
    made.know(node)
    return made


@pytest.fixture
def drifted(node: Node) -> None:
    """Let there be something to do that takes packages: the exporter is gone."""
    node.run("apt-get purge --yes --quiet prometheus-node-exporter >/dev/null 2>&1 || true")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Give four machines of a site as the roles make them, shared by all modules: leave them as you found them."""
    _need_what_it_takes()
    with applied_lab(tmp_path_factory.mktemp("lab")) as applied:
        yield applied


@pytest.fixture(scope="session")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaptopGateways]:
    """Give two gateways of laptops whose daemons serve, shared by all modules: leave them as you found them."""
    _need_what_it_takes()
    need_program("openvpn")
    with laptop_gateways(tmp_path_factory.mktemp("gateways")) as made:
        yield made


@pytest.fixture(scope="session")
def parting(lab: Lab) -> Parting:
    """Let cora go: what a look at it told, what the apply did, what the audit found then."""
    lab.let_go("cora")
    told = lab.operator.changes("--check", *lab.nodes)
    return Parting(told, lab.operator.changes(*lab.nodes), lab.operator.findings(*lab.nodes))


def _need_what_it_takes() -> None:
    need_root()
    for program in ("systemd-nspawn", "debootstrap", "slirp4netns", "nft", "ssh"):
        need_program(program)
