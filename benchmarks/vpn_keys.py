"""The VPN's keys: what `bedplate vpn add` takes beyond Python's own start, and a fleet of a thousand people.

Targets, on a core at its full speed: 0.3 s; a thousand added, listed and one revoked within 10 s in all; `bedplate vpn
revoke`, with gateways that answer at once, takes at most twice as long among a thousand laptops and hundreds that were
revoked as among ten.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory
from time import perf_counter

from tests.testlab.run import clock_pace, pace
from vpn.authority import Reason
from vpn.certificates import laptop
from vpn.journal import Begun
from vpn.pki import FOLDER, FolderKeys, Pki, PkiFolder, begin, folder_of, open_pki, read_list
from vpn.signing import add, revoke
from vpn.status import standing

ROOT = Path(__file__).parents[1]
MOST_START_S, MOST_ALL_S, MOST_TIMES = 0.3, 10.0, 2.0
RUNS, FEW, MANY, GONE = 9, 10, 1_000, 400
GATEWAY = '#!/bin/sh\ncat >/dev/null; echo \'{"number": 1, "cut": {}, "renewed": false}\'\n'


def took(work: Callable[[], object]) -> float:
    """Return the seconds that a piece of work takes."""
    started = perf_counter()
    work()
    return perf_counter() - started


def ran(folder: Path, *arguments: str) -> float:
    """Run Python with the project in its reach, and return how many seconds of a core it took."""
    places = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        env={**places, "PYTHONPYCACHEPREFIX": str(folder / "code")},
        capture_output=True,
    )
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def adding(folder: Path) -> float:
    """Return how many seconds of a core `vpn add` takes beyond a Python that does nothing, each at its cheapest."""
    fleet = str(shutil.copy(ROOT / "examples/lab.yaml", folder / "fleet.yaml"))
    ran(folder, "-m", "bedplate", "plan", "--write", fleet)
    ran(folder, "-m", "bedplate", "vpn", "init", fleet)
    ran(folder, "-m", "bedplate", "vpn", "add", "ada", fleet, "--device", "first")
    added = [ran(folder, "-m", "bedplate", "vpn", "add", "ada", fleet, "--device", f"d{run}") for run in range(RUNS)]
    return (min(added) - min(ran(folder, "-c", "pass") for _ in range(RUNS))) / pace()


def fleet_of(folder: Path, people: int) -> Path:
    """Return a fleet file beside which a certificate was issued to each of so many people."""
    fleet = folder / str(people) / "fleet.yaml"
    fleet.parent.mkdir()
    fleet.write_text((ROOT / "examples/lab.yaml").read_text().replace("pool: /22", "pool: /20"))
    there = folder_of(fleet)
    begin(there, Begun(now(), "lab", "", FOLDER), FolderKeys(there.keys))
    add(opened(there), [laptop(f"user{number}") for number in range(people)], now(), bytes)
    return fleet


def leave(there: PkiFolder, people: int) -> None:
    """Revoke so many laptops more than there are: the list is as long as after years."""
    names = [f"left{number}" for number in range(people)]
    add(opened(there), [laptop(name) for name in names], now(), bytes)
    revoke(opened(there), [f"{name}.laptop" for name in names], Reason.LEFT, now(), bytes)


def revoking(folder: Path, *fleets: Path) -> tuple[float, ...]:
    """Return the seconds of a core that `vpn revoke` takes in each fleet, at its cheapest, turn by turn."""

    def gone(fleet: Path, number: int) -> float:
        return ran(folder, "-m", "bedplate", "vpn", "revoke", f"user{number}", str(fleet))

    rounds = [[gone(fleet, number) for fleet in fleets] for number in range(RUNS)]
    return tuple(map(min, zip(*rounds, strict=True)))


def opened(there: PkiFolder) -> Pki:
    """Return what a folder holds."""
    return open_pki(there, "lab", lambda _: FolderKeys(there.keys))


def now() -> datetime:
    """Return this moment."""
    return datetime.now(UTC).replace(microsecond=0)


def main() -> int:
    """Print the figures; return 1 where a target is missed."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ssh").write_text(GATEWAY)
        (folder / "ssh").chmod(0o755)
        start = adding(folder)
        few, before = fleet_of(folder, FEW), clock_pace()
        added = took(lambda: fleet_of(folder, MANY))
        many = folder_of(folder / str(MANY) / "fleet.yaml")
        leave(many, GONE)
        listed = took(lambda: standing(opened(many), frozenset(), now()))
        revoked = took(lambda: revoke(opened(many), [f"user{MANY - 1}.laptop"], Reason.LOST, now(), bytes))
        slow = (before + clock_pace()) / 2
        entries = len(read_list(opened(many)) or ())
        of_few, of_many = revoking(folder, few, folder / str(MANY) / "fleet.yaml")
    times, together = of_many / of_few, (added + listed + revoked) / slow
    print(f"vpn add               {start:6.2f} s beyond Python's start (target {MOST_START_S})")
    print(f"the list              {entries} entries")
    print(
        f"{MANY:,} people          added {added:.2f} s, listed {listed:.3f} s, one revoked {revoked:.3f} s by the clock"
    )
    print(f"                      {together:6.2f} s in all on a core of its own (target {MOST_ALL_S})")
    print(f"vpn revoke, of {MANY:,}   {times:6.2f} times what it takes of {FEW}: {of_few:.2f} s (target {MOST_TIMES})")
    return int(start > MOST_START_S or together > MOST_ALL_S or times > MOST_TIMES)


if __name__ == "__main__":
    sys.exit(main())
