"""The hours in which the machines of a group run."""

from typing import Annotated

from pydantic import Field

from bedplate.spec.base import Spec
from bedplate.spec.syntax import Syntax

_DAY = "(MON|TUE|WED|THU|FRI|SAT|SUN)"
Clock = Annotated[
    str,
    Syntax("E319", "time of day", r"([01][0-9]|2[0-3]):[0-5][0-9]", "two digits, a colon, two digits", "'20:00'", 5),
]
Weekdays = Annotated[
    str,
    Syntax(
        "E319", "list of weekdays", rf"{_DAY}(-{_DAY}|(,{_DAY})*)", "MON to SUN, with a hyphen or commas", "MON-FRI"
    ),
]
# Auto Scaling takes names of the IANA database; which of them exist is the catalogue's to know.
TimeZone = Annotated[
    str,
    Syntax(
        "E319",
        "time zone",
        r"UTC|[A-Z][A-Za-z_]+(/[A-Z][A-Za-z0-9_+-]+)+",
        "an area, a slash and a city, as in the IANA database",
        "Europe/Zurich",
        64,
    ),
]


class Schedule(Spec):
    """When a group's machines start in the morning and stop in the evening; what stops loses its root volume."""

    start: Clock = Field(title="Start", description="Time of day, quoted, at which the group's minimum is started.")
    stop: Clock = Field(title="Stop", description="Time of day, quoted, at which all of the group's machines end.")
    days: Weekdays = Field(default="MON-FRI", title="Weekdays", description="The days on which they start.")
    zone: TimeZone = Field(default="UTC", title="Time zone", description="Time zone of both times of day.")
