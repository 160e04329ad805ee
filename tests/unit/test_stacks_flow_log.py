"""The record of flows: what its role may write to."""

from stacks.flow_log import finding, group_name, writing
from tests.support.declared import EXAMPLES, plan_of


def test_the_role_writes_to_the_fleets_own_groups_alone() -> None:
    """One group a region, and the streams in it."""
    plan = plan_of(EXAMPLES / "lab.yaml")

    resources = writing(plan).resources

    assert len(resources) == 2 * len(plan.regions)
    assert all(f":111122223333:log-group:{group_name(plan)}" in name for name in resources)


def test_the_role_may_list_the_groups_of_its_regions_and_read_none() -> None:
    """AWS's own list of what a flow log's role needs at least has it, and nobody else's region."""
    plan = plan_of(EXAMPLES / "lab.yaml")

    statement = finding(plan)

    assert statement.actions == ("logs:DescribeLogGroups",)
    assert {name.split(":")[3] for name in statement.resources} == {region.name for region in plan.regions}
