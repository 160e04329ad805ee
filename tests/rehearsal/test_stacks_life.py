"""The lifecycle of pool instances: markets, hooks, templates, schedules, expiry and autoscaler tags."""

from collections.abc import Mapping
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.checks.groups import tag_count
from bedplate.operate.rehearsal import audit_report, waves, waves_of_change
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal.rehearse import Course, Phase, Report, rehearse
from bedplate.rehearsal.state import Op
from bedplate.spec.sites import Use
from tests.testlab.fleets.sketch import cluster, group, sketch

Inputs = Mapping[str, Any]
WEST, ZONE = {"region": "us-west-2"}, {"region": "us-west-2", "zone": "us-west-2a"}
RESERVED = {**ZONE, "market": "reservation", "reservation": "cr-0123456789abcdef0"}
BLOCK = {**ZONE, "market": "capacity-block", "reservation": "cr-0123456789abcdef1", "ends": "2099-03-01T11:30:00Z"}
WORKERS: dict[str, Any] = {"use": "kubernetes", "nodes": {"min": 0, "max": 4}}
HOURS = {"start": "07:30", "stop": "20:00", "days": "MON-FRI", "zone": "Europe/Zurich"}
GROUPS = {
    "desk": group(
        WEST,
        types=("m7i.4xlarge",),
        owner="ada@lab.example",
        expires="2099-12-31",
        schedule=HOURS,
        nodes={"min": 1, "max": 2},
    ),
    "burst": group({**WEST, "market": "spot", "max_price": 1.5}, types=("c7i.4xlarge", "m7i.4xlarge"), **WORKERS),
    "alike": group(WEST, types=("c7i.4xlarge", "m7i.4xlarge"), similar=True, **WORKERS),
    "kept": group(
        RESERVED,
        types=("g6.12xlarge",),
        labels={"lab.example/team": "vision"},
        taints=("team=vision:NoSchedule",),
        **WORKERS,
    ),
    "block": group(BLOCK, types=("p5.48xlarge",), fabric="efa", **WORKERS),
    "train": group(ZONE, types=("p5.48xlarge",), fabric="efa", expires="permanent", **WORKERS),
}
POOLS = {
    "desk": "lab-desk-us-west-2",
    "burst": "lab-burst-us-west-2-spot",
    "alike": "lab-alike-us-west-2",
    "kept": "lab-kept-us-west-2a-reservation-cr-0123456789abcdef0",
    "block": "lab-block-us-west-2a-block-cr-0123456789abcdef1",
    "train": "lab-train-us-west-2a",
}
_TEMPLATE_TAG = "k8s.io/cluster-autoscaler/node-template"


# Edits of inputs that are set once: the minimum of a scheduled group, and the timeout of a hook.
EDITED_GROUPS = {
    **GROUPS,
    "desk": {**GROUPS["desk"], "nodes": {"min": 2, "max": 2}},
    "burst": {**GROUPS["burst"], "use": "ssh"},
}


def _plan(groups: dict[str, Any]) -> FleetPlan:
    fleet = sketch({"us-west-2": ("us-west-2a", "us-west-2b")}, groups=groups, kubernetes=cluster())
    return plan_fleet(fleet, Record({}), load_catalog())


@pytest.fixture(scope="module")
def report() -> Report:
    """Return the rehearsal of a region with groups of each kind, and of an edit."""
    plan, edited = _plan(GROUPS), _plan(EDITED_GROUPS)
    change = waves_of_change(plan, edited, ["us-west-2"])
    return rehearse("111122223333", waves(plan, ["us-west-2"]), Course(change))


@pytest.fixture(scope="module")
def created(report: Report) -> dict[str, Inputs]:
    """Return the inputs of all created resources by type and name."""
    entries = [entry for stack in report.stacks for entry in stack.runs[Phase.CREATE].snapshot.entries.values()]
    return {f"{entry.type.rpartition(':')[2]} {entry.name}": dict(entry.inputs) for entry in entries}


def _group(created: Mapping[str, Inputs], name: str) -> Inputs:
    return created[f"Group {POOLS[name]}"]


def _tags(created: Mapping[str, Inputs], name: str) -> dict[str, tuple[str, bool]]:
    return {tag["key"]: (tag["value"], tag["propagateAtLaunch"]) for tag in _group(created, name)["tags"]}


def test_every_market_and_use_rehearses(report: Report) -> None:
    """All groups are created, a second run changes nothing, and the audit finds nothing."""
    assert report.ok
    assert not [change for stack in report.stacks for change in stack.changes(Phase.AGAIN)]
    assert audit_report(report) == ()


def test_a_capacity_block_is_never_bought(created: Mapping[str, Inputs]) -> None:
    """A purchase cannot be undone: a person buys the block and writes its id in the file."""
    template = created[f"LaunchTemplate {POOLS['block']}"]

    assert not [name for name in created if name.startswith(("CapacityBlock", "CapacityReservation "))]
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert template["capacityReservationSpecification"]["capacityReservationTarget"] == {
        "capacityReservationId": "cr-0123456789abcdef1"
    }


def test_a_capacity_block_is_scaled_to_zero_before_its_end(created: Mapping[str, Inputs]) -> None:
    """One hour before the end of the block; otherwise the group would replace instances that AWS terminates."""
    action = created[f"Schedule {POOLS['block']}-end"]

    assert action["startTime"] == "2099-03-01T10:30:00Z"
    assert [action[size] for size in ("minSize", "maxSize", "desiredCapacity")] == [0, 0, 0]


def test_scheduled_groups_are_not_protected_from_scale_in(created: Mapping[str, Inputs]) -> None:
    """A protected instance would stay after the scheduled end of its group."""
    protected = {name for name in POOLS if _group(created, name)["protectFromScaleIn"]}

    assert protected == {"train"}


def test_spot_has_the_maximum_price_of_the_file(created: Mapping[str, Inputs]) -> None:
    """The group has no on-demand instances."""
    distribution = _group(created, "burst")["mixedInstancesPolicy"]["instancesDistribution"]

    assert distribution["spotMaxPrice"] == "1.5"
    assert distribution["onDemandPercentageAboveBaseCapacity"] == 0


def test_similar_types_become_instance_requirements(created: Mapping[str, Inputs]) -> None:
    """From the smallest to the largest type in the file, of the same manufacturer; their order has no effect."""
    policy = _group(created, "alike")["mixedInstancesPolicy"]
    (override,) = policy["launchTemplate"]["overrides"]
    needs = override["instanceRequirements"]

    assert "instanceType" not in override
    assert needs["vcpuCount"] == {"min": 16, "max": 16}
    assert needs["memoryMib"] == {"min": 32768, "max": 65536}
    assert (needs["cpuManufacturers"], needs["instanceGenerations"]) == (["intel"], ["current"])
    assert (needs["bareMetal"], needs["acceleratorCount"]) == ("excluded", {"max": 0})
    assert policy["instancesDistribution"]["onDemandAllocationStrategy"] == "lowest-price"


@pytest.mark.parametrize("name", POOLS)
def test_initial_hooks_equal_the_hook_resources(name: str, created: Mapping[str, Inputs]) -> None:
    """The first instance has the same hooks as later ones."""
    first = {hook["name"]: hook for hook in _group(created, name)["initialLifecycleHooks"]}
    later = [created[f"LifecycleHook {POOLS[name]}-{hook}"] for hook in ("ready", "drained")]

    assert [{key: hook[key] for key in first["ready"]} for hook in later] == [first["ready"], first["drained"]]


def test_hooks_and_schedules_change_without_their_group(report: Report) -> None:
    """An edited hook is updated, an edited recurring action is replaced, and the group does not change."""
    steps = [step for stack in report.stacks for step in stack.changes(Phase.CHANGE)]
    operations: dict[str, list[Op]] = {}
    for step in steps:
        operations.setdefault("::".join(step.urn.rsplit(":")[-3::2]), []).append(step.op)

    assert operations.pop(f"Schedule::{POOLS['desk']}-start") == [Op.DELETE_REPLACED, Op.REPLACE, Op.CREATE_REPLACEMENT]
    assert f"LifecycleHook::{POOLS['burst']}-ready" in operations
    assert f"Group::{POOLS['desk']}" not in operations
    assert {op for ops in operations.values() for op in ops} == {Op.UPDATE}


def test_an_instance_that_does_not_report_is_terminated(created: Mapping[str, Inputs]) -> None:
    """The ready hook abandons it. The drained hook continues, on spot before EC2 terminates the instance."""
    results = {POOLS[name]: created[f"LifecycleHook {POOLS[name]}-drained"]["heartbeatTimeout"] for name in POOLS}

    assert created[f"LifecycleHook {POOLS['kept']}-ready"]["defaultResult"] == "ABANDON"
    assert created[f"LifecycleHook {POOLS['kept']}-drained"]["defaultResult"] == "CONTINUE"
    assert results[POOLS["burst"]] == 120
    assert results[POOLS["desk"]] < results[POOLS["kept"]]


@pytest.mark.parametrize("name", POOLS)
def test_the_alarm_triggers_after_the_ready_hook_expires(name: str, created: Mapping[str, Inputs]) -> None:
    """The time until the alarm is longer than the timeout of the hook; its text has the price of a launch."""
    alarm = created[f"MetricAlarm {POOLS[name]}-short"]
    (period,) = {query["metric"]["period"] for query in alarm["metricQueries"] if "metric" in query}

    assert "USD an hour" in alarm["alarmDescription"]
    wait = created[f"LifecycleHook {POOLS[name]}-ready"]["heartbeatTimeout"]
    assert wait < period * alarm["datapointsToAlarm"]
    assert alarm["datapointsToAlarm"] < alarm["evaluationPeriods"]


@pytest.mark.parametrize("name", POOLS)
def test_the_alarm_on_failed_gates_names_the_commands(name: str, created: Mapping[str, Inputs]) -> None:
    """Three failures within an hour trigger it; its text has the price, and commands for the checks and the stop."""
    alarm = created[f"MetricAlarm {POOLS[name]}-gate"]

    assert (alarm["threshold"], alarm["period"], alarm["evaluationPeriods"]) == (3, 3600, 1)
    assert alarm["dimensions"] == {"AutoScalingGroupName": POOLS[name]}
    assert "USD an hour" in alarm["alarmDescription"]
    assert f"--auto-scaling-group-name {POOLS[name]} --min-size 0 --desired-capacity 0" in alarm["alarmDescription"]


def test_a_new_template_replaces_no_running_instance(created: Mapping[str, Inputs]) -> None:
    """A deployment ends no jobs: an instance refresh takes machines without a drain."""
    assert not [name for name in POOLS if "instanceRefresh" in _group(created, name)]


def test_scheduled_groups_start_and_stop(created: Mapping[str, Inputs]) -> None:
    """In the time zone of the group, until it expires."""
    start, stop = (created[f"Schedule {POOLS['desk']}-{action}"] for action in ("start", "stop"))

    assert (start["recurrence"], stop["recurrence"]) == ("30 7 * * 1,2,3,4,5", "0 20 * * *")
    assert [start[size] for size in ("minSize", "maxSize", "desiredCapacity")] == [1, -1, -1]
    assert [stop[size] for size in ("minSize", "maxSize", "desiredCapacity")] == [0, -1, 0]
    assert {schedule["timeZone"] for schedule in (start, stop)} == {"Europe/Zurich"}
    assert {schedule["endTime"] for schedule in (start, stop)} == {"2100-01-01T00:00:00Z"}


def test_expired_groups_are_scaled_to_zero(created: Mapping[str, Inputs]) -> None:
    """Instances have tags with expiry and owner; permanent groups never expire."""
    assert created[f"Schedule {POOLS['desk']}-expire"]["startTime"] == "2100-01-01T00:00:00Z"
    assert _tags(created, "desk")["expires"] == ("2099-12-31", True)
    assert _tags(created, "desk")["owner"] == ("ada@lab.example", True)
    assert _tags(created, "train")["expires"] == ("permanent", True)
    assert not [name for name in created if name.startswith(f"Schedule {POOLS['train']}")]


def test_the_autoscaler_knows_groups_without_instances(created: Mapping[str, Inputs]) -> None:
    """Tags for the autoscaler contain GPUs, EFA interfaces, labels and taints."""
    tags, train_tags = _tags(created, "kept"), _tags(created, "train")

    assert tags["k8s.io/cluster-autoscaler/lab"] == ("owned", False)
    assert tags[f"{_TEMPLATE_TAG}/resources/nvidia.com/gpu"] == ("4", False)
    assert tags[f"{_TEMPLATE_TAG}/label/lab.example/team"] == ("vision", False)
    assert tags[f"{_TEMPLATE_TAG}/taint/team"] == ("vision:NoSchedule", False)
    assert train_tags[f"{_TEMPLATE_TAG}/resources/vpc.amazonaws.com/efa"] == ("32", False)
    assert train_tags[f"{_TEMPLATE_TAG}/taint/nvidia.com/gpu"] == ("present:NoSchedule", False)


def test_the_tag_check_counts_all_tags_of_workers(created: Mapping[str, Inputs]) -> None:
    """AWS allows 50 tags. The check counts the expiry tag for all pools."""
    plan = _plan(GROUPS)
    workers = [pool for pool in plan.pools if pool.use is Use.KUBERNETES]

    spare = {
        pool.group: tag_count(plan.name, pool, load_catalog()) - len(_tags(created, pool.group)) for pool in workers
    }

    assert spare == {"burst": 1, "alike": 1, "kept": 1, "block": 1, "train": 0}


def test_ssh_groups_have_no_autoscaler_tags(created: Mapping[str, Inputs]) -> None:
    """An idle SSH machine must not be scaled in."""
    assert not [key for key in _tags(created, "desk") if key.startswith("k8s.io/")]
