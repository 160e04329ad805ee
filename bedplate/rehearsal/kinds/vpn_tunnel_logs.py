"""Where the tunnels of a VPN connection log to: log groups that must exist."""

from collections.abc import Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.kinds.limits import Choice, inside
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

TUNNEL_LOGS = ("tunnel1LogOptions", "tunnel2LogOptions")
_BLOCK = "cloudwatchLogOptions"
_FORMATS = {"bgpLogOutputFormat": Choice(("json", "text")), "logOutputFormat": Choice(("json", "text"))}
_SWITCHES = {"bgpLogEnabled": "bgpLogGroupArn", "logEnabled": "logGroupArn"}


def log_complaints(inputs: Props) -> Iterator[Complaint]:
    """Yield a complaint for each format that AWS does not know, and each log that has nowhere to go."""
    for name in TUNNEL_LOGS:
        yield from inside(inputs, f"{name}.{_BLOCK}", _FORMATS)
        for switch, group in _SWITCHES.items():
            if _told(inputs, name).get(switch) and not _told(inputs, name).get(group):
                yield Complaint(f"{name}.{_BLOCK}.{group}", f"goes with {switch}")


def require_log_groups(aws: Aws, inputs: Props) -> None:
    """Raise Refusal when a tunnel is to log to a group that does not exist."""
    for name in TUNNEL_LOGS:
        told = _told(inputs, name)
        for arn in filter(None, map(told.get, _SWITCHES.values())):
            if not _exists(aws, str(arn).removesuffix(":*")):
                raise Refusal("InvalidParameterValue", f"There is no log group {arn}", key=name)


def _exists(aws: Aws, arn: str) -> bool:
    prefix = aws.arn("logs", "log-group:")
    name = arn.removeprefix(prefix)
    found = aws.call("logs", "describe_log_groups", logGroupNamePrefix=name)["logGroups"]
    return arn.startswith(prefix) and name in [each["logGroupName"] for each in found]


def _told(inputs: Props, name: str) -> Mapping[str, Any]:
    options = inputs.get(name)
    block = options.get(_BLOCK) if is_known(options) else None
    return block if is_known(block) else {}
