"""Elastic IP addresses."""

from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import (
    ADDRESS,
    SECURITY_GROUP,
    SUBNET,
    born_with,
    described,
    require,
    require_way_out,
    retag,
    tag,
    taken_addresses,
)
from bedplate.rehearsal.kinds.ec2 import ADDRESS as NOUN
from bedplate.rehearsal.kinds.ec2 import NAT_GATEWAY as EC2_NAT_GATEWAY
from bedplate.rehearsal.kinds.ec2 import NETWORK_INTERFACE as EC2_NETWORK_INTERFACE
from bedplate.rehearsal.kinds.limits import Choice, Text, beyond, together, undoing
from bedplate.rehearsal.placement import placed
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal

_HOLDERS = {
    "associateWithPrivateIp": "PrivateIpAddress",
    "instance": "InstanceId",
    "networkInterface": "NetworkInterfaceId",
}
_LIMITS = {"domain": Choice(("vpc",))}


def _create(aws: Aws, inputs: Props) -> str:
    tags = born_with("elastic-ip", inputs)
    ident: str = aws.call("ec2", "allocate_address", Domain="vpc", **tags)["AllocationId"]
    with undoing(lambda: aws.call("ec2", "release_address", AllocationId=ident)):
        _associate(aws, ident, inputs)
    return ident


def _associate(aws: Aws, ident: str, inputs: Props) -> None:
    holder = {parameter: inputs[name] for name, parameter in _HOLDERS.items() if inputs.get(name)}
    if holder:
        aws.call("ec2", "associate_address", AllocationId=ident, AllowReassociation=True, **holder)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if any(old.get(name) != new.get(name) for name in _HOLDERS):
        _disassociate(aws, ident)
        _associate(aws, ident, new)
    retag(aws, ident, old, new)


def _disassociate(aws: Aws, ident: str) -> None:
    if association := described(aws, NOUN, ident).get("AssociationId"):
        aws.call("ec2", "disassociate_address", AssociationId=association)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
    private, public = found.get("PrivateIpAddress") or "", found["PublicIp"]
    return {
        "allocationId": ident,
        "arn": aws.arn("ec2", f"elastic-ip/{ident}"),
        "associationId": found.get("AssociationId") or "",
        "domain": "vpc",
        "instance": found.get("InstanceId") or "",
        "networkBorderGroup": aws.region,
        "networkInterface": found.get("NetworkInterfaceId") or "",
        "privateDns": _private_name(aws.region, private) if private else "",
        "privateIp": private,
        "publicDns": _public_name(aws.region, public),
        "publicIp": public,
        "publicIpv4Pool": "amazon",
    }


def _private_name(region: str, address: str) -> str:
    """Return the name that AWS gives to a private address; its first region has an older form of it."""
    inside = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return f"ip-{address.replace('.', '-')}.{inside}"


def _public_name(region: str, address: str) -> str:
    outside = "compute-1" if region == "us-east-1" else f"{region}.compute"
    return f"ec2-{address.replace('.', '-')}.{outside}.amazonaws.com"


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    if outputs.get("instance") or outputs.get("networkInterface"):
        _disassociate(aws, ident)
    if described(aws, NOUN, ident).get("AssociationId"):
        raise Refusal("InvalidIPAddress.InUse", f"Address {outputs.get('publicIp')} is in use.")
    aws.call("ec2", "release_address", AllocationId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from together(inputs, "instance", "networkInterface")


ELASTIC_ADDRESS = Kind(
    token="aws:ec2/eip:Eip",
    inputs=updates(*_HOLDERS, "tags") | replaces("domain"),
    computed=frozenset({"domain", "instance", "networkInterface"}),
    moves=frozenset({"associationId", "privateDns", "privateIp"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)


_NAT_GATEWAY_LIMITS = {"availabilityMode": Choice(("zonal",)), "connectivityType": Choice(("public", "private"))}


def _nat_gateway_create(aws: Aws, inputs: Props) -> str:
    subnet = described(aws, SUBNET, inputs["subnetId"])
    if inputs.get("connectivityType") != "private":
        # AWS makes such a gateway, and it fails.
        require_way_out(aws, subnet["VpcId"], "subnetId")
        _require_free(aws, inputs["allocationId"])
    params = placed(aws, ("ec2", "create_nat_gateway"), inputs, apart=("tags", "availabilityMode"))
    made = aws.call("ec2", "create_nat_gateway", **params)
    return tag(aws, made["NatGateway"]["NatGatewayId"], inputs)


def _require_free(aws: Aws, allocation: str) -> None:
    if described(aws, ADDRESS, allocation).get("AssociationId"):
        told = f"Elastic IP address [{allocation}] is already associated"
        raise Refusal("Resource.AlreadyAssociated", told, key="allocationId")


def _nat_gateway_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    retag(aws, ident, old, new)


def _nat_gateway_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    address = described(aws, EC2_NAT_GATEWAY, ident)["NatGatewayAddresses"][0]
    return {
        "associationId": address.get("AssociationId") or "",
        "availabilityMode": "zonal",
        "networkInterfaceId": address["NetworkInterfaceId"],
        "privateIp": address["PrivateIp"],
        "publicIp": address.get("PublicIp") or "",
    }


def _nat_gateway_delete(aws: Aws, ident: str, outputs: Props) -> None:
    address = described(aws, EC2_NAT_GATEWAY, ident)["NatGatewayAddresses"][0]
    aws.call("ec2", "delete_nat_gateway", NatGatewayId=ident)
    # AWS frees both with the gateway, moto neither.
    if address.get("AssociationId"):
        aws.call("ec2", "disassociate_address", AssociationId=address["AssociationId"])
    aws.call("ec2", "delete_network_interface", NetworkInterfaceId=address["NetworkInterfaceId"])


def _nat_gateway_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _NAT_GATEWAY_LIMITS)
    private = inputs.get("connectivityType") == "private"
    if private and inputs.get("allocationId"):
        yield Complaint("allocationId", "is not supported with connectivityType private")
    if not private and not inputs.get("allocationId"):
        yield Complaint("allocationId", "is required for a public NAT gateway")
    if not inputs.get("subnetId"):
        yield Complaint("subnetId", "is required for a NAT gateway of one zone")


NAT_GATEWAY = Kind(
    token="aws:ec2/natGateway:NatGateway",
    inputs=updates("tags") | replaces("allocationId", "availabilityMode", "connectivityType", "subnetId"),
    defaults={"connectivityType": "public"},
    computed=frozenset({"availabilityMode"}),
    create=_nat_gateway_create,
    read=_nat_gateway_read,
    update=_nat_gateway_update,
    delete=_nat_gateway_delete,
    complaints=_nat_gateway_complaints,
)


_NETWORK_INTERFACE_LIMITS = {"description": Text(0, 255)}


def _network_interface_create(aws: Aws, inputs: Props) -> str:
    require(aws, SECURITY_GROUP, *(inputs.get("securityGroups") or []))
    addresses = _addresses(inputs)
    _require_room(aws, inputs["subnetId"], addresses)
    listed = [{"PrivateIpAddress": each, "Primary": not number} for number, each in enumerate(addresses)]
    asked = {
        "Description": inputs.get("description"),
        "Groups": inputs.get("securityGroups"),
        "PrivateIpAddresses": listed,
        "SecondaryPrivateIpAddressCount": inputs.get("privateIpsCount") if not addresses else None,
    }
    given = {key: value for key, value in asked.items() if value}
    made = aws.call("ec2", "create_network_interface", SubnetId=inputs["subnetId"], **given)
    ident: str = made["NetworkInterface"]["NetworkInterfaceId"]
    if inputs.get("sourceDestCheck") is False:
        aws.call(
            "ec2", "modify_network_interface_attribute", NetworkInterfaceId=ident, SourceDestCheck={"Value": False}
        )
    return tag(aws, ident, inputs)


def _addresses(inputs: Props) -> list[str]:
    """Return the addresses that are asked for, the primary one first; sets have no order, so the least leads."""
    given = [each for each in [inputs.get("privateIp")] if each]
    return given + sorted(set(inputs.get("privateIps") or []) - set(given), key=lambda text: int(ip_address(text)))


def _require_room(aws: Aws, subnet: str, addresses: list[str]) -> None:
    block = ip_network(described(aws, SUBNET, subnet)["CidrBlock"])
    taken = taken_addresses(aws, subnet)
    for address in addresses:
        if ip_address(address) not in block:
            told = f"Address {address} does not fall within the subnet's address range"
            raise Refusal("InvalidParameterValue", told, key="privateIps")
        if address in taken:
            raise Refusal("InvalidIPAddress.InUse", f"Address {address} is in use.", key="privateIps")


def _network_interface_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    require(aws, SECURITY_GROUP, *(new.get("securityGroups") or []))
    changes: dict[str, Any] = {
        "Description": {"Value": new.get("description") or ""},
        "Groups": new.get("securityGroups"),
        "SourceDestCheck": {"Value": new.get("sourceDestCheck", True)},
    }
    for parameter, value in changes.items():
        if value is not None:
            aws.call("ec2", "modify_network_interface_attribute", NetworkInterfaceId=ident, **{parameter: value})
    _readdress(aws, ident, new)
    retag(aws, ident, old, new)


def _readdress(aws: Aws, ident: str, new: Props) -> None:
    found = described(aws, EC2_NETWORK_INTERFACE, ident)
    present = {each["PrivateIpAddress"] for each in found["PrivateIpAddresses"]}
    wanted = set(_addresses(new))
    if not wanted or wanted == present:
        return
    _require_room(aws, found["SubnetId"], sorted(wanted - present))
    gone = sorted(present - wanted - {found["PrivateIpAddress"]})
    fresh = sorted(wanted - present)
    for operation, addresses in (("unassign", gone), ("assign", fresh)):
        if addresses:
            call = f"{operation}_private_ip_addresses"
            aws.call("ec2", call, NetworkInterfaceId=ident, PrivateIpAddresses=addresses)


def _network_interface_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, EC2_NETWORK_INTERFACE, ident)
    addresses = [each["PrivateIpAddress"] for each in found["PrivateIpAddresses"]]
    return {
        "arn": aws.arn("ec2", f"network-interface/{ident}"),
        "interfaceType": "interface",
        "macAddress": found["MacAddress"],
        "ownerId": aws.account,
        "privateDnsName": found.get("PrivateDnsName") or "",
        "privateIp": found["PrivateIpAddress"],
        "privateIpLists": addresses,
        "privateIps": addresses,
        "privateIpsCount": len(addresses) - 1,
        "securityGroups": [each["GroupId"] for each in found["Groups"]],
    }


def _network_interface_delete(aws: Aws, ident: str, outputs: Props) -> None:
    if described(aws, EC2_NETWORK_INTERFACE, ident).get("Attachment"):
        raise Refusal("InvalidParameterValue", f"Network interface '{ident}' is currently in use.")
    aws.call("ec2", "delete_network_interface", NetworkInterfaceId=ident)


def _network_interface_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _NETWORK_INTERFACE_LIMITS)
    if inputs.get("privateIps") and inputs.get("privateIpsCount"):
        yield Complaint("privateIpsCount", "conflicts with privateIps")


NETWORK_INTERFACE = Kind(
    token="aws:ec2/networkInterface:NetworkInterface",
    inputs=updates("description", "privateIps", "securityGroups", "sourceDestCheck", "tags")
    | replaces("privateIp", "privateIpsCount", "subnetId"),
    defaults={"sourceDestCheck": True},
    computed=frozenset({"privateIp", "privateIps", "privateIpsCount", "securityGroups"}),
    sets=frozenset({"privateIps", "securityGroups"}),
    moves=frozenset({"privateIpLists"}),
    create=_network_interface_create,
    read=_network_interface_read,
    update=_network_interface_update,
    delete=_network_interface_delete,
    complaints=_network_interface_complaints,
    note="attaching by the interface is not modelled: an instance or a launch template names it",
)
