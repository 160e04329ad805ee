"""One resource of a graph, read tolerantly: whoever made it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that exists; what it is asked for comes from its outputs, else from its inputs."""

    type: str
    name: str
    id: str
    values: Values
    region: str = ""
    urn: str = ""
    after: tuple[str, ...] = ()
    """The URNs of what it depends on."""

    @property
    def label(self) -> str:
        """Its name and its region: every region may have one of that name."""
        return f"{self.name} ({self.region})" if self.region else self.name

    def text(self, key: str) -> str:
        """Return a value that is a text, or nothing."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the texts of a list."""
        return tuple(each for each in self._list(key) if isinstance(each, str))

    def blocks(self, key: str) -> tuple[Values, ...]:
        """Return the nested blocks of a list."""
        return tuple(each for each in self._list(key) if isinstance(each, Mapping))

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return a value that is true or false, however it is written."""
        value = self.values.get(key)
        return default if value is None else str(value).lower() == "true"

    def _list(self, key: str) -> list[Any]:
        value = self.values.get(key)
        return value if isinstance(value, list) else [value]


class Resources:
    """All resources of a graph by type."""

    def __init__(self, graph: Iterable[Values]) -> None:
        self._by_type: defaultdict[str, list[Resource]] = defaultdict(list)
        nodes = [node for node in graph if node.get("custom", True)]
        regions = {str(node.get("urn")): (node.get("inputs") or {}).get("region", "") for node in nodes}
        for node in nodes:
            values = {**(node.get("inputs") or {}), **(node.get("outputs") or {})}
            # A provider is named by its URN and its id.
            provider = str(node.get("provider") or "").rpartition("::")[0]
            region = str(values.get("region") or regions.get(provider, ""))
            found = Resource(
                str(node["type"]),
                str(node.get("name") or str(node.get("urn")).rpartition("::")[2]),
                str(node.get("id") or ""),
                values,
                region,
                str(node.get("urn") or ""),
                tuple(str(urn) for urn in node.get("dependencies") or ()),
            )
            self._by_type[found.type].append(found)

    def of(self, *types: str) -> Iterator[Resource]:
        """Yield the resources of some types, such as `ec2/vpc:Vpc`."""
        for each in types:
            yield from self._by_type.get(f"aws:{each}", ())
