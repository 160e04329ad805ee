"""`bedplate node apply` beside ansible-core, on machines made alike, with the same tasks, in the same run.

Needs root and Ansible's own environment (.venv-peers, `make bench` makes it). First one machine each, ours and theirs
in turn. Then BENCH_NODES at once (10 where it is left out), ours; and when those are gone as many of theirs: clones of
the one that theirs applied for the second apply, fresh ones for the first. With many machines theirs is stopped once it
has taken more than twice as long as ours, and BENCH_PATIENCE seconds (180): what is left of it only lowers the ratio.

Beside seconds by the clock stand those of the processor, of who applies and of the machines together: other work here
has no part in them. Ends with 1 where a bar is missed by the clock.
"""

import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bedplate.catalog import load_catalog
from bedplate.load import load_fleet
from bedplate.lock import lock_path, record_plan
from benchmarks.clone import Original, original_of
from benchmarks.contest import Contest, Cost, fresh_layers
from tests.support.declared import EXAMPLES
from tests.support.stand.stand import Stand

CROWD = int(os.environ.get("BENCH_NODES", "10"))
PATIENCE = float(os.environ.get("BENCH_PATIENCE", "180"))
BAR = 0.5
_BEYOND = 1.05 / BAR
_COLUMNS = "{:<30} {:>10} {:>10} {:>8} {:>5}  {:>10} {:>10} {:>8}  {}"


@dataclass(frozen=True, slots=True)
class Row:
    """A figure beside its bar."""

    what: str
    ours: Cost
    theirs: Cost

    @property
    def is_kept(self) -> bool:
        """Whether the bar is kept, by the clock."""
        return self.ours.clock <= BAR * self.theirs.clock

    def __str__(self) -> str:
        ours, theirs = self.ours, self.theirs
        least, most = ("", "") if theirs.stopped_in is None else (">", "<")
        cut = "" if theirs.stopped_in is None else f", theirs stopped in task {theirs.stopped_in}"
        return _COLUMNS.format(
            self.what,
            f"{ours.clock:.1f} s",
            f"{least}{theirs.clock:.1f} s",
            f"{most}{ours.clock / theirs.clock:.2f}",
            f"{BAR:.2f}",
            f"{ours.processor:.1f} s",
            f"{least}{theirs.processor:.1f} s",
            f"{most}{ours.processor / theirs.processor:.2f}",
            ("PASS" if self.is_kept else "over") + cut,
        )


def main() -> None:
    """Measure, and print a row a figure."""
    with tempfile.TemporaryDirectory(prefix="bedplate-bench-") as name:
        folder = Path(name)
        _write_fleet(folder)
        layers = fresh_layers(folder)
        first, again, original = _one_machine(folder, layers)
        rows = [first, again, *_crowd(folder, layers, original, again.theirs.changed)]
    sys.exit(0 if all(row.is_kept for row in rows) else 1)


def _one_machine(folder: Path, layers: tuple[Path, ...]) -> tuple[Row, Row, Original]:
    """Measure one machine each; return also the one that theirs applied."""
    (mine,), (other,) = _names(1, 1), _names(2, 1)
    with Stand(layers) as stand:
        for name in (mine, other):
            stand.boot(name, _address(name))
        contest = Contest(stand, folder)
        print(f"a playbook of {contest.write_playbook(other)} tasks", flush=True)
        _print_head()
        first = _told("first apply", contest.ours([mine]), contest.theirs([other]))
        again = _told("second apply, no change", contest.ours([mine]), contest.theirs([other]))
        _print_changed(again)
        return first, again, original_of(stand.nodes[other], stand, folder / "original")


def _crowd(folder: Path, layers: tuple[Path, ...], original: Original, known: frozenset[str]) -> tuple[Row, Row]:
    """Measure many at once; `known` is what theirs changes on the original whenever it is applied."""
    names = _names(1, CROWD)
    with Stand(layers) as stand:
        for name in names:
            stand.boot(name, _address(name))
        first, again = (Contest(stand, folder).ours(names) for _ in range(2))
    with Stand((original.upper, *layers)) as stand:
        for name in names:
            stand.boot(name, _address(name), prepare=original.turned_into(name, _address(name)))
        theirs = Contest(stand, folder).theirs(names, _patience(again))
    if not theirs.changed <= known:
        sys.exit(f"a clone is not as the original: {', '.join(sorted(theirs.changed - known))}")
    second_row = _told(f"second apply, {CROWD} at once", again, theirs)
    with Stand(layers) as stand:
        for name in names:
            stand.boot(name, _address(name))
        theirs = Contest(stand, folder).theirs(names, _patience(first))
    return _told(f"first apply, {CROWD} at once", first, theirs), second_row


def _patience(ours: Cost) -> float:
    """Return for how many seconds theirs is waited for: longer than its bar asks."""
    return max(PATIENCE, ours.clock * _BEYOND)


def _print_head() -> None:
    print(_COLUMNS.format("", "bedplate", "ansible", "ratio", "bar", "bedplate", "ansible", "ratio", ""))
    print(_COLUMNS.format("", "by clock", "", "", "", "processor", "", "", ""), flush=True)


def _told(what: str, ours: Cost, theirs: Cost) -> Row:
    row = Row(what, ours, theirs)
    print(row, flush=True)
    return row


def _print_changed(again: Row) -> None:
    for who, cost in (("bedplate", again.ours), ("ansible", again.theirs)):
        print(f"  {who} changed: {', '.join(sorted(cost.changed)) or 'nothing'}", flush=True)


def _names(first: int, count: int) -> tuple[str, ...]:
    return tuple(f"bench-{number}.cellar" for number in range(first, first + count))


def _address(name: str) -> str:
    return f"192.168.41.{re.findall(r'[0-9]+', name)[0]}"


def _write_fleet(folder: Path) -> None:
    """Write the lab's file with as many workbenches as there are machines, and record its plan."""
    fleet, text = folder / "fleet.yaml", (EXAMPLES / "lab.yaml").read_text(encoding="utf-8")
    names = _names(1, max(2, CROWD))
    more = "".join(f"\n      {name.partition('.')[0]}: {{address: {_address(name)}, use: ssh}}" for name in names)
    fleet.write_text(text.replace("    machines:", f"    machines:{more}", 1), encoding="utf-8")
    record_plan(lock_path(fleet), load_fleet(fleet, load_catalog()).fleet, load_catalog())


if __name__ == "__main__":
    main()
