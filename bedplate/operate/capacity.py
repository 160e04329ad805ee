"""What an operator sees and pauses of the capacity controller: the state of groups, and their pauses."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from bedplate.account.client import AwsClient, RegionResults, failure_lines
from bedplate.account.groups import FleetGroups
from bedplate.account.machines import read_use_reports
from bedplate.bundle import UseReport
from bedplate.capacity.observation import Decision, Observation
from bedplate.capacity.planner import decide
from bedplate.errors import InputError, nearest, nearest_fix
from bedplate.files import login_name
from bedplate.kubernetes.client import open_cluster
from bedplate.kubernetes.lease import IDLE, StateStore, read_holder
from bedplate.kubernetes.live import LiveCluster
from bedplate.operate import Operator, Result, open_account, plan_of
from bedplate.operate.capacity_loop import last_memory
from bedplate.plan import FleetPlan
from bedplate.plan.capacity import CapacityPlan, capacity_plan, ends_itself, worker_capacity
from bedplate.report import capacity_state as report


def status(operator: Operator, kubeconfig: Path | None) -> Result:
    """Return the machines of each rung, and whether it can have more; pods and nodes only with a kubeconfig."""
    plan = plan_of(operator)
    state = read_state(plan, open_account(plan), kubeconfig)
    return Result(report.status_lines(state), report.status_document(state))


def explain(operator: Operator, name: str | None, kubeconfig: Path | None) -> Iterator[str]:
    """Yield in sentences what each rung of a group does and why, or why a pod waits."""
    plan = plan_of(operator)
    groups = tuple(dict.fromkeys(pool.group for pool in plan.pools))
    if name is not None and "/" in name and kubeconfig is None:
        raise InputError(f"{name}: pods are not known without a kubeconfig", fix="set KUBECONFIG, or add --kubeconfig")
    if name is not None and "/" not in name and name not in groups:
        raise _unknown_name(name, groups)
    state = read_state(plan, open_account(plan), kubeconfig)
    pods = {pod.id: pod for pod in state.observation.pods}
    # Of a queued run, the first pod stands for all.
    pods |= {pod.id.rpartition("/")[0]: pod for pod in reversed(state.observation.pods) if pod.queued}
    if name is None:
        for number, group in enumerate(state.groups):
            yield from ([""] if number else [])
            yield from report.explain_group(state, group)
    elif name in state.groups:
        yield from report.explain_group(state, name)
    elif name in pods:
        yield from report.explain_pod(state, pods[name])
    else:
        raise _unknown_name(name, tuple(pods))


def _unknown_name(name: str, names: tuple[str, ...]) -> InputError:
    fix = nearest_fix(name, names)
    if "/" in name and nearest(name, names) is None:
        fix = "`kubectl get pods -A` lists all"
    return InputError(f"no group or pod named {name}", fix=fix)


def pause(operator: Operator, group: str | None) -> Iterator[str]:
    """Let the controller and unused machines leave a group, or all, as it is; yield their names."""
    yield from _groups_to_pause(operator, group).pause(group, login_name())


def resume(operator: Operator, group: str | None) -> Iterator[str]:
    """End the pause of a group, or all; yield their names."""
    yield from _groups_to_pause(operator, group).resume(group)


def _groups_to_pause(operator: Operator, group: str | None) -> FleetGroups:
    """Return the groups whose machines the controller, or the machines themselves, start or end."""
    plan = plan_of(operator)
    pools = [pool for pool in plan.pools if pool.use.is_worker or ends_itself(pool)]
    names = tuple(dict.fromkeys(pool.group for pool in pools))
    if not names:
        raise InputError("no group of the fleet file has `use: kubernetes` or `idle`", fix="add `idle` to a group")
    if group is not None and group not in names:
        if group in {pool.group for pool in plan.pools}:
            what = f"{group} cannot be paused: it has neither `use: kubernetes` nor `idle`"
            raise InputError(what, fix=f"add `idle` to {group}, or write one of {', '.join(names)}")
        raise InputError(f"no group named {group}", fix=nearest_fix(group, names))
    return FleetGroups(open_account(plan), capacity_plan(plan, plan.catalog, pools))


def controller_inputs(operator: Operator) -> tuple[CapacityPlan, AwsClient]:
    """Return the plan of the controller and its account. Raises InputError for a fleet without workers."""
    plan = plan_of(operator)
    capacity = worker_capacity(plan)
    if capacity is None:
        fix = "add one; machines for SSH end themselves after the `idle` of their group"
        raise InputError("no group of the fleet file has `use: kubernetes`", fix=fix)
    return capacity, open_account(plan)


def read_state(plan: FleetPlan, account: AwsClient, kubeconfig: Path | None) -> report.CapacityState:
    """Return what AWS has, and the cluster if there is a kubeconfig, with the decisions of now; nothing is done."""
    groups = FleetGroups(account, capacity_plan(plan, plan.catalog, plan.pools))
    observation = groups.observe(time.time())
    reports = _use_reports(plan, account, observation)
    state = report.CapacityState(
        observation,
        Decision(()),
        groups.paused,
        has_cluster=False,
        uses={name: use for region in reports.successes.values() for name, use in region.items()},
        unread=failure_lines(reports.failures),
        kept=groups.keep_reasons(observation.time),
    )
    if kubeconfig is None:
        return state
    client = open_cluster(kubeconfig)
    live = LiveCluster(client, time.time(), time.time)
    texts = StateStore(client).read()
    live.restore(texts.get(IDLE, ""))
    observation = live.observe_once(observation)
    # A pod that the controller has reported is explained again.
    decision, memory = decide(observation, replace(last_memory(texts), reported=frozenset()))
    leader = read_holder(client)
    live.stop()
    seen = replace(state, observation=observation, decision=decision, has_cluster=True)
    return replace(seen, leader=leader, breakers=memory.breakers)


def _use_reports(
    plan: FleetPlan, account: AwsClient, observation: Observation
) -> RegionResults[Mapping[str, UseReport]]:
    """Return the last report of use of each machine that ends itself."""
    regions = {pool.name: pool.region for pool in plan.pools if ends_itself(pool)}
    machines = defaultdict[str, list[str]](list)
    for machine in observation.machines:
        if machine.pool in regions:
            machines[regions[machine.pool]].append(machine.id)
    return read_use_reports(account, plan, machines)
