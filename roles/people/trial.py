"""Administrators' keys and rights on trial: an apply that would shut its own operator out of a node takes them back.

As `roles.hardened.trial` does for the packet filter and sshd (ADR 12); `bedplate-trial-people`, shipped beside, says
what happens on the node. People without rights are no way in for an apply, and theirs are not tried.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyinfra.api.operation import OperationMeta
from pyinfra.context import host
from pyinfra.operations import server

from roles.shipped import Marks, Shipped, ship
from roles.template import text_of

SCRIPT = "/usr/local/sbin/bedplate-trial-people"
# Is there while a trial goes on: what has been kept.
KEPT = "/var/lib/bedplate/trial-people/paths"
# Longer than it takes to write a few files and to come in anew.
SECONDS = 120


@dataclass(frozen=True, slots=True)
class Trial:
    """What lets administrators in, and makes them root."""

    ways: Sequence[Shipped]

    def keep(self) -> Iterator[OperationMeta]:
        """Yield what keeps the former ones, before any is written."""
        yield from ship(Shipped("Program of keys on trial", SCRIPT, text_of("people/bedplate-trial-people"), "755"))
        if self._is_due:
            paths = " ".join(each.path for each in self.ways)
            yield server.shell(name="Former ways of administrators", commands=[f"{SCRIPT} keep {SECONDS} {paths}"])

    def begin(self) -> Iterator[OperationMeta]:
        """Yield what has whoever applies come in anew, now that they are written."""
        if self._is_due:
            yield server.shell(name="Ways of administrators, on trial", commands=[f"{SCRIPT} try"])

    @property
    def _is_due(self) -> bool:
        """Whether something is to be written, or was, by an apply that was cut off before anybody came in anew."""
        found = host.get_fact(Marks, paths=(KEPT, *(each.path for each in self.ways)))
        return KEPT in found or any(found.get(each.path) != each.mark for each in self.ways)
