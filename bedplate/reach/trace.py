"""What became of a packet."""

from dataclasses import dataclass


class Ended(Exception):
    """The packet went no further; the text says why."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One thing that a packet passed, and by what it passed there."""

    at: str
    by: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The way of one packet; `end` says where it arrived, or where it ended and why."""

    hops: tuple[Hop, ...]
    delivered: bool
    end: str


@dataclass(frozen=True, slots=True)
class Trip:
    """A packet and its answer; None where there was nothing to answer."""

    out: Trace
    back: Trace | None

    @property
    def answered(self) -> bool:
        """Whether the packet arrived and its answer came back."""
        return self.out.delivered and self.back is not None and self.back.delivered
