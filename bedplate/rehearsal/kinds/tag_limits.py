"""Limits of AWS on tags, the same for all services that the fleet uses.

Source: AWS General Reference, "Tag naming limits and requirements", 2026-07.
"""

from collections.abc import Iterator, Mapping

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.unknown import is_known

_MOST, _LONGEST_KEY, _LONGEST_VALUE = 50, 128, 256


def tag_complaints(inputs: Props, key: str = "tags") -> Iterator[Complaint]:
    """Yield what AWS refuses of the tags under an input: a map, or a list of blocks of `key` and `value`."""
    tags = _as_map(inputs.get(key))
    if len(tags) > _MOST:
        yield Complaint(key, f"{len(tags)} tags: a resource has at most {_MOST}")
    for name, value in tags.items():
        for reason in _faults(name, value):
            yield Complaint(f"{key}.{name[:_LONGEST_KEY]}", reason)


def _as_map(tags: object) -> Mapping[str, object]:
    if isinstance(tags, Mapping):
        return tags
    blocks = tags if isinstance(tags, list) else []
    return {block["key"]: block.get("value") for block in blocks if is_known(block.get("key"))}


def _faults(name: str, value: object) -> Iterator[str]:
    if not 1 <= len(name) <= _LONGEST_KEY:
        yield f"a tag's key has 1 to {_LONGEST_KEY} characters, this one has {len(name)}"
    if name.lower().startswith("aws:"):
        yield "tags whose key begins with aws: are AWS's own"
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        yield f"a tag's value has at most {_LONGEST_VALUE} characters, this one has {len(value)}"
