"""The plan of the capacity controller: the pools that it manages, in ladder order, and its settings.

It manages the pools of Kubernetes groups. Machines for SSH end themselves when nobody uses them.

Members of the control plane have it in their node document, so that the controller needs no fleet file.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from bedplate.catalog import Catalog
from bedplate.catalog.tables import InstanceFacts
from bedplate.errors import InputError
from bedplate.plan.fleet import FleetPlan, cached_on_plan
from bedplate.plan.links import is_connected
from bedplate.plan.pools import PoolPlan
from bedplate.plan.record import FORMING
from bedplate.plan.registration import EFA, devices, pool_registration
from bedplate.spec.groups import Market
from bedplate.spec.text import seconds_of

# What kubelet and the system keep from pods, until a node of the pool has reported what it has: cores of a machine, the
# share of its memory that firmware and kernel keep, and GiB of kubelet, the system and the pods of add-ons.
_KEPT_CORES, _KEPT_SHARE, _KEPT_GIB = 1.0, 0.03, 4.0
_MIB = 1024.0


@dataclass(frozen=True, slots=True)
class CapacityPool:
    """A pool as the controller reads it: sizes in GPUs, cores and GiB for pods, price in USD per hour.

    `group_max` is the maximum of its group over all pools. `blocked_reason` is why it must not grow, or empty.
    `idle` is the time in seconds after which an unused machine ends, if the file says so; `is_ssh`: people log in.
    """

    name: str
    group: str
    rung: int
    region: str
    zones: tuple[str, ...]
    min: int
    max: int
    group_max: int
    type: str
    market: Market
    gpus: int
    cpus: float
    memory: float
    efa: int
    ephemeral: float
    price: float
    labels: Mapping[str, str]
    taints: tuple[str, ...]
    blocked_reason: str = ""
    idle: float | None = None
    is_ssh: bool = False


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The pools of a fleet in ladder order. A node idles `idle` seconds; `cap` is the share removed at once.

    `spare` has the machines of a group that stay free, `max_cost` its most USD per hour, and `fleet_max_cost` that of
    all groups of workers. `etcd` is the id of the fleet's etcd cluster, empty before it is recorded.
    """

    fleet: str
    pools: tuple[CapacityPool, ...]
    idle: float = 600.0
    cap: float = 0.1
    spare: Mapping[str, int] = field(default_factory=dict)
    max_cost: Mapping[str, float] = field(default_factory=dict)
    fleet_max_cost: float | None = None
    etcd: str = ""


@cached_on_plan
def worker_capacity(plan: FleetPlan) -> CapacityPlan | None:
    """Return what members of the control plane have in their document; None without a pool to manage."""
    capacity = capacity_plan(plan, plan.catalog)
    return capacity if capacity.pools else None


_ADAPTER = TypeAdapter(CapacityPlan)


def capacity_document(capacity: CapacityPlan) -> str:
    """Return the file from which the controller on a member reads its plan."""
    fields = _ADAPTER.dump_python(capacity, mode="json", fallback=dict, warnings=False)
    return json.dumps(fields, indent=1, sort_keys=True) + "\n"


def read_capacity_document(text: str, where: str) -> CapacityPlan:
    """Return the plan in a file. Raises InputError for an invalid one."""
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(
            f"invalid capacity plan: {place}: {first['msg']}", where=where, fix="run `bedplate node apply` again"
        ) from None


def capacity_plan(plan: FleetPlan, catalog: Catalog, pools: Iterable[PoolPlan] | None = None) -> CapacityPlan:
    """Return the plan of these pools; by default of those that the controller manages."""
    workers = (pool for pool in plan.pools if pool.use.is_worker)
    pools = sorted(workers if pools is None else pools, key=lambda pool: (pool.group, pool.rung))
    return CapacityPlan(
        plan.name,
        tuple(_pool(plan, pool, catalog) for pool in pools),
        spare={pool.group: pool.group_spec.spare for pool in pools if pool.group_spec.spare},
        max_cost={pool.group: pool.group_spec.max_cost for pool in pools if pool.group_spec.max_cost is not None},
        fleet_max_cost=plan.max_cost,
        etcd="" if plan.record.etcd == FORMING else plan.record.etcd,
    )


def ends_itself(pool: PoolPlan) -> bool:
    """Return whether machines of a pool end themselves when nobody uses them."""
    return pool.use.is_ssh and pool.group_spec.idle is not None


def _pool(plan: FleetPlan, pool: PoolPlan, catalog: Catalog) -> CapacityPool:
    registration = pool_registration(pool, catalog)
    facts = [catalog.types[name] for name in pool.types if name in catalog.types]
    prices = [price for name in pool.types if (price := catalog.price(name)) is not None]
    return CapacityPool(
        name=pool.name,
        group=pool.group,
        rung=pool.rung,
        region=pool.region,
        zones=pool.zones,
        min=pool.min,
        max=pool.max,
        group_max=pool.group_spec.nodes.max,
        type=pool.types[0],
        market=pool.market,
        gpus=min((sum(devices(type_facts).values()) for type_facts in facts), default=0),
        cpus=min((type_facts.vcpus - _KEPT_CORES for type_facts in facts), default=0.0),
        memory=min((_memory(type_facts) for type_facts in facts), default=0.0),
        efa=int(registration.resources.get(EFA, "0")),
        ephemeral=float(registration.resources["ephemeral-storage"].removesuffix("Gi")),
        price=max(prices, default=0.0),
        labels={**registration.labels, "kubernetes.io/os": "linux"},
        taints=registration.taints,
        blocked_reason=_blocked_reason(plan, pool),
        idle=seconds_of(pool.group_spec.idle) if pool.group_spec.idle else None,
        is_ssh=pool.use.is_ssh,
    )


def _memory(facts: InstanceFacts) -> float:
    return round(max(0.0, facts.memory_mib / _MIB * (1 - _KEPT_SHARE) - _KEPT_GIB), 1)


def _blocked_reason(plan: FleetPlan, pool: PoolPlan) -> str:
    """Return why no machine of a pool could work: a worker needs a path to the home region."""
    home = plan.home.name
    if pool.use.is_worker and pool.region != home and not is_connected(plan, pool.region, home):
        return f"{pool.region} has no path to {home}"
    return ""
