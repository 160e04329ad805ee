"""The search for objects outside EC2: most have a name or a key of their own."""

from collections.abc import Iterator

from bedplate.account.client import AwsClient, caller_account
from bedplate.account.creation import DEAD, Creation, Finder, filters, has_tags, is_live
from bedplate.errors import MachineError


def find_scaling_group(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the group with the name."""
    names = [creation.inputs["name"]]
    reply = client.call("autoscaling", creation.region, "describe_auto_scaling_groups", AutoScalingGroupNames=names)
    return (group["AutoScalingGroupName"] for group in reply["AutoScalingGroups"] if is_live(group))


def find_alarm(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the alarm with the name."""
    alarms = client.call("cloudwatch", creation.region, "describe_alarms", AlarmNames=[creation.inputs["name"]])
    return (alarm["AlarmName"] for alarm in alarms["MetricAlarms"])


def find_log_group(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the log group with the name."""
    name = creation.inputs["name"]
    for page in client.pages("logs", creation.region, "describe_log_groups", logGroupNamePrefix=name):
        yield from (name for group in page["logGroups"] if group["logGroupName"] == name)


def find_budget(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the budget with the name."""
    account, name = caller_account(client, creation.region), creation.inputs["name"]
    client.call("budgets", creation.region, "describe_budget", AccountId=account, BudgetName=name)
    yield f"{account}:{name}"


def find_file_system(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the file system with the creation token."""
    token = creation.inputs["creationToken"]
    for page in client.pages("efs", creation.region, "describe_file_systems", CreationToken=token):
        for system in page["FileSystems"]:
            if system["LifeCycleState"] not in DEAD and has_tags(creation, system["Tags"]):
                yield system["FileSystemId"]


def find_mount_target(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the mount target of the file system in the subnet."""
    query = {"FileSystemId": creation.inputs["fileSystemId"]}
    for page in client.pages("efs", creation.region, "describe_mount_targets", **query):
        for target in page["MountTargets"]:
            if target["SubnetId"] == creation.inputs["subnetId"] and target["LifeCycleState"] not in DEAD:
                yield target["MountTargetId"]


def find_role(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the role with the name."""
    role = client.call("iam", creation.region, "get_role", RoleName=creation.inputs["name"])["Role"]
    if has_tags(creation, role.get("Tags", ())):
        yield role["RoleName"]


def find_instance_profile(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the instance profile with the name."""
    query = {"InstanceProfileName": creation.inputs["name"]}
    profile = client.call("iam", creation.region, "get_instance_profile", **query)["InstanceProfile"]
    if has_tags(creation, profile.get("Tags", ())):
        yield profile["InstanceProfileName"]


def find_key(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the keys with the tags; keys of others whose policy denies reading are ignored, unless all do."""
    denials: list[MachineError] = []
    is_any_readable = False
    for page in client.pages("kms", creation.region, "list_keys"):
        for key in page["Keys"]:
            try:
                is_own = _is_own_key(client, creation, key["KeyId"])
            except MachineError as error:
                denials.append(error)
                continue
            is_any_readable = True
            if is_own:
                yield key["KeyId"]
    if denials and not is_any_readable:
        raise denials[0]


def _is_own_key(client: AwsClient, creation: Creation, ident: str) -> bool:
    tags = client.call("kms", creation.region, "list_resource_tags", KeyId=ident)["Tags"]
    if not has_tags(creation, [{"Key": tag["TagKey"], "Value": tag["TagValue"]} for tag in tags]):
        return False
    key = client.call("kms", creation.region, "describe_key", KeyId=ident)["KeyMetadata"]
    return bool(key["KeyState"] != "PendingDeletion")


def find_alias(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the alias of a key with the name."""
    for page in client.pages("kms", creation.region, "list_aliases"):
        yield from (alias["AliasName"] for alias in page["Aliases"] if alias["AliasName"] == creation.inputs["name"])


def find_zone(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the zones with the name and the comment: Route 53 tags a zone in a second call."""
    inputs = creation.inputs
    for page in client.pages("route53", creation.region, "list_hosted_zones"):
        for zone in page["HostedZones"]:
            config = zone["Config"]
            if (zone["Name"].rstrip("."), config.get("Comment"), config["PrivateZone"]) == (
                inputs["name"].rstrip("."),
                inputs.get("comment"),
                bool(inputs.get("vpcs")),
            ):
                yield zone["Id"].rpartition("/")[2]


def find_zone_association(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the association of the zone with the VPC."""
    zone, vpc = creation.inputs["zoneId"], creation.inputs["vpcId"]
    for network in client.call("route53", creation.region, "get_hosted_zone", Id=zone).get("VPCs", ()):
        if network["VPCId"] == vpc:
            yield f"{zone}:{vpc}:{network['VPCRegion']}"


def find_record(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the record with the name and type."""
    zone, name, kind = creation.inputs["zoneId"], creation.inputs["name"].lower().rstrip("."), creation.inputs["type"]
    domain = client.call("route53", creation.region, "get_hosted_zone", Id=zone)["HostedZone"]["Name"].rstrip(".")
    full_name = name if name == domain or name.endswith(f".{domain}") else f"{name}.{domain}"
    for page in client.pages("route53", creation.region, "list_resource_record_sets", HostedZoneId=zone):
        for record in page["ResourceRecordSets"]:
            if (record["Name"].rstrip(".").replace(r"\052", "*"), record["Type"]) == (full_name, kind):
                yield f"{zone}_{name}_{kind}"


def resolver(operation: str, listing: str, **keys: str) -> Finder:
    """Return the finder of a type of Route 53 Resolver; `keys` are inputs by the name of their filter."""

    def find(client: AwsClient, creation: Creation) -> Iterator[str]:
        conditions = filters({name: creation.inputs[key] for name, key in keys.items()})
        for page in client.pages("route53resolver", creation.region, operation, Filters=conditions):
            yield from (item["Id"] for item in page[listing] if is_live(item))

    return find


def find_bucket(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the bucket with the name."""
    client.call("s3", creation.region, "head_bucket", Bucket=creation.inputs["bucket"])
    yield creation.inputs["bucket"]


def find_secret(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the secret with the name."""
    secret = client.call("secretsmanager", creation.region, "describe_secret", SecretId=creation.inputs["name"])
    if not secret.get("DeletedDate") and has_tags(creation, secret.get("Tags", ())):
        yield secret["ARN"]


def find_secret_version(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the current version of the secret."""
    query = {"SecretId": creation.inputs["secretId"]}
    secret = client.call("secretsmanager", creation.region, "describe_secret", **query)
    for version, stages in secret.get("VersionIdsToStages", {}).items():
        if "AWSCURRENT" in stages:
            yield f"{secret['ARN']}|{version}"


def find_topic(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the topic with the name."""
    for page in client.pages("sns", creation.region, "list_topics"):
        for topic in page["Topics"]:
            if topic["TopicArn"].rpartition(":")[2] == creation.inputs["name"]:
                yield topic["TopicArn"]


def find_parameter(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the parameter with the name."""
    name = creation.inputs["name"]
    client.call("ssm", creation.region, "get_parameter", Name=name)
    yield name
