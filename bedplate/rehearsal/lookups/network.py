"""Lookups of VPCs, subnets, availability zones, hosted zones and AMIs."""

import re
from typing import Any

from bedplate.rehearsal.kind import Lookup, Props, capitalized, filters, only_one, picked, tag_map
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError

_ATTRIBUTES = ("enableDnsHostnames", "enableDnsSupport", "enableNetworkAddressUsageMetrics")
_VPC_FILTERS = {
    "cidrBlock": "cidr",
    "default": "isDefault",
    "dhcpOptionsId": "dhcp-options-id",
    "id": "vpc-id",
    "state": "state",
}
_GET_VPC = "aws:ec2/getVpc:getVpc"


def _vpc(aws: Aws, args: Props) -> dict[str, Any]:
    vpcs = aws.call("ec2", "describe_vpcs", Filters=filters(args, _VPC_FILTERS))["Vpcs"]
    vpc = only_one("EC2 VPC", vpcs)
    ident = vpc["VpcId"]
    tables = ec2.matching(aws, ec2.ROUTE_TABLE, {"vpc-id": ident, "association.main": "true"})
    return {
        **picked(vpc, _GET_VPC),
        **{name: _attribute(aws, ident, name) for name in _ATTRIBUTES},
        "arn": aws.arn("ec2", f"vpc/{ident}"),
        "cidrBlockAssociations": [
            {"associationId": block["AssociationId"], "cidrBlock": block["CidrBlock"], "state": "associated"}
            for block in vpc.get("CidrBlockAssociationSet", [])
        ],
        "default": vpc["IsDefault"],
        "id": ident,
        "mainRouteTableId": tables[0]["RouteTableId"] if tables else "",
        "ownerId": aws.account,
        "tags": tag_map(vpc.get("Tags")),
    }


def _attribute(aws: Aws, ident: str, name: str) -> bool:
    reply = aws.call("ec2", "describe_vpc_attribute", VpcId=ident, Attribute=name)
    return bool(reply[capitalized(name)]["Value"])


VPC = Lookup(_GET_VPC, frozenset({*_VPC_FILTERS, "filters", "tags"}), _vpc)

_SUBNET_FILTERS = {
    "availabilityZone": "availability-zone",
    "availabilityZoneId": "availability-zone-id",
    "cidrBlock": "cidr-block",
    "defaultForAz": "default-for-az",
    "id": "subnet-id",
    "state": "state",
    "vpcId": "vpc-id",
}
_GET_SUBNET = "aws:ec2/getSubnet:getSubnet"


def _subnet(aws: Aws, args: Props) -> dict[str, Any]:
    subnets = aws.call("ec2", "describe_subnets", Filters=filters(args, _SUBNET_FILTERS))["Subnets"]
    subnet = only_one("EC2 Subnet", subnets)
    return {
        **picked(subnet, _GET_SUBNET),
        "arn": aws.arn("ec2", f"subnet/{subnet['SubnetId']}"),
        "id": subnet["SubnetId"],
        "ownerId": aws.account,
        "privateDnsHostnameTypeOnLaunch": "ip-name",
        "tags": tag_map(subnet.get("Tags")),
    }


SUBNET = Lookup(_GET_SUBNET, frozenset({*_SUBNET_FILTERS, "filters", "tags"}), _subnet)


def _subnets(aws: Aws, args: Props) -> dict[str, Any]:
    subnets = aws.call("ec2", "describe_subnets", Filters=filters(args))["Subnets"]
    if not subnets:
        raise ResourceError("NotFound", "no matching EC2 Subnets found")
    return {"id": aws.region, "ids": [subnet["SubnetId"] for subnet in subnets]}


SUBNETS = Lookup("aws:ec2/getSubnets:getSubnets", frozenset({"filters", "tags"}), _subnets)


def _zones(aws: Aws, args: Props) -> dict[str, Any]:
    excluded = {*(args.get("excludeNames") or []), *(args.get("excludeZoneIds") or [])}
    where = filters(args, {"state": "state"})
    listed = aws.call("ec2", "describe_availability_zones", Filters=where)["AvailabilityZones"]
    zones = [zone for zone in listed if not excluded & {zone["ZoneName"], zone["ZoneId"]}]
    zones.sort(key=lambda zone: str(zone["ZoneName"]))
    return {
        "groupNames": sorted({zone.get("GroupName", aws.region) for zone in zones}),
        "id": aws.region,
        "names": [zone["ZoneName"] for zone in zones],
        "zoneIds": [zone["ZoneId"] for zone in zones],
    }


AVAILABILITY_ZONES = Lookup(
    "aws:index/getAvailabilityZones:getAvailabilityZones",
    frozenset({"allAvailabilityZones", "excludeNames", "excludeZoneIds", "filters", "state"}),
    _zones,
)


def _is_in_vpc(aws: Aws, zone: dict[str, Any], args: Props) -> bool:
    if zone["Config"]["PrivateZone"] != bool(args.get("privateZone") or args.get("vpcId")):
        return False
    if args.get("vpcId"):
        vpcs = aws.call("route53", "get_hosted_zone", Id=zone["Id"]).get("VPCs", [])
        return args["vpcId"] in [vpc["VPCId"] for vpc in vpcs]
    return True


def _hosted(aws: Aws, args: Props) -> dict[str, Any]:
    if args.get("zoneId"):
        zone = aws.call("route53", "get_hosted_zone", Id=args["zoneId"])["HostedZone"]
    else:
        name = f"{str(args.get('name') or '').rstrip('.')}."
        zones = aws.call("route53", "list_hosted_zones")["HostedZones"]
        matches = [zone for zone in zones if zone["Name"] == name and _is_in_vpc(aws, zone, args)]
        zone = only_one("Route 53 Hosted Zone", matches)
    ident = zone["Id"].rpartition("/")[2]
    reply = aws.call("route53", "get_hosted_zone", Id=ident)
    servers = sorted(reply.get("DelegationSet", {}).get("NameServers", []))
    return {
        "arn": f"arn:aws:route53:::hostedzone/{ident}",
        "callerReference": zone["CallerReference"],
        "comment": zone["Config"].get("Comment") or "",
        "id": ident,
        "name": zone["Name"].rstrip("."),
        "nameServers": servers,
        "primaryNameServer": servers[0] if servers else "",
        "privateZone": zone["Config"]["PrivateZone"],
        "resourceRecordSetCount": zone["ResourceRecordSetCount"],
        "zoneId": ident,
    }


HOSTED_ZONE = Lookup("aws:route53/getZone:getZone", frozenset({"name", "privateZone", "vpcId", "zoneId"}), _hosted)


_GET_IMAGE = "aws:ec2/getAmi:getAmi"


def _mapping(block: dict[str, Any]) -> dict[str, Any]:
    ebs = {
        f"{name[0].lower()}{name[1:]}": str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (block.get("Ebs") or {}).items()
    }
    return {
        "deviceName": block.get("DeviceName", ""),
        "ebs": ebs,
        "noDevice": block.get("NoDevice", ""),
        "virtualName": block.get("VirtualName", ""),
    }


def _image(aws: Aws, args: Props) -> dict[str, Any]:
    image = _newest(_listed_images(aws, args), allow_several=bool(args.get("mostRecent")))
    ident, blocks = image["ImageId"], image.get("BlockDeviceMappings") or []
    roots = [block for block in blocks if block.get("DeviceName") == image.get("RootDeviceName")]
    return {
        **picked(image, _GET_IMAGE),
        "arn": f"arn:aws:ec2:{aws.region}::image/{ident}",
        "blockDeviceMappings": [_mapping(block) for block in blocks],
        "id": ident,
        "imageId": ident,
        "rootSnapshotId": ((roots[0].get("Ebs") or {}) if roots else {}).get("SnapshotId", ""),
        "stateReason": {"code": "UNSET", "message": "UNSET"},
        "tags": tag_map(image.get("Tags")),
    }


def _listed_images(aws: Aws, args: Props) -> list[dict[str, Any]]:
    # `filters` converts the argument `tags`, which describe_images does not have.
    owners = {"Owners": args["owners"]} if args.get("owners") else {}
    executable = {"ExecutableUsers": args["executableUsers"]} if args.get("executableUsers") else {}
    where = [*filters(args), {"Name": "state", "Values": ["available"]}]
    images = aws.call("ec2", "describe_images", Filters=where, **owners, **executable)["Images"]
    pattern = re.compile(args.get("nameRegex") or "")
    return [image for image in images if pattern.search(image.get("Name") or "")]


def _newest(images: list[dict[str, Any]], *, allow_several: bool) -> dict[str, Any]:
    if not images:
        raise ResourceError(
            "NotFound", "Your query returned no results. Please change your search criteria and try again."
        )
    if len(images) > 1 and not allow_several:
        message = "Your query returned more than one result. Try a more specific search, or set mostRecent to true."
        raise ResourceError("TooManyResults", message)
    return max(images, key=lambda image: str(image["CreationDate"]))


IMAGE = Lookup(
    _GET_IMAGE,
    frozenset({"allowUnsafeFilter", "executableUsers", "filters", "includeDeprecated", "mostRecent", "nameRegex"})
    | {"owners", "tags"},
    _image,
)
