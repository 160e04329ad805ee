"""VPCs and subnets."""

import re
from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.lookups.lookup import Lookup, filters, only_one, picked, tag_map
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal

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


def _zones(aws: Aws, args: Props) -> dict[str, Any]:
    found = _listed(aws, args)
    left_out = {*(args.get("excludeNames") or []), *(args.get("excludeZoneIds") or [])}
    kept = [zone for zone in found if not left_out & {zone["ZoneName"], zone["ZoneId"]}]
    kept.sort(key=lambda zone: str(zone["ZoneName"]))
    return {
        "groupNames": sorted({zone.get("GroupName", aws.region) for zone in kept}),
        "id": aws.region,
        "names": [zone["ZoneName"] for zone in kept],
        "zoneIds": [zone["ZoneId"] for zone in kept],
    }


def _listed(aws: Aws, args: Props) -> list[dict[str, Any]]:
    where = filters(args, {"state": "state", "name": "zone-name", "zoneId": "zone-id"})
    found: list[dict[str, Any]] = aws.call("ec2", "describe_availability_zones", Filters=where)["AvailabilityZones"]
    return found


AVAILABILITY_ZONES = Lookup(
    "aws:index/getAvailabilityZones:getAvailabilityZones",
    frozenset({"allAvailabilityZones", "excludeNames", "excludeZoneIds", "filters", "state"}),
    _zones,
)


def _zone(aws: Aws, args: Props) -> dict[str, Any]:
    found = only_one("EC2 Availability Zone", _listed(aws, args))
    return {
        "groupName": found.get("GroupName") or aws.region,
        "id": found["ZoneName"],
        "name": found["ZoneName"],
        "nameSuffix": found["ZoneName"].removeprefix(aws.region),
        "networkBorderGroup": found.get("NetworkBorderGroup") or aws.region,
        "optInStatus": found.get("OptInStatus") or "opt-in-not-required",
        "state": found["State"],
        "zoneId": found["ZoneId"],
        "zoneType": found.get("ZoneType") or "availability-zone",
    }


AVAILABILITY_ZONE = Lookup(
    "aws:index/getAvailabilityZone:getAvailabilityZone",
    frozenset({"allAvailabilityZones", "filters", "name", "state", "zoneId"}),
    _zone,
)


def _matches(aws: Aws, zone: dict[str, Any], args: Props) -> bool:
    if zone["Config"]["PrivateZone"] != bool(args.get("privateZone") or args.get("vpcId")):
        return False
    if args.get("vpcId"):
        homes = aws.call("route53", "get_hosted_zone", Id=zone["Id"]).get("VPCs", [])
        return args["vpcId"] in [vpc["VPCId"] for vpc in homes]
    return True


def _hosted(aws: Aws, args: Props) -> dict[str, Any]:
    if args.get("zoneId"):
        zone = aws.call("route53", "get_hosted_zone", Id=args["zoneId"])["HostedZone"]
    else:
        name = f"{str(args.get('name') or '').rstrip('.')}."
        listed = aws.call("route53", "list_hosted_zones")["HostedZones"]
        same = [zone for zone in listed if zone["Name"] == name and _matches(aws, zone, args)]
        zone = only_one("Route 53 Hosted Zone", same)
    ident = zone["Id"].rpartition("/")[2]
    found = aws.call("route53", "get_hosted_zone", Id=ident)
    servers = sorted(found.get("DelegationSet", {}).get("NameServers", []))
    return {
        "arn": f"arn:aws:route53:::hostedzone/{ident}",
        "comment": zone["Config"].get("Comment") or "",
        "id": ident,
        "name": zone["Name"].rstrip("."),
        "nameServers": servers,
        "primaryNameServer": servers[0] if servers else "",
        "privateZone": zone["Config"]["PrivateZone"],
        "zoneId": ident,
        **picked(zone, {"callerReference": "CallerReference", "resourceRecordSetCount": "ResourceRecordSetCount"}),
    }


HOSTED_ZONE = Lookup("aws:route53/getZone:getZone", frozenset({"name", "privateZone", "vpcId", "zoneId"}), _hosted)


_NAMES = {
    "autoRecoverySupported": "AutoRecoverySupported",
    "bareMetal": "BareMetal",
    "burstablePerformanceSupported": "BurstablePerformanceSupported",
    "currentGeneration": "CurrentGeneration",
    "dedicatedHostsSupported": "DedicatedHostsSupported",
    "freeTierEligible": "FreeTierEligible",
    "hibernationSupported": "HibernationSupported",
    "hypervisor": "Hypervisor",
    "instanceStorageSupported": "InstanceStorageSupported",
    "supportedRootDeviceTypes": "SupportedRootDeviceTypes",
    "supportedUsagesClasses": "SupportedUsageClasses",
    "supportedVirtualizationTypes": "SupportedVirtualizationTypes",
}
_PROCESSOR = {
    "defaultCores": "DefaultCores",
    "defaultThreadsPerCore": "DefaultThreadsPerCore",
    "defaultVcpus": "DefaultVCpus",
}
_NETWORK = {
    "defaultNetworkCardIndex": "DefaultNetworkCardIndex",
    "efaSupported": "EfaSupported",
    "enaSupport": "EnaSupport",
    "encryptionInTransitSupported": "EncryptionInTransitSupported",
    "ipv6Supported": "Ipv6Supported",
    "maximumIpv4AddressesPerInterface": "Ipv4AddressesPerInterface",
    "maximumIpv6AddressesPerInterface": "Ipv6AddressesPerInterface",
    "maximumNetworkCards": "MaximumNetworkCards",
    "maximumNetworkInterfaces": "MaximumNetworkInterfaces",
    "networkPerformance": "NetworkPerformance",
}


def _type(aws: Aws, args: Props) -> dict[str, Any]:
    name = args["instanceType"]
    found = aws.call("ec2", "describe_instance_types", InstanceTypes=[name])["InstanceTypes"][0]
    network, gpus = found.get("NetworkInfo") or {}, found.get("GpuInfo") or {}
    return {
        **picked(found, _NAMES),
        **picked(found.get("VCpuInfo") or {}, _PROCESSOR),
        **picked(network, _NETWORK),
        "efaMaximumInterfaces": (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0),
        "gpuses": [_gpu(gpu) for gpu in gpus.get("Gpus", [])],
        "id": name,
        "memorySize": found["MemoryInfo"]["SizeInMiB"],
        "supportedArchitectures": found["ProcessorInfo"]["SupportedArchitectures"],
        "supportedPlacementStrategies": (found.get("PlacementGroupInfo") or {}).get("SupportedStrategies", []),
        "totalGpuMemory": gpus.get("TotalGpuMemoryInMiB", 0),
        "totalInstanceStorage": (found.get("InstanceStorageInfo") or {}).get("TotalSizeInGB", 0),
    }


def _gpu(gpu: dict[str, Any]) -> dict[str, Any]:
    return {
        "count": gpu["Count"],
        "manufacturer": gpu["Manufacturer"],
        "memorySize": gpu["MemoryInfo"]["SizeInMiB"],
        "name": gpu["Name"],
    }


INSTANCE_TYPE = Lookup("aws:ec2/getInstanceType:getInstanceType", frozenset({"instanceType"}), _type)


def _offerings(aws: Aws, args: Props) -> dict[str, Any]:
    kind = {"LocationType": args.get("locationType") or "region"}
    found = aws.call("ec2", "describe_instance_type_offerings", **kind, Filters=filters(args))
    listed = sorted(found["InstanceTypeOfferings"], key=lambda one: (one["InstanceType"], one["Location"]))
    return {
        "id": aws.region,
        "instanceTypes": [one["InstanceType"] for one in listed],
        "locationTypes": [one["LocationType"] for one in listed],
        "locations": [one["Location"] for one in listed],
    }


INSTANCE_TYPE_OFFERINGS = Lookup(
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings",
    frozenset({"filters", "locationType"}),
    _offerings,
)


_IMAGE_NAMES = {
    "architecture": "Architecture",
    "bootMode": "BootMode",
    "creationDate": "CreationDate",
    "deprecationTime": "DeprecationTime",
    "description": "Description",
    "enaSupport": "EnaSupport",
    "hypervisor": "Hypervisor",
    "imageLocation": "ImageLocation",
    "imageOwnerAlias": "ImageOwnerAlias",
    "imageType": "ImageType",
    "imdsSupport": "ImdsSupport",
    "kernelId": "KernelId",
    "name": "Name",
    "ownerId": "OwnerId",
    "platform": "Platform",
    "platformDetails": "PlatformDetails",
    "public": "Public",
    "ramdiskId": "RamdiskId",
    "rootDeviceName": "RootDeviceName",
    "rootDeviceType": "RootDeviceType",
    "sriovNetSupport": "SriovNetSupport",
    "state": "State",
    "tpmSupport": "TpmSupport",
    "usageOperation": "UsageOperation",
    "virtualizationType": "VirtualizationType",
}


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
    found = _newest(_image_listed(aws, args), many=bool(args.get("mostRecent")))
    ident, blocks = found["ImageId"], found.get("BlockDeviceMappings") or []
    roots = [block for block in blocks if block.get("DeviceName") == found.get("RootDeviceName")]
    return {
        **picked(found, _IMAGE_NAMES),
        "arn": f"arn:aws:ec2:{aws.region}::image/{ident}",
        "blockDeviceMappings": [_mapping(block) for block in blocks],
        "id": ident,
        "imageId": ident,
        "rootSnapshotId": ((roots[0].get("Ebs") or {}) if roots else {}).get("SnapshotId", ""),
        "stateReason": {"code": "UNSET", "message": "UNSET"},
        "tags": tag_map(found.get("Tags")),
    }


def _image_listed(aws: Aws, args: Props) -> list[dict[str, Any]]:
    # The filter on tags is made below from the tags that were asked for; they are no argument of the call.
    who = {"Owners": args["owners"]} if args.get("owners") else {}
    executable = {"ExecutableUsers": args["executableUsers"]} if args.get("executableUsers") else {}
    where = [*filters(args), {"Name": "state", "Values": ["available"]}]
    images = aws.call("ec2", "describe_images", Filters=where, **who, **executable)["Images"]
    pattern = re.compile(args.get("nameRegex") or "")
    return [image for image in images if pattern.search(image.get("Name") or "")]


def _newest(images: list[dict[str, Any]], *, many: bool) -> dict[str, Any]:
    if not images:
        raise Refusal("NotFound", "Your query returned no results. Please change your search criteria and try again.")
    if len(images) > 1 and not many:
        said = "Your query returned more than one result. Try a more specific search, or set mostRecent to true."
        raise Refusal("TooManyResults", said)
    return max(images, key=lambda image: str(image["CreationDate"]))


IMAGE = Lookup(
    "aws:ec2/getAmi:getAmi",
    frozenset({"allowUnsafeFilter", "executableUsers", "filters", "includeDeprecated", "mostRecent", "nameRegex"})
    | {"owners", "tags"},
    _image,
)
