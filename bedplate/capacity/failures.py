"""Typed failures of launches: EC2's error codes, and the texts of scaling activities that mean them.

A scaling activity has a text and no code. Sources, read 2026-11: EC2 Auto Scaling user guide, "EC2 instance launch
failures"; EC2 API reference, "Error codes".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

NOT_READY = "InstanceNotReady"
"""The code of an instance whose first boot failed or did not end in time. It is bedplate's own, not EC2's."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The cause of a code, the texts that mean it, and what the operator can change.

    With `in_zone`, it concerns one zone of a pool, else the whole pool.
    """

    cause: str
    texts: tuple[str, ...]
    fix: str
    in_zone: bool = False


_LATER = "wait, or add a rung to the ladder: another zone, type, market or region"
_QUOTA = "`bedplate quotas` shows the quotas and how to raise them"

FAILURES: Mapping[str, Failure] = MappingProxyType(
    {
        "InsufficientInstanceCapacity": Failure(
            "no capacity", ("do not have sufficient", "no Spot capacity available"), _LATER, in_zone=True
        ),
        "UnfulfillableCapacity": Failure(
            "no spot capacity", ("isn't enough spare capacity", "is not enough spare capacity"), _LATER, in_zone=True
        ),
        "Unsupported": Failure(
            "the zone does not offer the type",
            ("configuration is currently not supported", "is not supported in your requested Availability Zone"),
            "`bedplate catalog refresh` updates the offers; `bedplate check` names the zones",
            in_zone=True,
        ),
        "InsufficientFreeAddressesInSubnet": Failure(
            "no free address in the subnet", ("enough free addresses",), "use another zone or region", in_zone=True
        ),
        "SpotMaxPriceTooLow": Failure(
            "the spot price is above `max_price`",
            ("minimum required Spot request fulfillment price",),
            "raise `max_price` of the rung",
        ),
        "MaxSpotInstanceCountExceeded": Failure(
            "the spot quota is used up", ("Max spot instance count exceeded",), _QUOTA
        ),
        "VcpuLimitExceeded": Failure("the vCPU quota is used up", ("current vCPU limit",), _QUOTA),
        "InstanceLimitExceeded": Failure("the instance quota is used up", ("instance(s) are already running",), _QUOTA),
        "VolumeLimitExceeded": Failure("the quota of EBS volumes is used up", ("maximum volume count",), _QUOTA),
        "ReservationCapacityExceeded": Failure(
            "the reservation is full", ("reservation does not have sufficient",), "raise the count of the reservation"
        ),
        "CapacityBlockNotActive": Failure(
            "the capacity block is not active", ("is not active yet",), "wait for the start of the block"
        ),
        NOT_READY: Failure(
            "the machine failed at its first boot",
            ("failed to complete user's Lifecycle Action",),
            "`bedplate node logs NAME`, or its console output, shows why; correct image, user data or network",
        ),
    }
)


def failure_code(text: str) -> str | None:
    """Return the code of a failed launch by the text of its scaling activity; None if the text is unknown."""
    named = (code for code in FAILURES if code in text)
    return next(named, None) or next(
        (code for code, failure in FAILURES.items() if any(words in text for words in failure.texts)), None
    )
