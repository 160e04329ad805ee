"""Values of a graph, which may be missing, masked, unknown, or words that stand for something else."""

from collections.abc import Mapping
from typing import Any

# What stands for a value that cannot be seen: our mask of secrets, and the engine's own of secrets and unknowns.
_MASKS = frozenset(
    {"[secret]", "[unknown]", "UNKNOWN", "output<string>", "output<object>", "04da6b54-80e4-46f7-96ec-b56ff0331ba9"}
)
_SIGNATURE = "4dabf18193072939515e22adb298388d"

Properties = Mapping[str, Any]


def is_seen(value: object) -> bool:
    """Whether a value is there to be judged."""
    if isinstance(value, str):
        return value not in _MASKS
    return not (isinstance(value, dict) and _SIGNATURE in value)


def is_on(holder: Properties, key: str) -> bool:
    """Whether a switch is on, or is there and cannot be seen."""
    value = holder.get(key)
    return not is_seen(value) or value is True or (isinstance(value, str) and value.lower() == "true")


def says(holder: Properties, key: str, *accepted: str) -> bool:
    """Whether a word is one of those accepted, or is there and cannot be seen."""
    value = holder.get(key)
    return value in accepted or not is_seen(value)


def words(value: object) -> tuple[str, ...]:
    """Return the words of a list, or the one word, that can be seen."""
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(item for item in items if isinstance(item, str) and is_seen(item))


def parts(value: object) -> tuple[Properties, ...]:
    """Return the objects of a list, or the one object, that can be seen."""
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(item for item in items if isinstance(item, dict) and is_seen(item))


def part(holder: Properties, key: str) -> Properties:
    """Return the object under a key, also where it stands alone in a list; an empty one where there is none."""
    return next(iter(parts(holder.get(key))), {})


def number(value: object) -> int | None:
    """Return a whole number, also where it is written as a word; None where there is none."""
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    return int(value) if is_whole and isinstance(value, int | float) else None
