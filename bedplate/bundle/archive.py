"""Reproducible archives: the same files give the same bytes, whatever their owner, their times and their order."""

import gzip
import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Source:
    """Files of one folder, as paths in it; in the archive they are under `prefix`."""

    root: Path
    paths: tuple[str, ...]
    prefix: str = ""


def pack(*sources: Source) -> bytes:
    """Return the files as a gzip'd tar. Files belong to root and have no time; a link is archived as its target."""
    files = {f"{source.prefix}{path}": source.root / path for source in sources for path in source.paths}
    stream = io.BytesIO()
    # No time and no name in the header. The result also depends on the version of zlib.
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, file in sorted(files.items()):
            data = file.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755 if file.stat().st_mode & 0o100 else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def hash_of(data: bytes) -> str:
    """Return the SHA-256 of a blob or a manifest, which is its name."""
    return sha256(data).hexdigest()


def contents(blob: bytes) -> Mapping[str, str]:
    """Return the SHA-256 and mode of each file in an archive, by path."""
    return dict(_entries(blob))


def _entries(blob: bytes) -> Iterator[tuple[str, str]]:
    with tarfile.open(fileobj=io.BytesIO(blob), mode="r:gz") as archive:
        for entry in archive:
            file = archive.extractfile(entry)
            if file:
                yield entry.name, f"{sha256(file.read()).hexdigest()} {entry.mode:o}"
