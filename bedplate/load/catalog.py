"""The catalog of a fleet folder: the facts of the package, and before them those of `fleet.catalog`."""

import os
from dataclasses import replace
from functools import cache
from pathlib import Path

from bedplate.catalog import Catalog, load_catalog
from bedplate.catalog.folder import NAME, FolderFacts, read_facts, write_facts
from bedplate.checks.file import UNUSABLE_CATALOG
from bedplate.errors import InputError
from bedplate.files import write_whole
from bedplate.load.source import read_source
from bedplate.load.yaml import Unreadable
from bedplate.rules import fault


class InvalidCatalog(InputError):
    """`fleet.catalog` is damaged or of another version; `fault` is the error of `check`."""

    def __init__(self, path: Path, reason: str) -> None:
        self.fault = replace(
            fault(UNUSABLE_CATALOG, "", f"cannot use {NAME}: {reason}"), file=str(path), line=1, column=1
        )
        super().__init__(self.fault.message, where=str(path), fix=self.fault.fix)


def folder_facts(fleet_file: Path) -> FolderFacts:
    """Return the facts beside a fleet file; none without `fleet.catalog`. Raises InvalidCatalog."""
    path = fleet_file.parent / NAME
    try:
        return _facts(read_source(path)) if os.path.lexists(path) else FolderFacts()
    except (Unreadable, ValueError) as error:
        raise InvalidCatalog(path, error.fault.message if isinstance(error, Unreadable) else str(error)) from None


def fleet_catalog(fleet_file: Path) -> Catalog:
    """Return the catalog for a fleet file; without `fleet.catalog`, that of the package. Raises InvalidCatalog."""
    facts = folder_facts(fleet_file)
    return facts.over(load_catalog()) if facts != FolderFacts() else load_catalog()


def write_folder_facts(fleet_file: Path, facts: FolderFacts) -> None:
    """Replace the facts beside a fleet file."""
    write_whole(fleet_file.parent / NAME, write_facts(facts).encode())


_facts = cache(read_facts)
