"""A host key that a machine offers and that somebody vouches for: the operator at its console, or AWS."""

from collections.abc import Collection, Iterable

from bedplate.errors import ViolationError
from bedplate.nodes.host_key import fingerprint


def vouched(name: str, offered: Iterable[str], wanted: Collection[str], fix: str) -> str:
    """Return the key of those that a machine offers whose fingerprint is wanted. Raises ViolationError for none."""
    keys = {fingerprint(key): key for key in offered}
    for each in wanted:
        if each in keys:
            return keys[each]
    raise ViolationError(f"{name} does not offer the key {', '.join(wanted)}, but {', '.join(keys)}", fix=fix)
