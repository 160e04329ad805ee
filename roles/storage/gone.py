"""What was attached to a node and is not to be any more, or comes from elsewhere now: taken off, but never in use."""

from collections.abc import Iterable, Iterator
from shlex import quote

from roles.due import Due
from roles.storage.attached import Attached
from roles.storage.found import Found
from roles.storage.unit import FOLDER

# What a server that is gone may hold up: then the guard takes it off.
_PATIENTLY = "timeout 60 systemctl stop"


def gone(attached: Iterable[Attached], wanted: frozenset[str], found: Found) -> Iterator[Due]:
    """Yield what is to be done about units of ours that nobody wants, and about paths with another source."""
    for path in sorted({path for unit, path in found.units.items() if path and unit not in wanted}):
        yield _taken_off(path, [unit for unit, at in found.units.items() if at == path and unit not in wanted], found)
    for unit in sorted(unit for unit, path in found.units.items() if not path and unit not in wanted):
        yield Due(f"No {unit}", _removed(unit))
    for each in attached:
        if found.sources.get(each.path, each.source) != each.source and each.asked:
            yield _moved(each, found)


def _taken_off(path: str, units: list[str], found: Found) -> Due:
    """Return how a path goes; while somebody uses it, only that it is to go."""
    if users := found.told_users(path):
        return Due(f"{path} is to go, and stays while it is used by {users}", ("true",))
    return Due(f"No {path} any more", tuple(command for unit in _triggers_first(units) for command in _removed(unit)))


def _moved(at: Attached, found: Found) -> Due:
    if users := found.told_users(at.path):
        return Due(f"{at.path} comes from {at.source} once it is not used any more by {users}", ("true",))
    return Due(f"{at.path} comes from {at.source}", (f"{_PATIENTLY} {quote(at.mount)}",))


def _triggers_first(units: list[str]) -> list[str]:
    return sorted(units, key=lambda unit: not unit.endswith(".automount"))


def _removed(unit: str) -> tuple[str, ...]:
    named, gone = quote(unit), f"rm -f {quote(f'{FOLDER}/{unit}')} && systemctl daemon-reload"
    if "@." in unit:
        return (gone,)
    return (
        f"systemctl disable --quiet {named} 2>/dev/null; {_PATIENTLY} {named}",
        gone,
    )
