"""A bake in the account: what exists of it, and its steps as calls of AWS."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.account.bundle import RegionStore
from bedplate.account.client import AwsClient, NotThere, TooLarge, ask_regions, filters
from bedplate.account.machines import EXISTING
from bedplate.capacity.observation import FAILURES, failure_code
from bedplate.errors import BedplateError, InputError, PartialError
from bedplate.foreign import one_line, parse_json
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.stacks import SHARED
from images import steps
from images.published import (
    FLEET,
    FleetImage,
    discard,
    find_images,
    mark,
    publish,
    read_parameter,
    store_bill,
)
from images.steps import (
    BAKE,
    COMMIT,
    FINISHED,
    Observation,
    Recipe,
    Step,
    bake_types,
    document_name,
    image_parameter_name,
)

_ROOT_DEVICE = "/dev/sda1"


@dataclass(frozen=True, slots=True)
class Site:
    """Where a fleet bakes: the VPC and node subnets of its home region, by zone, and the role of the instance."""

    vpc: str
    subnets: Mapping[str, str]
    profile: str
    role_id: str


def find_site(client: AwsClient, plan: FleetPlan, recipe: Recipe) -> Site:
    """Return where the fleet bakes. Raises InputError if the home region is not deployed."""
    region, profile = plan.home.name, f"{plan.name}-{recipe.kind.use.value}"
    query = filters({f"tag:{FLEET}": plan.name, "tag:Name": f"{plan.name}-{region}*-nodes"})
    subnets = client.call("ec2", region, "describe_subnets", Filters=query)["Subnets"]
    try:
        role = client.call("iam", region, "get_role", RoleName=profile)["Role"]["RoleId"]
    except NotThere:
        role = None
    if not subnets or role is None:
        raise InputError(
            f"{region} is not deployed: it has no node subnets, or no role {profile}",
            fix=f"run `bedplate up --stack {SHARED} --stack {region}`",
        )
    zones = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in subnets}
    return Site(subnets[0]["VpcId"], dict(sorted(zones.items())), profile, role)


@dataclass(frozen=True, slots=True)
class Bake:
    """One bake: its recipe, the regions of the image, user data and node document of the instance, the commit."""

    client: AwsClient
    plan: FleetPlan
    site: Site
    recipe: Recipe
    regions: tuple[str, ...]
    user_data: bytes
    document: str
    commit: str

    @property
    def home(self) -> str:
        """The region of the instance."""
        return self.plan.home.name

    @property
    def _store(self) -> RegionStore:
        return RegionStore(self.client, self.plan, self.home)

    @property
    def _document_key(self) -> str:
        """The temporary node document: the region may have no pool of the kind."""
        return f"nodes/{document_name(self.recipe.kind)}.json"

    @property
    def _key(self) -> str:
        """The alias of the key that encrypts the image, the same in every region."""
        return f"alias/{self.plan.name}-data"

    def observe(self, time: float, recorded: Mapping[str, str]) -> tuple[Observation, Mapping[str, BedplateError]]:
        """Return what exists, with the errors of regions that did not answer; these are not part of it.

        Raises the error of the home region. Objects of the instance are read until the image is finished and they
        are gone; parameters only of regions with a finished image.
        """
        home = self.home
        answers = ask_regions((home, *self.regions), self._of_region)
        if home in answers.failures:
            raise answers.failures[home]
        images = {region: (image, value) for region, (image, value) in answers.successes.items() if image}
        instance, group = self._instance(), self._group()
        return (
            Observation(
                time=time,
                images={region: image.as_observed() for region, (image, _) in images.items()},
                instance=instance,
                group=group,
                status=self._status(instance) if instance and home not in images else None,
                parameters={region: value for region, (_, value) in images.items() if value},
                recorded=recorded,
            ),
            answers.failures,
        )

    def _of_region(self, region: str) -> tuple[FleetImage | None, str | None]:
        image = next(iter(find_images(self.client, self.plan.name, region, self.recipe.name)), None)
        if image is None or not image.finished:
            return image, None
        return image, read_parameter(self.client, region, self._parameter)

    @property
    def _parameter(self) -> str:
        return image_parameter_name(self.plan.name, self.recipe.kind.name)

    def _instance(self) -> steps.Instance | None:
        query = filters({f"tag:{BAKE}": self.recipe.name, f"tag:{FLEET}": self.plan.name})
        states = filters({"instance-state-name": EXISTING})
        reservations = self._call("describe_instances", Filters=[*query, *states])["Reservations"]
        entries = [entry for reservation in reservations for entry in reservation["Instances"]]
        # One that terminates does not hide its successor.
        entries.sort(key=lambda entry: (entry["State"]["Name"] == "shutting-down", entry["LaunchTime"]))
        for entry in entries:
            return steps.Instance(entry["InstanceId"], entry["State"]["Name"], entry["LaunchTime"].timestamp())
        return None

    def _group(self) -> str | None:
        query = filters({"group-name": self.recipe.name, "vpc-id": self.site.vpc})
        groups = self._call("describe_security_groups", Filters=query)["SecurityGroups"]
        return groups[0]["GroupId"] if groups else None

    def _status(self, instance: steps.Instance) -> steps.Status | None:
        """Return the result of the install stage."""
        key = f"{self._status_folder(instance.id)}/run.json"
        try:
            status = parse_json(self._store.get(key))
            if status["ok"] and status["stage"] != "install":
                return None
            return steps.Status(bool(status["ok"]), one_line(str(status["sentence"])), str(status.get("bundle", "")))
        except NotThere:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, TooLarge):
            raise PartialError(f"{instance.id} wrote an invalid status: {key}") from None

    def _status_folder(self, instance: str) -> str:
        """Return the folder of an instance: AWS's user id of it, which is its role and its own id."""
        return f"status/{self.site.role_id}:{instance}"

    def perform(self, step: Step) -> None:
        """Make the calls of one step; raises BedplateError."""
        match step:
            case steps.CreateGroup():
                self._create_group()
            case steps.Launch(group):
                self._launch(group)
            case steps.Stop(instance):
                self._call("stop_instances", InstanceIds=[instance])
            case steps.CreateImage(instance):
                name = self.recipe.name
                # First: an image without a bill of materials would be finished.
                store_bill(self._store, name, self.recipe.kind.arch, self._status_folder(instance))
                self._call("create_image", InstanceId=instance, Name=name, **self._tags("image", "snapshot"))
            case steps.Terminate(instance):
                self._call("terminate_instances", InstanceIds=[instance])
            case steps.DeleteGroup(group):
                self.delete_document()
                self._call("delete_security_group", GroupId=group)
            case _:
                self._spread(step)

    def delete_document(self) -> None:
        """Delete the node document of the instance."""
        self._store.delete(self._document_key)

    def _spread(self, step: Step) -> None:
        match step:
            case steps.Copy(region, source):
                self._copy(region, source)
            case steps.Discard(region, image):
                images = find_images(self.client, self.plan.name, region, self.recipe.name)
                for failed in images:
                    if failed.id == image:
                        discard(self.client, failed)
                raise PartialError(f"{region}: EC2 could not make {self.recipe.name}", fix="bake again")
            case steps.Finish(region, image):
                self._finish(region, image)
            case steps.Publish(region, image):
                publish(self.client, self.plan.name, self.recipe.kind.name, region, image)
            case _:
                raise AssertionError(step)

    def _create_group(self) -> None:
        """Create the group. A new group has no inbound rules, and allows all outbound traffic."""
        about = "Temporary: the bake of an image"
        query = {"GroupName": self.recipe.name, "Description": about, "VpcId": self.site.vpc}
        self._call("create_security_group", **query, **self._tags("security-group"))

    def _launch(self, group: str) -> None:
        """Launch on the first type and zone with capacity."""
        self._store.put(self._document_key, self.document.encode())
        error: PartialError | None = None
        for type_name, zone in self._places():
            try:
                self._call("run_instances", **self._request(group, type_name, zone))
            except PartialError as refusal:
                failure = FAILURES.get(failure_code(refusal.what) or "")
                if failure is None:
                    raise
                error = PartialError(f"cannot launch {type_name} in {zone}: {failure.cause}", fix=failure.fix)
                if not failure.in_zone:
                    raise error from None
            else:
                return
        if error:
            raise error

    def _places(self) -> Iterator[tuple[str, str]]:
        for type_name in bake_types(self.recipe.kind.arch):
            yield from ((type_name, zone) for zone in self.site.subnets)

    def _request(self, group: str, type_name: str, zone: str) -> dict[str, Any]:
        """Return the arguments of RunInstances. botocore adds a client token: a retry launches no second instance."""
        disk = {
            "VolumeSize": self.plan.image.disk,
            "VolumeType": "gp3",
            "Encrypted": True,
            # CreateImage encrypts its snapshots as the volume.
            "KmsKeyId": self._key,
            "DeleteOnTermination": True,
        }
        return {
            "ImageId": self.recipe.base,
            "InstanceType": type_name,
            "MinCount": 1,
            "MaxCount": 1,
            "SubnetId": self.site.subnets[zone],
            "SecurityGroupIds": [group],
            "IamInstanceProfile": {"Name": self.site.profile},
            "UserData": self.user_data,
            "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1},
            "BlockDeviceMappings": [{"DeviceName": _ROOT_DEVICE, "Ebs": disk}],
            **self._tags("instance", "volume", "network-interface"),
        }

    def _copy(self, region: str, source: str) -> None:
        query = {"SourceImageId": source, "SourceRegion": self.home, "Name": self.recipe.name}
        encryption = {"Encrypted": True, "KmsKeyId": self._key}
        self.client.call("ec2", region, "copy_image", **query, **encryption, **self._tags("image", "snapshot"))

    def _finish(self, region: str, image: str) -> None:
        """Require IMDSv2 of the image's instances, then mark it."""
        query = {"ImageId": image, "ImdsSupport": {"Value": "v2.0"}}
        self.client.call("ec2", region, "modify_image_attribute", **query)
        mark(self.client, region, image, FINISHED)

    def _call(self, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  boto3's own
        return self.client.call("ec2", self.home, operation, **params)

    def _tags(self, *kinds: str) -> dict[str, Any]:
        """Return the tags of new objects: `sweep` finds what a killed bake leaves by the tags of the creating call."""
        tags = {
            **self.plan.tags,
            FLEET: self.plan.name,
            "owner": self.plan.owner,
            BAKE: self.recipe.name,
            COMMIT: self.commit,
            **self.recipe.tags,
        }
        listed = [{"Key": name, "Value": value} for name, value in tags.items()]
        return {"TagSpecifications": [{"ResourceType": kind, "Tags": listed} for kind in kinds]}
