"""Find the rows of a table in the modules of a package, so that a new row needs its own module only."""

import pkgutil
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Protocol, TypeVar


class Row(Protocol):
    """What a table holds: one row for each type token of the Pulumi schema."""

    @property
    def token(self) -> str:
        """The type token, such as `aws:ec2/vpc:Vpc`."""


AnyRow = TypeVar("AnyRow", bound=Row)


def find_rows(package: str, path: Iterable[str], row_type: type[AnyRow]) -> Mapping[str, AnyRow]:
    """Return every `row_type` that a module of the package has at its top level, by token."""
    rows: dict[str, AnyRow] = {}
    for module in pkgutil.iter_modules(path, f"{package}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, row_type) and rows.setdefault(value.token, value) is not value:
                raise AssertionError(f"{module.name} has a second row for {value.token}")
    return MappingProxyType(dict(sorted(rows.items())))
