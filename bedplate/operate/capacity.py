"""What an operator sees and pauses of the controller of capacity: the state of groups, and their pauses."""

import time
from dataclasses import replace
from pathlib import Path

from bedplate.account.client import AwsClient
from bedplate.account.groups import FleetGroups
from bedplate.capacity.observation import Decision
from bedplate.capacity.planner import decide
from bedplate.capacity.shrink import end_unused, split_people
from bedplate.catalog import load_catalog
from bedplate.cluster.client import open_cluster
from bedplate.cluster.lease import IDLE, StateStore, read_holder
from bedplate.cluster.live import LiveCluster
from bedplate.errors import InputError, nearest_fix
from bedplate.operate.capacity_loop import last_memory
from bedplate.plan import FleetPlan
from bedplate.plan.capacity import CapacityPlan, capacity_plan
from bedplate.report.capacity_state import CapacityState
from bedplate.spec.sites import Use


def plan_capacity(plan: FleetPlan) -> CapacityPlan:
    """Return the plan of the groups that the controller manages. Raises InputError for a fleet without one."""
    capacity = capacity_plan(plan, load_catalog())
    if not capacity.pools:
        fix = "add `idle: 2h` to a group with `use: ssh`, to end machines that nobody uses"
        raise InputError("no group of the fleet file has `use: kubernetes` or `idle`", fix=fix)
    return capacity


def check_managed(plan: FleetPlan, capacity: CapacityPlan, group: str | None) -> None:
    """Raise InputError for a group that the controller does not manage."""
    names = tuple(dict.fromkeys(pool.group for pool in capacity.pools))
    if group is not None and group not in names:
        if group in {pool.group for pool in plan.pools}:
            what = f"the controller does not manage {group}: it has neither `use: kubernetes` nor `idle`"
            raise InputError(what, fix=f"add `idle` to {group}, or write one of {', '.join(names)}")
        raise InputError(f"no group named {group}", fix=nearest_fix(group, names))


def read_state(plan: FleetPlan, account: AwsClient, kubeconfig: Path | None) -> CapacityState:
    """Return what AWS has, and the cluster if there is a kubeconfig, with the decisions of now; nothing is done."""
    groups = FleetGroups(account, capacity_plan(plan, load_catalog(), *Use))
    observation = groups.observe(time.time())
    if kubeconfig is None:
        people, _ = split_people(observation)
        return CapacityState(observation, Decision(tuple(end_unused(people))), groups.paused, has_cluster=False)
    client = open_cluster(kubeconfig)
    live = LiveCluster(client, time.time(), time.time)
    texts = StateStore(client).read()
    live.restore(texts.get(IDLE, ""))
    observation = live.observe_once(observation)
    workers = frozenset(pool.name for pool in plan.pools if pool.use.is_worker)
    # A pod that the controller has reported is explained again.
    decision, memory = decide(observation, replace(last_memory(texts), reported=frozenset()))
    leader = read_holder(client)
    live.stop()
    return CapacityState(observation, decision, groups.paused, leader, workers=workers, breakers=memory.breakers)
