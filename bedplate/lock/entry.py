"""What one entry of fleet.lock may say: a path and its block, a machine and its address, a place and its image."""

import re
from ipaddress import IPv4Address, IPv4Network

from bedplate.plan.images import IMAGE_ID

_REGION = r"[a-z]{2}(-[a-z]+)+-\d+"
_SLUG = r"[a-z][a-z0-9-]*"
_PATHS = (
    rf"region/{_REGION}(/zone/{_REGION}[a-z]/(edge|nodes))?",
    rf"(site|pool)/{_SLUG}",
    rf"tunnel/{_SLUG}/{_REGION}/[12]",
    "pods|services",
)
_PATH = re.compile("|".join(_PATHS), re.ASCII)
_MACHINE = re.compile(rf"control-\d\.{_REGION}", re.ASCII)
_IMAGE_OF = re.compile(rf"{_REGION}/(x86_64|arm64)", re.ASCII)
_RESTORE = "restore it from its history: `git checkout -- fleet.lock`"


class NotALockError(Exception):
    """Why a text is not the lock of this fleet, how to mend it, and where, as far as that is known."""

    def __init__(self, what: str, fix: str = _RESTORE, *, line: int = 1, column: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.line = line
        self.column = column


def block_of(path: str, value: object) -> IPv4Network:
    """Return the block of a path, written as bedplate writes it."""
    if not _PATH.fullmatch(path):
        raise NotALockError(f"it names a path that bedplate never writes: {path!r}")
    try:
        block = IPv4Network(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"{path} is no block: {error}") from None
    if str(block) != value:
        raise NotALockError(f"{path} is {value}, which bedplate writes as {block}")
    return block


def address_of(name: str, value: object) -> IPv4Address:
    """Return the fixed address of a machine."""
    if not _MACHINE.fullmatch(name):
        raise NotALockError(f"it names a machine that bedplate never writes: {name!r}")
    try:
        return IPv4Address(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"{name} has no address: {error}") from None


def image_of(place: str, value: object) -> str:
    """Return the image of a region and architecture."""
    if not _IMAGE_OF.fullmatch(place):
        raise NotALockError(f"it names images of a place that bedplate never writes: {place!r}")
    if not isinstance(value, str) or not IMAGE_ID.fullmatch(value):
        raise NotALockError(f"{place} has {value!r}, which is no image id")
    return value
