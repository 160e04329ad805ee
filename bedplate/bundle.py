"""The bundle that nodes run: code and wheels as archives named by their SHA-256, and the rings that name a bundle."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from bedplate.errors import InputError, MachineError, PartialError
from bedplate.files import write_whole
from bedplate.foreign import one_line, parse_as, parse_json


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
    with tarfile.open(fileobj=io.BytesIO(blob), mode="r:gz") as archive:
        files = ((entry, archive.extractfile(entry)) for entry in archive)
        return {entry.name: f"{hash_of(file.read())} {entry.mode:o}" for entry, file in files if file}


LOCK = Path(__file__).parents[1] / "requirements-nodes.lock"
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
class BundleTarget:
    """A Python, such as 3.12, on an architecture."""

    python: str
    architecture: str

    @property
    def name(self) -> str:
        """The name in the manifest, such as `cp312-x86_64`."""
        return f"cp{self.python.replace('.', '')}-{self.architecture}"


def targets(pythons: tuple[str, ...] = ()) -> tuple[BundleTarget, ...]:
    """Return the targets of a bundle: the Python of Ubuntu 24.04 and these others, on both architectures.

    Raises InputError for a version of Python that the lock does not cover.
    """
    for python in pythons:
        if not re.fullmatch(r"3\.1[1-9]", python):
            raise InputError(f"invalid Python version {python}", fix=f"write 3.11 or newer, such as {DEFAULT_PYTHON}")
    versions = dict.fromkeys((DEFAULT_PYTHON, *sorted(pythons)))
    return tuple(BundleTarget(version, architecture) for version in versions for architecture in ARCHITECTURES)


Install = Callable[[BundleTarget, Path, Path], None]
"""Unpacks the wheels of a lock file into a folder."""


def install(target: BundleTarget, lock: Path, folder: Path) -> None:
    """Unpack the wheels of a lock file for a target into a folder, by pip. Raises MachineError."""
    command = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    wheels = ("--only-binary=:all:", "--no-deps", "--require-hashes", "--requirement", str(lock))
    result = subprocess.run(  # noqa: S603  this interpreter
        (*command, *wheels, *_tags(target), "--target", str(folder)), capture_output=True, text=True, check=False
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no error output"]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        fix = "check that this machine reaches the package index of pip (`pip config list`)"
        if "No space left" in errors[-1]:
            fix = "free disk space, or set TMPDIR to a folder with more"
        text = errors[-1].removeprefix("ERROR: ")
        raise MachineError(f"pip cannot install the wheels for {target.name}: {text}", fix=fix)


def _tags(target: BundleTarget) -> Iterator[str]:
    """Yield the options that select the wheels of a target."""
    tag = f"cp{target.python.replace('.', '')}"
    yield from ("--implementation", "cp", "--python-version", target.python)
    for abi in (tag, "abi3", "none"):
        yield from ("--abi", abi)
    for system in (*(f"manylinux_2_{minor}" for minor in reversed(_GLIBC)), *_OLDER_TAGS):
        yield from ("--platform", f"{system}_{target.architecture}")


def wheels_key(target: BundleTarget, lock: Path) -> str:
    """Return the name under which the wheels of a target are cached: it changes with the lock and the selection."""
    return f"{target.name}-{hash_of(lock.read_bytes() + _UNUSED.pattern.encode())}"


def pack_wheels(target: BundleTarget, lock: Path, unpack: Install) -> bytes:
    """Return the archive of the wheels of a target. Raises MachineError if they cannot be installed."""
    with tempfile.TemporaryDirectory(prefix="bedplate-") as name:
        folder = Path(name)
        unpack(target, lock, folder)
        files = (str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
        return pack(Source(folder, tuple(file for file in files if not _UNUSED.match(file))))


_VERSION = 1
_ROOT = Path(__file__).parents[1]
_PACKAGES = ("bedplate", "images", "roles", "vpn")
ENTRIES = tuple(
    f"bedplate.machine{module}" for module in ("", ".approver", ".capacity", ".fleet", ".freeze", ".idle", ".upgrade")
)
"""The modules of a bundle that files on a machine start.

Such a file may be of an earlier bundle, and the bootstrap is as old as its machine: these names and their arguments
stay, also if their code moves.
"""
# Packages of the operator's machine that nothing on a node imports: they are large, or need wheels that it lacks. And
# facts: the document of a node has those that it needs, so a bundle is the same for all operators.
_OPERATOR = tuple(f"bedplate/{name}/" for name in ("cli", "deploy", "picture", "rehearsal", "catalog/data"))
_FACTS = "bedplate/catalog/data/gpus.txt"


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
        document = parse_json(text)
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

    def wheels(self, target: BundleTarget, lock: Path, unpack: Install) -> str:
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
    cache: Cache, chosen: tuple[BundleTarget, ...] | None = None, *, unpack: Install = install, lock: Path = LOCK
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
            is_used = path == _FACTS or not path.startswith(_OPERATOR)
            if file.is_file() and is_used and not _is_left_over(file):
                yield path


def _is_left_over(file: Path) -> bool:
    return file.suffix in {".pyc", ".orig", ".rej"} or file.name.startswith(".") or file.name.endswith("~")


@dataclass(frozen=True, slots=True)
class RingState:
    """The value of a ring's parameter in one region; `revision` counts its changes, 0 before the first."""

    bundle: str
    sequence: int
    changed: datetime | None = None
    revision: int = 0

    @property
    def text(self) -> str:
        """The value of the parameter."""
        return json.dumps({"bundle": self.bundle, "sequence": self.sequence})

    def is_same(self, other: "RingState | None") -> bool:
        """Return whether another state names the same bundle with the same sequence."""
        return other is not None and (self.bundle, self.sequence) == (other.bundle, other.sequence)


def read_ring_state(text: str, changed: datetime | None, revision: int) -> RingState:
    """Return the state in a parameter. Raises PartialError for a value that bedplate has not written."""
    try:
        document = parse_json(text)
        return RingState(str(document["bundle"]), int(document["sequence"]), changed, revision)
    except (ValueError, KeyError, TypeError):
        fix = "delete the parameter, then promote a bundle again"
        raise PartialError("invalid value of the parameter of the ring", fix=fix) from None


def next_state(states: Iterable[RingState | None], bundle: str) -> RingState:
    """Return the state that promotes a bundle in all regions, from the states there.

    The sequence rises over that of every region. Regions that already have the bundle with the highest one keep it, so
    a repeated command completes an interrupted one.
    """
    ring_states = [state for state in states if state]
    highest = max((state.sequence for state in ring_states), default=0)
    is_promoted = ring_states and all(state.bundle == bundle for state in ring_states if state.sequence == highest)
    return RingState(bundle, highest if is_promoted else highest + 1)


_UNIX_TIME = Field(ge=0, le=int(datetime(9999, 1, 1, tzinfo=UTC).timestamp()))


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The last configuration run of an instance; `time` is Unix time, `ready`: it has answered its lifecycle hook."""

    ok: bool
    sentence: str
    time: Annotated[int, _UNIX_TIME]
    ready: bool = False
    bundle: str = ""
    sequence: int = 0


UNREADABLE = NodeStatus(ok=False, sentence="unreadable status", time=0)
"""Stands for a status that is none: a user of a machine may write any text in its place."""
_STATUS = TypeAdapter(NodeStatus)


def read_node_status(text: bytes) -> NodeStatus:
    """Return the status that a machine has written; UNREADABLE for an invalid one."""
    try:
        status = parse_as(_STATUS, text)
    except ValueError:
        return UNREADABLE
    return replace(status, sentence=one_line(status.sentence))


@dataclass(frozen=True, slots=True)
class UseReport:
    """The report of a machine at a `time`: it is unused since `idle_since`, or in use."""

    time: Annotated[float, _UNIX_TIME]
    idle_since: Annotated[float, _UNIX_TIME] | None


_USE = TypeAdapter(UseReport)


def read_use_report(text: bytes) -> UseReport | None:
    """Return the report of use that a machine has written; None for an invalid one."""
    try:
        return parse_as(_USE, text)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """The machines of the ring `canary`: `failed` with their sentence, and `pending`, which have not run the bundle."""

    failed: Mapping[str, str]
    pending: tuple[str, ...]

    @property
    def has_passed(self) -> bool:
        """Whether every running machine has run the bundle without an error; true without machines."""
        return not self.failed and not self.pending


def canary_report(statuses: Mapping[str, NodeStatus | None], bundle: str) -> CanaryReport:
    """Return the report on a bundle from the last status of each running machine; None without a status."""
    ran = {name: status for name, status in statuses.items() if status and status.bundle == bundle}
    ran |= {name: status for name, status in statuses.items() if status is UNREADABLE}
    failed = {name: status.sentence or "failed" for name, status in ran.items() if not status.ok}
    return CanaryReport(failed, tuple(name for name in statuses if name not in ran))
