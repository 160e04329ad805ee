"""VPC endpoints, gateway and interface, and their associations with route tables.

AWS keeps a route to a gateway endpoint in each associated table. moto creates these routes only with the endpoint.
"""

import json
import zlib
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from moto.ec2.models.vpcs import AWS_ENDPOINT_SERVICES

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import call_with, deletes
from bedplate.rehearsal.kinds.iam import check_policy
from bedplate.rehearsal.kinds.limits import Choice, checks
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError


def _prefixes(aws: Aws, endpoint: str) -> str:
    """Return the prefix list to which a gateway endpoint is the route."""
    service = ec2.described(aws, ec2.VPC_ENDPOINT, endpoint)["ServiceName"]
    (prefix_list,) = ec2.matching(aws, ec2.PREFIX_LIST, {"prefix-list-name": service})
    return str(prefix_list["PrefixListId"])


# --- VPC endpoints

_GATEWAY_SERVICES = ("dynamodb", "s3")
_MEMBERS = {
    "securityGroupIds": ("SecurityGroupIds", ec2.SECURITY_GROUP),
    "subnetIds": ("SubnetIds", ec2.SUBNET),
}
_FULL_ACCESS = json.dumps(
    {
        "Statement": [{"Action": "*", "Effect": "Allow", "Principal": "*", "Resource": "*"}],
        "Version": "2008-10-17",
    },
    separators=(",", ":"),
)
_LIMITS = {"vpcEndpointType": Choice(("Gateway", "Interface"))}


def _check_endpoint(inputs: Props) -> Iterator[InvalidInput]:
    if not inputs.get("serviceName"):
        yield InvalidInput("serviceName", "is required")
    is_gateway = inputs.get("vpcEndpointType") == "Gateway"
    for name in ("securityGroupIds", "subnetIds", "privateDnsEnabled"):
        if is_gateway and inputs.get(name):
            yield InvalidInput(name, "is not allowed for endpoints of type Gateway")


def _create_endpoint(aws: Aws, inputs: Props) -> str:
    _require_service(aws, inputs)
    for name, (_, resource) in _MEMBERS.items():
        ec2.require(aws, resource, *(inputs.get(name) or []))
    _require_distinct_zones(aws, inputs.get("subnetIds") or [])
    if inputs.get("privateDnsEnabled"):
        _require_vpc_dns(aws, inputs["vpcId"])
        _require_unused_dns_name(aws, inputs)
    # The provider always sends PrivateDnsEnabled; moto takes a missing value for true.
    fixed = {"ClientToken": str(uuid4()), "PrivateDnsEnabled": bool(inputs.get("privateDnsEnabled"))}
    call, apart = ("ec2", "create_vpc_endpoint"), ("privateDnsEnabled", "tags")
    response = call_with(aws, call, inputs, apart=apart, renames={"policy": "PolicyDocument"}, **fixed)
    return ec2.tag(aws, response["VpcEndpoint"]["VpcEndpointId"], inputs)


def _require_service(aws: Aws, inputs: Props) -> None:
    """Raise ResourceError for a service that has no endpoint of this type in this region."""
    name = inputs["serviceName"]
    service = name.removeprefix(f"com.amazonaws.{aws.region}.")
    services = _GATEWAY_SERVICES if inputs["vpcEndpointType"] == "Gateway" else AWS_ENDPOINT_SERVICES
    if service == name or service not in services:
        message = f"The Vpc Endpoint Service '{name}' does not exist"
        raise ResourceError("InvalidServiceName", message, key="serviceName")


def _require_distinct_zones(aws: Aws, subnets: list[str]) -> None:
    zones = [ec2.lasting(aws, ec2.SUBNET, ident)["AvailabilityZone"] for ident in subnets]
    if len(set(zones)) < len(zones):
        message = "Found another VPC endpoint subnet in the availability zone of"
        raise ResourceError("DuplicateSubnetsInSameZone", f"{message} {', '.join(subnets)}", key="subnetIds")


def _require_vpc_dns(aws: Aws, vpc: str) -> None:
    for attribute in ("EnableDnsSupport", "EnableDnsHostnames"):
        name = attribute[0].lower() + attribute[1:]
        if not aws.call("ec2", "describe_vpc_attribute", VpcId=vpc, Attribute=name)[attribute]["Value"]:
            message = f"Enabling private DNS requires the VPC attribute {name} set to true"
            raise ResourceError("InvalidParameter", message, key="privateDnsEnabled")


def _require_unused_dns_name(aws: Aws, inputs: Props) -> None:
    """Raise ResourceError for a second endpoint with the private DNS name of a service in one VPC."""
    filters = {"vpc-id": inputs["vpcId"], "service-name": inputs["serviceName"]}
    listed = ec2.matching(aws, ec2.VPC_ENDPOINT, filters)
    for endpoint in (endpoint for endpoint in listed if endpoint.get("PrivateDnsEnabled")):
        reason = "private-dns-enabled cannot be set because there is already a conflicting DNS domain"
        message = f"{reason} for {inputs['serviceName']} in the VPC {inputs['vpcId']}: {endpoint['VpcEndpointId']}"
        raise ResourceError("InvalidParameter", message, key="privateDnsEnabled")


def _read_endpoint(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    endpoint = ec2.described(aws, ec2.VPC_ENDPOINT, ident)
    entries = endpoint.get("DnsEntries") or []
    common = {
        "arn": aws.arn("ec2", f"vpc-endpoint/{ident}"),
        "dnsEntries": [{"dnsName": entry["DnsName"], "hostedZoneId": entry["HostedZoneId"]} for entry in entries],
        "ipAddressType": "ipv4",
        "networkInterfaceIds": endpoint.get("NetworkInterfaceIds") or [],
        "ownerId": aws.account,
        "policy": inputs.get("policy") or _FULL_ACCESS,
        "serviceRegion": aws.region,
        "state": "available",
    }
    return common | _prefix_list(aws, endpoint["ServiceName"]) | _effective_groups(aws, endpoint)


def _prefix_list(aws: Aws, service: str) -> dict[str, Any]:
    for prefix_list in ec2.matching(aws, ec2.PREFIX_LIST, {"prefix-list-name": service}):
        ident = prefix_list["PrefixListId"]
        entries = aws.call("ec2", "get_managed_prefix_list_entries", PrefixListId=ident)["Entries"]
        return {"cidrBlocks": [entry["Cidr"] for entry in entries], "prefixListId": ident}
    return {}


def _effective_groups(aws: Aws, endpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the security groups of an endpoint; with none set, an interface is in the default group of the VPC."""
    group_ids = [group["GroupId"] for group in endpoint.get("Groups") or []]
    if group_ids or endpoint["VpcEndpointType"] == "Gateway":
        return {"securityGroupIds": group_ids}
    return {"securityGroupIds": ec2.default_groups(aws, endpoint["VpcId"])}


def _update_endpoint(aws: Aws, ident: str, old: Props, new: Props) -> None:
    params: dict[str, Any] = {}
    for name, (parameter, resource) in _MEMBERS.items():
        before, after = set(old.get(name) or []), set(new.get(name) or [])
        ec2.require(aws, resource, *sorted(after - before))
        changes = {f"Add{parameter}": sorted(after - before), f"Remove{parameter}": sorted(before - after)}
        params |= {key: idents for key, idents in changes.items() if idents}
    _require_distinct_zones(aws, new.get("subnetIds") or [])
    if new.get("privateDnsEnabled"):
        _require_vpc_dns(aws, new["vpcId"])
    if old.get("policy") != new.get("policy"):
        params["PolicyDocument"] = new.get("policy") or _FULL_ACCESS
    if params:
        aws.call("ec2", "modify_vpc_endpoint", VpcEndpointId=ident, **params)
    ec2.retag(aws, ident, old, new)


VPC_ENDPOINT = ResourceKind(
    token="aws:ec2/vpcEndpoint:VpcEndpoint",
    inputs=updates(*_MEMBERS, "policy", "privateDnsEnabled", "tags")
    | replaces("serviceName", "vpcEndpointType", "vpcId"),
    defaults={"vpcEndpointType": "Gateway"},
    computed=frozenset({*_MEMBERS, "policy", "privateDnsEnabled"}),
    sets=frozenset(_MEMBERS),
    create=_create_endpoint,
    read=_read_endpoint,
    update=_update_endpoint,
    delete=deletes("ec2", "delete_vpc_endpoints", "VpcEndpointIds"),
    complaints=checks(_LIMITS, check_policy, _check_endpoint),
    note="services are those that moto lists, in any region; moto does not update privateDnsEnabled",
)


# --- Route table associations of gateway endpoints


def _create_association(aws: Aws, inputs: Props) -> str:
    endpoint, table = inputs["vpcEndpointId"], inputs["routeTableId"]
    ec2.require(aws, ec2.ROUTE_TABLE, table)
    if ec2.described(aws, ec2.VPC_ENDPOINT, endpoint)["VpcEndpointType"] != "Gateway":
        raise ResourceError(
            "InvalidParameter", "Route tables are only supported for Gateway endpoints", key="vpcEndpointId"
        )
    aws.call("ec2", "modify_vpc_endpoint", VpcEndpointId=endpoint, AddRouteTableIds=[table])
    route = {"GatewayId": endpoint, "DestinationPrefixListId": _prefixes(aws, endpoint)}
    aws.call("ec2", "create_route", RouteTableId=table, **route)
    # The provider makes this id: AWS gives associations none.
    return f"a-{endpoint}{zlib.crc32(table.encode())}"


def _read_association(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    if inputs["routeTableId"] not in ec2.described(aws, ec2.VPC_ENDPOINT, inputs["vpcEndpointId"])["RouteTableIds"]:
        raise ResourceError(
            "InvalidRouteTableId.NotFound", f"{inputs['routeTableId']} is not associated with {inputs['vpcEndpointId']}"
        )
    return {}


def _delete_association(aws: Aws, ident: str, outputs: Props) -> None:
    endpoint, table = outputs["vpcEndpointId"], outputs["routeTableId"]
    aws.call("ec2", "modify_vpc_endpoint", VpcEndpointId=endpoint, RemoveRouteTableIds=[table])
    aws.call("ec2", "delete_route", RouteTableId=table, DestinationPrefixListId=_prefixes(aws, endpoint))


VPC_ENDPOINT_ASSOCIATION = ResourceKind(
    token="aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation",
    inputs=replaces("routeTableId", "vpcEndpointId"),
    create=_create_association,
    read=_read_association,
    delete=_delete_association,
)
