"""AWS's quotas as text: a row a quota, cells parted by tabs."""

from collections.abc import Iterable
from dataclasses import dataclass

from bedplate.catalog.sheet import ABSENT

COLUMNS = ("name", "service", "code", "default", "market", "families")


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """One quota of a region: its name here, its service and code at AWS, and what a new account has.

    One that counts vCPUs says of which families of types, and in which market (`on-demand` or `spot`).
    """

    name: str
    service: str
    code: str
    default: int
    market: str = ""
    families: frozenset[str] = frozenset()


def read_quotas(rows: Iterable[str]) -> dict[str, QuotaFacts]:
    """Return the quotas by name; the first row names the columns."""
    title, *body = rows
    if title != "\t".join(COLUMNS):
        raise ValueError(f"the columns must be {', '.join(COLUMNS)}")
    facts = (_read_row(row) for row in body)
    return {quota.name: quota for quota in facts}


def _read_row(row: str) -> QuotaFacts:
    name, service, code, default, market, families = row.split("\t")
    return QuotaFacts(
        name=name,
        service=service,
        code=code,
        default=int(default),
        market="" if market == ABSENT else market,
        families=frozenset() if families == ABSENT else frozenset(families.split(" ")),
    )
