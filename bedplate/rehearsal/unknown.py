"""What a preview does not know yet: the outputs of a resource that is still to be made or changed."""

from typing import Final, TypeGuard, TypeVar, final

from pulumi.runtime import rpc

KnownT = TypeVar("KnownT")


@final
class Unknown:
    """A value that only making the resource will tell; there is one, `UNKNOWN`."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __deepcopy__(self, memo: object) -> "Unknown":
        return self


UNKNOWN: Final = Unknown()
# How the SDK writes it on the wire.
WIRE_MARK: Final = rpc.UNKNOWN


def is_known(value: KnownT | None) -> TypeGuard[KnownT]:
    """Whether a value is there and known to its depth."""
    return value is not None and not holds_unknown(value)


def holds_unknown(value: object) -> bool:
    """Whether a value is unknown or holds something unknown."""
    if isinstance(value, dict):
        return any(holds_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(holds_unknown(item) for item in value)
    return value is UNKNOWN
