"""Every example is a valid fleet with the capacity that its name states."""

from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.checks.fault import Level
from bedplate.load import examine
from bedplate.plan.pool import PoolPlan
from bedplate.spec.group import Market
from tests.support.declared import plan_of

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def pools(name: str) -> tuple[PoolPlan, ...]:
    """Return the pools of an example."""
    return plan_of(ROOT / "examples" / f"{name}.yaml").pools


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_nothing_is_wrong_with_an_example(file: Path) -> None:
    """Not an error in any of them; what is merely risky, only the lab shows."""
    levels = [fault.level for fault in examine(file, load_catalog())]

    assert Level.ERROR not in levels
    assert not levels or file.stem.startswith("lab")


def test_the_box_is_one_machine() -> None:
    """With GPUs, and hours in which it runs."""
    (pool,) = pools("gpu-box")

    assert (pool.min, pool.max) == (1, 1)
    assert pool.tenure.schedule is not None


def test_the_training_run_stands_on_its_block_alone() -> None:
    """All of the block, on a fabric, and empty before it ends."""
    (block,) = (pool for pool in pools("training-block") if pool.group == "train")

    assert block.market is Market.CAPACITY_BLOCK
    assert (block.max, block.fabric is not None, block.offer.ends is not None) == (8, True, True)


def test_the_simulators_are_on_spot_in_four_regions() -> None:
    """Nowhere else, and of any type that is large enough."""
    every = pools("simulators")

    assert {pool.market for pool in every} == {Market.SPOT}
    assert len({pool.region for pool in every}) == 4
    assert all(pool.offer.similar for pool in every)


def test_graviton_is_all_there_is() -> None:
    """Of the pools and of the control plane."""
    plan = plan_of(ROOT / "examples" / "arm64.yaml")

    types = {name for pool in plan.pools for name in pool.types} | {
        plan.control_plane.type if plan.control_plane else ""
    }
    assert {load_catalog().types[name].arch for name in types} == {"arm64"}
