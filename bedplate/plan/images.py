"""Kinds of machine images: what the install stage of a pool's roles depends on, and the image of each pool."""

from collections.abc import Mapping
from dataclasses import dataclass

from bedplate.catalog import Catalog
from bedplate.catalog.facts import Arch
from bedplate.catalog.tables import ChipFacts
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.planner import architecture
from bedplate.plan.pools import PoolPlan
from bedplate.spec.sites import Use

_ROLES = {Use.SSH: "workbench", Use.KUBERNETES: "worker"}


@dataclass(frozen=True, slots=True)
class ImageKind:
    """What pools with the same image have in common.

    `driver` is a branch with its modules, such as `580-open`; `-fabric` adds the Fabric Manager, `-nvlsm` its subnet
    manager, `-imex` the sharing of memory between machines. Empty without GPUs. `frameworks`: with PyTorch.
    """

    use: Use
    arch: Arch
    driver: str = ""
    efa: bool = False
    frameworks: bool = False

    @property
    def name(self) -> str:
        """The name in commands, tags, parameters and the lock, such as `worker-x86_64-580-open-efa`."""
        parts = (self.driver, "efa" if self.efa else "", "frameworks" if self.frameworks else "")
        return "-".join(filter(None, (_ROLES[self.use], self.arch, *parts)))


def pool_kind(plan: FleetPlan, pool: PoolPlan, catalog: Catalog) -> ImageKind:
    """Return the kind of a pool's image; the first type decides, as for its roles."""
    arch = architecture(pool.types, catalog)
    facts = catalog.types.get(pool.types[0])
    gpu = facts.gpu if facts else None
    chip = catalog.chips.get(gpu.name) if gpu else None
    default = pool.use is Use.SSH and chip is not None and chip.open
    return ImageKind(
        pool.use,
        arch,
        _driver(pool.driver or plan.image.driver or "", gpu.count, chip) if gpu else "",
        efa=pool.fabric is not None,
        frameworks=default if pool.frameworks is None else pool.use is Use.SSH and pool.frameworks,
    )


def _driver(branch: str, count: int, chip: ChipFacts | None) -> str:
    if chip is None:
        return f"{branch}-open"
    fabric = chip.needs_switch(count)
    parts = {
        "open" if chip.open else "closed": True,
        "fabric": fabric,
        "nvlsm": fabric and chip.generation == "blackwell",
        "imex": chip.name.startswith("gb"),
    }
    return "-".join((branch, *(part for part, has_part in parts.items() if has_part)))


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
