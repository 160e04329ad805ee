"""The keys by which a site's machine is first configured: the administrators', in a file that every apply keeps so."""

from bedplate.plan.accounts import Accounts

MARK = "# Written by bedplate: keys of administrators"
"""The first line of such a file: whoever reads it knows who writes it anew."""


def admin_keys(accounts: Accounts) -> tuple[str, ...]:
    """Return the keys of those who are administrators now, in the order of the file."""
    return tuple(key for person in accounts.people if person.admin for key in person.keys)


def first_keys(accounts: Accounts) -> str:
    """Return the text of the file."""
    return "".join(f"{line}\n" for line in (MARK, *admin_keys(accounts)))
