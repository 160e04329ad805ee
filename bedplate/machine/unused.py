"""The end of a machine that nobody uses.

The machine leaves its Auto Scaling group, which lowers the group's desired capacity. Then it shuts down, and AWS
terminates it. AWS limits the right to end a machine through its group to groups, not to one machine. So this one may
only detach, which ends none, and only root shuts down.
"""

import sys
from contextlib import suppress

from bedplate.account.capacity import keep_reason
from bedplate.account.client import open_client
from bedplate.account.machines import describe_groups
from bedplate.errors import BedplateError
from bedplate.foreign import LARGE, parse_json
from bedplate.programs.idle import PROGRAM, Machine
from bedplate.programs.program import ProgramError


def leave_and_shut_down(machine: Machine, region: str, now: float) -> str:
    """Leave the group of a machine and shut it down, or return what keeps it. Raises BedplateError, ProgramError.

    A machine that somebody has detached from its group ends too: nothing else would end it.
    """
    if "release_name" not in machine.read(PROGRAM.removeprefix("/")):
        return "an earlier version has launched it: it would stop, not terminate"
    client, instances = open_client(), {"InstanceIds": [machine.read("var/lib/bedplate/ready").strip()]}
    members = client.call("autoscaling", region, "describe_auto_scaling_instances", **instances)
    for member in members["AutoScalingInstances"]:
        if member["LifecycleState"] != "InService":
            return f"it is {member['LifecycleState']} in its group"
        name = member["AutoScalingGroupName"]
        (group,) = describe_groups(client, region, [name])
        if reason := keep_reason(group, now):
            return reason
        # AWS refuses it below the minimum, also if another machine leaves at this moment.
        left = {"AutoScalingGroupName": name, "ShouldDecrementDesiredCapacity": True}
        client.call("autoscaling", region, "detach_instances", **left, **instances)
    with suppress(ProgramError):  # the next machine takes the name of one that has ended
        machine.output(PROGRAM, "release_name")
    machine.output("systemctl", "poweroff")
    return ""


def end_unused(machine: Machine, now: float) -> None:
    """End a machine whose idle time is over, or print what keeps it."""
    try:
        region = parse_json(machine.read("var/lib/bedplate/document.json"), LARGE)["node"]["region"]
        kept = leave_and_shut_down(machine, region, now)
    except (BedplateError, ProgramError, ValueError, LookupError, TypeError) as error:
        kept = str(error)
    # The journal of the unit takes notices and problems only.
    sys.stderr.write(f"<5>nobody uses this machine: {f'it stays: {kept}' if kept else 'it ends'}\n")
