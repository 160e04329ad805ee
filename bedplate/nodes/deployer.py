"""Who logs in to machines: to configure them, and to work on them."""

from bedplate.plan.accounts import Accounts

FIRST = "ubuntu"
"""The account that Ubuntu's images begin with, and that the first-boot script makes on a site's machine."""


def deployer(accounts: Accounts, me: str) -> str:
    """Return the account to log in with: the operator's own where the file makes them an administrator."""
    return me if any(person.name == me and person.admin for person in accounts.people) else FIRST


def visitor(accounts: Accounts, me: str) -> str:
    """Return the account to work as: the operator's own where the file has them."""
    return me if any(person.name == me for person in accounts.people) else FIRST
