"""What an image is made of, and the name that follows from it: the same recipe has the same name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType

from bedplate.catalog.facts import Arch
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.planner import ImageKind
from bedplate.spec.sites import Use

KIND, BAKE, BASE, BUNDLE, VERSIONS, COMMIT = (
    f"bedplate:{word}" for word in ("image-kind", "bake", "base", "bundle", "versions", "commit")
)
"""Tags. `BAKE` has the name of the image, also on the objects that only its bake needs."""
FINISHED, WITHDRAWN = "bedplate:finished", "bedplate:withdrawn"
"""Tags of an image that passed its bake, and of one that `image rollback` has replaced."""
BAKE_DOCUMENTS = "_image-"
"""The beginning of the names of node documents that only a bake needs."""
BASE_OWNER = "099720109477"
"""Canonical. Source: https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/, read 2026-11."""
_BASE_NAME = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{arch}-server-"
_CANONICAL: Mapping[Arch, str] = MappingProxyType({"x86_64": "amd64", "arm64": "arm64"})
# The install stage reads no hardware, so drivers of GPUs are installed without a GPU.
_TYPES: Mapping[Arch, tuple[str, ...]] = MappingProxyType(
    {"x86_64": ("m7i.large", "m6i.large", "m5.large"), "arm64": ("m7g.large", "m6g.large", "t4g.large")}
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The inputs of an image: its kind, the id of the base image, the hash of the bundle, and pinned versions."""

    fleet: str
    kind: ImageKind
    base: str
    bundle: str
    versions: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the image in every region."""
        inputs = json.dumps([self.base, self.bundle, self.versions])
        return f"{self.fleet}-{self.kind.name}-{sha256(inputs.encode()).hexdigest()[:12]}"

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the image and its snapshots."""
        return {
            "Name": self.name,
            KIND: self.kind.name,
            BASE: self.base,
            BUNDLE: self.bundle,
            VERSIONS: " ".join(self.versions),
        }


def pinned_versions(plan: FleetPlan, kind: ImageKind) -> tuple[str, ...]:
    """Return the versions of the fleet file that the install stage of a kind uses, as `kernel=6.8`."""
    cluster = plan.control_plane.version if plan.control_plane else None
    is_worker = kind.use is Use.KUBERNETES
    versions = {
        # The versions of containerd, DCGM and EFA.
        "stack": plan.stack if is_worker or kind.driver or kind.efa else None,
        "driver": kind.driver or None,
        "kernel": plan.image.kernel,
        "kubernetes": (plan.image.kubernetes or cluster) if is_worker else None,
        "disk": str(plan.image.disk),
    }
    return tuple(f"{name}={value}" for name, value in versions.items() if value)


def image_parameter_name(fleet: str, kind: str) -> str:
    """Return the SSM parameter with the id of the image in use, the same in each region."""
    return f"/{fleet}/images/{kind}"


def document_name(kind: ImageKind) -> str:
    """Return the name of the node document of an instance that becomes an image; no pool has such a name."""
    return f"{BAKE_DOCUMENTS}{kind.name}"


def base_name(arch: Arch) -> str:
    """Return the beginning of the name of each base image."""
    return _BASE_NAME.format(arch=_CANONICAL[arch])


def bake_types(arch: Arch) -> tuple[str, ...]:
    """Return the instance types for a bake, the preferred one first."""
    return _TYPES[arch]
