"""The fleet's own images in every region: what exists and is in use, its packages, and its roll-out to workers.

The roll-out is a refresh of instances, which replaces machines a few at a time. The old ones drain themselves before
they end. A new one that does not pass its health gate is terminated by its lifecycle hook; the refresh then fails, and
AWS rolls the group back.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from bedplate.account.bundle import RegionStore
from bedplate.account.client import AwsClient, NotThere, RegionResults, TooLarge, ask_regions, filters
from bedplate.account.machines import EXISTING, describe_instances, find_instances
from bedplate.catalog.tables import Arch
from bedplate.errors import InputError, MachineError, PartialError
from bedplate.foreign import LARGE, parse_json
from bedplate.plan.pools import PoolPlan
from images.steps import BAKE, BASE_OWNER, FINISHED, KIND, WITHDRAWN, Image, base_name, image_parameter_name

_DEBSBOM = (sys.executable, "-m", "debsbom.cli", "generate", "--sbom-type", "cdx", "--base-distro-vendor", "ubuntu")
_DEBIAN: Mapping[Arch, str] = {"x86_64": "amd64", "arm64": "arm64"}
_SOURCE = "arch=source"


def bill_key(image: str) -> str:
    """Return the key of the bill of materials of an image."""
    return f"images/{image}.cdx.json"


def store_bill(store: RegionStore, image: str, arch: Arch, status_folder: str) -> None:
    """Store the bill of materials of an image, from the packages that its instance has reported."""
    try:
        text = store.get(f"{status_folder}/packages.json", LARGE)
        packages = str(parse_json(text, LARGE)["dpkg"])
    except (NotThere, TooLarge, ValueError, KeyError, TypeError):
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
        components = parse_json(store.get(bill_key(image), LARGE), LARGE)["components"]
        packages = [entry for entry in components if _SOURCE not in entry["purl"]]
        return {str(entry["name"]): str(entry["version"]) for entry in packages}
    except NotThere:
        return None
    except (ValueError, KeyError, TypeError):
        raise PartialError(f"invalid bill of materials {bill_key(image)}", fix="bake again") from None


FLEET = "bedplate:fleet"
"""The tag of everything that belongs to a fleet; stacks use the same."""
Tags = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FleetImage:
    """An image of the fleet in one region; `gib` is the size of its volumes."""

    id: str
    region: str
    name: str
    created: str
    gib: int
    state: str
    tags: Tags
    snapshots: tuple[str, ...] = ()
    protected: bool = False

    @property
    def kind(self) -> str:
        """The name of its kind."""
        return self.tags.get(KIND, "")

    @property
    def finished(self) -> bool:
        """Whether it has passed its bake or copy."""
        return FINISHED in self.tags

    @property
    def withdrawn(self) -> bool:
        """Whether a rollback has replaced it."""
        return WITHDRAWN in self.tags

    def as_observed(self) -> Image:
        """Return what a bake needs to know of it."""
        return Image(self.id, self.state, finished=self.finished, withdrawn=self.withdrawn)


def find_images(client: AwsClient, fleet: str, region: str, name: str | None = None) -> tuple[FleetImage, ...]:
    """Return the fleet's images in a region, finished or not, of one name or of all; the newest first."""
    conditions = filters({f"tag:{FLEET}": fleet, "tag-key": KIND, **({f"tag:{BAKE}": name} if name else {})})
    pages = client.pages("ec2", region, "describe_images", Owners=["self"], Filters=conditions)
    images = [_image(region, entry) for page in pages for entry in page["Images"]]
    return tuple(sorted(images, key=lambda image: (image.created, image.id), reverse=True))


def _image(region: str, entry: Mapping[str, Any]) -> FleetImage:
    disks = [mapping["Ebs"] for mapping in entry.get("BlockDeviceMappings", ()) if "Ebs" in mapping]
    return FleetImage(
        id=entry["ImageId"],
        region=region,
        name=entry.get("Name", ""),
        created=str(entry.get("CreationDate", "")),
        gib=sum(disk.get("VolumeSize", 0) for disk in disks),
        state=entry["State"],
        tags=tags_of(entry),
        snapshots=tuple(disk["SnapshotId"] for disk in disks if "SnapshotId" in disk),
        protected=entry.get("DeregistrationProtection", "disabled") != "disabled",
    )


def tags_of(entry: Mapping[str, Any]) -> Tags:
    """Return the tags of an object of EC2."""
    return {tag["Key"]: tag["Value"] for tag in entry.get("Tags", ())}


def check_base(client: AwsClient, region: str, arch: Arch, ident: str) -> None:
    """Raise InputError unless an image exists, is Canonical's Ubuntu 24.04, and has the architecture."""
    fix = "run `bedplate image record --renew`"
    reply = client.call("ec2", region, "describe_images", Filters=filters({"image-id": ident}))["Images"]
    if not reply:
        raise InputError(f"the base image {ident} does not exist in {region}", fix=fix)
    owner, name, actual = (reply[0].get(key, "") for key in ("OwnerId", "Name", "Architecture"))
    if owner != BASE_OWNER:
        raise InputError(f"the base image {ident} belongs to account {owner}, not to Canonical", fix=fix)
    if actual != arch:
        raise InputError(f"the base image {ident} has the architecture {actual}, not {arch}", fix=fix)
    if not name.startswith(base_name(arch)):
        raise InputError(f"the base image {ident} is {name}, not {base_name(arch)}*", fix=fix)


def read_parameter(client: AwsClient, region: str, name: str) -> str | None:
    """Return the value of an SSM parameter; None without one."""
    reply = client.find("ssm", region, "get_parameter", Name=name)
    return str(reply["Parameter"]["Value"]) if reply else None


def publish(client: AwsClient, fleet: str, kind: str, region: str, image: str) -> None:
    """Write the id of the image in use to the parameter of its kind in a region."""
    name = image_parameter_name(fleet, kind)
    # SSM refuses tags together with Overwrite.
    extra: dict[str, Any] = {"Overwrite": True}
    if read_parameter(client, region, name) is None:
        extra = {"Tags": [{"Key": FLEET, "Value": fleet}]}
    client.call("ssm", region, "put_parameter", Name=name, Value=image, Type="String", **extra)


def mark(client: AwsClient, region: str, image: str, tag: str) -> None:
    """Add a tag to an image."""
    client.call("ec2", region, "create_tags", Resources=[image], Tags=[{"Key": tag, "Value": "true"}])


def unmark(client: AwsClient, region: str, image: str, tag: str) -> None:
    """Remove a tag of an image."""
    client.call("ec2", region, "delete_tags", Resources=[image], Tags=[{"Key": tag}])


def discard(client: AwsClient, image: FleetImage) -> None:
    """Deregister an image and delete its snapshots."""
    client.call("ec2", image.region, "deregister_image", ImageId=image.id)
    for snapshot in image.snapshots:
        client.call("ec2", image.region, "delete_snapshot", SnapshotId=snapshot)


def images_in_use(client: AwsClient, fleet: str, region: str, images: Iterable[FleetImage]) -> frozenset[str]:
    """Return the ids of images that instances, launch templates or parameters of a region use."""
    ids = {image.id for image in images}
    if not ids:
        return frozenset()
    conditions = {"image-id": sorted(ids), "instance-state-name": EXISTING}
    running = {instance["ImageId"] for instance in find_instances(client, region, conditions)}
    kinds = {image.kind for image in images if image.kind}
    published = {read_parameter(client, region, image_parameter_name(fleet, kind)) for kind in sorted(kinds)}
    return frozenset(ids & (running | published | set(_template_images(client, fleet, region))))


def _template_images(client: AwsClient, fleet: str, region: str) -> Iterator[str]:
    """Yield the images of the newest version of each launch template of the fleet."""
    templates = client.pages("ec2", region, "describe_launch_templates", Filters=filters({f"tag:{FLEET}": fleet}))
    for template in (entry for page in templates for entry in page["LaunchTemplates"]):
        query = {"LaunchTemplateId": template["LaunchTemplateId"], "Versions": ["$Latest"]}
        versions = client.call("ec2", region, "describe_launch_template_versions", **query)
        for version in versions["LaunchTemplateVersions"]:
            yield version["LaunchTemplateData"].get("ImageId", "")


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The resources that killed bakes have left in one region."""

    region: str
    instances: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    images: tuple[FleetImage, ...] = ()
    snapshots: tuple[str, ...] = field(default=())
    """Snapshots of deregistered images."""

    @property
    def names(self) -> tuple[str, ...]:
        """The ids of all objects."""
        return (*self.instances, *self.groups, *(image.id for image in self.images), *self.snapshots)


def find_leftovers(client: AwsClient, fleet: str, regions: Iterable[str]) -> RegionResults[Leftovers]:
    """Return what killed bakes have left, by region; finished images are none of it."""
    return ask_regions(regions, lambda region: _leftovers(client, fleet, region))


def _leftovers(client: AwsClient, fleet: str, region: str) -> Leftovers:
    tagged = filters({f"tag:{FLEET}": fleet, "tag-key": BAKE})
    query = [*tagged, *filters({"instance-state-name": EXISTING})]
    reservations = client.call("ec2", region, "describe_instances", Filters=query)["Reservations"]
    groups = client.call("ec2", region, "describe_security_groups", Filters=tagged)["SecurityGroups"]
    images = find_images(client, fleet, region)
    image_snapshots = {snapshot for image in images for snapshot in image.snapshots}
    pages = client.pages("ec2", region, "describe_snapshots", OwnerIds=["self"], Filters=tagged)
    snapshots = (entry["SnapshotId"] for page in pages for entry in page["Snapshots"])
    return Leftovers(
        region,
        tuple(entry["InstanceId"] for reservation in reservations for entry in reservation["Instances"]),
        tuple(group["GroupId"] for group in groups),
        tuple(image for image in images if not image.finished),
        tuple(snapshot for snapshot in snapshots if snapshot not in image_snapshots),
    )


def remove_leftovers(client: AwsClient, leftovers: Leftovers) -> None:
    """Remove what killed bakes have left in a region. A second call removes what EC2 has kept until now."""
    region = leftovers.region
    if leftovers.instances:
        client.call("ec2", region, "terminate_instances", InstanceIds=list(leftovers.instances))
    for image in leftovers.images:
        discard(client, image)
    for snapshot in leftovers.snapshots:
        client.call("ec2", region, "delete_snapshot", SnapshotId=snapshot)
    if leftovers.instances and leftovers.groups:
        _wait_for_end(client, region, leftovers.instances)
    for group in leftovers.groups:
        client.call("ec2", region, "delete_security_group", GroupId=group)


def _wait_for_end(client: AwsClient, region: str, instances: tuple[str, ...]) -> None:
    """Return when instances have terminated: EC2 deletes no security group that one uses."""
    query = filters({"instance-id": instances, "instance-state-name": EXISTING})
    for _ in range(_ATTEMPTS):
        if not client.call("ec2", region, "describe_instances", Filters=query)["Reservations"]:
            return
        sleep(_PAUSE)
    raise PartialError(f"{', '.join(instances)} still terminates", fix="run `bedplate image sweep` again")


_ATTEMPTS, _PAUSE = 60, 5.0


CHECKPOINTS, CHECKPOINT_SECONDS = (10, 50, 100), 600
"""Percentages of a group at which a refresh waits, and how long."""
_HEALTHY = 90
# Source: the API page of InstanceRefresh.
_ENDED = ("Successful", "Failed", "Cancelled", "RollbackFailed", "RollbackSuccessful")


@dataclass(frozen=True, slots=True)
class Rollout:
    """The last instance refresh of a pool: AWS's status, the percentage of replaced machines, and AWS's reason."""

    pool: str
    region: str
    status: str
    percent: int = 0
    reason: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether it replaces no more machines."""
        return self.status in _ENDED

    @property
    def has_failed(self) -> bool:
        """Whether it has ended without replacing all machines."""
        return self.has_ended and self.status != "Successful"


@dataclass(frozen=True, slots=True)
class PoolRollout:
    """The Auto Scaling group of a pool as the target of a roll-out."""

    client: AwsClient
    fleet: str
    pool: PoolPlan

    @property
    def _name(self) -> dict[str, str]:
        return {"AutoScalingGroupName": f"{self.fleet}-{self.pool.name}"}

    def start(self, image: str) -> str:
        """Start replacing machines that run on another image; return what happens in one sentence."""
        group = self._group()
        ids = [member["InstanceId"] for member in group.get("Instances", ())]
        outdated = [ident for ident, used in self._images(ids).items() if used != image]
        if not outdated:
            return f"{self.pool.name}: no machine runs on another image"
        template = _template_of(group)
        own = self._version(template)
        version = self._version_with(template, own, image)
        # AWS refuses it for an image from a parameter. Source: API reference, RollbackInstanceRefresh.
        is_parameter = own["LaunchTemplateData"].get("ImageId", "").startswith("resolve:")
        can_roll_back = version != template["Version"] and not is_parameter
        preferences = {
            "MinHealthyPercentage": _HEALTHY,
            "SkipMatching": True,
            "CheckpointPercentages": list(CHECKPOINTS),
            "CheckpointDelay": CHECKPOINT_SECONDS,
            # Machines of a fabric run jobs of several machines: they end with their job, not by a refresh.
            "ScaleInProtectedInstances": "Ignore",
            "AutoRollback": can_roll_back,
        }
        desired = _desired(group, {**template, "Version": version})
        self._call("start_instance_refresh", DesiredConfiguration=desired, Preferences=preferences, Strategy="Rolling")
        kept = "its old image is a parameter" if is_parameter else "`up` has changed the group"
        back = "rolls back if a new one fails" if can_roll_back else f"without rollback: {kept}"
        return f"{self.pool.name}: replacing {len(outdated)} of {len(ids)} machines, {back}"

    def end(self) -> bool:
        """Roll a running refresh back; return whether there was one. Raises PartialError if AWS cannot."""
        last = self.last()
        if last is None or last.has_ended:
            return False
        self._call("rollback_instance_refresh")
        return True

    def last(self) -> Rollout | None:
        """Return the last refresh; None for a group without one, or before its deployment."""
        if not self._group():
            return None
        refreshes = self._call("describe_instance_refreshes", MaxRecords=1)["InstanceRefreshes"]
        if not refreshes:
            return None
        status, percent = refreshes[0]["Status"], int(refreshes[0].get("PercentageComplete", 0))
        return Rollout(self.pool.name, self.pool.region, status, percent, refreshes[0].get("StatusReason", ""))

    def _group(self) -> dict[str, Any]:
        names = [self._name["AutoScalingGroupName"]]
        query = {"AutoScalingGroupNames": names}
        groups = self.client.call("autoscaling", self.pool.region, "describe_auto_scaling_groups", **query)
        group: dict[str, Any] = next(iter(groups["AutoScalingGroups"]), {})
        return group

    def _images(self, instances: list[str]) -> Mapping[str, str]:
        described = describe_instances(self.client, self.pool.region, instances)
        return {instance: facts["ImageId"] for instance, facts in described}

    def _version(self, template: Mapping[str, str]) -> Mapping[str, Any]:
        query = {"LaunchTemplateId": template["LaunchTemplateId"], "Versions": [template["Version"]]}
        (own,) = self._ec2("describe_launch_template_versions", **query)["LaunchTemplateVersions"]
        return own  # type: ignore[no-any-return]  # of boto3

    def _version_with(self, template: Mapping[str, str], own: Mapping[str, Any], image: str) -> str:
        """Return the version of the launch template with an image: the group's own, or a new one."""
        if own["LaunchTemplateData"].get("ImageId") == image:
            return template["Version"]
        # With the same token, EC2 creates no second version.
        token = sha256(f"{template} {image}".encode()).hexdigest()
        source = {"SourceVersion": str(own["VersionNumber"]), "LaunchTemplateData": {"ImageId": image}}
        query = {"LaunchTemplateId": template["LaunchTemplateId"], "ClientToken": token}
        reply = self._ec2("create_launch_template_version", **query, **source)
        return str(reply["LaunchTemplateVersion"]["VersionNumber"])

    def _ec2(self, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  boto3's own
        return self.client.call("ec2", self.pool.region, operation, **params)

    def _call(self, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  boto3's own
        try:
            return self.client.call("autoscaling", self.pool.region, operation, **self._name, **params)
        except PartialError as error:
            if "InstanceRefreshInProgress" not in error.what:
                raise
            fix = "`bedplate image list` shows it; `bedplate image rollback KIND` ends it"
            raise PartialError(f"{self.pool.name}: a roll-out is in progress", fix=fix) from None


def _template_of(group: Mapping[str, Any]) -> dict[str, str]:
    """Return id and version of a group's launch template."""
    policy = group.get("MixedInstancesPolicy")
    spec = policy["LaunchTemplate"]["LaunchTemplateSpecification"] if policy else group["LaunchTemplate"]
    return {"LaunchTemplateId": spec["LaunchTemplateId"], "Version": spec["Version"]}


def _desired(group: Mapping[str, Any], template: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration to reach: the group's own with another launch template."""
    policy = group.get("MixedInstancesPolicy")
    if policy is None:
        return {"LaunchTemplate": dict(template)}
    launch = {**policy["LaunchTemplate"], "LaunchTemplateSpecification": dict(template)}
    return {"MixedInstancesPolicy": {**policy, "LaunchTemplate": launch}}


def last_rollouts(client: AwsClient, fleet: str, pools: Iterable[PoolPlan]) -> Iterator[Rollout]:
    """Yield the last refresh of each pool that has one."""
    for pool in pools:
        rollout = PoolRollout(client, fleet, pool).last()
        if rollout:
            yield rollout
