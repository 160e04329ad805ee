"""DHCP option sets, and which one a VPC hands out."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import DHCP_OPTIONS as NOUN
from bedplate.rehearsal.kinds.described import VPC, described, require
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_OPTIONS = {
    "domainName": "domain-name",
    "domainNameServers": "domain-name-servers",
    "netbiosNameServers": "netbios-name-servers",
    "netbiosNodeType": "netbios-node-type",
    "ntpServers": "ntp-servers",
}
_LISTS = ("domainNameServers", "netbiosNameServers", "ntpServers")
_MOST_SERVERS = 4
_NODE_TYPES = ("1", "2", "4", "8")
# What a VPC has that was never given a set, or no longer has one.
_DEFAULT = "default"


def _create(aws: Aws, inputs: Props) -> str:
    given = {key: inputs[name] for name, key in _OPTIONS.items() if inputs.get(name)}
    rows = [{"Key": key, "Values": [value] if isinstance(value, str) else value} for key, value in given.items()]
    made = aws.call("ec2", "create_dhcp_options", DhcpConfigurations=rows)
    return tag(aws, made["DhcpOptions"]["DhcpOptionsId"], inputs)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    described(aws, NOUN, ident)
    return {"arn": aws.arn("ec2", f"dhcp-options/{ident}"), "ownerId": aws.account}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    users = [vpc for vpc in aws.call("ec2", "describe_vpcs")["Vpcs"] if vpc["DhcpOptionsId"] == ident]
    if users:
        told = f"The dhcpOptions '{ident}' has dependencies and cannot be deleted."
        raise Refusal("DependencyViolation", told)
    aws.call("ec2", "delete_dhcp_options", DhcpOptionsId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    if not any(inputs.get(name) for name in _OPTIONS):
        yield Complaint("domainName", f"give at least one of {', '.join(_OPTIONS)}")
    for name in _LISTS:
        servers = inputs.get(name)
        if is_known(servers) and len(servers) > _MOST_SERVERS:
            yield Complaint(name, f"names {len(servers)} servers, at most {_MOST_SERVERS} are handed out")
    node = inputs.get("netbiosNodeType")
    if is_known(node) and str(node) not in _NODE_TYPES:
        yield Complaint("netbiosNodeType", f"expected one of {list(_NODE_TYPES)}, got {node}")


def _associate(aws: Aws, inputs: Props) -> str:
    options, vpc = inputs["dhcpOptionsId"], inputs["vpcId"]
    if options != _DEFAULT:
        require(aws, NOUN, options)
    require(aws, VPC, vpc)
    aws.call("ec2", "associate_dhcp_options", DhcpOptionsId=options, VpcId=vpc)
    # The provider's own: AWS gives associations no ids.
    return f"{options}-{vpc}"


def _reassociate(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _associate(aws, new)


def _read_association(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    if described(aws, VPC, inputs["vpcId"])["DhcpOptionsId"] != inputs["dhcpOptionsId"]:
        raise Refusal(NOUN.code, f"{inputs['vpcId']} does not hand out {inputs['dhcpOptionsId']}")
    return {}


def _disassociate(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "associate_dhcp_options", DhcpOptionsId=_DEFAULT, VpcId=outputs["vpcId"])


DHCP_OPTIONS = Kind(
    token="aws:ec2/vpcDhcpOptions:VpcDhcpOptions",
    inputs=updates("tags") | replaces(*_OPTIONS),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
DHCP_OPTIONS_ASSOCIATION = Kind(
    token="aws:ec2/vpcDhcpOptionsAssociation:VpcDhcpOptionsAssociation",
    inputs=updates("dhcpOptionsId") | replaces("vpcId"),
    create=_associate,
    read=_read_association,
    update=_reassociate,
    delete=_disassociate,
)
