"""Code from packs of git, without git: objects by the hash of their content, and a tree of them as files."""

import os
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from hashlib import sha1
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..connection import Connection

if TYPE_CHECKING:
    from .links import Link

_KINDS = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
_TREE, _LINK, _MODULE = b"40000", b"120000", b"160000"
_FILES = {b"100644": 0o644, b"100664": 0o644, b"100755": 0o755}
_PART = 1 << 16
# Seconds between looks for a pack that is being fetched.
_LOOK = 0.1
# Bytes of a pack, and of what is written, each entry with a block. A tree or a link has a part of it.
# bp sends 500 MB and 100,000 files at most, but others may write a pack that grows without end.
_MOST, _BLOCK, _PART_OF_TREE = 1 << 31, 4096, 32
# Python removes folders by calls in one another.
_LONGEST_PATH = 1000
# Some file systems ignore case and invisible characters, or have short names.
_INVISIBLE = re.compile("[\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_REFUSED = re.compile(r"|\.|\.\.|.*/.*|(\.git|git~1)[ .]*(:.*)?", re.IGNORECASE | re.DOTALL)
# A pack, and the offset of each object by its hash. Content stays on the disk.
_Pack = tuple[IO[bytes], dict[bytes, int]]


class CodeError(Exception):
    """There is no code; the text says why."""


class Code:
    """The code of a run: packs by their paths on the hub, in a cache for the person's other runs."""

    def __init__(self, cache: Path, paths: Sequence[str]) -> None:
        self._files = {cache / Path(path).name: path for path in paths}

    def fetch(self, hub: Connection, patience: float, connect_to_first: "Callable[[float], Link] | None") -> None:
        """Fetch what the cache lacks. Raises HubError or OSError.

        Other nodes than the first get it from that: packs travel once from the hub, which may be in another region.
        """
        for file, path in self._files.items():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if connect_to_first and not file.exists():
                with (
                    suppress(OSError, ValueError, LookupError, TypeError),
                    closing(connect_to_first(patience)) as link,
                ):
                    link.send("fetch", pack=file.name)
                    link.receive_file(file)
            if not file.exists():
                hub.fetch(path, file, patience)
            os.utime(file)

    def check_out(self, tree: str, folder: Path) -> None:
        """Write a tree to a new folder. Raises CodeError; then the next run fetches the packs again."""
        try:
            check_out(self._files, tree, folder)
        except CodeError:
            for file in self._files:
                file.unlink()
            raise

    def pack(self, name: str, patience: float) -> Path:
        """Return the file of a pack, once it is there. Raises OSError if it is none, or does not come."""
        end = time.monotonic() + patience
        file = next((file for file in self._files if file.name == name), None)
        while file and time.monotonic() < end:
            if file.exists():
                return file
            time.sleep(_LOOK)
        raise FileNotFoundError(name)


def check_out(paths: Iterable[Path], tree: str, folder: Path) -> None:
    """Write a tree of packs without deltas to a new folder: all of it, or nothing. Links are never followed.

    Raises CodeError, or OSError if a pack cannot be read.
    """
    used = 0
    with ExitStack() as stack:
        packs = [_index(stack.enter_context(path.open("rb", buffering=_PART))) for path in paths]
        left = [(bytes.fromhex(tree), folder)]
        try:
            while left:
                key, path = left.pop()
                _check_size("a path", len(str(path)) - len(str(folder)), _LONGEST_PATH)
                path.mkdir()
                for size, trees in _write_files(packs, key, path):
                    used += _BLOCK + size
                    left += trees
                    _check_size("the code", used, _MOST)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise CodeError(f"cannot write the code to {folder}: {error.strerror}") from None
            raise


def _index(file: IO[bytes]) -> _Pack:
    offsets, total = dict[bytes, int](), 0
    try:
        file.seek(8)
        for _ in range(int.from_bytes(file.read(4), "big")):
            at = file.tell()
            kind, size = _head(file)
            total += _BLOCK + size
            _check_size("a pack", total, _MOST)
            digest = sha1(kind + b" %d\0" % size)  # noqa: S324  git's
            _inflate(file, size, digest.update)
            offsets[digest.digest()] = at
    except (ValueError, LookupError, zlib.error):
        raise CodeError(f"{file.name} is damaged, or has deltas") from None
    return file, offsets


def _head(file: IO[bytes]) -> tuple[bytes, int]:
    """Read the kind and the size of an object."""
    byte = file.read(1)[0]
    kind, size, shift = _KINDS[byte >> 4 & 7], byte & 15, 4
    while byte & 128:
        byte = file.read(1)[0]
        size |= (byte & 127) << shift
        shift += 7
    return kind, size


def _inflate(file: IO[bytes], size: int, write: Callable[[bytes], object]) -> None:
    """Inflate the content of an object in parts; the file is behind it then."""
    inflate = zlib.decompressobj()
    while not inflate.eof:
        # No more than it may need: small objects are next to each other.
        block = file.read(min(_PART, size + 1024))
        part = inflate.decompress(block)
        size -= len(part)
        if not block or size < 0:
            raise ValueError
        write(part)
    if size:
        raise ValueError
    file.seek(-len(inflate.unused_data), os.SEEK_CUR)


def _check_size(what: str, size: int, most: float) -> None:
    if size > most:
        raise CodeError(f"{what} is larger than {most} bytes")


def _write_files(
    packs: Iterable[_Pack], tree: bytes, folder: Path
) -> Iterator[tuple[int, Sequence[tuple[bytes, Path]]]]:
    """Write the files of a tree; yield the size of each, or the tree. A name that is there twice exists already."""
    entries, at = _content(packs, tree, b"tree"), 0
    while at < len(entries):
        space, end = entries.index(b" ", at), entries.index(b"\0", at)
        mode, name, key = entries[at:space], os.fsdecode(entries[space + 1 : end]), entries[end + 1 : end + 21]
        path, at = folder / name, end + 21
        if _REFUSED.fullmatch(_INVISIBLE.sub("", name)):
            raise CodeError(f"the code has a file with the name {name!r}")
        if mode == _TREE:
            yield 0, [(key, path)]
        elif mode == _LINK:
            path.symlink_to(os.fsdecode(_content(packs, key, b"blob")))
            yield 0, []
        elif mode in _FILES:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILES[mode]), "wb") as file:
                yield _copy(packs, key, b"blob", file.write), []
        elif mode != _MODULE:
            raise CodeError(f"{name!r} has the unknown mode {mode!r}")


def _content(packs: Iterable[_Pack], key: bytes, kind: bytes) -> bytes:
    parts: list[bytes] = []
    _copy(packs, key, kind, parts.append, _MOST // _PART_OF_TREE)
    return b"".join(parts)


def _copy(
    packs: Iterable[_Pack], key: bytes, kind: bytes, write: Callable[[bytes], object], most: float = float("inf")
) -> int:
    """Write the content of an object; return its size."""
    for file, offsets in packs:
        if key in offsets:
            file.seek(offsets[key])
            found, size = _head(file)
            if found == kind:
                _check_size(kind.decode(), size, most)
                _inflate(file, size, write)
                return size
    raise CodeError(f"the packs lack the {kind.decode()} {key.hex()}")
