"""What exists before the first stacks: the bucket of Pulumi's state, its key, service roles, the key of volumes."""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bedplate.account.client import AwsClient, Denied, NotThere, ask_regions, require_all
from bedplate.errors import InputError, MachineError, PartialError
from bedplate.foreign import parse_json
from bedplate.plan import FleetPlan
from bedplate.plan.links import has_transit
from bedplate.plan.nodes import Platform, permanent_nodes

# Pulumi writes the whole state at each step: a deployment leaves many versions.
_VERSIONS_KEPT_DAYS = 90
_UPLOAD_DAYS = 7
# The region whose name CreateBucket refuses as a location.
_CLASSIC_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class StateStore:
    """The bucket and the key of a fleet's state, in its home region; their names follow from fleet and account."""

    fleet: str
    owner: str
    account: str
    region: str

    @property
    def bucket(self) -> str:
        """The name of the bucket. Buckets of stores end with a region."""
        return f"{self.fleet}-pulumi-{self.account}"

    @property
    def alias(self) -> str:
        """The alias of the key."""
        return f"alias/{self.fleet}-pulumi"

    @property
    def url(self) -> str:
        """The URL of the backend."""
        return f"s3://{self.bucket}?region={self.region}"

    @property
    def secrets_provider(self) -> str:
        """The URL of the key. It has the account: credentials of another account must not use a key of this name."""
        return f"awskms:///arn:aws:kms:{self.region}:{self.account}:{self.alias}?region={self.region}"

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the bucket and the key."""
        return {"bedplate:fleet": self.fleet, "owner": self.owner}


def prepare_store(client: AwsClient, store: StateStore) -> Iterator[str]:
    """Create what is missing of the bucket and the key, correct their settings, and yield each change.

    Raises InputError for a bucket of another account or region, and for a disabled key.
    """
    # Before the key: its creation is not free, and most errors are about the bucket.
    region = _bucket_region(client, store)
    if region not in (None, store.region):
        raise InputError(
            f"the bucket {store.bucket} is in {region}, the home region of the fleet is {store.region}",
            fix=f"write `backend: {{url: 's3://{store.bucket}?region={region}'}}` in Pulumi.yaml",
        )
    key = yield from _prepare_key(client, store)
    if region is None:
        _create_bucket(client, store)
        yield f"created the bucket {store.bucket}"
    for name, (parameter, value) in bucket_settings(store, key).items():
        if _correct_setting(client, store, name, parameter, value):
            yield f"set {name.replace('_', ' ')} of {store.bucket}"


def _bucket_region(client: AwsClient, store: StateStore) -> str | None:
    """Return the region of the bucket, None if it does not exist."""
    try:
        reply = client.find("s3", store.region, "head_bucket", Bucket=store.bucket, ExpectedBucketOwner=store.account)
    except Denied:
        raise InputError(
            f"no access to the bucket {store.bucket}: another account owns it, or s3:ListBucket is not allowed",
            fix="allow s3:ListBucket in the IAM policy of your role. For a bucket of another name, create it and write "
            "`backend: {url: 's3://BUCKET?region=REGION'}` in Pulumi.yaml",
        ) from None
    return str(reply["BucketRegion"]) if reply else None


def _create_bucket(client: AwsClient, store: StateStore) -> None:
    location = (
        {} if store.region == _CLASSIC_REGION else {"CreateBucketConfiguration": {"LocationConstraint": store.region}}
    )
    client.call("s3", store.region, "create_bucket", Bucket=store.bucket, **location)
    tags = {"TagSet": [{"Key": name, "Value": value} for name, value in store.tags.items()]}
    client.call("s3", store.region, "put_bucket_tagging", Bucket=store.bucket, Tagging=tags)


def _prepare_key(client: AwsClient, store: StateStore) -> Generator[str, None, str]:
    """Yield the changes of the key; return its ARN."""

    def call(operation: str, **params: object) -> dict[str, Any]:
        return client.call("kms", store.region, operation, **params)

    reply = client.find("kms", store.region, "describe_key", KeyId=store.alias)
    if reply is None:
        tags = [{"TagKey": name, "TagValue": value} for name, value in store.tags.items()]
        reply = call("create_key", Description=f"Pulumi state of the fleet {store.fleet}", Tags=tags)
        call("create_alias", AliasName=store.alias, TargetKeyId=reply["KeyMetadata"]["KeyId"])
        yield f"created the KMS key {store.alias}"
    key = reply["KeyMetadata"]
    if key["KeyState"] != "Enabled":
        command = "cancel-key-deletion" if key["KeyState"] == "PendingDeletion" else "enable-key"
        raise InputError(
            f"the KMS key {store.alias} has the state {key['KeyState']}",
            fix=f"run `aws kms {command} --region {store.region} --key-id {key['KeyId']}`",
        )
    if not call("get_key_rotation_status", KeyId=key["KeyId"])["KeyRotationEnabled"]:
        call("enable_key_rotation", KeyId=key["KeyId"])
        yield f"enabled the rotation of {store.alias}"
    return str(key["Arn"])


def bucket_settings(store: StateStore, key_arn: str) -> dict[str, tuple[str, Any]]:
    """Return parameter and value of each setting of the bucket, by the name of its API operation without the verb."""
    access = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    encryption = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key_arn}
    encryption_rule = {"ApplyServerSideEncryptionByDefault": encryption, "BucketKeyEnabled": True}
    lifecycle = {
        "ID": "old-states",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "NoncurrentVersionExpiration": {"NoncurrentDays": _VERSIONS_KEPT_DAYS},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": _UPLOAD_DAYS},
    }
    return {
        "public_access_block": ("PublicAccessBlockConfiguration", dict.fromkeys(access, True)),
        "bucket_ownership_controls": ("OwnershipControls", {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}),
        "bucket_versioning": ("VersioningConfiguration", {"Status": "Enabled"}),
        "bucket_encryption": ("ServerSideEncryptionConfiguration", {"Rules": [encryption_rule]}),
        "bucket_lifecycle_configuration": ("LifecycleConfiguration", {"Rules": [lifecycle]}),
        "bucket_policy": ("Policy", _policy(store.bucket)),
    }


def _policy(bucket: str) -> dict[str, Any]:
    statement = {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def _correct_setting(client: AwsClient, store: StateStore, name: str, parameter: str, value: Mapping[str, Any]) -> bool:
    """Write a setting that is missing or differs; return whether it was written."""
    bucket = {"Bucket": store.bucket, "ExpectedBucketOwner": store.account}
    reply = client.find("s3", store.region, f"get_{name}", **bucket) or {}
    current = reply.get(parameter, reply)
    if _contains(parse_json(current) if isinstance(current, str) else current, value):
        return False
    written = json.dumps(value) if name == "bucket_policy" else value
    client.call("s3", store.region, f"put_{name}", **bucket, **{parameter: written})
    return True


def _contains(current: object, value: object) -> bool:
    """Return whether a setting has a value; AWS may add keys."""
    if isinstance(value, Mapping):
        return isinstance(current, Mapping) and all(_contains(current.get(key), item) for key, item in value.items())
    if isinstance(value, list):
        return isinstance(current, list) and len(current) == len(value) and all(map(_contains, current, value))
    return current == value


def service_roles(plan: FleetPlan) -> Mapping[str, str]:
    """Return the service-linked roles that a fleet needs, and the service of each.

    AWS would create them together with the first resource, which can fail then.
    """
    roles = {"AWSServiceRoleForAutoScaling": "autoscaling.amazonaws.com"}
    if any(pool.market.is_spot for pool in plan.pools):
        roles["AWSServiceRoleForEC2Spot"] = "spot.amazonaws.com"
    files, _, _ = plan.stores
    if files:
        roles["AWSServiceRoleForAmazonElasticFileSystem"] = "elasticfilesystem.amazonaws.com"
    if has_transit(plan):
        roles["AWSServiceRoleForVPCTransitGateway"] = "transitgateway.amazonaws.com"
    return roles


def missing_roles(client: AwsClient, region: str, roles: Iterable[str]) -> tuple[str, ...]:
    """Return the roles that the account does not have. IAM is global; the region only selects the endpoint."""
    return tuple(role for role in roles if not _exists(client, region, role))


def create_role(client: AwsClient, region: str, role: str, service: str) -> None:
    """Create a service-linked role; do nothing if it has been created since."""
    try:
        client.call("iam", region, "create_service_linked_role", AWSServiceName=service)
    except PartialError:
        if not _exists(client, region, role):
            raise


def _exists(client: AwsClient, region: str, role: str) -> bool:
    return client.find("iam", region, "get_role", RoleName=role) is not None


_LAUNCHERS = ("AWSServiceRoleForAutoScaling", "AWSServiceRoleForEC2Spot")


def check_volume_keys(client: AwsClient, plan: FleetPlan) -> None:
    """Raise MachineError if the account encrypts new volumes with a customer key that the fleet's machines cannot use.

    Volumes of machines name no key, so they have the account's default. EC2 Auto Scaling and EC2 Spot use a customer
    key only if its policy names their roles. A member attaches its volume with its own role, which may use no such key.
    """
    regions = [region.name for region in plan.regions]
    faults = require_all(ask_regions(regions, lambda region: _key_fault(client, plan, region)), "nothing was deployed")
    for region, what in faults.items():
        if what:
            fix = f"`aws ec2 reset-ebs-default-kms-key-id --region {region}`, or see docs/aws-account.md of bedplate"
            raise MachineError(f"{region}: EBS encrypts new volumes with {what}", fix=fix)


def _key_fault(client: AwsClient, plan: FleetPlan, region: str) -> str:
    """Return the default key of volumes in a region and why machines cannot use it; empty if they can."""
    key: str = client.call("ec2", region, "get_ebs_default_kms_key_id")["KmsKeyId"]
    if key.endswith("alias/aws/ebs"):
        return ""
    if client.call("kms", region, "describe_key", KeyId=key)["KeyMetadata"]["KeyManager"] == "AWS":
        return ""
    if region in {node.region for node in permanent_nodes(plan) if node.platform is Platform.CLOUD}:
        return f"{key}, and permanent machines may not attach such a volume"
    try:
        policy = parse_json(client.call("kms", region, "get_key_policy", KeyId=key, PolicyName="default")["Policy"])
    except (Denied, NotThere):
        return f"{key}, whose policy cannot be read"
    statements = policy["Statement"] if isinstance(policy["Statement"], list) else [policy["Statement"]]
    needed = (role for role in _LAUNCHERS if role in service_roles(plan))
    missing = [role for role in needed if not any(_admits(statement, role) for statement in statements)]
    return f"{key}, whose policy does not let {' and '.join(missing)} create grants" if missing else ""


def _admits(statement: Mapping[str, Any], role: str) -> bool:
    """Return whether a statement of a key's policy names a role, as principal or in a condition, to create grants."""
    names = json.dumps([statement.get("Principal"), statement.get("Condition")])
    return statement["Effect"] == "Allow" and f'/{role}"' in names and "kms:CreateGrant" in statement["Action"]
