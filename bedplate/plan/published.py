"""`fleet.json` as the plan knows it: groups with hardware and prices, and machines of sites with recorded host keys.

A hub in a region adds what EC2 knows (`bedplate.machine.fleet`); one at a site serves it as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bedplate.plan.capacity import worker_capacity
from bedplate.plan.fleet import FleetPlan, MachinePlan, cached_on_plan
from bedplate.plan.pools import PoolPlan
from bedplate.plan.registration import EFA, machine_registration, pool_registration
from bedplate.spec.text import seconds_of

_MIB, _HOMES = 1024.0, "/home"
Facts = dict[str, Any]


@cached_on_plan
def fleet_document(plan: FleetPlan) -> Mapping[str, Any]:
    """Return the document; `types` and `keys` have the hardware of EC2 types and the recorded keys of instances."""
    pools = {pool.group: [other for other in plan.pools if other.group == pool.group] for pool in plan.pools}
    groups = dict(_site_groups(plan)) | {name: _group(plan, own) for name, own in pools.items()}
    sites = [(site.name, machine) for site in plan.sites for machine in site.machines.values()]
    is_blind = plan.hub and not plan.hub.region and pools
    head = {"schema": 1, "time": None, "fleet": plan.name, "domain": plan.domain, "ask_above": plan.jobs.ask_above}
    return {
        **head,
        "for": plan.jobs.for_,
        "images": dict(plan.jobs.images),
        "budgets": dict(plan.jobs.budgets),
        "enforce": plan.jobs.enforce,
        "idle": _idle(plan),
        "notify": sorted(plan.hub.messages.get("people", ())) if plan.hub else [],
        "checkpoints": _checkpoints(plan),
        # The capacity controller starts runs that follow others.
        "after": worker_capacity(plan) is not None,
        "sources": {},
        "groups": groups,
        "types": {name: _hardware(plan, name) for pool in plan.pools for name in pool.types},
        "machines": {f"{machine.label}.{site}": _machine(plan, site, machine) for site, machine in sites},
        "keys": {instance: plan.record.host_keys[name][0] for name, instance in plan.record.instances.items()},
        "faults": ["the machines of groups are unknown: the hub has no rights in AWS"] if is_blind else [],
    }


def _idle(plan: FleetPlan) -> Facts | None:
    idle = plan.jobs.idle
    return Facts(after=int(seconds_of(idle.after)), then=idle.then) if idle else None


def _checkpoints(plan: FleetPlan) -> Mapping[str, str]:
    """Return the mount point of the store of checkpoints at each site, and in the regions, which have no name."""
    files, exports, _ = plan.stores
    mounts = [(system.store, "", system.mount) for system in files]
    mounts += [(export.store, export.site, export.mount) for export in exports]
    homes = {place: mount for _, place, mount in mounts if mount == _HOMES}
    return homes | {place: mount for store, place, mount in mounts if store == plan.jobs.checkpoints}


def _group(plan: FleetPlan, pools: Sequence[PoolPlan]) -> Facts:
    types, spec = list(dict.fromkeys(name for pool in pools for name in pool.types)), pools[0].group_spec
    facts: Facts = {"regions": list(dict.fromkeys(pool.region for pool in pools)), "types": types, "type": types[0]}
    facts |= {"min": spec.nodes.min, "max": spec.nodes.max, "kubernetes": spec.use.is_worker, "jobs": spec.jobs}
    facts["efa"] = min(int(pool_registration(pool, plan.catalog).resources.get(EFA, "0")) for pool in pools)
    facts["taints"] = list(dict.fromkeys(taint for pool in pools for taint in _taints(plan, pool)))
    rungs = dict.fromkeys(f"{pool.market.value} in {pool.region}" for pool in pools)
    facts |= {"site": "", "image": plan.jobs.images.get(pools[0].group), "rungs": list(rungs)}
    return {**facts, **_hardware(plan, types[0])}


def _site_groups(plan: FleetPlan) -> Iterator[tuple[str, Facts]]:
    """Yield the workers of each site as a group: pods may run on each of them, so none may be closed for jobs."""
    for site in plan.sites:
        machines = [machine for machine in site.machines.values() if machine.spec.is_worker]
        gpus = [(machine.spec.gpus.count, machine.spec.gpus.model) for machine in machines if machine.spec.gpus]
        count, model = max(gpus, default=(0, None))
        taints = [taint for machine in machines for taint in machine_registration(site, machine).taints]
        facts = Facts(regions=[], types=[], rungs=[], min=len(machines), max=len(machines), kubernetes=True)
        facts |= {"jobs": all(machine.spec.jobs for machine in machines), "taints": list(dict.fromkeys(taints))}
        facts |= {"efa": 0, "site": site.name, "gpus": count, "gpu": model, "image": plan.jobs.images.get(site.name)}
        if machines:
            yield site.name, facts | dict.fromkeys(("type", "price", "cpus", "memory_gib", "gpu_memory_gib"))


def _taints(plan: FleetPlan, pool: PoolPlan) -> Sequence[str]:
    return pool_registration(pool, plan.catalog).taints if pool.use.is_worker else ()


def _hardware(plan: FleetPlan, name: str) -> Facts:
    """Return GPUs, CPUs, memory and list price of a type; None for what the catalog does not have."""
    facts, hardware = plan.catalog.types.get(name), Facts(price=plan.catalog.price(name))
    if facts is None:
        return {**hardware, **dict.fromkeys(("gpus", "gpu", "gpu_memory_gib", "cpus", "memory_gib"))}
    hardware |= {"cpus": facts.vcpus, "memory_gib": facts.memory_mib / _MIB}
    if facts.gpu is None:
        return {**hardware, "gpus": 0, "gpu": None, "gpu_memory_gib": None}
    # A part of a GPU counts as one.
    count, memory = max(facts.gpu.count, 1), facts.gpu.memory_mib / _MIB
    return {**hardware, "gpus": count, "gpu": facts.gpu.name, "gpu_memory_gib": memory}


def _machine(plan: FleetPlan, site: str, machine: MachinePlan) -> Facts:
    gpus, keys = machine.spec.gpus, plan.record.host_keys.get(f"{machine.label}.{site}", ())
    facts = Facts(place=site, group=None, address=str(machine.address), host_key=keys[0] if keys else None)
    facts |= {"ssh": machine.spec.is_ssh, "jobs": machine.spec.jobs and machine.spec.use is not None}
    facts |= {"gpus": gpus.count if gpus else 0, "gpu": gpus.model if gpus else None}
    return {**facts, **dict.fromkeys(("since", "price", "cpus", "memory_gib"))}
