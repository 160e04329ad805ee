"""Kinds of machine images: what the install stage of a pool's roles depends on, and the image of each pool."""

from collections.abc import Mapping
from dataclasses import dataclass

from bedplate.catalog import Catalog
from bedplate.catalog.facts import Arch
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.planner import architecture
from bedplate.plan.pools import PoolPlan
from bedplate.spec.sites import Use

_ROLES = {Use.SSH: "workbench", Use.KUBERNETES: "worker"}


@dataclass(frozen=True, slots=True)
class ImageKind:
    """What pools with the same image have in common.

    `driver` is a branch with its modules, such as `580-open`; `-fabric` adds the Fabric Manager. Empty without GPUs.
    """

    use: Use
    arch: Arch
    driver: str = ""
    efa: bool = False

    @property
    def name(self) -> str:
        """The name in commands, tags, parameters and the lock, such as `worker-x86_64-580-open-efa`."""
        return "-".join(filter(None, (_ROLES[self.use], self.arch, self.driver, "efa" if self.efa else "")))


def pool_kind(plan: FleetPlan, pool: PoolPlan, catalog: Catalog) -> ImageKind:
    """Return the kind of a pool's image; the first type decides, as for its roles."""
    arch = architecture(pool.types, catalog)
    return ImageKind(pool.use, arch, _driver(plan, pool, catalog), efa=pool.fabric is not None)


def _driver(plan: FleetPlan, pool: PoolPlan, catalog: Catalog) -> str:
    facts = catalog.types.get(pool.types[0])
    if facts is None or facts.gpu is None:
        return ""
    chip = catalog.chips.get(facts.gpu.name)
    modules = "open" if chip is None or chip.open else "closed"
    fabric = "-fabric" if chip and chip.needs_switch(facts.gpu.count) else ""
    return f"{plan.image.driver}-{modules}{fabric}"


def image_kinds(plan: FleetPlan, catalog: Catalog) -> Mapping[ImageKind, tuple[PoolPlan, ...]]:
    """Return the kinds that the fleet needs, each with its pools, in the order of the file."""
    kinds: dict[ImageKind, tuple[PoolPlan, ...]] = {}
    for pool in plan.pools:
        kind = pool_kind(plan, pool, catalog)
        kinds[kind] = (*kinds.get(kind, ()), pool)
    return kinds


def baked_image(plan: FleetPlan, pool: PoolPlan, catalog: Catalog) -> str | None:
    """Return the recorded image that was baked for a pool's kind in its region; None without one."""
    return plan.record.baked.get(f"{pool.region}/{pool_kind(plan, pool, catalog).name}")
