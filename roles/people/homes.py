"""Homes on a file server: made there by root, for on the machines that mount them root is nobody."""

from collections.abc import Iterable, Iterator, Mapping

from pyinfra.api.facts import FactBase

from bedplate.plan.accounts import Accounts
from roles.due import Due


class HomesIn(FactBase[Mapping[str, int]]):
    """The user id that owns each folder in a folder, by name."""

    default = dict

    def command(self, folder: str) -> str:
        """Ask for all of them at once."""
        return f"find {folder} -mindepth 1 -maxdepth 1 -type d -printf '%U %f\\n' 2>/dev/null || true"

    def process(self, output: Iterable[str]) -> Mapping[str, int]:
        """Part the owner from the name."""
        return {name: int(uid) for uid, _, name in (line.partition(" ") for line in output)}


def missing_homes(folder: str, accounts: Accounts, there: Mapping[str, int]) -> Iterator[Due]:
    """Yield the homes to make; one that is there is its owner's, whoever that is."""
    for person in accounts.people:
        if person.name not in there:
            # Whole under another name first: somebody may log in at any moment.
            made, home = f"{folder}/.{person.name}.new", f"{folder}/{person.name}"
            yield Due(
                f"Home of {person.name}",
                (
                    f"rm -rf {made} && cp -rT /etc/skel {made} && chown -R {person.uid}:{person.uid} {made}",
                    f"chmod 700 {made} && mv -T {made} {home}",
                ),
            )
