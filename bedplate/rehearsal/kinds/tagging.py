"""Tags of services that keep them by key and value: listed, and brought up to date."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.simulation import Aws


def tag_pairs(tags: Mapping[str, str] | None, names: tuple[str, str] = ("Key", "Value")) -> list[dict[str, str]]:
    """Return tags as AWS lists them, under the two names that a service gives to key and value."""
    return [dict(zip(names, pair, strict=True)) for pair in sorted((tags or {}).items())]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagger:
    """How one service tags a resource that exists: its two calls and what it names their parameters."""

    service: str
    add: str = "tag_resource"
    remove: str = "untag_resource"
    ident: str
    pairs: str = "Tags"
    keys: str = "TagKeys"
    names: tuple[str, str] = ("Key", "Value")
    fixed: Mapping[str, str] = field(default_factory=dict)

    def retag(self, aws: Aws, ident: str, old: Props, new: Props) -> None:
        """Bring the tags of a resource from the old inputs' to the new ones'."""
        before, after = old.get("tags") or {}, new.get("tags") or {}
        target = {**self.fixed, self.ident: ident}
        if gone := sorted(before.keys() - after.keys()):
            aws.call(self.service, self.remove, **target, **{self.keys: gone})
        if fresh := dict(after.items() - before.items()):
            aws.call(self.service, self.add, **target, **{self.pairs: tag_pairs(fresh, self.names)})
