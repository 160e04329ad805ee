"""Container images for jobs: recipes of Debian packages and wheels, built without Docker into a folder of OCI's layout.

Equal packages and wheels make an equal digest: files have one order and no time of today. Packages are one layer,
wheels another, so that an update of Debian moves no gigabytes of wheels. mmdebstrap needs root, or user namespaces.
Source: https://github.com/opencontainers/image-spec, version 1.1, read 2026-11.
"""

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from platform import machine
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from packaging.markers import Marker

from bedplate.bundle import BundleTarget, Install, install
from bedplate.errors import InputError, MachineError
from bedplate.files import os_errors_as_machine_errors
from bedplate.foreign import one_line, parse_json

SUITE, PYTHON, MIRROR = "trixie", "3.13", "http://deb.debian.org/debian"
"""Debian 13, its Python, and its archive."""
# The agent is Python, uv makes environments, git is for people, and sshd for sessions,
# whose people have no name in a pod.
_BASE = ("ca-certificates", "git", "libnss-wrapper", "openssh-server", "python-is-python3", "python3")
_PACKAGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # torch.compile needs a compiler; NCCL loads libibverbs.
        "torch": (*_BASE, "gcc", "ibverbs-providers", "libc6-dev", "python3-dev"),
        "mpi": (*_BASE, "openmpi-bin", "python3-mpi4py"),
    }
)
_ROLES = Path(__file__).parents[1] / "roles"
_UV, _LOCKS = _ROLES / "workbench/uv.txt", {"torch": _ROLES / "frameworks/torch.txt"}
_HOOK = Path(__file__).with_name("container.sh")
_UNUSED = ("path-exclude=/usr/share/man/*", "path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright")
_ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8")
_TYPE, _TITLE = "application/vnd.oci.image", "org.opencontainers.image.title"
_FIXES = {
    "No space left": "free disk space, or set TMPDIR to a folder with more",
    "keyring": "on Ubuntu: apt install debian-archive-keyring",
    "fetch|resolve|connect": "check the connection to Debian's archive, or name another by --mirror",
    "unshare|uidmap|subuid": "run it as root, or: apt install uidmap",
}


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image in a folder; `arch` is Debian's and OCI's name, and `size` counts the bytes that a registry gets."""

    name: str
    arch: str
    digest: str
    size: int


def arch_here() -> str:
    """Return the architecture of the images that this machine builds, as Debian and OCI name it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine(), machine())


def require_tool(name: str) -> str:
    """Return the path of a program. Raises MachineError."""
    path = shutil.which(name)
    if path is None:
        raise MachineError(f"{name} is missing on this machine", fix=f"on Debian and Ubuntu: apt install {name}")
    return path


def build(recipe: str, folder: Path, mirror: str = MIRROR, unpack: Install = install) -> BuiltImage:
    """Build an image into a folder, which is replaced as a whole at the end. Raises MachineError."""
    require_tool("mmdebstrap")
    for leftover in folder.parent.glob(".build-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = TemporaryDirectory(prefix=".build-", dir=folder.parent, ignore_cleanup_errors=True)
    with os_errors_as_machine_errors(folder), temporary as name:
        work = Path(name)
        (work / "layout/blobs/sha256").mkdir(parents=True)
        lock = work / "requirements.txt"
        lock.write_text("\n".join(_requirements(path.read_text()) for path in (_UV, _LOCKS.get(recipe)) if path))
        unpack(BundleTarget(PYTHON, machine()), lock, work / "wheels")
        _bootstrap(recipe, mirror, work)
        _write_layout(recipe, work / "layout", [work / "packages.tar", work / "wheels.tar"])
        built = read_image(work / "layout")
        if folder.exists():
            folder.rename(work / "former")
        (work / "layout").rename(folder)
    return built


def _requirements(lock: str) -> str:
    """Return a lock for the image's Python, without markers: pip evaluates them for the Python that runs it."""
    python = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0"}
    chosen = []
    for entry in re.split(r"\n(?=\S)", lock.strip()):
        requirement, *hashes = entry.split(" \\\n")
        name, _, marker = requirement.partition(" ; ")
        if not marker or Marker(marker).evaluate(python):
            chosen.append(" \\\n".join((name, *hashes)))
    return "\n".join(chosen) + "\n"


def _bootstrap(recipe: str, mirror: str, work: Path) -> None:
    """Write the files of packages and of wheels as two archives. Raises MachineError."""
    signed, place = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]", shlex.quote(str(work))
    suites = f"{mirror} {SUITE}", f"{mirror} {SUITE}-updates", f"{mirror}-security {SUITE}-security"
    hooks = f"copy-in {place}/wheels /", _HOOK.read_text(), f"copy-out /wheels.tar {place}", 'rm "$1/wheels.tar"'
    words = (
        *(
            "mmdebstrap",
            "--variant=minbase",
            "--skip=output/dev",
            f"--include={','.join(_PACKAGES.get(recipe, _BASE))}",
        ),
        *('--aptopt=Acquire::Retries "5"', *(f"--dpkgopt={option}" for option in _UNUSED)),
        *(f"--customize-hook={hook}" for hook in hooks),
        *(SUITE, str(work / "packages.tar"), *(f"{signed} {suite} main" for suite in suites)),
    )
    # /tmp may be memory. Compiled modules depend on the order of sets.
    fixed = {"SOURCE_DATE_EPOCH": "0", "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    environment = {"TMPDIR": "/var/tmp", **os.environ, **fixed}  # noqa: S108  mmdebstrap makes a folder of its own there
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        lines = [line[3:] for line in done.stderr.splitlines() if line.startswith("E: ")] or done.stderr.splitlines()[
            -1:
        ]
        fix = next((fix for words, fix in _FIXES.items() if re.search(words, done.stderr)), "read the error above")
        raise MachineError(f"mmdebstrap cannot build {recipe}: {one_line('; '.join(lines[:2]))}", fix=fix)


def _write_layout(recipe: str, layout: Path, archives: list[Path]) -> None:
    """Write an image of some layers: its files by their digests, and the index."""
    layers = [_pack(layout, archive) for archive in archives]
    config = {
        "architecture": arch_here(),
        "os": "linux",
        "config": {"Env": list(_ENVIRONMENT), "Cmd": ["/bin/bash"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(archive)}" for archive in archives]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": _store(layout, "config.v1+json", config),
        "layers": layers,
        "annotations": {_TITLE: recipe},
    }
    index = {"schemaVersion": 2, "manifests": [_store(layout, "manifest.v1+json", manifest)]}
    (layout / "index.json").write_text(json.dumps(index), encoding="utf-8")
    (layout / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}), encoding="utf-8")


def _pack(layout: Path, archive: Path) -> dict[str, Any]:
    """Store a compressed archive; return its descriptor. The result also depends on the version of zlib."""
    packed = archive.with_suffix(".gz")
    # No time and no name in the header.
    with archive.open("rb") as source, packed.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as target:
        shutil.copyfileobj(source, target)
    return _keep(layout, "layer.v1.tar+gzip", packed)


def _store(layout: Path, kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
    file = layout / "document"
    file.write_text(json.dumps(document, sort_keys=True), encoding="utf-8")
    return _keep(layout, kind, file)


def _keep(layout: Path, kind: str, file: Path) -> dict[str, Any]:
    """Move a file to its place; return its descriptor."""
    digest = _digest(file)
    kept = file.rename(layout / "blobs/sha256" / digest)
    return {"mediaType": f"{_TYPE}.{kind}", "digest": f"sha256:{digest}", "size": kept.stat().st_size}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, sha256).hexdigest()


def read_image(folder: Path) -> BuiltImage:
    """Return the image in a folder, each of whose files has its digest. Raises InputError."""
    try:
        entry = parse_json((folder / "index.json").read_bytes())["manifests"][0]
        manifest = parse_json(_blob(folder, entry).read_bytes())
        config = parse_json(_blob(folder, manifest["config"]).read_bytes())
        size = sum(_blob(folder, part).stat().st_size for part in (entry, manifest["config"], *manifest["layers"]))
        name = str(manifest["annotations"][_TITLE])
        return BuiltImage(name, str(config["architecture"]), str(entry["digest"]), size)
    except (OSError, ValueError, LookupError, TypeError):
        fix = f"build it again: `bedplate image container build {folder.name.rpartition('-')[0]}`"
        raise InputError("the image is damaged", where=str(folder), fix=fix) from None


def _blob(folder: Path, descriptor: Mapping[str, Any]) -> Path:
    """Return a file with its digest. Raises ValueError for another content."""
    path = folder / "blobs" / str(descriptor["digest"]).replace(":", "/")
    if _digest(path) != path.name:
        raise ValueError(path)
    return path
