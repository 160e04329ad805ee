"""AWS's default service quotas, which moto does not enforce.

Sources: Service Quotas and the quota page of each service, 2026-07. A real account may have higher quotas.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bedplate.rehearsal.state import ResourceError

_RESOLVER_PAGE = "Amazon Route 53 quotas, Route 53 VPC Resolver"
_VPC_PAGE = "Amazon VPC user guide, Amazon VPC quotas"
_HUB_PAGE = "AWS transit gateways guide, Quotas for your transit gateways"
_VPN_PAGE = "AWS Site-to-Site VPN user guide, Site-to-Site VPN quotas"


@dataclass(frozen=True, slots=True)
class Quota:
    """The quota of one resource type in a region, or in each resource that the input `within` names, such as a VPC.

    `existing` is the number of resources that AWS creates itself, such as the default VPC of a region. A quota of an
    account counts per region here, a quota of a zone per subnet.
    """

    token: str
    limit: int
    code: str
    source: str
    within: str = ""
    existing: int = 0


_TABLE = (
    Quota("aws:autoscaling/group:Group", 500, "LimitExceeded", "Amazon EC2 Auto Scaling quotas"),
    Quota("aws:ec2/customerGateway:CustomerGateway", 50, "CustomerGatewayLimitExceeded", _VPN_PAGE),
    Quota("aws:ec2/eip:Eip", 5, "AddressLimitExceeded", _VPC_PAGE),
    Quota("aws:ec2/internetGateway:InternetGateway", 5, "InternetGatewayLimitExceeded", _VPC_PAGE, existing=1),
    Quota("aws:ec2/launchTemplate:LaunchTemplate", 5000, "LaunchTemplateLimitExceeded", "Amazon EC2 quotas"),
    Quota("aws:ec2/natGateway:NatGateway", 5, "NatGatewayLimitExceeded", _VPC_PAGE, within="subnetId"),
    Quota("aws:ec2/networkInterface:NetworkInterface", 5000, "NetworkInterfaceLimitExceeded", _VPC_PAGE),
    Quota("aws:ec2/routeTable:RouteTable", 200, "RouteTableLimitExceeded", _VPC_PAGE, within="vpcId", existing=1),
    Quota("aws:ec2/securityGroup:SecurityGroup", 2500, "SecurityGroupLimitExceeded", _VPC_PAGE, existing=1),
    Quota("aws:ec2/subnet:Subnet", 200, "SubnetLimitExceeded", _VPC_PAGE, within="vpcId"),
    Quota("aws:ec2/vpc:Vpc", 5, "VpcLimitExceeded", _VPC_PAGE, existing=1),
    Quota("aws:ec2/vpnConnection:VpnConnection", 50, "VpnConnectionLimitExceeded", _VPN_PAGE),
    Quota("aws:ec2/vpnGateway:VpnGateway", 5, "VpnGatewayLimitExceeded", _VPN_PAGE),
    Quota(
        "aws:ec2transitgateway/peeringAttachment:PeeringAttachment",
        50,
        "TransitGatewayPeeringAttachmentLimitExceeded",
        _HUB_PAGE,
        within="transitGatewayId",
    ),
    Quota(
        "aws:ec2transitgateway/routeTable:RouteTable",
        20,
        "TransitGatewayRouteTableLimitExceeded",
        _HUB_PAGE,
        within="transitGatewayId",
    ),
    Quota("aws:ec2transitgateway/transitGateway:TransitGateway", 5, "TransitGatewayLimitExceeded", _HUB_PAGE),
    Quota(
        "aws:ec2transitgateway/vpcAttachment:VpcAttachment",
        5,
        "TransitGatewayAttachmentLimitExceeded",
        _HUB_PAGE,
        within="vpcId",
    ),
    Quota("aws:efs/fileSystem:FileSystem", 1000, "FileSystemLimitExceeded", "Amazon EFS quotas"),
    Quota("aws:iam/openIdConnectProvider:OpenIdConnectProvider", 100, "LimitExceeded", "IAM and AWS STS quotas"),
    Quota("aws:iam/role:Role", 1000, "LimitExceeded", "IAM and AWS STS quotas"),
    Quota("aws:kms/key:Key", 100_000, "LimitExceededException", "AWS KMS resource quotas"),
    Quota("aws:route53/resolverEndpoint:ResolverEndpoint", 4, "LimitExceededException", _RESOLVER_PAGE),
    Quota("aws:route53/resolverRule:ResolverRule", 1000, "LimitExceededException", _RESOLVER_PAGE),
    Quota(
        "aws:route53/resolverRuleAssociation:ResolverRuleAssociation", 2000, "LimitExceededException", _RESOLVER_PAGE
    ),
    Quota("aws:s3/bucket:Bucket", 10_000, "TooManyBuckets", "Amazon S3 quotas"),
    Quota("aws:ssm/parameter:Parameter", 10_000, "ParameterLimitExceeded", "Systems Manager quotas"),
)
QUOTAS: Mapping[str, Quota] = MappingProxyType({quota.token: quota for quota in _TABLE})


def check(token: str, inputs: Mapping[str, Any], live: Iterable[Mapping[str, Any]]) -> None:
    """Raise ResourceError if one more resource of a type, besides the live ones of its region, exceeds a quota."""
    quota = QUOTAS.get(token)
    if quota is None:
        return
    place = inputs.get(quota.within)
    count = quota.existing + sum(not quota.within or outputs.get(quota.within) == place for outputs in live)
    if count >= quota.limit:
        name = quota.token.rpartition(":")[2]
        message = f"the quota of {quota.limit} {name} is reached ({quota.source}); request an increase from AWS"
        raise ResourceError(quota.code, message)
