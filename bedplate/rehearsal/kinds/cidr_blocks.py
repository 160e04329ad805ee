"""CIDR blocks as the provider checks them: well formed, of the right family and size, no host bits set."""

from collections.abc import Iterable, Iterator
from ipaddress import ip_network

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.unknown import is_known


def block_complaints(
    inputs: Props, keys: Iterable[str], *, version: int = 4, sizes: range | None = None
) -> Iterator[Complaint]:
    """Yield what is wrong with the blocks, one or a list, under the inputs `keys`; `sizes` are prefix lengths."""
    for key in keys:
        given = inputs.get(key)
        for text in given if isinstance(given, list) else [given]:
            if is_known(text) and (reason := _block_fault(str(text), version, sizes)):
                yield Complaint(key, reason)


def _block_fault(text: str, version: int, sizes: range | None = None) -> str:
    """Return what is wrong with one block, or nothing."""
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return f"{text!r} is not a CIDR block"
    if network.version != version:
        return f"{text!r} is not an IPv{version} CIDR block"
    if str(network) != text:
        return f"{text!r} is not a CIDR block; did you mean {str(network)!r}?"
    if sizes is not None and network.prefixlen not in sizes:
        return f"{text!r} has a size out of /{sizes.start} to /{sizes.stop - 1}"
    return ""
