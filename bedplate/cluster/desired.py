"""Everything that the cluster must have, from the plan, the pins and upstream's files."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from bedplate.catalog.stacks import AddonPins
from bedplate.cluster.addons import ADDONS, EFA_ADDON, Object, Setting, choose_pins, render_addon
from bedplate.cluster.people import people_objects, policy_objects, volume_objects
from bedplate.plan.cluster import ClusterPlan
from bedplate.plan.fleet import FleetPlan
from bedplate.spec.sites import Use


def desired_objects(
    plan: FleetPlan, cluster: ClusterPlan, pins: Iterable[AddonPins], read: Callable[[str], bytes]
) -> tuple[Object, ...]:
    """Return all objects; `read` returns the content of an address. Raises BedplateError before anything is applied."""
    setting = Setting(cluster, efa_types(plan))
    addons = tuple(_addon_objects(setting, choose_pins(pins, cluster), read))
    people = people_objects(plan.accounts, cluster.pods)
    return (*policy_objects(), *addons, *people, *volume_objects(plan))


def _addon_objects(setting: Setting, pins: Mapping[str, AddonPins], read: Callable[[str], bytes]) -> Iterator[Object]:
    for addon in ADDONS:
        if addon.name == EFA_ADDON and not setting.efa_types:
            continue
        chosen = pins[addon.name]
        texts = [file.check(read(file.address)) for file in chosen.files]
        yield from render_addon(addon, chosen, texts, setting)


def efa_types(plan: FleetPlan) -> tuple[str, ...]:
    """Return the EC2 types of the pools with a fabric whose machines are workers."""
    pools = (pool for pool in plan.pools if pool.fabric and pool.use is Use.KUBERNETES)
    return tuple(sorted({name for pool in pools for name in pool.types}))
