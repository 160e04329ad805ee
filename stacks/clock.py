"""The scheduled actions of a group: changes of its size that AWS makes by the clock."""

from datetime import datetime

import pulumi
from pulumi_aws.autoscaling.schedule import Schedule, ScheduleArgs

from bedplate.plan.timetable import Action
from stacks.options import inside

# The provider's word for a size that stays as it is; what is left out becomes 0.
_KEEP = -1
# The state holds the next run of an action that recurs as its start time. The provider sends that time with an update,
# and AWS refuses it once it is past. AWS knows an action by its name, so the old one must be deleted first.
# This is issue 2473 of pulumi/pulumi-aws.
_RENEWED = pulumi.ResourceOptions(replace_on_changes=["*"], delete_before_replace=True)


def wind(name: str, group: pulumi.Output[str], actions: tuple[Action, ...], parent: pulumi.Resource) -> None:
    """Declare the scheduled actions of a group."""
    for action in actions:
        title = f"{name}-{action.name}"
        options = inside(parent)
        if action.cron:
            options = pulumi.ResourceOptions.merge(options, _RENEWED)
        Schedule(title, _args(title, group, action), options)


def _args(title: str, group: pulumi.Output[str], action: Action) -> ScheduleArgs:
    return ScheduleArgs(
        autoscaling_group_name=group,
        scheduled_action_name=title,
        min_size=_size(action.sizes.min),
        max_size=_size(action.sizes.max),
        desired_capacity=_size(action.sizes.desired),
        start_time=_moment(action.at),
        end_time=_moment(action.until),
        recurrence=action.cron,
        time_zone=action.zone,
    )


def _size(size: int | None) -> int:
    return _KEEP if size is None else size


def _moment(moment: datetime | None) -> str | None:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None
