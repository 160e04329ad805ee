"""Paths into a resource's properties, as Pulumi writes them: `tags.owner`, `routes[0].cidrBlock`, `a["b c"]`, `*`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_PART = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+|\*)\]|([^.\[\]]+)')
Parts = tuple[str | int, ...]


def parse(path: str) -> Parts:
    """Return the parts of a path: names, positions, and "*" for every item."""
    found = _PART.findall(path)
    return tuple(int(index) if index.isdigit() else index or quoted or plain for quoted, index, plain in found)


def matches(pattern: Parts, path: Parts) -> bool:
    """Whether a path lies at or below what a pattern names."""
    return len(pattern) <= len(path) and all(p in ("*", q) for p, q in zip(pattern, path, strict=False))


def restored(new: Any, old: Any, path: Parts) -> Any:  # noqa: ANN401  # any JSON value
    """Return `new` with what `path` names as it is in `old`: put back, or taken away where `old` lacks it."""
    head, rest = path[0], path[1:]
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        changed = dict(new)
        for key in _keys(head, new, old):
            if key not in old:
                changed.pop(key, None)
            elif not rest:
                changed[key] = old[key]
            elif key in new:
                changed[key] = restored(new[key], old[key], rest)
        return changed
    if isinstance(new, list) and isinstance(old, list):
        chosen = range(len(new)) if head == "*" else [head]
        return [
            (restored(item, old[n], rest) if rest else old[n]) if n in chosen and n < len(old) else item
            for n, item in enumerate(new)
        ]
    return new


def _keys(head: str | int, new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    if head == "*":
        yield from sorted({*new, *old})
    else:
        yield str(head)
