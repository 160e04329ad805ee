"""The weather over one simulation, and what it has done so far. Decides nothing: that is the weather's own part."""

from collections import Counter
from dataclasses import dataclass, field

from bedplate.rehearsal.moto_launches import Shortage
from bedplate.rehearsal.weather import FAIR, LAUNCH_CODES, Fault, Trouble, Weather

# What an Auto Scaling group's activity says; the code is not in it.
_WORDS = {
    Trouble.NO_ADDRESSES: "There are not enough free addresses in the subnet.",
    Trouble.NO_CAPACITY: "There is not sufficient capacity in the Availability Zone for this instance type now.",
    Trouble.NO_QUOTA: "The launch asks for more vCPUs than the account's limit for these instance types.",
    Trouble.SPOT_LIMIT: "The limit on Spot Instances of the account is reached.",
    Trouble.RESERVATION_FULL: "The Capacity Reservation has no free instance left.",
    Trouble.RESERVATION_ENDED: "The Capacity Reservation does not exist any more.",
}


@dataclass(slots=True)
class Climate:
    """What there is of weather now, how often each fault of it was met, and which groups are short of machines."""

    weather: Weather = FAIR
    met: Counter[str] = field(default_factory=Counter)
    """By the fault's text."""
    shortages: dict[tuple[str, str], Shortage] = field(default_factory=dict)
    """By region and group."""

    def meet(self, fault: Fault) -> None:
        """Count a fault that struck."""
        self.met[fault.text] += 1

    def obstacle(self, group: str, region: str, zones: frozenset[str]) -> tuple[str, str] | None:
        """Return AWS's code and words for a launch of an Auto Scaling group that fails."""
        fault = self.weather.stopping(group, region, zones)
        if fault is None:
            return None
        self.meet(fault)
        return LAUNCH_CODES[fault.trouble], f"{_WORDS[fault.trouble]} Launching EC2 instance failed."

    def fall_short(self, shortage: Shortage) -> None:
        """Note a group that is short of machines."""
        self.shortages[shortage.region, shortage.group] = shortage
