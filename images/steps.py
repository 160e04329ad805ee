"""The inputs of an image, the name that follows from them, and the steps of a bake: actions from the state in AWS.

The same recipe has the same name. A killed bake continues from any state.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import ClassVar

from bedplate.catalog.tables import Arch
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.planner import ImageKind, image_kinds
from bedplate.plan.registries import pulled_images

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
    is_worker = kind.use.is_worker
    has_sources = is_worker or kind.driver or kind.efa
    sources = (plan.catalog.software_set(plan.software), plan.catalog.keys)
    images = pulled_images(plan, image_kinds(plan, plan.catalog).get(kind, ()))
    versions = {
        # The versions of containerd, DCGM and EFA.
        "software": plan.software if has_sources else None,
        # Without confirmed checksums and with ended keys, machines lack software of vendors.
        "checksums": sha256(repr(sources).encode()).hexdigest()[:8] if has_sources else None,
        "driver": kind.driver or None,
        "kernel": plan.image.kernel,
        "kubernetes": (plan.image.kubernetes or cluster) if is_worker else None,
        "disk": str(plan.image.disk),
        "images": sha256(repr(images).encode()).hexdigest()[:8] if images else None,
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


LIMIT = 45 * 60.0
"""Seconds from the launch until the instance must have written its status."""


class ImageState(StrEnum):
    """EC2's states of an image that a bake distinguishes; others, such as `disabled`, are an operator's decision."""

    PENDING = "pending"
    TRANSIENT = "transient"
    AVAILABLE = "available"
    FAILED = "failed"
    INVALID = "invalid"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Image:
    """The image of a recipe in one region: `finished` after its bake or copy, `withdrawn` by a rollback."""

    id: str
    state: str
    finished: bool = False
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class Instance:
    """The temporary instance, with EC2's state and the time of its launch in seconds."""

    id: str
    state: str
    launched: float

    @property
    def is_ending(self) -> bool:
        """Whether it is terminating."""
        return self.state == "shutting-down"


@dataclass(frozen=True, slots=True)
class Status:
    """The result of the install stage, as the instance has written it."""

    ok: bool
    sentence: str
    bundle: str


@dataclass(frozen=True, slots=True)
class Observation:
    """The resources of a bake at one time; `images`, `parameters` and `recorded` by region."""

    time: float
    images: Mapping[str, Image] = field(default_factory=dict)
    instance: Instance | None = None
    group: str | None = None
    status: Status | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)


# `text` is a step's line for operators, a format of the step.
@dataclass(frozen=True, slots=True)
class CreateGroup:
    """Create the security group without inbound rules."""

    text: ClassVar[str] = "creating a security group without inbound rules"


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch the instance in the group."""

    group: str
    text: ClassVar[str] = "launching an instance"


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the instance."""

    instance: str
    text: ClassVar[str] = "installed; stopping {0.instance}"


@dataclass(frozen=True, slots=True)
class CreateImage:
    """Create the image from the stopped instance."""

    instance: str
    text: ClassVar[str] = "creating the image from {0.instance}"


@dataclass(frozen=True, slots=True)
class Terminate:
    """Terminate the instance."""

    instance: str
    text: ClassVar[str] = "terminating {0.instance}"


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete the security group."""

    group: str
    text: ClassVar[str] = "deleting {0.group}"


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy the image of the home region to a region."""

    region: str
    source: str
    text: ClassVar[str] = "copying to {0.region}"


@dataclass(frozen=True, slots=True)
class Discard:
    """Deregister an image that EC2 could not make, and delete its snapshots."""

    region: str
    image: str
    text: ClassVar[str] = "removing {0.image} in {0.region}, which EC2 could not make"


@dataclass(frozen=True, slots=True)
class Finish:
    """Mark an image as finished: `sweep` keeps it from now on."""

    region: str
    image: str
    text: ClassVar[str] = "{0.image} is available in {0.region}"


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the id of an image to the parameter of its region."""

    region: str
    image: str
    text: ClassVar[str] = "publishing {0.image} in {0.region}"


@dataclass(frozen=True, slots=True)
class Record:
    """Record images in fleet.lock, by region."""

    images: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wait:
    """Observe again later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The instance cannot become an image."""

    reason: str
    fix: str = ""


Step = (
    CreateGroup
    | Launch
    | Stop
    | CreateImage
    | Terminate
    | DeleteGroup
    | Copy
    | Discard
    | Finish
    | Publish
    | Record
    | Wait
    | Fail
)


def next_steps(recipe: Recipe, home: str, regions: tuple[str, ...], now: Observation) -> tuple[Step, ...]:
    """Return the next steps of a bake, which do not depend on each other; none if it is complete.

    A withdrawn image is neither baked nor published again: its recipe gives the same image.
    """
    image = now.images.get(home)
    if image is None:
        return (_launch_step(recipe, now),)
    if step := _unfinished(home, image, "EC2 creates the image"):
        return (step,)
    steps = [*_removals(now)]
    if not image.withdrawn:
        steps += _spread(image.id, regions, now)
    return tuple(steps)


def _launch_step(recipe: Recipe, now: Observation) -> Step:
    """Return the next step towards an image in the home region."""
    if now.instance is None or now.instance.is_ending:
        return Launch(now.group) if now.group else CreateGroup()
    return _instance_step(recipe, now, now.instance)


def _unfinished(region: str, image: Image, waiting: str) -> Step | None:
    """Return the next step for an image that cannot be used yet; an image that EC2 has made is never discarded."""
    match image.state:
        case ImageState.AVAILABLE:
            return None if image.finished else Finish(region, image.id)
        case ImageState.PENDING | ImageState.TRANSIENT:
            return Wait(waiting)
        case ImageState.FAILED | ImageState.INVALID | ImageState.ERROR if not image.finished:
            return Discard(region, image.id)
        case state:
            return Fail(f"{image.id} in {region} is {state}", "enable or deregister it in EC2, then bake again")


def _instance_step(recipe: Recipe, now: Observation, instance: Instance) -> Step:
    status = now.status
    if status and not status.ok:
        return Fail(f"the install stage failed: {status.sentence}", "correct the cause, then bake again")
    if status and status.bundle != recipe.bundle:
        fix = "bake again: it uses the promoted bundle"
        return Fail(f"the instance has the bundle {status.bundle[:12]}, the recipe {recipe.bundle[:12]}", fix)
    match instance.state:
        case "stopped" if status:
            return CreateImage(instance.id)
        case "running" if status:
            return Stop(instance.id)
        case "stopping":
            return Wait("the instance stops")
        case "pending" | "running" if now.time - instance.launched < LIMIT:
            return Wait("the instance installs packages")
        case "pending" | "running":
            fix = "read its console output; check that it reaches S3 and SSM"
            return Fail(f"{instance.id} wrote no status within {LIMIT / 60:.0f} minutes", fix)
        case _:
            return Fail(f"{instance.id} is {instance.state} and wrote no status", "bake again")


def _removals(now: Observation) -> Iterator[Step]:
    """Yield the steps that remove what only the bake needed; EC2 deletes no group that an instance uses."""
    if now.instance and now.instance.is_ending:
        yield Wait("the instance terminates")
    elif now.instance:
        yield Terminate(now.instance.id)
    elif now.group:
        yield DeleteGroup(now.group)


def _spread(source: str, regions: tuple[str, ...], now: Observation) -> Iterator[Step]:
    """Yield the steps that copy, publish and record the image; the record is last, when all others are done."""
    due = [step for region in regions if (step := _region_step(region, source, now))]
    yield from due
    ids = {region: now.images[region].id for region in regions if region in now.images}
    unrecorded = {region: ident for region, ident in ids.items() if now.recorded.get(region) != ident}
    if unrecorded and not due:
        yield Record(unrecorded)


def _region_step(region: str, source: str, now: Observation) -> Step | None:
    image = now.images.get(region)
    if image is None:
        return Copy(region, source)
    if step := _unfinished(region, image, f"EC2 copies the image to {region}"):
        return step
    return None if now.parameters.get(region) == image.id else Publish(region, image.id)
