"""The wheels of a bundle: what roles and compliance rules load, unpacked for one Python and one architecture."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bedplate.bundle.archive import Source, hash_of, pack
from bedplate.errors import InputError, MachineError

LOCK = Path(__file__).parents[2] / "requirements-nodes.lock"
"""The exact versions and hashes of the packages; `make lock` writes it."""
ARCHITECTURES = ("x86_64", "aarch64")
DEFAULT_PYTHON = "3.12"
"""The Python of Ubuntu 24.04."""
# The oldest glibc with these tags, and that of Debian 12; Ubuntu 24.04 has 2.39. Source: PEP 600.
_GLIBC = range(17, 37)
_OLDER_TAGS = ("manylinux2014",)
# Tests, and what differs between machines: programs name the Python that unpacked them, and RECORD has their hashes.
_UNUSED = re.compile(
    r"bin/|include/|.*/__pycache__/|(gevent|greenlet|zope/interface|zope/interface/common)/tests/"
    r"|[^/]+\.dist-info/(RECORD|INSTALLER|REQUESTED|direct_url\.json)$"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A Python, such as 3.12, on an architecture."""

    python: str
    architecture: str

    @property
    def name(self) -> str:
        """The name in the manifest, such as `cp312-x86_64`."""
        return f"cp{self.python.replace('.', '')}-{self.architecture}"


def targets(pythons: tuple[str, ...] = ()) -> tuple[Target, ...]:
    """Return the targets of a bundle: the Python of Ubuntu 24.04 and these others, on both architectures.

    Raises InputError for a version of Python that the lock does not cover.
    """
    for python in pythons:
        if not re.fullmatch(r"3\.1[1-9]", python):
            raise InputError(f"invalid Python version {python}", fix=f"write 3.11 or newer, such as {DEFAULT_PYTHON}")
    versions = dict.fromkeys((DEFAULT_PYTHON, *sorted(pythons)))
    return tuple(Target(version, architecture) for version in versions for architecture in ARCHITECTURES)


Install = Callable[[Target, Path, Path], None]
"""Unpacks the wheels of a lock file into a folder."""


def install(target: Target, lock: Path, folder: Path) -> None:
    """Unpack the wheels of a lock file for a target into a folder, by pip. Raises MachineError."""
    command = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    wheels = ("--only-binary=:all:", "--no-deps", "--require-hashes", "--requirement", str(lock))
    result = subprocess.run(  # noqa: S603  this interpreter
        (*command, *wheels, *_tags(target), "--target", str(folder)), capture_output=True, text=True, check=False
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no error output"]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise MachineError(
            f"pip cannot install the wheels for {target.name}: {errors[-1].removeprefix('ERROR: ')}",
            fix="check that this machine reaches the package index of pip (`pip config list`)",
        )


def _tags(target: Target) -> Iterator[str]:
    """Yield the options that select the wheels of a target."""
    tag = f"cp{target.python.replace('.', '')}"
    yield from ("--implementation", "cp", "--python-version", target.python)
    for abi in (tag, "abi3", "none"):
        yield from ("--abi", abi)
    for system in (*(f"manylinux_2_{minor}" for minor in reversed(_GLIBC)), *_OLDER_TAGS):
        yield from ("--platform", f"{system}_{target.architecture}")


def wheels_key(target: Target, lock: Path) -> str:
    """Return the name under which the wheels of a target are cached: it changes with the lock and the selection."""
    return f"{target.name}-{hash_of(lock.read_bytes() + _UNUSED.pattern.encode())}"


def pack_wheels(target: Target, lock: Path, unpack: Install) -> bytes:
    """Return the archive of the wheels of a target. Raises MachineError if they cannot be installed."""
    with tempfile.TemporaryDirectory(prefix="bedplate-") as name:
        folder = Path(name)
        unpack(target, lock, folder)
        files = (str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
        return pack(Source(folder, tuple(file for file in files if not _UNUSED.match(file))))
