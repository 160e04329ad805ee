"""The life of a pool's machines: how they are bought, held, renewed, stopped and ended, rehearsed once for all."""

from collections.abc import Mapping
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.checks.groups import tag_count
from bedplate.cli.stacks import judged, waves
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.rehearsal.rehearse import Phase, Report, rehearse
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


# An edit of what the program gives a group once: people's minimum, and how long workers are held.
EDITED = {
    **GROUPS,
    "desk": {**GROUPS["desk"], "nodes": {"min": 2, "max": 2}},
    "burst": {**GROUPS["burst"], "use": "ssh"},
}


def _plan(groups: dict[str, Any]) -> FleetPlan:
    fleet = sketch({"us-west-2": ("us-west-2a", "us-west-2b")}, groups=groups, kubernetes=cluster())
    return plan_fleet(fleet, Record({}), load_catalog())


@pytest.fixture(scope="module")
def report() -> Report:
    """Give the rehearsal of a region with a group of each kind, and of an edit to it."""
    plan, edited = (waves(_plan(groups), ["us-west-2"]) for groups in (GROUPS, EDITED))
    return rehearse("111122223333", plan, edited)


@pytest.fixture(scope="module")
def made(report: Report) -> dict[str, Inputs]:
    """Give the inputs of all that was made, by type and name."""
    entries = [one for stack in report.stacks for one in stack.runs[Phase.CREATE].snapshot.entries.values()]
    return {f"{one.type.rpartition(':')[2]} {one.name}": dict(one.inputs) for one in entries}


def _group(made: Mapping[str, Inputs], name: str) -> Inputs:
    return made[f"Group {POOLS[name]}"]


def _tags(made: Mapping[str, Inputs], name: str) -> dict[str, tuple[str, bool]]:
    return {tag["key"]: (tag["value"], tag["propagateAtLaunch"]) for tag in _group(made, name)["tags"]}


def test_every_market_and_use_is_taken(report: Report) -> None:
    """All is made, a second run changes nothing, and what the stacks hold keeps every rule."""
    assert report.ok
    assert not [change for stack in report.stacks for change in stack.changes(Phase.AGAIN)]
    assert judged(report) == ()


def test_a_capacity_block_is_never_bought(made: Mapping[str, Inputs]) -> None:
    """A purchase cannot be undone: the block is bought by a person, and named."""
    template = made[f"LaunchTemplate {POOLS['block']}"]

    assert not [name for name in made if name.startswith(("CapacityBlock", "CapacityReservation "))]
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert template["capacityReservationSpecification"]["capacityReservationTarget"] == {
        "capacityReservationId": "cr-0123456789abcdef1"
    }


def test_a_block_is_empty_before_aws_empties_it(made: Mapping[str, Inputs]) -> None:
    """An hour before its end the group wants no machine any more, or it would try to replace those that AWS ends."""
    action = made[f"Schedule {POOLS['block']}-end"]

    assert action["startTime"] == "2099-03-01T10:30:00Z"
    assert [action[size] for size in ("minSize", "maxSize", "desiredCapacity")] == [0, 0, 0]


def test_what_the_clock_ends_is_not_protected(made: Mapping[str, Inputs]) -> None:
    """Scaling in leaves a training job alone, but a protected machine would outlive the end of its group."""
    protected = {name for name in POOLS if _group(made, name)["protectFromScaleIn"]}

    assert protected == {"train"}


def test_spot_costs_no_more_than_the_file_allows(made: Mapping[str, Inputs]) -> None:
    """The price is the file's, and nothing of the group is on demand."""
    bought = _group(made, "burst")["mixedInstancesPolicy"]["instancesDistribution"]

    assert bought["spotMaxPrice"] == "1.5"
    assert bought["onDemandPercentageAboveBaseCapacity"] == 0


def test_similar_types_are_asked_for_by_what_they_have(made: Mapping[str, Inputs]) -> None:
    """From the smallest to the largest named, of the same make; no order of the file can hold for them."""
    policy = _group(made, "alike")["mixedInstancesPolicy"]
    (override,) = policy["launchTemplate"]["overrides"]
    needs = override["instanceRequirements"]

    assert "instanceType" not in override
    assert needs["vcpuCount"] == {"min": 16, "max": 16}
    assert needs["memoryMib"] == {"min": 32768, "max": 65536}
    assert (needs["cpuManufacturers"], needs["instanceGenerations"]) == (["intel"], ["current"])
    assert (needs["bareMetal"], needs["acceleratorCount"]) == ("excluded", {"max": 0})
    assert policy["instancesDistribution"]["onDemandAllocationStrategy"] == "lowest-price"


@pytest.mark.parametrize("name", POOLS)
def test_the_first_machine_is_held_like_all_others(name: str, made: Mapping[str, Inputs]) -> None:
    """The hooks that a group begins with are those that it keeps."""
    first = {hook["name"]: hook for hook in _group(made, name)["initialLifecycleHooks"]}
    later = [made[f"LifecycleHook {POOLS[name]}-{hook}"] for hook in ("ready", "drained")]

    assert [{key: hook[key] for key in first["ready"]} for hook in later] == [first["ready"], first["drained"]]


def test_hooks_and_hours_change_beside_their_group(report: Report) -> None:
    """An edited hook is updated, an edited daily action is deleted and created again; their group stays as it is."""
    steps = [step for stack in report.stacks for step in stack.changes(Phase.CHANGE)]
    edited: dict[str, list[Op]] = {}
    for step in steps:
        edited.setdefault("::".join(step.urn.rsplit(":")[-3::2]), []).append(step.op)

    assert edited.pop(f"Schedule::{POOLS['desk']}-start") == [Op.DELETE_REPLACED, Op.REPLACE, Op.CREATE_REPLACEMENT]
    assert f"LifecycleHook::{POOLS['burst']}-ready" in edited
    assert f"Group::{POOLS['desk']}" not in edited
    assert {op for ops in edited.values() for op in ops} == {Op.UPDATE}


def test_a_silent_machine_does_not_come_and_does_not_stay(made: Mapping[str, Inputs]) -> None:
    """A new one that never reports is given up; a leaving one goes, on spot before EC2 takes it."""
    results = {POOLS[name]: made[f"LifecycleHook {POOLS[name]}-drained"]["heartbeatTimeout"] for name in POOLS}

    assert made[f"LifecycleHook {POOLS['kept']}-ready"]["defaultResult"] == "ABANDON"
    assert made[f"LifecycleHook {POOLS['kept']}-drained"]["defaultResult"] == "CONTINUE"
    assert results[POOLS["burst"]] == 120
    assert results[POOLS["desk"]] < results[POOLS["kept"]]


@pytest.mark.parametrize("name", POOLS)
def test_machines_that_never_report_ring(name: str, made: Mapping[str, Inputs]) -> None:
    """They are short for as long as they are tried, so the alarm's time is longer than the wait for one."""
    alarm = made[f"MetricAlarm {POOLS[name]}-short"]
    (period,) = {query["metric"]["period"] for query in alarm["metricQueries"] if "metric" in query}

    wait = made[f"LifecycleHook {POOLS[name]}-ready"]["heartbeatTimeout"]
    assert wait < period * alarm["datapointsToAlarm"]
    assert alarm["datapointsToAlarm"] < alarm["evaluationPeriods"]


def test_only_workers_without_a_fabric_are_renewed(made: Mapping[str, Inputs]) -> None:
    """A new template ends no session and no job across machines: there it is the next machine that has it."""
    renewed = {name: _group(made, name)["instanceRefresh"] for name in POOLS if "instanceRefresh" in _group(made, name)}

    assert set(renewed) == {"burst", "alike", "kept"}
    assert renewed["kept"]["preferences"]["checkpointPercentages"] == [10, 50, 100]


def test_people_start_in_the_morning_and_stop_every_evening(made: Mapping[str, Inputs]) -> None:
    """In the group's time zone; both are over when the group is."""
    start, stop = (made[f"Schedule {POOLS['desk']}-{turn}"] for turn in ("start", "stop"))

    assert (start["recurrence"], stop["recurrence"]) == ("30 7 * * 1,2,3,4,5", "0 20 * * *")
    assert [start[size] for size in ("minSize", "maxSize", "desiredCapacity")] == [1, -1, -1]
    assert [stop[size] for size in ("minSize", "maxSize", "desiredCapacity")] == [0, -1, 0]
    assert {one["timeZone"] for one in (start, stop)} == {"Europe/Zurich"}
    assert {one["endTime"] for one in (start, stop)} == {"2100-01-01T00:00:00Z"}


def test_machines_end_with_the_day_that_the_file_names(made: Mapping[str, Inputs]) -> None:
    """They carry the day and who answers for them; what is permanent carries that, and never ends."""
    assert made[f"Schedule {POOLS['desk']}-expire"]["startTime"] == "2100-01-01T00:00:00Z"
    assert _tags(made, "desk")["expires"] == ("2099-12-31", True)
    assert _tags(made, "desk")["owner"] == ("ada@lab.example", True)
    assert _tags(made, "train")["expires"] == ("permanent", True)
    assert not [name for name in made if name.startswith(f"Schedule {POOLS['train']}")]


def test_the_autoscaler_knows_machines_that_are_not_there(made: Mapping[str, Inputs]) -> None:
    """GPUs, fabric, labels and taints stand in tags that only the autoscaler reads."""
    kept, train = _tags(made, "kept"), _tags(made, "train")

    assert kept["k8s.io/cluster-autoscaler/lab"] == ("owned", False)
    assert kept[f"{_TEMPLATE_TAG}/resources/nvidia.com/gpu"] == ("4", False)
    assert kept[f"{_TEMPLATE_TAG}/label/lab.example/team"] == ("vision", False)
    assert kept[f"{_TEMPLATE_TAG}/taint/team"] == ("vision:NoSchedule", False)
    assert train[f"{_TEMPLATE_TAG}/resources/vpc.amazonaws.com/efa"] == ("32", False)
    assert train[f"{_TEMPLATE_TAG}/taint/nvidia.com/gpu"] == ("present:NoSchedule", False)


def test_no_group_of_workers_has_more_tags_than_the_check_counts(made: Mapping[str, Inputs]) -> None:
    """AWS takes 50: the check reckons with what a pool with an expiry gets, one more than a pool without."""
    plan = _plan(GROUPS)
    workers = [pool for pool in plan.pools if pool.use is Use.KUBERNETES]

    over = {pool.group: tag_count(plan.name, pool, load_catalog()) - len(_tags(made, pool.group)) for pool in workers}

    assert over == {"burst": 1, "alike": 1, "kept": 1, "block": 1, "train": 0}


def test_where_people_log_in_no_autoscaler_reads(made: Mapping[str, Inputs]) -> None:
    """A machine to log in to must not go because it is idle."""
    assert not [key for key in _tags(made, "desk") if key.startswith("k8s.io/")]
