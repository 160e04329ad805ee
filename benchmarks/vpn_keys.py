"""The CPU time of `bedplate vpn add`, and of a fleet with a thousand laptops.

Targets, on a core at full speed: `vpn add` takes 0.3 s more than the start of Python; a thousand laptops are added,
listed and one of them revoked within 10 s in all; `vpn revoke`, with gateways that answer at once, takes at most twice
as long with a thousand laptops and hundreds of revoked ones as with ten.
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

from tests.testlab.run import clock_pace, pace, pace_line
from vpn.audit_log import Begun
from vpn.authority import Reason
from vpn.certificates import laptop
from vpn.pki import FOLDER, FolderKeys, Pki, PkiFolder, create_authority, folder_of, open_pki, read_crl
from vpn.signing import add, revoke
from vpn.status import keys_status

ROOT = Path(__file__).parents[1]
MAX_START_S, MAX_TOTAL_S, MAX_RATIO = 0.3, 10.0, 2.0
RUNS, FEW, MANY, REVOKED = 9, 10, 1_000, 400
GATEWAY = '#!/bin/sh\ncat >/dev/null; echo \'{"number": 1, "cut": {}, "renewed": false}\'\n'


def elapsed(work: Callable[[], object]) -> float:
    """Return the elapsed seconds of a function."""
    started = perf_counter()
    work()
    return perf_counter() - started


def cpu_seconds(folder: Path, *arguments: str) -> float:
    """Run Python with the project on its path; return its CPU seconds."""
    variables = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        env={**variables, "PYTHONPYCACHEPREFIX": str(folder / "code")},
        capture_output=True,
    )
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_add(folder: Path) -> float:
    """Return the CPU seconds of `vpn add` in addition to an empty Python program, the minimum of each."""
    fleet = str(shutil.copy(ROOT / "examples/lab.yaml", folder / "fleet.yaml"))
    cpu_seconds(folder, "-m", "bedplate", "plan", "--write", fleet)
    cpu_seconds(folder, "-m", "bedplate", "vpn", "init", fleet)
    cpu_seconds(folder, "-m", "bedplate", "vpn", "add", "ada", fleet, "--device", "first")
    added = [
        cpu_seconds(folder, "-m", "bedplate", "vpn", "add", "ada", fleet, "--device", f"d{run}") for run in range(RUNS)
    ]
    return (min(added) - min(cpu_seconds(folder, "-c", "pass") for _ in range(RUNS))) / pace()


def fleet_with(folder: Path, people: int) -> Path:
    """Return a fleet file with certificates for a number of laptops."""
    fleet = folder / str(people) / "fleet.yaml"
    fleet.parent.mkdir()
    fleet.write_text((ROOT / "examples/lab.yaml").read_text().replace("pool: /22", "pool: /20"))
    pki = folder_of(fleet)
    create_authority(pki, Begun(now(), "lab", "", FOLDER, "", ""), FolderKeys(pki.keys))
    add(opened(pki), [laptop(f"user{number}") for number in range(people)], now(), bytes)
    return fleet


def add_revoked(folder: PkiFolder, people: int) -> None:
    """Revoke a number of additional laptops, so that the revocation list is as long as after years."""
    names = [f"left{number}" for number in range(people)]
    add(opened(folder), [laptop(name) for name in names], now(), bytes)
    revoke(opened(folder), [f"{name}.laptop" for name in names], Reason.LEFT, now(), bytes)


def measure_revoke(folder: Path, *fleets: Path) -> tuple[float, ...]:
    """Return the minimum CPU seconds of `vpn revoke` in each fleet; the fleets are measured in turns."""

    def revoke_one(fleet: Path, number: int) -> float:
        return cpu_seconds(folder, "-m", "bedplate", "vpn", "revoke", f"user{number}", str(fleet))

    rounds = [[revoke_one(fleet, number) for fleet in fleets] for number in range(RUNS)]
    return tuple(map(min, zip(*rounds, strict=True)))


def opened(folder: PkiFolder) -> Pki:
    """Return the certificates of a folder."""
    return open_pki(folder, "lab", lambda _: FolderKeys(folder.keys))


def now() -> datetime:
    """Return the present time."""
    return datetime.now(UTC).replace(microsecond=0)


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    print(pace_line())
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ssh").write_text(GATEWAY)
        (folder / "ssh").chmod(0o755)
        start = measure_add(folder)
        few, pace_before = fleet_with(folder, FEW), clock_pace()
        added = elapsed(lambda: fleet_with(folder, MANY))
        many = folder_of(folder / str(MANY) / "fleet.yaml")
        add_revoked(many, REVOKED)
        listed = elapsed(lambda: keys_status(opened(many), frozenset(), now()))
        revoked = elapsed(lambda: revoke(opened(many), [f"user{MANY - 1}.laptop"], Reason.LOST, now(), bytes))
        slowdown = (pace_before + clock_pace()) / 2
        entries = len(read_crl(opened(many)) or ())
        of_few, of_many = measure_revoke(folder, few, folder / str(MANY) / "fleet.yaml")
    ratio, total = of_many / of_few, (added + listed + revoked) / slowdown
    print(f"vpn add               {start:6.2f} s more than the start of Python (target {MAX_START_S})")
    print(f"revocation list       {entries} entries")
    print(f"{MANY:,} laptops         added {added:.2f} s, listed {listed:.3f} s, one revoked {revoked:.3f} s elapsed")
    print(f"                      {total:6.2f} s in all on one core (target {MAX_TOTAL_S})")
    print(f"vpn revoke, of {MANY:,}   {ratio:6.2f} times as long as of {FEW}: {of_few:.2f} s (target {MAX_RATIO})")
    return int(start > MAX_START_S or total > MAX_TOTAL_S or ratio > MAX_RATIO)


if __name__ == "__main__":
    sys.exit(main())
