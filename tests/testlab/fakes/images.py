"""A fleet's home region in moto for bakes, repaired where moto is not like EC2, with an instance that installs at once.

moto's CopyImage and CreateImage lose the tags of copies and of snapshots.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from moto import mock_aws
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.responses.amis import AmisResponse

from bedplate.account.bundle import RegionStore
from bedplate.account.client import AwsClient
from bedplate.errors import PartialError
from bedplate.plan import FleetPlan
from bedplate.rehearsal.moto import no_preloaded_images
from bedplate.spec.groups import Ring
from images.steps import BASE_OWNER, base_name

BASE, BUNDLE = "ami-0000000000000ba5e", "b" * 64
READS = ("describe_", "get_", "head_", "list_")


class Killed(BaseException):
    """The process was killed."""


@dataclass(frozen=True, slots=True)
class KilledClient(AwsClient):
    """A client that dies at one of its changing calls: before the request, or when the reply has arrived.

    moto has no instance refreshes: `refreshes` has them by group, with the arguments of their start.
    """

    at: int = 0
    is_after: bool = False
    calls: list[str] = field(default_factory=list)
    errors: dict[tuple[str, str], BaseException] = field(default_factory=dict)
    """Errors to raise, by region and operation."""
    dead: list[str] = field(default_factory=list)
    """The operation at which it has died; a dead process makes no more calls."""
    refreshes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def call(self, service: str, region: str, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401
        """Make the call unless it is the one to die at."""
        if self.dead:
            raise Killed
        if "instance_refresh" in operation:
            return self._refresh(operation, params)
        if operation.startswith(READS):
            return AwsClient.call(self, service, region, operation, **params)
        self.calls.append(operation)
        is_last = len(self.calls) == self.at
        if is_last and not self.is_after:
            self.dead.append(operation)
            raise Killed
        if error := self.errors.pop((region, operation), None):
            raise error
        reply = AwsClient.call(self, service, region, operation, **params)
        if is_last:
            self.dead.append(operation)
            raise Killed
        return reply

    def _refresh(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        """Start, describe or roll back a refresh, which never replaces a machine."""
        group = params["AutoScalingGroupName"]
        refresh = self.refreshes.get(group)
        if operation == "start_instance_refresh":
            if refresh and refresh["Status"] == "InProgress":
                raise PartialError("autoscaling:StartInstanceRefresh failed: InstanceRefreshInProgress: one is active")
            self.refreshes[group] = {"Status": "InProgress", "PercentageComplete": 0, **params}
        elif operation == "rollback_instance_refresh" and refresh:
            refresh["Status"] = "RollbackInProgress"
        return {"InstanceRefreshes": [refresh] if refresh else []}


@dataclass
class BakeLab:
    """The account of a fleet. `ok` and `bundle` are what its instances report."""

    client: KilledClient
    plan: FleetPlan
    ok: bool = True
    bundle: str = BUNDLE
    time: float = field(default_factory=time.time)

    def now(self) -> float:
        """Return the time of the bake."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Let the instances install packages."""
        self.time += seconds
        status = {"stage": "install", "bundle": self.bundle, "ok": self.ok, "sentence": "apt failed"}
        role = self._call("iam", "get_role", RoleName=f"{self.plan.name}-kubernetes")["Role"]["RoleId"]
        bucket = self.plan.nodes_bucket(self.plan.home.name).name
        for instance in self.instances():
            key = f"status/{role}:{instance}/run.json"
            packages = json.dumps({"dpkg": f"linux {self.bundle[0]}"})
            for name, text in (("packages", packages), ("run", json.dumps(status))):
                self._call("s3", "put_object", Bucket=bucket, Key=key.replace("run", name), Body=text)

    def instances(self) -> tuple[str, ...]:
        """Return the instances that have not terminated."""
        reservations = self._call("ec2", "describe_instances")["Reservations"]
        entries = [entry for reservation in reservations for entry in reservation["Instances"]]
        return tuple(entry["InstanceId"] for entry in entries if entry["State"]["Name"] != "terminated")

    def left(self) -> tuple[str, ...]:
        """Return what a person would still find of bakes in the console, other than finished images."""
        rest = list(self.instances())
        for region in self.plan.regions_by_name:
            images = self._call("ec2", "describe_images", region, Owners=["self"])["Images"]
            finished = [image for image in images if "bedplate:finished" in str(image.get("Tags"))]
            rest += [image["ImageId"] for image in images if image not in finished]
            kept = {image["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"] for image in finished}
            snapshots = self._call("ec2", "describe_snapshots", region, OwnerIds=["self"])["Snapshots"]
            rest += [entry["SnapshotId"] for entry in snapshots if entry["SnapshotId"] not in kept | self._own(region)]
            groups = self._call("ec2", "describe_security_groups", region)["SecurityGroups"]
            rest += [group["GroupId"] for group in groups if group["GroupName"] != "default"]
        store = RegionStore(self.client, self.plan, self.plan.home.name)
        rest += [*store.keys("nodes/_image-"), *store.keys("images/lease")]
        return tuple(rest)

    def image_ids(self) -> dict[str, str]:
        """Return the fleet's image in each region that has one."""
        listed = {
            region: self._call("ec2", "describe_images", region, Owners=["self"])["Images"]
            for region in self.plan.regions_by_name
        }
        return {region: images[0]["ImageId"] for region, images in listed.items() if images}

    def deploy(self) -> None:
        """Create what a bake needs: network, role, bucket, promoted bundle, base image."""
        home, name = self.plan.home.name, self.plan.name
        vpc = self._call("ec2", "create_vpc", CidrBlock="10.64.0.0/16")["Vpc"]["VpcId"]
        for number, zone in enumerate(("a", "b")):
            tags = {"bedplate:fleet": name, "Name": f"{name}-{home}{zone}-nodes"}
            listed = [{"Key": key, "Value": value} for key, value in tags.items()]
            specifications = [{"ResourceType": "subnet", "Tags": listed}]
            place = {"CidrBlock": f"10.64.{number}.0/24", "AvailabilityZone": f"{home}{zone}"}
            self._call("ec2", "create_subnet", VpcId=vpc, TagSpecifications=specifications, **place)
        role = f"{name}-kubernetes"
        self._call("iam", "create_role", RoleName=role, AssumeRolePolicyDocument="{}")
        self._call("iam", "create_instance_profile", InstanceProfileName=role)
        self._call("iam", "add_role_to_instance_profile", InstanceProfileName=role, RoleName=role)
        bucket, location = self.plan.nodes_bucket(home).name, {"LocationConstraint": home}
        self._call("s3", "create_bucket", Bucket=bucket, CreateBucketConfiguration=location)
        ring = json.dumps({"bundle": BUNDLE, "sequence": 1})
        self._call("ssm", "put_parameter", Name=self.plan.ring_parameter(Ring.STABLE), Value=ring, Type="String")
        add_image(home, BASE)

    def _own(self, region: str) -> set[str]:
        """Return the snapshots of images that are not the fleet's."""
        images = self._call("ec2", "describe_images", region, Owners=[BASE_OWNER])["Images"]
        return {image["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"] for image in images}

    def _call(self, service: str, operation: str, region: str = "", **params: Any) -> dict[str, Any]:  # noqa: ANN401
        return self.client.call(service, region or self.plan.home.name, operation, **params)


def add_image(region: str, ident: str, *, owner: str = BASE_OWNER, arch: str = "x86_64", name: str = "") -> None:
    """Add an image of an account to a region."""
    backend = ec2_backends["123456789012"][region]
    name = name or f"{base_name('x86_64')}20261101"
    backend.amis[ident] = Ami(backend, ident, owner_id=owner, name=name, architecture=arch, root_device_type="ebs")


@contextmanager
def bake_lab(client: KilledClient, plan: FleetPlan) -> Iterator[BakeLab]:
    """Yield the account of a fleet whose home region is deployed."""
    with (
        no_preloaded_images(),
        mock_aws(),
        patch.object(AmisResponse, "create_image", _tagging(AmisResponse.create_image)),
        patch.object(AmisResponse, "copy_image", _tagging(AmisResponse.copy_image)),
        patch("images.published.bill_of_materials", _bill),
    ):
        lab = BakeLab(client, plan)
        lab.deploy()
        yield lab


def _bill(_image: str, _arch: str, packages: str) -> bytes:
    """Return a bill of materials at once: debsbom needs a second."""
    name, version = packages.split()
    return json.dumps({"components": [{"name": name, "version": version, "purl": f"pkg:deb/{name}"}]}).encode()


def _tagging(create: Callable[[AmisResponse], Any]) -> Callable[[AmisResponse], Any]:
    """Return an operation that tags the image and its snapshot, and refuses a duplicate name as EC2 does."""

    def create_tagged(response: AmisResponse) -> Any:  # noqa: ANN401  moto's own
        names = [image.name for image in response.ec2_backend.amis.values()]
        assert response.params["Name"] not in names, "InvalidAMIName.Duplicate"
        specifications = response.params.pop("TagSpecifications")
        result = create(response)
        image = response.ec2_backend.amis[result.result["ImageId"]]
        for specification in specifications:
            target = image if specification["ResourceType"] == "image" else image.ebs_snapshot
            target.add_tags({tag["Key"]: tag["Value"] for tag in specification["Tags"]})
        return result

    return create_tagged
