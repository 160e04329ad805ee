"""AS numbers that AWS lets a gateway of its own have.

Source: AWS VPN user guide, "Virtual private gateway", and transit gateways guide, 2026-07.
"""

from collections.abc import Iterator

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.unknown import is_known

_PRIVATE = (range(64512, 65535), range(4200000000, 4294967295))


def asn_complaints(inputs: Props, key: str) -> Iterator[Complaint]:
    """Yield what is wrong with the AS number under an input: it is to be a private one, of two or of four bytes."""
    asn = inputs.get(key)
    if is_known(asn) and not any(int(asn) in numbers for numbers in _PRIVATE):
        yield Complaint(key, f"{asn} is no private AS number")
