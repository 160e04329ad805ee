"""A bundle of the working tree for test nodes, with the packages of this interpreter as its wheels.

Test nodes of Debian 12 have the Python of the tests.
"""

import gzip
import io
import tarfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.testlab.fakes.first_boot import Bundle
from tests.testlab.machines.operator import ROOT

_PACKAGES = ("bedplate", "roles", "vpn")
# What roles and compliance rules load; their requirements follow.
_DISTRIBUTIONS = ("pyinfra", "pydantic", "jinja2", "pytest", "pytest-testinfra", "ruamel.yaml", "rich", "typer")


def working_tree(documents: Mapping[str, str], **changed: bytes) -> Bundle:
    """Return the bundle of the working tree; `changed` adds files of code."""
    files = {
        str(path.relative_to(ROOT)): path.read_bytes()
        for package in _PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    return Bundle({**files, **changed}, documents, _wheels())


@cache
def _wheels() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, path in sorted(_files()):
            archive.add(path, name, recursive=False)
    return gzip.compress(stream.getvalue(), 1, mtime=0)


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the files of the distributions and of what they require, with their names in the archive."""
    waiting, names = [*_DISTRIBUTIONS], set[str]()
    while waiting:
        name = waiting.pop()
        if name in names:
            continue
        names.add(name)
        found = distribution(name)
        requirements = map(Requirement, found.requires or ())
        waiting += [
            item.name.lower() for item in requirements if not item.marker or item.marker.evaluate({"extra": ""})
        ]
        for file in found.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                yield str(file), Path(str(found.locate_file(file)))
