"""The packages of an image: a CycloneDX bill of materials, made by debsbom, in the bucket of the home region."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from bedplate.account.bundle import RegionStore
from bedplate.account.client import NotThere
from bedplate.catalog.facts import Arch
from bedplate.errors import MachineError, PartialError

_DEBSBOM = (sys.executable, "-m", "debsbom.cli", "generate", "--sbom-type", "cdx", "--base-distro-vendor", "ubuntu")
_DEBIAN: Mapping[Arch, str] = {"x86_64": "amd64", "arm64": "arm64"}
_SOURCE = "arch=source"


def bill_key(image: str) -> str:
    """Return the key of the bill of materials of an image."""
    return f"images/{image}.cdx.json"


def store_bill(store: RegionStore, image: str, arch: Arch, status_folder: str) -> None:
    """Store the bill of materials of an image, from the packages that its instance has reported."""
    try:
        packages = str(json.loads(store.get(f"{status_folder}/packages.json"))["dpkg"])
    except (NotThere, ValueError, KeyError, TypeError):
        raise PartialError(f"no list of packages in {status_folder}", fix="bake again") from None
    store.put(bill_key(image), bill_of_materials(image, arch, packages))


def bill_of_materials(image: str, arch: Arch, dpkg_status: str) -> bytes:
    """Return the bill of materials of a machine's /var/lib/dpkg/status. Raises MachineError if debsbom fails."""
    with TemporaryDirectory(prefix="bedplate-") as root:
        status = Path(root) / "var/lib/dpkg/status"
        status.parent.mkdir(parents=True)
        status.write_text(dpkg_status, encoding="utf-8")
        options = ("--distro-name", image, "--distro-arch", _DEBIAN[arch], "--root", root, "--out", "-")
        done = subprocess.run((*_DEBSBOM, *options), capture_output=True, check=False)  # noqa: S603  this interpreter
    if done.returncode:
        reason = (done.stderr.decode(errors="replace").strip().splitlines() or ["no error output"])[-1]
        raise MachineError(f"debsbom failed: {reason}", fix="run `make setup` in the clone of bedplate")
    return done.stdout


def read_packages(store: RegionStore, image: str) -> Mapping[str, str] | None:
    """Return the versions of an image's packages, by package; None without a bill of materials."""
    try:
        components = json.loads(store.get(bill_key(image)))["components"]
    except NotThere:
        return None
    packages = (entry for entry in components if _SOURCE not in entry["purl"])
    return {entry["name"]: entry["version"] for entry in packages}
