"""What was issued and revoked, whose certificates there are, and what gateways made of it; never a key."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bedplate.report.columns import aligned, counted
from vpn.entry import Issued
from vpn.subject import DEFAULT_DEVICE, Use

if TYPE_CHECKING:  # `vpn add` is to answer at once, and these bring the whole plan with them
    from vpn.laptops.carry import Carried
    from vpn.pki import Pki
    from vpn.standing import Holder, Standing


def begun_lines(pki: "Pki", root: Path | None) -> Iterator[str]:
    """Yield where the authority lies, until when it lasts, and what to commit of it."""
    end = pki.authority.certificate.not_valid_after_utc
    yield f"{pki.folder.path}: the authority of {pki.journal.begun.fleet}, until {end:%Y-%m-%d}"
    if root is not None:
        yield f"its root's key is in {root}, with {root.name}.crt: take both away, on two disks in two places"
    kept = "keys/ is left out by its .gitignore" if pki.journal.begun.keys == "folder" else "keys lie in the account"
    yield f"commit the folder: {kept}, and without its journal nobody knows whom to revoke"
    yield "next: `bedplate vpn sync` for the gateways, `bedplate vpn add USER` for each person"


def issued_lines(issued: Iterable[Issued], now: datetime) -> Iterator[str]:
    """Yield a row a certificate, and what to do with those of laptops."""
    rows = tuple(issued)
    yield from aligned(
        (
            f"+ {each.name}",
            f"until {each.until:%Y-%m-%d} ({counted((each.until - now).days, 'day')})",
            f"{each.serial:x}",
        )
        for each in rows
    )
    for each in rows:
        if each.use is Use.CLIENT:
            user, _, device = each.name.partition(".")
            which = "" if device == DEFAULT_DEVICE else f" --device {device}"
            yield f"next: `bedplate vpn sync` lets it in, `bedplate vpn show {user}{which}` prints its profile"
    if any(each.use is Use.SERVER for each in rows):
        yield "gateways take their new certificates by `bedplate vpn sync`"


def revoked_lines(revoked: Iterable[Issued]) -> Iterator[str]:
    """Yield a row a certificate, or that none counted any more."""
    rows = tuple(revoked)
    yield from aligned(
        (f"- {each.name}", f"revoked, was until {each.until:%Y-%m-%d}", f"{each.serial:x}") for each in rows
    )
    if not rows:
        yield "none of their certificates counted any more"


def relisted_lines(*, signed: bool) -> Iterator[str]:
    """Yield whether the list was signed anew."""
    yield "crl.pem is signed anew" if signed else "crl.pem is in the first half of its life"


def carried_lines(carried: "Carried") -> Iterator[str]:
    """Yield a row a gateway that was told, with the sessions that ended there."""
    for place, ended in sorted(carried.cut.items()):
        sessions = sum(ended.values())
        yield f"{place} was told" + (f", {counted(sessions, 'session')} ended" if sessions else "")


def roll_lines(standing: "Standing", seen: Mapping[str, datetime]) -> Iterator[str]:
    """Yield a row a laptop or gateway, then the list and the authority, then what is wrong with them."""
    yield from aligned(_row(holder, seen) for holder in standing.holders)
    until = f"{standing.until:%Y-%m-%d}" if standing.until else "-"
    yield f"crl.pem: list {standing.number or '-'} until {until}, {counted(standing.revoked, 'certificate')} revoked"
    yield f"the authority lasts until {standing.authority:%Y-%m-%d}"
    yield from (f"{fault.level}: {fault.message}" for fault in standing.faults)


def roll_document(standing: "Standing", seen: Mapping[str, datetime]) -> dict[str, Any]:
    """Return it as JSON's own types; `seen` is null for a laptop that was at no gateway that was asked."""
    return {
        "certificates": [_entry(holder, seen.get(holder.name)) for holder in standing.holders],
        "crl": {
            "number": standing.number,
            "until": standing.until.isoformat() if standing.until else None,
            "revoked": standing.revoked,
        },
        "authority": {"until": standing.authority.isoformat()},
        "faults": [{"level": fault.level.value, "message": fault.message} for fault in standing.faults],
    }


def _row(holder: "Holder", seen: Mapping[str, datetime]) -> tuple[str, ...]:
    there = (f"seen {seen[holder.name]:%Y-%m-%d %H:%M}",) if holder.name in seen else ("-",) if seen else ()
    until = f"{holder.until:%Y-%m-%d}", counted(holder.days, "day")
    return holder.name, holder.use.value, *until, *there, holder.note


def _entry(holder: "Holder", seen: datetime | None) -> dict[str, Any]:
    return {
        "name": holder.name,
        "use": holder.use.value,
        "serial": f"{holder.serial:x}",
        "until": holder.until.isoformat(),
        "days": holder.days,
        "slot": holder.slot,
        "seen": seen.isoformat() if seen else None,
        "note": holder.note,
    }
