"""What the plan refuses, and why: faults that only a fleet file and its lock together can show."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bedplate.errors import InputError

# Name of each rule by its code, as `bedplate check` prints them.
PLAN_RULES: Mapping[str, str] = MappingProxyType(
    {
        "E230": "supernet-exhausted",
        "E231": "renumbers-block",
        "E232": "touches-recorded-block",
        "E233": "outside-supernet",
        "E234": "subnets-do-not-fit",
        "E235": "zone-slots-exhausted",
        "E236": "tunnels-exhausted",
        "E517": "ids-exhausted",
        "E518": "name-recorded",
    }
)


@dataclass(frozen=True, slots=True)
class PlanFault:
    """One refusal; `key` is the dotted path in the fleet file (`regions.us-west-2.block`)."""

    code: str
    key: str
    message: str
    fix: str


class PlanFaults(InputError):
    """A fleet file that its lock or its supernet does not allow; nothing was allotted."""

    def __init__(self, faults: Iterable[PlanFault]) -> None:
        self.faults = tuple(dict.fromkeys(faults))
        first, more = self.faults[0], len(self.faults) - 1
        also = f" (and {more} more)" if more else ""
        super().__init__(f"{first.code} {first.message}{also}", where=first.key, fix=first.fix)
