"""A bundle of the working tree for test nodes.

Nodes of Debian 12 have the Python of the tests, so the packages of this interpreter are the wheels. Those for Debian 13
are downloaded from the package index, as `bedplate bundle build --python 3.13` does.
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bedplate.bundle import LOCK, BundleTarget, code_files, install, pack_wheels
from tests.testlab.fakes.first_boot import Bundle, archive
from tests.testlab.machines.layers import RELEASE
from tests.testlab.machines.operator import ROOT

_PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}


def working_tree(documents: Mapping[str, str], extra: Mapping[str, bytes]) -> Bundle:
    """Return the bundle of the working tree, with more files of code."""
    return Bundle({**_code(), **extra}, documents, _wheels(), _PYTHONS[RELEASE])


@cache
def _code() -> Mapping[str, bytes]:
    # Once: an edit during a test run gives no other bundle.
    return {path: (ROOT / path).read_bytes() for path in code_files(ROOT)}


@cache
def _wheels() -> bytes:
    if RELEASE != "bookworm":
        with pytest.MonkeyPatch.context() as patch:
            # The tests' proxy refuses connections, and pip is a process of its own.
            for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
                patch.delenv(name, raising=False)
            return pack_wheels(BundleTarget(_PYTHONS[RELEASE], os.uname().machine), LOCK, install)
    return archive({name: path.read_bytes() for name, path in _files()})


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the files of the packages in the lock of the nodes, with their names in the archive."""
    lines = re.findall(r"^([a-z].*?) *\\?$", LOCK.read_text(), re.MULTILINE)
    for requirement in map(Requirement, lines):
        if requirement.marker and not requirement.marker.evaluate():
            continue
        package = distribution(requirement.name)
        for file in package.files or ():
            if ".." not in file.parts and file.suffix != ".pyc" and _is_needed(str(file)):
                yield str(file), Path(str(package.locate_file(file)))


def _is_needed(file: str) -> bool:
    """Leave out the models of AWS services, except that of the groups of machines."""
    return "botocore/data/" not in file or file.count("/") == 2 or "botocore/data/autoscaling/" in file
