"""What differs between the inputs a resource was made from and those it is asked to have now."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bedplate.rehearsal import property_path
from bedplate.rehearsal.kind import Change, Kind
from bedplate.rehearsal.unknown import holds_unknown
from bedplate.rehearsal.wire import masked, reveal

# An input of every regional type, and none of the kinds' tables: a resource never moves.
REGION: Final = "region"
# The provider makes no difference between them.
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


@dataclass(frozen=True, slots=True)
class Difference:
    """Changed values by path, the inputs they belong to, and which of those force a replacement."""

    paths: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    replace_keys: tuple[str, ...] = ()


def difference(
    kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any], also_replace: tuple[str, ...] = ()
) -> Difference:
    """Compare inputs as the provider does; `also_replace` are the program's own replace_on_changes paths."""
    paths = tuple(sorted(_changes(kind, old, new)))
    parsed = {path: property_path.parse(path) for path in paths}
    keys = tuple(sorted({str(parts[0]) for parts in parsed.values()}))
    patterns = [property_path.parse(pattern) for pattern in also_replace]
    wished = {str(parts[0]) for parts in parsed.values() if any(property_path.matches(one, parts) for one in patterns)}
    replacing = {REGION, *wished, *(key for key, change in kind.inputs.items() if change is Change.REPLACES)}
    forced = tuple(key for key in keys if key in replacing)
    return Difference(paths, keys, forced)


def _changes(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in {*old, *new}:
        before, after = reveal(old.get(key)), reveal(new.get(key))
        if after is None and key in kind.computed:
            continue
        if key in kind.sets:
            before, after = _ordered(before), _ordered(after)
        yield from _paths(key, before, after)


def _paths(path: str, before: Any, after: Any) -> Iterator[str]:  # noqa: ANN401  # any JSON values
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {*before, *after}:
            step = f".{key}" if key.isidentifier() else f'["{key}"]'
            yield from _paths(path + step, before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list):
        for n in range(max(len(before), len(after))):
            yield from _paths(f"{path}[{n}]", _item(before, n), _item(after, n))
    elif before != after and not (before in _EMPTY and after in _EMPTY):
        yield path


def _item(items: list[Any], n: int) -> Any:  # noqa: ANN401  # any JSON value
    return items[n] if n < len(items) else None


def _ordered(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    if isinstance(value, list) and not holds_unknown(value):
        return sorted(value, key=lambda item: json.dumps(masked(item), sort_keys=True))
    return value
