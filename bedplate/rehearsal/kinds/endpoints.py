"""Routes that AWS keeps in the tables of a gateway endpoint; moto makes them at its creation alone."""

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

from moto.ec2.models.vpcs import AWS_ENDPOINT_SERVICES

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import ROUTE_TABLE, SECURITY_GROUP, SUBNET, described, require, retag, tag
from bedplate.rehearsal.kinds.ec2 import VPC_ENDPOINT as EC2_VPC_ENDPOINT
from bedplate.rehearsal.kinds.ec2 import VPC_ENDPOINT as NOUN
from bedplate.rehearsal.kinds.limits import Choice, beyond
from bedplate.rehearsal.kinds.policy_document import malformed
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal


def lead_to(aws: Aws, endpoint: str, tables: Iterable[str]) -> None:
    """Add the endpoint's route to tables."""
    for table in tables:
        destination = _destination(aws, endpoint)
        aws.call("ec2", "create_route", RouteTableId=table, GatewayId=endpoint, DestinationPrefixListId=destination)


def lead_to_no_more(aws: Aws, endpoint: str, tables: Iterable[str]) -> None:
    """Take the endpoint's route out of tables."""
    for table in tables:
        destination = _destination(aws, endpoint)
        aws.call("ec2", "delete_route", RouteTableId=table, DestinationPrefixListId=destination)


def _destination(aws: Aws, endpoint: str) -> str:
    service = described(aws, EC2_VPC_ENDPOINT, endpoint)["ServiceName"]
    named = [{"Name": "prefix-list-name", "Values": [service]}]
    (found,) = aws.call("ec2", "describe_managed_prefix_lists", Filters=named)["PrefixLists"]
    return str(found["PrefixListId"])


_GATEWAYS = ("dynamodb", "s3")
_MEMBERS = {
    "routeTableIds": ("RouteTableIds", ROUTE_TABLE),
    "securityGroupIds": ("SecurityGroupIds", SECURITY_GROUP),
    "subnetIds": ("SubnetIds", SUBNET),
}
_EVERYTHING = json.dumps(
    {
        "Statement": [{"Action": "*", "Effect": "Allow", "Principal": "*", "Resource": "*"}],
        "Version": "2008-10-17",
    },
    separators=(",", ":"),
)
_LIMITS = {"vpcEndpointType": Choice(("Gateway", "Interface"))}


def _create(aws: Aws, inputs: Props) -> str:
    _require_service(aws, inputs)
    for name, (_, noun) in _MEMBERS.items():
        require(aws, noun, *(inputs.get(name) or []))
    _require_zones_apart(aws, inputs.get("subnetIds") or [])
    if inputs.get("privateDnsEnabled"):
        _require_names(aws, inputs["vpcId"])
        _require_name_free(aws, inputs)
    renames = {"policy": "PolicyDocument"}
    # The provider sends it either way; moto takes silence for consent.
    first = {"ClientToken": str(uuid4()), "PrivateDnsEnabled": bool(inputs.get("privateDnsEnabled"))}
    params = first | placed(aws, ("ec2", "create_vpc_endpoint"), inputs, apart=("tags",), renames=renames)
    made = aws.call("ec2", "create_vpc_endpoint", **params)
    return tag(aws, made["VpcEndpoint"]["VpcEndpointId"], inputs)


def _require_service(aws: Aws, inputs: Props) -> None:
    """Refuse a service that AWS has not, or not by such an endpoint, or only in another region."""
    name = inputs["serviceName"]
    service = name.removeprefix(f"com.amazonaws.{aws.region}.")
    known = _GATEWAYS if inputs["vpcEndpointType"] == "Gateway" else AWS_ENDPOINT_SERVICES
    if service == name or service not in known:
        told = f"The Vpc Endpoint Service '{name}' does not exist"
        raise Refusal("InvalidServiceName", told, key="serviceName")


def _require_zones_apart(aws: Aws, subnets: list[str]) -> None:
    zones = [described(aws, SUBNET, ident)["AvailabilityZone"] for ident in subnets]
    if len(set(zones)) < len(zones):
        told = "Found another VPC endpoint subnet in the availability zone of"
        raise Refusal("DuplicateSubnetsInSameZone", f"{told} {', '.join(subnets)}", key="subnetIds")


def _require_names(aws: Aws, vpc: str) -> None:
    for attribute in ("EnableDnsSupport", "EnableDnsHostnames"):
        name = attribute[0].lower() + attribute[1:]
        if not aws.call("ec2", "describe_vpc_attribute", VpcId=vpc, Attribute=name)[attribute]["Value"]:
            told = f"Enabling private DNS requires the VPC attribute {name} set to true"
            raise Refusal("InvalidParameter", told, key="privateDnsEnabled")


def _require_name_free(aws: Aws, inputs: Props) -> None:
    """Refuse a second endpoint that would answer to a service's own name in one VPC."""
    alike = {"vpc-id": inputs["vpcId"], "service-name": inputs["serviceName"]}
    filters = [{"Name": name, "Values": [value]} for name, value in alike.items()]
    listed = aws.call("ec2", "describe_vpc_endpoints", Filters=filters)["VpcEndpoints"]
    for found in (found for found in listed if found.get("PrivateDnsEnabled")):
        told = "private-dns-enabled cannot be set because there is already a conflicting DNS domain"
        message = f"{told} for {inputs['serviceName']} in the VPC {inputs['vpcId']}: {found['VpcEndpointId']}"
        raise Refusal("InvalidParameter", message, key="privateDnsEnabled")


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    params: dict[str, Any] = {}
    for name, (parameter, noun) in _MEMBERS.items():
        before, after = set(old.get(name) or []), set(new.get(name) or [])
        require(aws, noun, *sorted(after - before))
        changes = {f"Add{parameter}": sorted(after - before), f"Remove{parameter}": sorted(before - after)}
        params |= {key: idents for key, idents in changes.items() if idents}
    _require_zones_apart(aws, new.get("subnetIds") or [])
    if new.get("privateDnsEnabled"):
        _require_names(aws, new["vpcId"])
    if old.get("policy") != new.get("policy"):
        params["PolicyDocument"] = new.get("policy") or _EVERYTHING
    if params:
        aws.call("ec2", "modify_vpc_endpoint", VpcEndpointId=ident, **params)
        lead_to(aws, ident, params.get("AddRouteTableIds", []))
        lead_to_no_more(aws, ident, params.get("RemoveRouteTableIds", []))
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
    entries = found.get("DnsEntries") or []
    common = {
        "arn": aws.arn("ec2", f"vpc-endpoint/{ident}"),
        "dnsEntries": [{"dnsName": each["DnsName"], "hostedZoneId": each["HostedZoneId"]} for each in entries],
        "ipAddressType": "ipv4",
        "networkInterfaceIds": found.get("NetworkInterfaceIds") or [],
        "ownerId": aws.account,
        "policy": inputs.get("policy") or _EVERYTHING,
        "serviceRegion": aws.region,
        "state": "available",
    }
    return common | _prefixes(aws, found["ServiceName"]) | _groups(aws, found)


def _prefixes(aws: Aws, service: str) -> dict[str, Any]:
    named = [{"Name": "prefix-list-name", "Values": [service]}]
    for found in aws.call("ec2", "describe_managed_prefix_lists", Filters=named)["PrefixLists"]:
        ident = found["PrefixListId"]
        entries = aws.call("ec2", "get_managed_prefix_list_entries", PrefixListId=ident)["Entries"]
        return {"cidrBlocks": [each["Cidr"] for each in entries], "prefixListId": ident}
    return {}


def _groups(aws: Aws, found: dict[str, Any]) -> dict[str, Any]:
    """Return the groups of an endpoint: an interface without any is in the VPC's first one."""
    given = [each["GroupId"] for each in found.get("Groups") or []]
    if given or found["VpcEndpointType"] == "Gateway":
        return {"securityGroupIds": given}
    ours = [{"Name": "vpc-id", "Values": [found["VpcId"]]}, {"Name": "group-name", "Values": ["default"]}]
    listed = aws.call("ec2", "describe_security_groups", Filters=ours)["SecurityGroups"]
    return {"securityGroupIds": [each["GroupId"] for each in listed]}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_vpc_endpoints", VpcEndpointIds=[ident])


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from malformed(inputs)
    if not inputs.get("serviceName"):
        yield Complaint("serviceName", "is required")
    gateway = inputs.get("vpcEndpointType") == "Gateway"
    misplaced = ("securityGroupIds", "subnetIds", "privateDnsEnabled") if gateway else ("routeTableIds",)
    for name in misplaced:
        if inputs.get(name):
            yield Complaint(name, f"is not for endpoints of type {inputs.get('vpcEndpointType')}")


VPC_ENDPOINT = Kind(
    token="aws:ec2/vpcEndpoint:VpcEndpoint",
    inputs=updates(*_MEMBERS, "policy", "privateDnsEnabled", "tags")
    | replaces("serviceName", "vpcEndpointType", "vpcId"),
    defaults={"vpcEndpointType": "Gateway"},
    computed=frozenset({*_MEMBERS, "policy", "privateDnsEnabled"}),
    sets=frozenset(_MEMBERS),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="services are those that moto lists, in any region; it does not change privateDnsEnabled",
)


def _vpc_endpoint_association_create(aws: Aws, inputs: Props) -> str:
    endpoint, table = inputs["vpcEndpointId"], inputs["routeTableId"]
    require(aws, ROUTE_TABLE, table)
    if described(aws, EC2_VPC_ENDPOINT, endpoint)["VpcEndpointType"] != "Gateway":
        raise Refusal("InvalidParameter", "Route tables are only supported for Gateway endpoints", key="vpcEndpointId")
    aws.call("ec2", "modify_vpc_endpoint", VpcEndpointId=endpoint, AddRouteTableIds=[table])
    lead_to(aws, endpoint, [table])
    # The provider's own: AWS gives associations no ids.
    return f"a-{endpoint}{zlib.crc32(table.encode())}"


def _vpc_endpoint_association_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    if inputs["routeTableId"] not in described(aws, EC2_VPC_ENDPOINT, inputs["vpcEndpointId"])["RouteTableIds"]:
        raise Refusal("InvalidRouteTableId.NotFound", f"the endpoint has no route table {inputs['routeTableId']}")
    return {}


def _vpc_endpoint_association_delete(aws: Aws, ident: str, outputs: Props) -> None:
    endpoint, table = outputs["vpcEndpointId"], outputs["routeTableId"]
    aws.call("ec2", "modify_vpc_endpoint", VpcEndpointId=endpoint, RemoveRouteTableIds=[table])
    lead_to_no_more(aws, endpoint, [table])


VPC_ENDPOINT_ASSOCIATION = Kind(
    token="aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation",
    inputs=replaces("routeTableId", "vpcEndpointId"),
    create=_vpc_endpoint_association_create,
    read=_vpc_endpoint_association_read,
    delete=_vpc_endpoint_association_delete,
)
