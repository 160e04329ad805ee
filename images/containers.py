"""Container images for jobs: recipes of Debian packages and wheels, built without Docker into a folder of OCI's layout.

Equal packages and wheels make an equal digest: files have one order and no time of today. Packages are one layer,
wheels another, so that an update of Debian moves no gigabytes of wheels. mmdebstrap needs root, or user namespaces.
Source: https://github.com/opencontainers/image-spec, version 1.1, read 2026-11.
"""

import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from platform import machine
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import IO, Any

from bedplate.bundle import BundleTarget, Install, install
from bedplate.errors import InputError, MachineError
from bedplate.files import os_errors_as_machine_errors
from bedplate.foreign import one_line, parse_json
from bedplate.plan.registries import RECIPES

SUITE, MIRROR = "trixie", "http://deb.debian.org/debian"
"""Debian 13."""
_PYTHON, _WHEELS = "3.13", "usr/local/"
_PACKAGES = f"{_WHEELS}lib/python{_PYTHON}/dist-packages/"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_TYPE = "application/vnd.oci.image"
# What a recipe of jobs needs: the agent is Python, uv makes environments, git is for people, and sshd for sessions.
_BASE = ("ca-certificates", "git", "openssh-server", "python-is-python3", "python3")
# torch.compile builds with the compiler; NCCL loads libibverbs, if there is an adapter.
_OTHERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "torch": ("gcc", "libc6-dev", "python3-dev", "ibverbs-providers"),
        "mpi": ("openmpi-bin", "python3-mpi4py"),
    }
)
_ROLES = Path(__file__).parents[1] / "roles"
_UV, _LOCKS = _ROLES / "workbench/uv.txt", {"torch": _ROLES / "frameworks/torch.txt"}
# Host keys would be the same in each container. A program finds its compiled modules without looking at times.
_HOOKS = (
    'rm -f "$1"/etc/ssh/ssh_host_*',
    "tar-in {wheels} /",
    f'chroot "$1" python3 -m compileall -q --invalidation-mode unchecked-hash /{_PACKAGES}',
)
_UNUSED = ("path-exclude=/usr/share/man/*", "path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright")
_ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8")
# The first lines of a program that pip wrote: they name the Python of this machine.
_SHEBANG = re.compile(rb"\A#!(?=[^\n]*python|/bin/sh\n'''exec')[^\n]*\n('''exec'[^\n]*\n' '''\n)?")
# It differs between machines, and has the hashes of these programs.
_RECORDS = re.compile(r"[^/]+\.dist-info/(RECORD|INSTALLER|REQUESTED|direct_url\.json)$")


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image in a folder; `arch` is Debian's and OCI's name, and `size` counts the bytes that a registry gets."""

    name: str
    arch: str
    digest: str
    size: int


def arch_here() -> str:
    """Return the architecture of the images that this machine builds."""
    return _ARCHITECTURES.get(machine(), machine())


def require_tool(name: str) -> str:
    """Return the path of a program. Raises MachineError."""
    path = shutil.which(name)
    if path is None:
        raise MachineError(f"{name} is missing on this machine", fix=f"on Debian and Ubuntu: apt install {name}")
    return path


def build(recipe: str, folder: Path, mirror: str = MIRROR, unpack: Install = install) -> BuiltImage:
    """Build an image into a folder, which is replaced as a whole at the end. Raises MachineError."""
    require_tool("mmdebstrap")
    if machine() not in _ARCHITECTURES:
        raise MachineError(f"no image can be built on {machine()}", fix=f"use one of {', '.join(_ARCHITECTURES)}")
    for leftover in folder.parent.glob(".build-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with (
        os_errors_as_machine_errors(folder),
        TemporaryDirectory(prefix=".build-", dir=folder.parent, ignore_cleanup_errors=True) as name,
    ):
        work = Path(name)
        wheels, layout = work / "wheels.tar", work / "layout"
        _pack_wheels(recipe, work / "wheels", wheels, unpack)
        (layout / "blobs/sha256").mkdir(parents=True)
        layers = _bootstrap(recipe, mirror, wheels, layout)
        _describe(recipe, layout, layers)
        built = read_image(layout)
        if folder.exists():
            folder.rename(work / "former")
        layout.rename(folder)
    return built


def _pack_wheels(recipe: str, folder: Path, target: Path, unpack: Install) -> None:
    """Write a tar with the wheels of a recipe where Debian's Python and shells find them."""
    folder.mkdir()
    lock = folder.with_suffix(".txt")
    lock.write_bytes(b"\n".join(path.read_bytes() for path in (_UV, _LOCKS.get(recipe)) if path))
    unpack(BundleTarget(_PYTHON, machine()), lock, folder)
    with tarfile.open(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            inside = str(path.relative_to(folder))
            if path.is_dir() or _RECORDS.match(inside):
                continue
            data = path.read_bytes() if inside.startswith("bin/") else None
            entry = archive.gettarinfo(path, f"{_PACKAGES if data is None else _WHEELS}{inside}")
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            with path.open("rb") as file:
                stream: IO[bytes] = file
                if data is not None:
                    data = _SHEBANG.sub(b"#!/usr/bin/python3\n", data)
                    entry.size, stream = len(data), io.BytesIO(data)
                archive.addfile(entry, stream)


def _bootstrap(recipe: str, mirror: str, wheels: Path, layout: Path) -> list[tuple[dict[str, Any], str]]:
    """Make the root folder; return descriptor and uncompressed digest of its layers. Raises MachineError."""
    signed = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    updates = f"{signed} {mirror} {SUITE}-updates main", f"{signed} {mirror}-security {SUITE}-security main"
    options = (
        "--variant=minbase",
        f"--include={','.join(sorted({*_BASE, *_OTHERS.get(recipe, ())}))}",
        '--aptopt=Acquire::Retries "5"',
        *(f"--dpkgopt={option}" for option in _UNUSED),
        *(f"--customize-hook={hook.format(wheels=shlex.quote(str(wheels)))}" for hook in _HOOKS),
    )
    words = ("mmdebstrap", *options, SUITE, "-", f"{signed} {mirror} {SUITE} main", *updates)
    # /tmp may be memory. Compiled modules depend on the order of sets.
    fixed = {"SOURCE_DATE_EPOCH": "0", "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    environment = {"TMPDIR": "/var/tmp", **os.environ, **fixed}  # noqa: S108  mmdebstrap makes a folder of its own there
    with (layout.parent / "errors").open("w+b") as errors:
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, env=environment) as process:  # noqa: S603
            try:
                layers = _split(process.stdout or io.BytesIO(), layout / "blobs/sha256")
            except tarfile.TarError:
                layers = []
            except BaseException:
                process.terminate()
                raise
        if process.returncode or not layers:
            errors.seek(0)
            raise _failure(recipe, errors.read().decode(errors="replace"))
    return layers


def _failure(recipe: str, text: str) -> MachineError:
    """Return what mmdebstrap says of its failure: the first lines that name an error, and a fix."""
    lines = [line[3:] for line in text.splitlines() if line.startswith("E: ")] or text.splitlines()[-1:]
    fixes = {
        "No space left": "free disk space, or set TMPDIR to a folder with more",
        "keyring": "on Ubuntu: apt install debian-archive-keyring",
        "fetch|resolve|connect": "check the connection to Debian's mirror, or name another by --mirror",
        "unshare|uidmap|subuid": "run it as root, or: apt install uidmap",
    }
    fix = next((fix for words, fix in fixes.items() if re.search(words, text, re.IGNORECASE)), "read the error above")
    return MachineError(f"mmdebstrap cannot build {recipe}: {one_line('; '.join(lines[:2]))}", fix=fix)


class _Digested(io.RawIOBase):
    """Passes on what is written, with its digest and size."""

    def __init__(self, target: IO[bytes] | gzip.GzipFile) -> None:
        self.target, self.hash, self.size = target, sha256(), 0

    def write(self, data: Any) -> int:  # noqa: ANN401  as the base
        """Write all of the data."""
        self.hash.update(data)
        self.size += len(data)
        self.target.write(data)
        return len(data)

    def tell(self) -> int:
        """Return how much was written."""
        return self.size

    @property
    def digest(self) -> str:
        """The digest of all that was written."""
        return f"sha256:{self.hash.hexdigest()}"


def _split(source: IO[bytes], blobs: Path) -> list[tuple[dict[str, Any], str]]:
    """Write a tar as two layers, packages and wheels; return their descriptors and uncompressed digests."""
    layers = []
    with ExitStack() as stack:
        parts = []
        for number in range(2):
            file = _Digested(stack.enter_context((blobs / f".{number}").open("wb")))
            # No time and no name in the header. The result also depends on the version of zlib.
            packed = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
            plain = _Digested(packed)
            archive = stack.enter_context(tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT))
            parts.append((file, plain, archive))
        with tarfile.open(fileobj=source, mode="r|") as entries:
            for entry in entries:
                if not entry.isdev():
                    archive = parts[entry.name.removeprefix("./").startswith(_WHEELS)][2]
                    archive.addfile(entry, entries.extractfile(entry) if entry.isreg() else None)
    for number, (file, plain, _) in enumerate(parts):
        (blobs / f".{number}").rename(blobs / file.hash.hexdigest())
        layers.append((_descriptor("layer.v1.tar+gzip", file.digest, file.size), plain.digest))
    return layers


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"{_TYPE}.{kind}", "digest": digest, "size": size}


def _describe(recipe: str, layout: Path, layers: list[tuple[dict[str, Any], str]]) -> None:
    """Write the documents of an image: its configuration, its manifest, and the index of the folder."""
    config = {
        "architecture": arch_here(),
        "os": "linux",
        "config": {"Env": list(_ENVIRONMENT), "Cmd": ["/bin/bash"]},
        "rootfs": {"type": "layers", "diff_ids": [plain for _, plain in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": _store(layout, "config.v1+json", config),
        "layers": [descriptor for descriptor, _ in layers],
        "annotations": {"org.opencontainers.image.title": recipe},
    }
    index = {"schemaVersion": 2, "manifests": [_store(layout, "manifest.v1+json", manifest)]}
    (layout / "index.json").write_text(json.dumps(index), encoding="utf-8")
    (layout / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}), encoding="utf-8")


def _store(layout: Path, kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
    data = json.dumps(document, sort_keys=True).encode()
    digest = sha256(data).hexdigest()
    (layout / "blobs/sha256" / digest).write_bytes(data)
    return _descriptor(kind, f"sha256:{digest}", len(data))


def read_image(folder: Path) -> BuiltImage:
    """Return the image in a folder, each of whose files has its digest. Raises InputError."""
    try:
        entry = parse_json((folder / "index.json").read_bytes())["manifests"][0]
        manifest = parse_json(_blob(folder, entry).read_bytes())
        config = parse_json(_blob(folder, manifest["config"]).read_bytes())
        parts = (entry, manifest["config"], *manifest["layers"])
        size = sum(_blob(folder, part).stat().st_size for part in parts)
        name = manifest["annotations"]["org.opencontainers.image.title"]
        return BuiltImage(str(name), str(config["architecture"]), str(entry["digest"]), size)
    except (OSError, ValueError, LookupError, TypeError):
        fix = f"build it again: `bedplate image container build {folder.name.rpartition('-')[0]}`"
        raise InputError("the image is damaged", where=str(folder), fix=fix) from None


def _blob(folder: Path, descriptor: Mapping[str, Any]) -> Path:
    """Return a file with its digest. Raises ValueError for another content."""
    algorithm, _, digest = str(descriptor["digest"]).partition(":")
    path = folder / "blobs" / algorithm / digest
    with path.open("rb") as file:
        if file_digest(file, "sha256").hexdigest() != digest:
            raise ValueError(path)
    return path


def built_images(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the recipes that this machine has built for its architecture, and their folders."""
    for recipe in RECIPES:
        folder = root / f"{recipe}-{arch_here()}"
        if folder.is_dir():
            yield recipe, folder
