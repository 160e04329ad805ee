"""Mount targets of EFS file systems."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_MOST_GROUPS = 5  # security groups of a mount target: EFS quotas


def _create(aws: Aws, inputs: Props) -> str:
    params = placed(aws, ("efs", "create_mount_target"), inputs)
    _refuse_strange_groups(aws, inputs)
    ident: str = aws.call("efs", "create_mount_target", **params)["MountTargetId"]
    return ident


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    groups = new.get("securityGroups")
    if groups and sorted(groups) != sorted(old.get("securityGroups") or []):
        _refuse_strange_groups(aws, new)
        call = {"MountTargetId": ident, "SecurityGroups": groups}
        aws.call("efs", "modify_mount_target_security_groups", **call)


def _refuse_strange_groups(aws: Aws, inputs: Props) -> None:
    """Refuse security groups that are not there, or not in the subnet's VPC."""
    groups = inputs.get("securityGroups") or []
    try:
        found = aws.call("ec2", "describe_security_groups", GroupIds=groups)["SecurityGroups"] if groups else []
        vpc = aws.call("ec2", "describe_subnets", SubnetIds=[inputs["subnetId"]])["Subnets"][0]["VpcId"]
    except Refusal as error:
        code = "SubnetNotFound" if error.code.startswith("InvalidSubnet") else "SecurityGroupNotFound"
        raise Refusal(code, error.message, key="securityGroups") from None
    for group in found:
        if group["VpcId"] != vpc:
            told = f"{group['GroupId']} is of {group['VpcId']}, not of the subnet's {vpc}"
            raise Refusal("SecurityGroupNotFound", told, key="securityGroups")


def _groups(aws: Aws, ident: str, subnet: str) -> list[str]:
    """Return the security groups of a mount target: without its own, the default one of its VPC."""
    found = aws.call("efs", "describe_mount_target_security_groups", MountTargetId=ident)["SecurityGroups"]
    if found:
        return sorted(found)
    vpc = aws.call("ec2", "describe_subnets", SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    default = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}]
    groups = aws.call("ec2", "describe_security_groups", Filters=default)["SecurityGroups"]
    return [group["GroupId"] for group in groups]


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("efs", "describe_mount_targets", MountTargetId=ident)["MountTargets"][0]
    system = found["FileSystemId"]
    dns = f"{system}.efs.{aws.region}.amazonaws.com"
    return {
        "availabilityZoneId": found["AvailabilityZoneId"],
        "availabilityZoneName": found["AvailabilityZoneName"],
        "dnsName": dns,
        "fileSystemArn": aws.arn("elasticfilesystem", f"file-system/{system}"),
        "ipAddress": found["IpAddress"],
        "ipAddressType": inputs.get("ipAddressType") or "IPV4_ONLY",
        "mountTargetDnsName": f"{found['AvailabilityZoneName']}.{dns}",
        "networkInterfaceId": found["NetworkInterfaceId"],
        "ownerId": aws.account,
        "securityGroups": _groups(aws, ident, found["SubnetId"]),
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("efs", "delete_mount_target", MountTargetId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    groups = inputs.get("securityGroups")
    if is_known(groups) and len(groups) > _MOST_GROUPS:
        yield Complaint("securityGroups", f"a mount target has at most {_MOST_GROUPS} security groups")


MOUNT_TARGET = Kind(
    token="aws:efs/mountTarget:MountTarget",
    inputs=updates("securityGroups")
    | replaces("fileSystemId", "ipAddress", "ipAddressType", "ipv6Address", "subnetId"),
    computed=frozenset({"ipAddress", "ipAddressType", "ipv6Address", "securityGroups"}),
    sets=frozenset({"securityGroups"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    delete_first=True,
)
