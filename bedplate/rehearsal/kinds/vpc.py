"""VPCs."""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.cidr_blocks import block_complaints
from bedplate.rehearsal.kinds.ec2_tags import born_with, retag
from bedplate.rehearsal.kinds.limits import Choice, beyond
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_ATTRIBUTES = {
    "enableDnsSupport": "EnableDnsSupport",
    "enableDnsHostnames": "EnableDnsHostnames",
    "enableNetworkAddressUsageMetrics": "EnableNetworkAddressUsageMetrics",
}
# Amazon VPC user guide, "VPC CIDR blocks": prefix lengths, and ranges in which no VPC can be.
_SIZES = range(16, 29)
_BARRED = tuple(map(ip_network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4")))
_LIMITS = {"instanceTenancy": Choice(("default", "dedicated"))}


def _create(aws: Aws, inputs: Props) -> str:
    params = placed(aws, ("ec2", "create_vpc"), inputs, apart=(*_ATTRIBUTES, "tags"))
    made = aws.call("ec2", "create_vpc", **params, **born_with("vpc", inputs))
    ident: str = made["Vpc"]["VpcId"]
    # What a new VPC has: it resolves names and gives out none.
    born = {"enableDnsSupport": True, "enableDnsHostnames": False, "tags": inputs.get("tags")}
    _update(aws, ident, born, inputs)
    return ident


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    for name, parameter in _ATTRIBUTES.items():
        if name in new and old.get(name) != new[name]:
            aws.call("ec2", "modify_vpc_attribute", VpcId=ident, **{parameter: {"Value": new[name]}})
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("ec2", "describe_vpcs", VpcIds=[ident])["Vpcs"][0]
    inside = [{"Name": "vpc-id", "Values": [ident]}]
    main = [*inside, {"Name": "association.main", "Values": ["true"]}]
    tables = aws.call("ec2", "describe_route_tables", Filters=main)["RouteTables"]
    acls = aws.call("ec2", "describe_network_acls", Filters=[*inside, {"Name": "default", "Values": ["true"]}])
    default = [*inside, {"Name": "group-name", "Values": ["default"]}]
    groups = aws.call("ec2", "describe_security_groups", Filters=default)["SecurityGroups"]
    return {
        "arn": aws.arn("ec2", f"vpc/{ident}"),
        "cidrBlock": found["CidrBlock"],
        "defaultNetworkAclId": acls["NetworkAcls"][0]["NetworkAclId"],
        "defaultRouteTableId": tables[0]["RouteTableId"],
        "defaultSecurityGroupId": groups[0]["GroupId"],
        "dhcpOptionsId": found["DhcpOptionsId"],
        "mainRouteTableId": tables[0]["RouteTableId"],
        "ownerId": aws.account,
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_vpc", VpcId=ident)
    # AWS deletes it with its VPC, moto does not.
    aws.call("ec2", "delete_network_acl", NetworkAclId=outputs["defaultNetworkAclId"])


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    found = list(block_complaints(inputs, ["cidrBlock"], sizes=_SIZES))
    yield from found
    block = inputs.get("cidrBlock")
    if is_known(block) and not found and any(ip_network(block).overlaps(barred) for barred in _BARRED):
        yield Complaint("cidrBlock", f"InvalidVpc.Range: the CIDR '{block}' is invalid")


VPC = Kind(
    token="aws:ec2/vpc:Vpc",
    inputs=updates(*_ATTRIBUTES, "tags") | replaces("cidrBlock", "instanceTenancy"),
    defaults={"enableDnsSupport": True, "instanceTenancy": "default"},
    computed=frozenset({"cidrBlock", "enableDnsHostnames"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
