"""Histories of two clones that nobody thought of, joined: no address is given twice, and nothing taken back counts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.authority import NOW
from vpn.certificate import LIFE
from vpn.entry import Begun, Issued, Revoked
from vpn.joining import lacking
from vpn.journal import Journal, new_journal
from vpn.key_store import FOLDER
from vpn.revocation import Reason
from vpn.roll import roll_of
from vpn.subject import Use

DAY = timedelta(days=1)
# Who, what, and how many days later: as operators do it who know only their own journal.
STEPS = st.lists(
    st.tuples(st.sampled_from(["ada", "bob", "eve"]), st.sampled_from(["issue", "revoke"]), st.integers(0, 60)),
    max_size=6,
)


@dataclass
class Clone:
    """A journal, and the moment of its last change."""

    journal: Journal
    now: datetime
    serials: "count[int]" = field(default_factory=lambda: count(1))

    def live(self, steps: Sequence[tuple[str, str, int]]) -> None:
        """Take steps, each entered as `vpn.signing` enters it."""
        for name, what, days in steps:
            self.now += days * DAY
            if what == "issue":
                slot = roll_of(self.journal).slots([name], self.now)[name]
                entry = Issued(self.now, next(self.serials), name, Use.CLIENT, self.now + LIFE, "0" * 64, slot)
                self.journal = self.journal.with_entries((entry,))
            else:
                gone = [each for each in roll_of(self.journal).valid(self.now) if each.name == name]
                self.journal = self.journal.with_entries([Revoked(self.now, each.serial, Reason.LOST) for each in gone])


@settings(max_examples=200, deadline=None)
@given(STEPS, STEPS, STEPS)
def test_no_address_is_given_twice_and_nobody_comes_back(
    before: list[tuple[str, str, int]], mine: list[tuple[str, str, int]], others: list[tuple[str, str, int]]
) -> None:
    """Now, and on every later day on which one of the certificates counts."""
    ours = Clone(new_journal(Begun(NOW, "lab", "0" * 64, FOLDER)), NOW)
    ours.live(before)
    theirs = Clone(ours.journal, ours.now, ours.serials)
    ours.live(mine)
    theirs.live(others)
    now = max(ours.now, theirs.now)

    joined = roll_of(ours.journal.with_entries(lacking(ours.journal, theirs.journal, now)))

    assert {*roll_of(ours.journal).revoked, *roll_of(theirs.journal).revoked} <= joined.revoked.keys()
    for day in range(0, LIFE.days + 1, 10):
        then = now + day * DAY
        seats, valid = joined.seats(then), {each.name for each in joined.valid(then)}
        assert max(Counter(seats.values()).values(), default=1) == 1
        assert seats.keys() == valid
