"""Faults that `rehearse --fault` injects: a region that is down, a zone without capacity for a type, a failed stack."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from bedplate.rehearsal.state import ResourceError

NO_ENDPOINT = "RequestError"  # the AWS SDK for Go's code when a request gets no answer


@dataclass(frozen=True, slots=True)
class RegionDown:
    """No endpoint of the region answers."""

    region: str

    def __str__(self) -> str:
        return f"region-down:{self.region}"


@dataclass(frozen=True, slots=True)
class NoCapacity:
    """EC2 cannot start the instance type in the zone."""

    instance_type: str
    zone: str

    def __str__(self) -> str:
        return f"no-capacity:{self.instance_type}@{self.zone}"


@dataclass(frozen=True, slots=True)
class StackFails:
    """The first deployment of a part's stack fails, before it makes anything."""

    part: str

    def __str__(self) -> str:
        return f"stack-fails:{self.part}"


Fault = RegionDown | NoCapacity | StackFails


@dataclass(frozen=True, slots=True)
class Shortage:
    """An Auto Scaling group that could not start all its instances."""

    group: str
    region: str
    desired: int
    running: int


@dataclass(slots=True)
class Faults:
    """The active faults, the number of requests that each has failed, and the groups without capacity."""

    active: frozenset[Fault] = frozenset()
    hits: Counter[Fault] = field(default_factory=Counter)
    shortages: dict[tuple[str, str], Shortage] = field(default_factory=dict)
    """By region and group."""

    def check_region(self, service: str, region: str) -> None:
        """Raise ResourceError if the region is down."""
        if (fault := RegionDown(region)) in self.active:
            self.hits[fault] += 1
            raise ResourceError(NO_ENDPOINT, f"no response from the {service} endpoint of {region}")

    def fails(self, stack: str) -> bool:
        """Return whether the stack fails as a whole."""
        if (fault := StackFails(stack.rpartition(".")[2])) not in self.active:
            return False
        self.hits[fault] += 1
        return True

    def lacks_capacity(self, instance_types: Iterable[str], zones: Iterable[str]) -> bool:
        """Return whether no zone has capacity for any of the instance types."""
        zones = tuple(zones)
        launches = {NoCapacity(instance_type, zone) for instance_type in instance_types for zone in zones}
        if not launches or not launches <= self.active:
            return False
        self.hits.update(launches)
        return True
