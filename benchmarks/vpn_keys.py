"""The VPN's keys: what `bedplate vpn add` takes beyond Python's own start, and a fleet of a thousand people.

Targets: 0.3 s of a core at its full speed; a thousand added, listed and one revoked within 10 s in all; a revocation
among a thousand laptops takes at most twice what it takes among ten.
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

from tests.support.pace import pace
from vpn.entry import Begun
from vpn.key_store import FOLDER, FolderKeys
from vpn.pki import Pki, begin, open_pki
from vpn.pki_folder import PkiFolder
from vpn.revocation import Reason
from vpn.signing import add, revoke
from vpn.standing import standing
from vpn.subject import laptop

ROOT = Path(__file__).parents[1]
MOST_START_S, MOST_ALL_S, MOST_TIMES = 0.3, 10.0, 2.0
RUNS, FEW, MANY = 9, 10, 1_000


def took(work: Callable[[], object]) -> float:
    """Return the seconds that a piece of work takes."""
    started = perf_counter()
    work()
    return perf_counter() - started


def command(folder: Path) -> float:
    """Return how many seconds of a core `vpn add` takes beyond a Python that does nothing, each at its cheapest."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder / "code")}
    fleet = str(shutil.copy(ROOT / "examples/lab.yaml", folder / "fleet.yaml"))

    def ran(*arguments: str) -> float:
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, env=environment, capture_output=True)
        after = getrusage(RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    ran("-m", "bedplate", "vpn", "init", fleet)
    ran("-m", "bedplate", "vpn", "add", "ada", fleet, "--device", "first")
    adding = [ran("-m", "bedplate", "vpn", "add", "ada", fleet, "--device", f"d{run}") for run in range(RUNS)]
    return (min(adding) - min(ran("-c", "pass") for _ in range(RUNS))) / pace()


def fleet_of(folder: Path, people: int) -> PkiFolder:
    """Return a folder that has issued a certificate to each of so many people."""
    there = PkiFolder(folder / f"{people}.pki")
    begin(there, Begun(now(), "lab", "", FOLDER), FolderKeys(there.keys))
    add(opened(there), [laptop(f"user{number}") for number in range(people)], now(), bytes)
    return there


def revoking(there: PkiFolder) -> float:
    """Return the seconds that a revocation takes, at its quickest."""

    def gone(number: int) -> float:
        return took(lambda: revoke(opened(there), [f"user{number}.laptop"], Reason.LOST, now(), bytes))

    return min(map(gone, range(RUNS)))


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
        start = command(folder)
        few = revoking(fleet_of(folder, FEW))
        added = took(lambda: fleet_of(folder, MANY))
        many = PkiFolder(folder / f"{MANY}.pki")
        listed = took(lambda: standing(opened(many), frozenset(), now()))
        revoked = revoking(many)
    print(f"vpn add               {start:6.2f} s beyond Python's start (target {MOST_START_S})")
    print(f"{MANY:,} people          added {added:.2f} s, listed {listed:.3f} s, one revoked {revoked:.3f} s")
    print(f"one revoked of {FEW}      {few:6.3f} s, of {MANY:,} {revoked / few:.1f} times that (target {MOST_TIMES})")
    return int(start > MOST_START_S or added + listed + revoked > MOST_ALL_S or revoked > MOST_TIMES * few)


if __name__ == "__main__":
    sys.exit(main())
