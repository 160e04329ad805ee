"""One of several processes that record fleets in one lock file; the arguments are the file, its number, the rounds."""

import sys
from pathlib import Path

from bedplate.errors import HeldError
from bedplate.lock import record_plan
from bedplate.spec import Fleet
from tests.testlab.fleets.sketch import catalog, sketch


def refusals(lock: Path, fleet: Fleet) -> list[int]:
    """Record a fleet, and retry while another process has the lock; return the exit status of each refusal."""
    statuses: list[int] = []
    while True:
        try:
            record_plan(lock, fleet, catalog())
        except HeldError as error:
            statuses.append(error.exit_code)
        else:
            return statuses


def main() -> None:
    """Record a new site in each round; print the exit status of each refusal."""
    lock, number, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for step in range(rounds):
        fleet = sketch(sites={f"s{number}x{step}": f"192.168.{number * rounds + step}.0/24"})
        sys.stdout.writelines(f"{status}\n" for status in refusals(lock, fleet))


main()
