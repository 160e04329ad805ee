"""VPCs and subnets."""

from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.lookups.lookup import Lookup, filters, only_one, picked, tag_map
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_ATTRIBUTES = ("enableDnsHostnames", "enableDnsSupport", "enableNetworkAddressUsageMetrics")
_VPC_FILTERS = {
    "cidrBlock": "cidr",
    "default": "isDefault",
    "dhcpOptionsId": "dhcp-options-id",
    "id": "vpc-id",
    "state": "state",
}
_VPC_NAMES = {
    "cidrBlock": "CidrBlock",
    "default": "IsDefault",
    "dhcpOptionsId": "DhcpOptionsId",
    "instanceTenancy": "InstanceTenancy",
    "state": "State",
}


def _vpc(aws: Aws, args: Props) -> dict[str, Any]:
    where = filters(args, _VPC_FILTERS)
    found = only_one("EC2 VPC", aws.call("ec2", "describe_vpcs", Filters=where)["Vpcs"])
    ident = found["VpcId"]
    main = [{"Name": "vpc-id", "Values": [ident]}, {"Name": "association.main", "Values": ["true"]}]
    tables = aws.call("ec2", "describe_route_tables", Filters=main)["RouteTables"]
    return {
        **picked(found, _VPC_NAMES),
        **{name: _attribute(aws, ident, name) for name in _ATTRIBUTES},
        "arn": aws.arn("ec2", f"vpc/{ident}"),
        "cidrBlockAssociations": [
            {"associationId": one["AssociationId"], "cidrBlock": one["CidrBlock"], "state": "associated"}
            for one in found.get("CidrBlockAssociationSet", [])
        ],
        "id": ident,
        "mainRouteTableId": tables[0]["RouteTableId"] if tables else "",
        "ownerId": aws.account,
        "tags": tag_map(found.get("Tags")),
    }


def _attribute(aws: Aws, ident: str, name: str) -> bool:
    found = aws.call("ec2", "describe_vpc_attribute", VpcId=ident, Attribute=name)
    return bool(found[f"{name[0].upper()}{name[1:]}"]["Value"])


VPC = Lookup("aws:ec2/getVpc:getVpc", frozenset({*_VPC_FILTERS, "filters", "tags"}), _vpc)

_SUBNET_FILTERS = {
    "availabilityZone": "availability-zone",
    "availabilityZoneId": "availability-zone-id",
    "cidrBlock": "cidr-block",
    "defaultForAz": "default-for-az",
    "id": "subnet-id",
    "state": "state",
    "vpcId": "vpc-id",
}
_SUBNET_NAMES = {
    "assignIpv6AddressOnCreation": "AssignIpv6AddressOnCreation",
    "availabilityZone": "AvailabilityZone",
    "availabilityZoneId": "AvailabilityZoneId",
    "availableIpAddressCount": "AvailableIpAddressCount",
    "cidrBlock": "CidrBlock",
    "defaultForAz": "DefaultForAz",
    "mapPublicIpOnLaunch": "MapPublicIpOnLaunch",
    "state": "State",
    "vpcId": "VpcId",
}


def _subnet(aws: Aws, args: Props) -> dict[str, Any]:
    where = filters(args, _SUBNET_FILTERS)
    found = only_one("EC2 Subnet", aws.call("ec2", "describe_subnets", Filters=where)["Subnets"])
    return {
        **picked(found, _SUBNET_NAMES),
        "arn": aws.arn("ec2", f"subnet/{found['SubnetId']}"),
        "id": found["SubnetId"],
        "ownerId": aws.account,
        "privateDnsHostnameTypeOnLaunch": "ip-name",
        "tags": tag_map(found.get("Tags")),
    }


SUBNET = Lookup("aws:ec2/getSubnet:getSubnet", frozenset({*_SUBNET_FILTERS, "filters", "tags"}), _subnet)


def _subnets(aws: Aws, args: Props) -> dict[str, Any]:
    found = aws.call("ec2", "describe_subnets", Filters=filters(args))["Subnets"]
    if not found:
        raise Refusal("NotFound", "no matching EC2 Subnets found")
    return {"id": aws.region, "ids": [subnet["SubnetId"] for subnet in found]}


SUBNETS = Lookup("aws:ec2/getSubnets:getSubnets", frozenset({"filters", "tags"}), _subnets)
