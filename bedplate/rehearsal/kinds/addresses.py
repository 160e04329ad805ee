"""Elastic IP addresses, NAT gateways and network interfaces."""

from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any

from bedplate.rehearsal.kind import Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import call_with, copied
from bedplate.rehearsal.kinds.limits import Choice, Text, check_required, checks, rollback
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError

# --- Elastic IP addresses

_LIMITS = {"domain": Choice(("vpc",))}


def _create_address(aws: Aws, inputs: Props) -> str:
    tags = ec2.tag_specifications("elastic-ip", inputs)
    ident: str = aws.call("ec2", "allocate_address", Domain="vpc", **tags)["AllocationId"]
    with rollback(lambda: aws.call("ec2", "release_address", AllocationId=ident)):
        _associate_address(aws, ident, inputs)
    return ident


def _associate_address(aws: Aws, ident: str, inputs: Props) -> None:
    if interface := inputs.get("networkInterface"):
        call = {"AllocationId": ident, "NetworkInterfaceId": interface}
        aws.call("ec2", "associate_address", AllowReassociation=True, **call)


def _read_address(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    address = ec2.described(aws, ec2.ADDRESS, ident)
    private, public = address.get("PrivateIpAddress") or "", address["PublicIp"]
    return {
        **copied(address, "associationId", "publicIp", instance="InstanceId", networkInterface="NetworkInterfaceId"),
        "allocationId": ident,
        "arn": aws.arn("ec2", f"elastic-ip/{ident}"),
        "domain": "vpc",
        "networkBorderGroup": aws.region,
        "privateDns": _private_name(aws.region, private) if private else "",
        "privateIp": private,
        "publicDns": _public_name(aws.region, public),
        "publicIpv4Pool": "amazon",
    }


def _private_name(region: str, address: str) -> str:
    """Return the DNS name that EC2 gives a private address; us-east-1 uses an older domain."""
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return f"ip-{address.replace('.', '-')}.{domain}"


def _public_name(region: str, address: str) -> str:
    domain = "compute-1" if region == "us-east-1" else f"{region}.compute"
    return f"ec2-{address.replace('.', '-')}.{domain}.amazonaws.com"


def _update_address(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("networkInterface") != new.get("networkInterface"):
        _disassociate_address(aws, ident)
        _associate_address(aws, ident, new)
    ec2.retag(aws, ident, old, new)


def _disassociate_address(aws: Aws, ident: str) -> None:
    if association := ec2.described(aws, ec2.ADDRESS, ident).get("AssociationId"):
        aws.call("ec2", "disassociate_address", AssociationId=association)


def _delete_address(aws: Aws, ident: str, outputs: Props) -> None:
    if outputs.get("networkInterface"):
        _disassociate_address(aws, ident)
    if ec2.described(aws, ec2.ADDRESS, ident).get("AssociationId"):
        raise ResourceError("InvalidIPAddress.InUse", f"Address {outputs.get('publicIp')} is in use.")
    aws.call("ec2", "release_address", AllocationId=ident)


ELASTIC_ADDRESS = ResourceKind(
    token="aws:ec2/eip:Eip",
    inputs=updates("networkInterface", "tags") | replaces("domain"),
    computed=frozenset({"domain", "networkInterface"}),
    changed_by_update=frozenset({"associationId", "privateDns", "privateIp"}),
    create=_create_address,
    read=_read_address,
    update=_update_address,
    delete=_delete_address,
    complaints=checks(_LIMITS),
)


# --- NAT gateways


def _create_nat_gateway(aws: Aws, inputs: Props) -> str:
    subnet = ec2.described(aws, ec2.SUBNET, inputs["subnetId"])
    # AWS creates the gateway, and it then enters the state `failed`.
    ec2.require_internet_gateway(aws, subnet["VpcId"], "subnetId")
    if ec2.described(aws, ec2.ADDRESS, inputs["allocationId"]).get("AssociationId"):
        message = f"Elastic IP address [{inputs['allocationId']}] is already associated"
        raise ResourceError("Resource.AlreadyAssociated", message, key="allocationId")
    response = call_with(aws, ("ec2", "create_nat_gateway"), inputs, apart=("tags",), ConnectivityType="public")
    return ec2.tag(aws, response["NatGateway"]["NatGatewayId"], inputs)


def _read_nat_gateway(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    address = ec2.described(aws, ec2.NAT_GATEWAY, ident)["NatGatewayAddresses"][0]
    outputs = copied(address, "associationId", "networkInterfaceId", "privateIp", "publicIp")
    return {"availabilityMode": "zonal", "connectivityType": "public", **outputs}


def _delete_nat_gateway(aws: Aws, ident: str, outputs: Props) -> None:
    address = ec2.described(aws, ec2.NAT_GATEWAY, ident)["NatGatewayAddresses"][0]
    aws.call("ec2", "delete_nat_gateway", NatGatewayId=ident)
    # AWS releases the address and the interface with the gateway. moto does not.
    aws.call("ec2", "disassociate_address", AssociationId=address["AssociationId"])
    aws.call("ec2", "delete_network_interface", NetworkInterfaceId=address["NetworkInterfaceId"])


NAT_GATEWAY = ResourceKind(
    token="aws:ec2/natGateway:NatGateway",
    inputs=updates("tags") | replaces("allocationId", "subnetId"),
    create=_create_nat_gateway,
    read=_read_nat_gateway,
    update=ec2.retag,
    delete=_delete_nat_gateway,
    complaints=checks({}, partial(check_required, keys=("allocationId", "subnetId"))),
)


# --- Network interfaces


def _create_interface(aws: Aws, inputs: Props) -> str:
    ec2.require(aws, ec2.SECURITY_GROUP, *(inputs.get("securityGroups") or []))
    addresses = _requested_addresses(inputs)
    _require_free_addresses(aws, inputs["subnetId"], addresses)
    address_blocks = [{"PrivateIpAddress": address, "Primary": not number} for number, address in enumerate(addresses)]
    optional = {
        "Description": inputs.get("description"),
        "Groups": inputs.get("securityGroups"),
        "PrivateIpAddresses": address_blocks,
    }
    parameters = {key: value for key, value in optional.items() if value}
    response = aws.call("ec2", "create_network_interface", SubnetId=inputs["subnetId"], **parameters)
    ident: str = response["NetworkInterface"]["NetworkInterfaceId"]
    if inputs.get("sourceDestCheck") is False:
        aws.call(
            "ec2", "modify_network_interface_attribute", NetworkInterfaceId=ident, SourceDestCheck={"Value": False}
        )
    return ec2.tag(aws, ident, inputs)


def _requested_addresses(inputs: Props) -> list[str]:
    """Return the requested addresses, a set; the lowest is the primary one."""
    return sorted(set(inputs.get("privateIps") or []), key=lambda text: int(ip_address(text)))


def _require_free_addresses(aws: Aws, subnet: str, addresses: list[str]) -> None:
    block = ip_network(ec2.described(aws, ec2.SUBNET, subnet)["CidrBlock"])
    used = ec2.used_addresses(aws, subnet)
    for address in addresses:
        if ip_address(address) not in block:
            message = f"Address {address} does not fall within the subnet's address range"
            raise ResourceError("InvalidParameterValue", message, key="privateIps")
        if address in used:
            raise ResourceError("InvalidIPAddress.InUse", f"Address {address} is in use.", key="privateIps")


def _read_interface(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    interface = ec2.described(aws, ec2.NETWORK_INTERFACE, ident)
    addresses = [item["PrivateIpAddress"] for item in interface["PrivateIpAddresses"]]
    return {
        **copied(interface, "interfaceType", "macAddress", "ownerId", "privateDnsName"),
        "arn": aws.arn("ec2", f"network-interface/{ident}"),
        "privateIp": interface["PrivateIpAddress"],
        "privateIpLists": addresses,
        "privateIps": addresses,
        "privateIpsCount": len(addresses) - 1,
        "securityGroups": [item["GroupId"] for item in interface["Groups"]],
    }


def _update_interface(aws: Aws, ident: str, old: Props, new: Props) -> None:
    ec2.require(aws, ec2.SECURITY_GROUP, *(new.get("securityGroups") or []))
    changes: dict[str, Any] = {
        "Description": {"Value": new.get("description") or ""},
        "Groups": new.get("securityGroups"),
        "SourceDestCheck": {"Value": new.get("sourceDestCheck", True)},
    }
    for parameter, value in changes.items():
        if value is not None:
            aws.call("ec2", "modify_network_interface_attribute", NetworkInterfaceId=ident, **{parameter: value})
    _update_addresses(aws, ident, new)
    ec2.retag(aws, ident, old, new)


def _update_addresses(aws: Aws, ident: str, new: Props) -> None:
    interface = ec2.described(aws, ec2.NETWORK_INTERFACE, ident)
    present = {item["PrivateIpAddress"] for item in interface["PrivateIpAddresses"]}
    requested = set(_requested_addresses(new))
    if not requested or requested == present:
        return
    _require_free_addresses(aws, interface["SubnetId"], sorted(requested - present))
    removed = sorted(present - requested - {interface["PrivateIpAddress"]})
    added = sorted(requested - present)
    for operation, addresses in (("unassign", removed), ("assign", added)):
        if addresses:
            call = f"{operation}_private_ip_addresses"
            aws.call("ec2", call, NetworkInterfaceId=ident, PrivateIpAddresses=addresses)


def _delete_interface(aws: Aws, ident: str, outputs: Props) -> None:
    if ec2.described(aws, ec2.NETWORK_INTERFACE, ident).get("Attachment"):
        raise ResourceError("InvalidParameterValue", f"Network interface '{ident}' is currently in use.")
    aws.call("ec2", "delete_network_interface", NetworkInterfaceId=ident)


NETWORK_INTERFACE = ResourceKind(
    token="aws:ec2/networkInterface:NetworkInterface",
    inputs=updates("description", "privateIps", "securityGroups", "sourceDestCheck", "tags") | replaces("subnetId"),
    defaults={"sourceDestCheck": True},
    computed=frozenset({"privateIps", "securityGroups"}),
    sets=frozenset({"privateIps", "securityGroups"}),
    changed_by_update=frozenset({"privateIpLists"}),
    create=_create_interface,
    read=_read_interface,
    update=_update_interface,
    delete=_delete_interface,
    complaints=checks({"description": Text(0, 255)}),
    note="`attachments` is not modelled: name the interface in an instance or a launch template",
)
