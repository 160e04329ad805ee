"""Where a node may give its figures, by the plan, without a machine."""

from ipaddress import IPv4Address, IPv4Network

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import node_of
from tests.compliance.test_monitoring import test_figures_are_given_on_one_private_address as promised
from tests.support.declared import EXAMPLES, plan_of

LAB = (EXAMPLES / "lab.yaml").read_text()
ALLOWED = "allow: {E222: it was the lab's before}\n"
# A person's bench, and the gateway of laptops, which stands outside the nodes' subnets.
CLOUD = ("workbench-cpu-1.us-west-2", "laptops.us-west-2")


class Listening:
    """A machine of which somebody asks for nothing but the sockets of its exporter."""

    def __init__(self, *at: str) -> None:
        self._at = at

    def check_output(self, asked: str, port: str) -> str:
        """Answer as ss does."""
        assert asked.startswith("ss --listening")
        return "".join(f"LISTEN 0 4096 {each}:{port} 0.0.0.0:*\n" for each in self._at)


@pytest.fixture(scope="module", params=["10.64.0.0/10", "100.64.0.0/10"], ids=["private", "carriers"])
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FleetPlan:
    """Give the plan of the lab in one block or another."""
    fleet = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    fleet.write_text(f"{LAB.replace('10.64.0.0/10', request.param)}\n{ALLOWED}")
    return plan_of(fleet)


def keeps(plan: FleetPlan, name: str, *at: str) -> bool:
    """Tell whether a machine that listens there keeps the promise."""
    try:
        promised(Listening(*at), node_of(plan, name, load_catalog()), plan)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", CLOUD)
def test_an_address_of_the_regions_block_is_right(name: str, plan: FleetPlan) -> None:
    """AWS picks it there, whatever block the lab has."""
    assert keeps(plan, name, str(_some(plan.region("us-west-2").block)))


@pytest.mark.parametrize("name", CLOUD)
def test_any_other_address_is_wrong(name: str, plan: FleetPlan) -> None:
    """Another region's, a public one, loopback, every address, a second one, none."""
    own, other = (str(_some(plan.region(each).block)) for each in ("us-west-2", "us-east-1"))

    for at in ((other,), ("8.8.8.8",), ("127.0.0.1",), ("0.0.0.0",), ("*",), ("[::]",), (own, own), ()):  # noqa: S104  as ss says it
        assert not keeps(plan, name, *at), at


def test_a_machine_of_a_site_listens_where_the_file_says(plan: FleetPlan) -> None:
    """And nowhere else in its room."""
    assert keeps(plan, "titan-01.cellar", "192.168.40.21")
    assert not keeps(plan, "titan-01.cellar", "192.168.40.22")


def _some(block: IPv4Network) -> IPv4Address:
    return block[9]
