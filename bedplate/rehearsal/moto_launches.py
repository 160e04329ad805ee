"""Launches of Auto Scaling groups that fail: moto always has a machine, a reservation and an address.

AWS makes the group all the same, tells of the failure in the group's activities, and tries again by itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from moto.autoscaling.models import Activity, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult

from bedplate.rehearsal.replaced import replaced, wrapped

# Asked of a group's name, region and zones: AWS's error code and words where a launch fails there.
Obstacle = Callable[[str, str, frozenset[str]], tuple[str, str] | None]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Machines that a group was to start and could not; `code` is EC2's for the launch."""

    group: str
    region: str
    code: str
    wanted: int
    running: int

    @property
    def missing(self) -> int:
        """How many machines did not come."""
        return self.wanted - self.running


@contextmanager
def obstructed(obstacle: Obstacle, note: Callable[[Shortage], None]) -> Iterator[None]:
    """Let launches fail where `obstacle` says so, and `note` hear of it."""
    failures: dict[tuple[str, str], list[Activity]] = {}

    def obstructing(launch: Callable[..., Any]) -> Callable[..., Any]:
        def launched(group: FakeAutoScalingGroup, count_needed: int, propagated_tags: dict[str, str]) -> object:
            region = group.autoscaling_backend.region_name
            told = obstacle(group.name, region, frozenset(group.availability_zones))
            if told is None:
                return launch(group, count_needed, propagated_tags)
            running = len(group.active_instances())
            note(Shortage(group.name, region, told[0], running + count_needed, running))
            failures.setdefault((region, group.name), []).append(_failure(group, told[1]))
            return None

        return launched

    def activities(response: AutoScalingResponse) -> ActionResult:
        return _activities(failures, response)

    with (
        wrapped(FakeAutoScalingGroup, "replace_autoscaling_group_instances", obstructing),
        replaced(AutoScalingResponse, "describe_scaling_activities", activities),
    ):
        yield


def _failure(group: FakeAutoScalingGroup, message: str) -> Activity:
    """Return the activity in which Auto Scaling tells of a failed launch: in words, EC2's code is not in it."""
    cause = "an instance was started in response to a difference between desired and actual capacity"
    made = Activity(f"Launching a new EC2 instance. Status Reason: {message}", cause, group, status_code="Failed")
    made.progress = 100
    made.status_message = message  # type: ignore[attr-defined]  # a field of the answer that moto never fills
    return made


def _activities(failures: dict[tuple[str, str], list[Activity]], response: AutoScalingResponse) -> ActionResult:
    name = response._get_param("AutoScalingGroupName")  # noqa: SLF001  # moto's own way to a parameter
    found = [
        one
        for (region, group), listed in failures.items()
        for one in listed
        if region == response.region and name in (None, group)
    ]
    return ActionResult({"Activities": found[::-1]})
