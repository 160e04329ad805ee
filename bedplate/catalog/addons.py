"""The pins of the cluster's add-ons: version, address and SHA-256 of upstream's manifests, digests of their images."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from bedplate.catalog.tables import ABSENT
from bedplate.errors import ViolationError

_FILE, _IMAGE = "file", "image"
_VERIFIED, _UNVERIFIED = "verified", "unverified"
_PIN = "run `bedplate kube addons pin` on a machine that reaches the internet"


@dataclass(frozen=True, slots=True)
class ManifestPin:
    """A file of upstream; `verified` if its checksum was compared with the source, at `address`."""

    address: str
    checksum: str
    verified: bool

    def check(self, text: bytes, *, live: bool = True) -> str:
        """Return the file's text. Raises ViolationError for another checksum, and for an unverified one if `live`."""
        if live and not self.verified:
            raise ViolationError(f"the checksum of {self.address} is not verified", fix=_PIN)
        if sha256(text).hexdigest() != self.checksum:
            raise ViolationError(
                f"{self.address} has another checksum: {sha256(text).hexdigest()}, expected {self.checksum}",
                fix="do not use the file: ask its project why it changed",
            )
        return text.decode()


@dataclass(frozen=True, slots=True)
class AddonPins:
    """One version of an add-on: its files, and the digest of each image, empty if it is unknown."""

    name: str
    version: str
    files: tuple[ManifestPin, ...] = ()
    images: Mapping[str, str] = field(default_factory=dict)

    @property
    def minor(self) -> str:
        """The minor version, such as 1.36."""
        return ".".join(self.version.split(".")[:2])

    def pinned(self, texts: Mapping[str, bytes], digests: Mapping[str, str]) -> "AddonPins":
        """Return the pins with files and digests from their sources. Raises ViolationError if a known one differs."""
        for file in self.files:
            if file.address in texts:
                file.check(texts[file.address], live=False)
        files = tuple(replace(file, verified=file.verified or file.address in texts) for file in self.files)
        for image, digest in digests.items():
            if self.images.get(image) and self.images[image] != digest:
                raise ViolationError(
                    f"{image} has another digest: {digest}, expected {self.images[image]}",
                    fix="do not use the image: its tag was moved",
                )
        known = {image: digests.get(image, digest) for image, digest in self.images.items()}
        return replace(self, files=files, images=known)


def read_addons(rows: Iterable[str]) -> tuple[AddonPins, ...]:
    """Return the add-ons in the order of the file."""
    pins: dict[tuple[str, str], AddonPins] = {}
    for row in rows:
        name, version, kind, address, value, state = row.split("\t")
        addon = pins.get((name, version), AddonPins(name, version))
        if kind == _FILE:
            addon = replace(addon, files=(*addon.files, ManifestPin(address, value, state == _VERIFIED)))
        else:
            addon = replace(addon, images={**addon.images, address: "" if value == ABSENT else value})
        pins[name, version] = addon
    return tuple(pins.values())


def write_addons(addons: Iterable[AddonPins]) -> tuple[str, ...]:
    """Return one row for each file and image."""
    return tuple(row for addon in addons for row in _write_addon(addon))


def _write_addon(addon: AddonPins) -> Iterator[str]:
    for file in addon.files:
        state = _VERIFIED if file.verified else _UNVERIFIED
        yield f"{addon.name}\t{addon.version}\t{_FILE}\t{file.address}\t{file.checksum}\t{state}"
    for image, digest in addon.images.items():
        state = _VERIFIED if digest else _UNVERIFIED
        yield f"{addon.name}\t{addon.version}\t{_IMAGE}\t{image}\t{digest or ABSENT}\t{state}"
