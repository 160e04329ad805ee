"""Network interfaces that live by themselves."""

from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import NETWORK_INTERFACE as NOUN
from bedplate.rehearsal.kinds.described import SECURITY_GROUP, SUBNET, described, require
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.kinds.interfaces import taken_addresses
from bedplate.rehearsal.kinds.limits import Text, beyond
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_LIMITS = {"description": Text(0, 255)}


def _create(aws: Aws, inputs: Props) -> str:
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


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
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
    found = described(aws, NOUN, ident)
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


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = described(aws, NOUN, ident)
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


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    if described(aws, NOUN, ident).get("Attachment"):
        raise Refusal("InvalidParameterValue", f"Network interface '{ident}' is currently in use.")
    aws.call("ec2", "delete_network_interface", NetworkInterfaceId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
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
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="attaching by the interface is not modelled: an instance or a launch template names it",
)
