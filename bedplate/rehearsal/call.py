"""One call to AWS as a value: what weather judges, and what is sent again when no answer came."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_READING = ("describe_", "get_", "list_", "head_", "search_", "filter_")
_MAKING = ("allocate_", "copy_", "create_", "import_", "replicate_", "run_")


@dataclass(frozen=True, slots=True)
class Call:
    """A service's operation in a region, in boto3's words; `zones` are those in which it takes an address."""

    service: str
    region: str
    operation: str
    params: Mapping[str, Any]
    zones: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The call as weather names it, such as `ec2.create_vpc`."""
        return f"{self.service}.{self.operation}"

    @property
    def is_reading(self) -> bool:
        """Whether it leaves everything as it was."""
        return self.operation.startswith(_READING)

    @property
    def is_making(self) -> bool:
        """Whether sent twice it may make two of a thing."""
        return self.operation.startswith(_MAKING)
