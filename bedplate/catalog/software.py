"""Pins: dated sets of versions that were published together, add-ons of the cluster, and checksums of downloads."""

import re
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
        image_digests = {image: digests.get(image, digest) for image, digest in self.images.items()}
        return replace(self, files=files, images=image_digests)


def with_known_pins(addons: Iterable[AddonPins], known: Iterable[AddonPins]) -> tuple[AddonPins, ...]:
    """Return the add-ons with the digests and verified files of others of the same version."""
    others = {(addon.name, addon.version): addon for addon in known}
    return tuple(_with_known(addon, others.get((addon.name, addon.version), addon)) for addon in addons)


def _with_known(addon: AddonPins, other: AddonPins) -> AddonPins:
    files = tuple(
        file if replace(file, verified=True) not in other.files else replace(file, verified=True)
        for file in addon.files
    )
    return replace(
        addon, files=files, images={name: addon.images[name] or other.images.get(name, "") for name in addon.images}
    )


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


EFA_SUM, NVIDIA_KEY_SUM = "efa-sha256", "nvidia-key-sha256"
CHECKSUMS = (EFA_SUM, NVIDIA_KEY_SUM)


@dataclass(frozen=True, slots=True)
class SoftwareItem:
    """A version or checksum, empty if it is unknown; `verified` if it was read at the source, an address."""

    value: str
    verified: bool
    source: str


@dataclass(frozen=True, slots=True)
class SoftwareSet:
    """One set: its month (`2026-11`), and its items by name: `kernel`, `driver`, `dcgm`, `efa`, ..."""

    name: str
    items: Mapping[str, SoftwareItem]

    def value(self, item: str) -> str:
        """Return a version or checksum; empty if it is unknown."""
        return self.items[item].value

    def checksum(self, item: str) -> str:
        """Return a verified checksum; empty if nobody has compared it with its source."""
        return self.value(item) if self.items[item].verified else ""

    @property
    def confirmed(self) -> "SoftwareSet":
        """The set with its verified checksums only."""
        return replace(self, items={item: self.items[item] for item in CHECKSUMS if self.items[item].verified})

    @property
    def driver(self) -> str:
        """The branch of NVIDIA's driver, such as 580."""
        return self.value("driver").partition(".")[0]

    def with_checksum(self, item: str, value: str) -> "SoftwareSet":
        """Return the set with a checksum from its source; raise ViolationError if another one is known."""
        entry = self.items[item]
        if entry.value not in ("", value):
            raise ViolationError(
                f"{entry.source} has another checksum than software set {self.name}: {value}, expected {entry.value}",
                fix="do not use the download; update bedplate, or ask its vendor why the checksum changed",
            )
        entry = replace(entry, value=value, verified=True)
        return replace(self, items={**self.items, item: entry})


def read_software(rows: Iterable[str]) -> dict[str, SoftwareSet]:
    """Return the sets by name, the oldest first."""
    tables: dict[str, dict[str, SoftwareItem]] = {}
    for row in rows:
        name, item, value, state, source = row.split("\t")
        entry = SoftwareItem("" if value == ABSENT else value, state == _VERIFIED, source)
        tables.setdefault(name, {})[item] = entry
    return {name: SoftwareSet(name, tables[name]) for name in sorted(tables)}


def write_software(sets: Mapping[str, SoftwareSet]) -> tuple[str, ...]:
    """Return one row per item."""
    return tuple(row for software in sets.values() for row in _write_set(software))


def _write_set(software: SoftwareSet) -> Iterator[str]:
    for item, entry in software.items.items():
        state = _VERIFIED if entry.verified else _UNVERIFIED
        yield "\t".join((software.name, item, entry.value or ABSENT, state, entry.source))


def with_known_checksums(sets: Mapping[str, SoftwareSet], known: Mapping[str, SoftwareSet]) -> dict[str, SoftwareSet]:
    """Return the sets with verified checksums of others where they have none; one that differs stays unverified."""
    return {
        name: _with_checksums(software, known[name]) if name in known else software for name, software in sets.items()
    }


def _with_checksums(software: SoftwareSet, known: SoftwareSet) -> SoftwareSet:
    items = {item: known.items[item] for item in CHECKSUMS if item in known.items and not software.checksum(item)}
    same = {item: entry for item, entry in items.items() if software.value(item) in ("", entry.value)}
    return replace(software, items={**software.items, **same})


_TAG = re.compile(r"<[^>]*>")
_EFA_ENTRY = re.compile(r"EFA (\d+\.\d+\.\d+)\b((?:(?!EFA \d).)*?)SHA256\W*([0-9a-f]{64})\b", re.DOTALL)
_KEY_HEADER = "-----BEGIN PGP PUBLIC KEY BLOCK-----"


def efa_checksums(page: str) -> dict[str, str]:
    """Return the SHA-256 of the EFA installers on AWS's page "Verify the EFA installer", by version."""
    return {version: digest for version, _, digest in _EFA_ENTRY.findall(_TAG.sub(" ", page))}


def with_published(sets: Mapping[str, SoftwareSet], efa_page: str, key: str) -> dict[str, SoftwareSet]:
    """Return the sets with the checksums of AWS's page and of NVIDIA's key.

    Installers that the page lacks stay unverified. Raises ViolationError for a key or a checksum that has changed.
    """
    if _KEY_HEADER not in key:
        raise ViolationError("the key of NVIDIA's repository is not a public key", fix="run it again without a proxy")
    published, key_sum = efa_checksums(efa_page), sha256(key.encode()).hexdigest()
    keyed = {name: software.with_checksum(NVIDIA_KEY_SUM, key_sum) for name, software in sets.items()}
    return keyed | {
        name: software.with_checksum(EFA_SUM, published[version])
        for name, software in keyed.items()
        if (version := software.value("efa")) in published
    }
