"""The build of a bundle: its code from this installation, its wheels from a lock file, both in a local cache."""

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bedplate.bundle.archive import Source, hash_of, pack
from bedplate.bundle.wheels import LOCK, Install, Target, install, pack_wheels, targets, wheels_key
from bedplate.errors import InputError, MachineError
from bedplate.writer import write_whole

_VERSION = 1
_ROOT = Path(__file__).parents[2]
_PACKAGES = ("bedplate", "images", "roles", "vpn")
# Packages of the operator's machine that are large, and that nothing on a node imports.
_OPERATOR = tuple(f"bedplate/{name}/" for name in ("bundle", "deploy", "picture", "rehearsal"))


@dataclass(frozen=True, slots=True)
class Bundle:
    """The SHA-256 of a bundle's archives: `code`, and `wheels` by target, such as `cp312-x86_64`."""

    code: str
    wheels: Mapping[str, str]

    @property
    def text(self) -> str:
        """The manifest."""
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1, sort_keys=True) + "\n"

    @property
    def hash(self) -> str:
        """The SHA-256 of the manifest, which names the bundle."""
        return hash_of(self.text.encode())

    @property
    def blobs(self) -> tuple[str, ...]:
        """The names of the archives, without repetition."""
        return tuple(dict.fromkeys((self.code, *self.wheels.values())))


def read_bundle(text: str) -> Bundle:
    """Return the bundle of a manifest. Raises InputError for an invalid one."""
    try:
        document: dict[str, Any] = json.loads(text)
        bundle = Bundle(str(document["code"]), dict(document["wheels"]))
    except (ValueError, KeyError, TypeError):
        bundle = None
    if bundle is None or bundle.text != text:
        fix = "promote a bundle that this version of bedplate has pushed"
        raise InputError("the bundle has an invalid or unknown manifest", fix=fix)
    return bundle


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder of archives, by their SHA-256, and of references to the wheels of a lock file."""

    folder: Path

    def blob(self, name: str) -> bytes | None:
        """Return an archive; None if it is missing or damaged."""
        file = self.folder / "blobs" / name
        data = file.read_bytes() if file.is_file() else b""
        return data if hash_of(data) == name else None

    def read(self, name: str) -> bytes:
        """Return an archive. Raises MachineError if it is missing or damaged."""
        data = self.blob(name)
        if data is None:
            raise MachineError(f"the archive {name} is not in the cache", where=str(self.folder), fix="build it again")
        return data

    def store(self, data: bytes) -> str:
        """Keep an archive; return its name."""
        name = hash_of(data)
        if self.blob(name) is None:
            self._write(Path("blobs", name), data)
        return name

    def wheels(self, target: Target, lock: Path, unpack: Install) -> str:
        """Return the archive of the wheels of a target; install them if the lock file is not that of the last time."""
        reference = Path("wheels", wheels_key(target, lock))
        file = self.folder / reference
        name = file.read_text(encoding="ascii") if file.is_file() else ""
        if not name or self.blob(name) is None:
            name = self.store(pack_wheels(target, lock, unpack))
            self._write(reference, name.encode())
        return name

    def _write(self, path: Path, data: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, data, 0o600)


def user_cache() -> Cache:
    """Return the cache of the operator."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Cache(folder / "bedplate" / "bundle")


def build_bundle(
    cache: Cache, chosen: tuple[Target, ...] | None = None, *, unpack: Install = install, lock: Path = LOCK
) -> Bundle:
    """Build the bundle of this installation; its archives are then in the cache. Raises MachineError."""
    parts = targets() if chosen is None else chosen
    with ThreadPoolExecutor(len(parts)) as pool:
        wheels = dict(
            zip(
                (target.name for target in parts),
                pool.map(lambda target: cache.wheels(target, lock, unpack), parts),
                strict=True,
            )
        )
    return Bundle(cache.store(pack(Source(_ROOT, tuple(code_files(_ROOT))))), wheels)


def code_files(root: Path) -> Iterator[str]:
    """Yield the files of the code that nodes run, as paths; files that a tool or an editor has left are none."""
    for package in _PACKAGES:
        for file in (root / package).rglob("*"):
            path = file.relative_to(root).as_posix()
            if file.is_file() and not path.startswith(_OPERATOR) and not _is_left_over(file):
                yield path


def _is_left_over(file: Path) -> bool:
    return file.suffix in {".pyc", ".orig", ".rej"} or file.name.startswith(".") or file.name.endswith("~")
