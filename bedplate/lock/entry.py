"""What one entry of fleet.lock may say: a path and its block, a machine and its address, a person and an id."""

import re
from ipaddress import IPv4Address, IPv4Network

from bedplate.plan.images import IMAGE_ID

_REGION = r"[a-z]{2}(-[a-z]+)+-\d+"
_SLUG = r"[a-z][a-z0-9-]*"
_PATHS = (
    rf"region/{_REGION}(/zone/{_REGION}[a-z]/(edge|nodes))?",
    rf"(site|pool)/{_SLUG}",
    rf"tunnel/{_SLUG}/{_REGION}/[12]",
    rf"tunnel/{_SLUG}/{_SLUG}",
    "pods|services",
)
_PATH = re.compile("|".join(_PATHS), re.ASCII)
_MACHINE = re.compile(rf"control-\d\.{_REGION}", re.ASCII)
_IMAGE_OF = re.compile(rf"{_REGION}/(x86_64|arm64)", re.ASCII)
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
_NODE = re.compile(r"[a-z0-9][a-z0-9-]*\.[a-z][a-z0-9-]*", re.ASCII)
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)
HOST_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]{40,1400}={0,2}", re.ASCII)
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


def number_of(name: str, value: object, ids: range) -> int:
    """Return the user id of a person, or the id of a group: one of `ids`."""
    if not _ACCOUNT.fullmatch(name):
        raise NotALockError(f"it names an account that bedplate never writes: {name!r}")
    if type(value) is not int or value not in ids:
        raise NotALockError(f"{name} has {value!r}, which is no id from {ids.start} to {ids.stop - 1}")
    return value


def keys_of(name: str, value: object) -> tuple[str, ...]:
    """Return the public host keys of a machine."""
    if not _NODE.fullmatch(name):
        raise NotALockError(f"it names a machine that bedplate never writes: {name!r}")
    if not isinstance(value, list) or not value or not all(isinstance(key, str) for key in value):
        raise NotALockError(f"{name} has {value!r}, which is no list of host keys")
    if any(not HOST_KEY.fullmatch(key) for key in value):
        raise NotALockError(f"{name} has a line that is no public host key")
    return tuple(value)


def instance_of(name: str, value: object) -> str:
    """Return the EC2 instance that had the recorded host keys of a machine."""
    if not _NODE.fullmatch(name):
        raise NotALockError(f"it names a machine that bedplate never writes: {name!r}")
    if not isinstance(value, str) or not _INSTANCE.fullmatch(value):
        raise NotALockError(f"{name} has {value!r}, which is no instance id")
    return value


def gateway_of(region: str, value: object) -> IPv4Address:
    """Return the public address of a region's gateway for laptops."""
    if not re.fullmatch(_REGION, region, re.ASCII):
        raise NotALockError(f"it names a region that bedplate never writes: {region!r}")
    try:
        return IPv4Address(value if isinstance(value, str) else "")
    except ValueError as error:
        raise NotALockError(f"{region} has no address: {error}") from None


def resolvers_of(region: str, value: object) -> tuple[IPv4Address, ...]:
    """Return the addresses of a region's resolver, those that answer laptops and sites."""
    if not isinstance(value, list) or not value:
        raise NotALockError(f"{region} has {value!r}, which is no list of addresses")
    return tuple(gateway_of(region, each) for each in value)
