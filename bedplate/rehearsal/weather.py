"""What goes wrong in the simulated AWS, as a value: which calls fail, with which code, how often. Never acts."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from bedplate.rehearsal.call import Call
from bedplate.rehearsal.outage import failed_inside, no_address, no_answer, throttled
from bedplate.rehearsal.refusal import Refusal

IN_A_ROW = 8


class Trouble(StrEnum):
    """The kinds of fault, by the words of `bedplate rehearse --weather`."""

    THROTTLED = "throttled"
    ERRORS = "errors"
    LOST_REPLIES = "lost-replies"
    SILENT = "silent"
    NO_ADDRESSES = "no-addresses"
    NO_CAPACITY = "no-capacity"
    NO_QUOTA = "no-quota"
    SPOT_LIMIT = "spot-limit"
    RESERVATION_FULL = "reservation-full"
    RESERVATION_ENDED = "reservation-ended"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; `place` is a region, a zone, an Auto Scaling group or a call such as `ec2.create_vpc`: see strikes."""

    trouble: Trouble
    place: str = ""
    times: int = IN_A_ROW
    """How often in a row a call is refused that is throttled, or fails inside AWS."""

    def strikes(self, call: Call, attempt: int) -> bool:
        """Whether it keeps this attempt at a call, the first being 1, from having an effect."""
        match self.trouble:
            case Trouble.THROTTLED | Trouble.ERRORS:
                return self.place in ("", call.name) and attempt <= self.times
            case Trouble.SILENT:
                return self.place == call.region
            case Trouble.NO_ADDRESSES:
                return bool(call.zones) and (self.place == call.region or self.place in call.zones)
            case _:
                return False

    def loses(self, call: Call, attempt: int) -> bool:
        """Whether it loses the reply to this attempt at a call."""
        return self.trouble is Trouble.LOST_REPLIES and self.place in ("", call.name) and attempt == 1

    def stops(self, group: str, region: str, zones: Collection[str]) -> bool:
        """Whether it keeps an Auto Scaling group from starting machines; one free zone is enough for them."""
        if self.trouble is Trouble.NO_ADDRESSES:
            return self.place == region or {self.place} == {*zones}
        return self.trouble in LAUNCH_CODES and self.place == group

    @property
    def text(self) -> str:
        """The fault as it is asked for."""
        return f"{self.trouble.value}:{self.place}" if self.place else self.trouble.value


@dataclass(frozen=True, slots=True)
class Weather:
    """Every fault there is while stacks are made; without one all is as it should be."""

    faults: tuple[Fault, ...] = ()

    @property
    def is_crowded(self) -> bool:
        """Whether addresses are short anywhere."""
        return any(one.trouble is Trouble.NO_ADDRESSES for one in self.faults)

    def striking(self, call: Call, attempt: int) -> Fault | None:
        """Return the fault that keeps this attempt at a call from having an effect."""
        return next((one for one in self.faults if one.strikes(call, attempt)), None)

    def losing(self, call: Call, attempt: int) -> Fault | None:
        """Return the fault that loses the reply to this attempt at a call."""
        return next((one for one in self.faults if one.loses(call, attempt)), None)

    def stopping(self, group: str, region: str, zones: Collection[str]) -> Fault | None:
        """Return the fault that keeps an Auto Scaling group from starting machines."""
        return next((one for one in self.faults if one.stops(group, region, zones)), None)


FAIR = Weather()
# EC2's error codes for a launch that fails, Amazon EC2 API reference, "Error codes"; an Auto Scaling group shows
# them in its activities only.
LAUNCH_CODES = {
    Trouble.NO_ADDRESSES: "InsufficientFreeAddressesInSubnet",
    Trouble.NO_CAPACITY: "InsufficientInstanceCapacity",
    Trouble.NO_QUOTA: "VcpuLimitExceeded",
    Trouble.SPOT_LIMIT: "MaxSpotInstanceCountExceeded",
    Trouble.RESERVATION_FULL: "ReservationCapacityExceeded",
    Trouble.RESERVATION_ENDED: "InvalidCapacityReservationId.NotFound",
}


def answer(fault: Fault, call: Call) -> Refusal:
    """Return what a call is told that a fault strikes."""
    match fault.trouble:
        case Trouble.THROTTLED:
            return throttled(call)
        case Trouble.ERRORS:
            return failed_inside(call)
        case Trouble.NO_ADDRESSES:
            return no_address(call)
        case _:
            return no_answer(call)
