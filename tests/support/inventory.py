"""Everything that a simulated AWS holds, counted: whatever a call made twice is there once too often.

Walks moto's own objects, so that nothing is missed because no listing tells of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from moto.core.base_backend import BackendDict

# A journal of Route 53's: a change that comes twice is in it twice, and done once.
_JOURNALS = frozenset({"rr_changes"})
_PLAIN = (str, bytes, int, float, bool, type(None))


def inventory(account: str) -> Counter[str]:
    """Return how many objects of each class, and items in each of their containers, an account has in each region."""
    found: Counter[str] = Counter()
    for service in BackendDict._instances:  # type: ignore[misc]  # noqa: SLF001  # all that were ever asked
        if account in service:
            for region, backend in service[account].items():
                for what, count in _counted(backend).items():
                    found[f"{region} {service.service_name} {what}"] = count
    return found


def _counted(root: object) -> Counter[str]:
    found: Counter[str] = Counter()
    seen: dict[int, object] = {}
    stack = [root]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        name = type(one).__qualname__
        found[name] += 1
        for key, value in _fields(one):
            found[f"{name}.{key}"] += len(value) if isinstance(value, dict | list | set | tuple) else 0
            stack.extend(each for each in _members(value) if not isinstance(each, _PLAIN))
    return +found


def _fields(one: object) -> Iterator[tuple[str, Any]]:
    """Yield the fields of an object; those of a mapping are its values, for its keys are ids."""
    if isinstance(one, Mapping):
        yield from (("item", value) for value in one.values())
    elif hasattr(one, "__dict__"):
        yield from ((name, value) for name, value in vars(one).items() if name not in _JOURNALS)


def _members(value: Any) -> Iterator[Any]:  # noqa: ANN401  # whatever moto holds
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | set | tuple):
        yield from value
    elif type(value).__module__.startswith("moto."):
        yield value
