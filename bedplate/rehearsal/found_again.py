"""How what a call made is found when its reply was lost: by its name, its place, or the tags it was given.

Only calls without a client token need it. A row here is a fact about AWS: which properties tell one from another.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from bedplate.rehearsal.call import Call
from bedplate.rehearsal.look import Ask, Look, Reply, alike
from bedplate.rehearsal.looks_apart import (
    association_found,
    group_found,
    key_found,
    peering_found,
    role_found,
    rules_found,
)

_HUB = "TransitGatewayId"
_ENDS = {_HUB: f"RequesterTgwInfo.{_HUB}", f"Peer{_HUB}": f"AccepterTgwInfo.{_HUB}"}
_PEERS = {"VpcId": "RequesterVpcInfo.VpcId", "PeerVpcId": "AccepterVpcInfo.VpcId"}
_VPN = alike("CustomerGatewayId", "VpnGatewayId", _HUB)


def _ec2(noun: str, same: Mapping[str, str] | None = None, *, tagged: bool = False, bare: bool = False) -> Look:
    """Return the look for a noun such as `vpc` or `transit_gateway_route_table`, listed as EC2 lists all of them."""
    word = noun.title().replace("_", "")
    return Look(f"describe_{noun}s", f"{word}s", "" if bare else word, same or {}, tagged=tagged)


LOOKS: Mapping[str, Callable[[Call, Ask], Reply | None]] = MappingProxyType(
    {
        "autoscaling.create_auto_scaling_group": group_found,
        "ec2.accept_vpc_peering_connection": peering_found,
        "ec2.allocate_address": Look("describe_addresses", "Addresses", tagged=True),
        "ec2.authorize_security_group_egress": rules_found,
        "ec2.authorize_security_group_ingress": rules_found,
        "ec2.create_customer_gateway": _ec2("customer_gateway", alike("BgpAsn", "IpAddress", "Type")),
        "ec2.create_internet_gateway": _ec2("internet_gateway", tagged=True),
        "ec2.create_security_group": _ec2("security_group", alike("GroupName", "VpcId"), bare=True),
        "ec2.create_subnet": _ec2("subnet", alike("CidrBlock", "VpcId")),
        "ec2.create_subnet_cidr_reservation": Look(
            "get_subnet_cidr_reservations",
            "SubnetIpv4CidrReservations",
            "SubnetCidrReservation",
            alike("Cidr"),
            given=("SubnetId",),
        ),
        "ec2.create_transit_gateway": _ec2("transit_gateway", tagged=True),
        "ec2.create_transit_gateway_peering_attachment": _ec2("transit_gateway_peering_attachment", _ENDS),
        "ec2.create_transit_gateway_route_table": _ec2("transit_gateway_route_table", alike(_HUB), tagged=True),
        "ec2.create_transit_gateway_vpc_attachment": _ec2("transit_gateway_vpc_attachment", alike(_HUB, "VpcId")),
        "ec2.create_vpc": _ec2("vpc", alike("CidrBlock"), tagged=True),
        "ec2.create_vpc_peering_connection": _ec2("vpc_peering_connection", _PEERS),
        "ec2.create_vpn_connection": _ec2("vpn_connection", _VPN),
        "ec2.create_vpn_gateway": _ec2("vpn_gateway", tagged=True),
        "ec2.import_key_pair": _ec2("key_pair", alike("KeyName"), bare=True),
        "efs.create_file_system": Look("describe_file_systems", "FileSystems", given=("CreationToken",)),
        "efs.create_mount_target": Look(
            "describe_mount_targets", "MountTargets", same=alike("SubnetId"), given=("FileSystemId",)
        ),
        "iam.add_role_to_instance_profile": role_found,
        "iam.create_instance_profile": Look("get_instance_profile", given=("InstanceProfileName",)),
        "iam.create_policy": Look("list_policies", "Policies", "Policy", alike("PolicyName")),
        "iam.create_role": Look("get_role", given=("RoleName",)),
        "iam.remove_role_from_instance_profile": role_found,
        "kms.create_key": key_found,
        "route53.associate_vpc_with_hosted_zone": association_found,
        "route53.create_hosted_zone": Look("list_hosted_zones", "HostedZones", "HostedZone", alike("CallerReference")),
    }
)
# What goes by a name that the caller chose: sent again, AWS makes no second one.
RESENT = frozenset(
    {
        "autoscaling.create_or_update_tags",
        "budgets.create_budget",
        "ec2.create_route",
        "ec2.create_tags",
        "ec2.create_transit_gateway_route",
        "ec2.create_vpn_connection_route",
        "kms.create_alias",
        "logs.create_log_group",
        "route53.create_vpc_association_authorization",
        "s3.create_bucket",
        "sns.create_topic",
    }
)
