"""What a pool asks of AWS, market by market."""

from dataclasses import replace
from typing import Any

import pulumi
import pytest

from bedplate.cli.waves import waves
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import World, run
from tests.support.declared import EXAMPLES, EXPORTS, declared_of, plan_of

Inputs = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    """Give the inputs of each resource of the larger example's regions, by type and name."""
    stacks = declared_of(EXAMPLES / "lab.yaml")
    return {
        f"{entry.type.rpartition(':')[2]} {entry.name}": dict(entry.inputs)
        for entries in stacks.values()
        for entry in entries
    }


def test_one_type_on_demand_needs_no_policy(inputs: Inputs) -> None:
    """The group launches its template's type."""
    group = inputs["Group lab-workbench-cpu-us-west-2"]

    assert "mixedInstancesPolicy" not in group
    assert inputs["LaunchTemplate lab-workbench-cpu-us-west-2"]["instanceType"] == "m7i.4xlarge"


def test_spot_is_bought_where_it_lasts_and_costs_little(inputs: Inputs) -> None:
    """Nothing is on demand, and a machine about to be taken is replaced beforehand."""
    group = inputs["Group lab-sim-us-west-2-spot"]

    bought = group["mixedInstancesPolicy"]["instancesDistribution"]
    assert bought["spotAllocationStrategy"] == "price-capacity-optimized"
    assert bought["onDemandPercentageAboveBaseCapacity"] == 0
    assert group["capacityRebalance"] is True


def test_types_are_tried_in_the_order_of_the_file(inputs: Inputs) -> None:
    """On demand, the first type that has capacity is taken."""
    policy = inputs["Group lab-sim-us-west-2"]["mixedInstancesPolicy"]

    types = [one["instanceType"] for one in policy["launchTemplate"]["overrides"]]
    assert types == ["c7i.24xlarge", "m7i.24xlarge", "c6i.24xlarge"]
    assert policy["instancesDistribution"]["onDemandAllocationStrategy"] == "prioritized"


def test_a_reservation_is_aimed_at_by_its_id(inputs: Inputs) -> None:
    """Only the pool of that rung may use it."""
    aimed = {
        name: each["capacityReservationSpecification"]["capacityReservationTarget"]["capacityReservationId"]
        for name, each in inputs.items()
        if "capacityReservationSpecification" in each
    }

    assert list(aimed.values()) == ["cr-0123456789abcdef0"]
    assert "train-us-west-2b" in next(iter(aimed))


def test_a_group_follows_its_template_by_number(inputs: Inputs) -> None:
    """With $Latest a new version would be no change of the group, and no machine would be renewed."""
    versions = [each["launchTemplate"] for each in inputs.values() if "launchTemplate" in each]

    assert versions
    assert not [one for one in versions if one["version"] in ("$Latest", "$Default")]


def test_a_training_job_is_never_scaled_away(inputs: Inputs) -> None:
    """Machines on the fabric are protected; zones are never balanced by ending what runs."""
    lone = ("Group lab-laptops", "Group lab-control-")
    named = {name: each for name, each in inputs.items() if name.startswith("Group ")}
    groups = {name: each for name, each in named.items() if not name.startswith(lone)}

    assert {name for name, each in groups.items() if each["protectFromScaleIn"]} == {
        name for name in groups if name.startswith("Group lab-train-")
    }
    assert all(each["suspendedProcesses"] == ["AZRebalance"] for each in groups.values())


def test_groups_have_45_minutes_to_end_their_machines() -> None:
    """Large instances take longer to terminate than the provider's default timeout of 10 minutes."""
    plan = plan_of(EXAMPLES / "lab.yaml")
    stack = next(stack for wave in waves(plan) for stack in wave if stack.name == "lab.us-west-2")
    timeouts: dict[str, tuple[str | None, str | None]] = {}

    def note(args: pulumi.ResourceTransformationArgs) -> None:
        if args.type_ == "aws:autoscaling/group:Group":
            given = args.opts.custom_timeouts or pulumi.CustomTimeouts()
            timeouts[args.name] = (given.update, given.delete)

    def program() -> None:
        pulumi.runtime.register_stack_transformation(note)
        stack.program()

    with running(plan.account) as simulation:
        world = World(simulation, exports={f"organization/bedplate/{plan.name}.shared": EXPORTS})
        done = run(replace(stack, program=program), world, preview=True)

    assert not done.failures
    assert {"lab-laptops", "lab-control-1", "lab-sim-us-west-2"} <= timeouts.keys()
    assert set(timeouts.values()) == {("45m", "45m")}
