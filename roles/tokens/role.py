"""The role `tokens`: people who log in to a member get tokens of one hour for the cluster.

A socket answers with the token of the account that connects: nobody needs sudo, and nobody can ask for another person.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import ClassVar

from pyinfra.operations import systemd

from bedplate.plan.cluster import person_name
from bedplate.plan.fleet import Accounts
from bedplate.plan.links import API_PORT
from roles.base import Changes, ManagedFile, Role, render, unit_files
from roles.hardened.logins import TOKEN_PROGRAM

SOCKET = "bedplate-token.socket"
PROGRAM = "/usr/local/sbin/bedplate-token"


@dataclass(frozen=True, slots=True)
class Tokens(Role):
    """A member of the control plane with this address; `accounts` are the names of people in the cluster by user id."""

    address: IPv4Address
    accounts: Mapping[int, str]
    name: ClassVar[str] = "tokens"

    def install(self) -> None:
        """Install nothing: kubectl is there."""

    def files(self) -> Iterator[ManagedFile]:
        """Yield the programs and units."""
        server = render(
            "tokens/bedplate-token", server=f"https://{self.address}:{API_PORT}", accounts=dict(self.accounts)
        )
        yield ManagedFile(f"Write {PROGRAM}", PROGRAM, server, "755")
        yield client_file(TOKEN_PROGRAM, "/run/bedplate-token")
        yield from unit_files("tokens", SOCKET, "bedplate-token@.service")

    def activate(self, changes: Changes) -> None:
        """Listen for people."""
        del changes
        systemd.service(name="Listen for requests of tokens", service=SOCKET, running=True, enabled=True)


def client_file(program: str, path: str, *, takes_scope: bool = False) -> ManagedFile:
    """Return the program that asks the socket at a path for a token, with a scope if the socket takes one."""
    return ManagedFile(f"Write {program}", program, render("tokens/token", socket=path, takes_scope=takes_scope), "755")


def cluster_accounts(accounts: Accounts) -> Mapping[int, str]:
    """Return the names of people in the cluster by user id."""
    return {person.uid: person_name(person.name) for person in accounts.people}
