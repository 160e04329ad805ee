"""One of several processes that issue certificates at once; the arguments are the folder, its number, the rounds."""

import sys
from pathlib import Path

from bedplate.errors import HeldError
from tests.testlab.keys.authority import NOW, pki_in, unasked
from vpn.certificates import laptop
from vpn.pki import PkiFolder
from vpn.signing import add


def refusals(folder: PkiFolder, user: str) -> list[int]:
    """Issue a certificate, and retry while another process has the lock; return the exit status of each refusal."""
    statuses: list[int] = []
    while True:
        try:
            add(pki_in(folder), [laptop(user)], NOW, unasked)
        except HeldError as error:
            statuses.append(error.exit_code)
        else:
            return statuses


def main() -> None:
    """Add a new user in each round; print the exit status of each refusal."""
    folder, number, rounds = PkiFolder(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    for step in range(rounds):
        sys.stdout.writelines(f"{status}\n" for status in refusals(folder, f"u{number}x{step}"))


main()
