"""Objects in an AWS account, found by the inputs of the resource that was to create them: one rule for each type.

Ids have the form of the Pulumi AWS provider, whose source is Terraform's: it makes up those of routes and associations.
"""

from collections.abc import Mapping
from types import MappingProxyType

from bedplate.account import ec2_objects as ec2
from bedplate.account import named_objects as named
from bedplate.account.client import AwsClient, NotThere
from bedplate.account.creation import Creation, Finder


def find_ids(client: AwsClient, creation: Creation) -> tuple[str, ...]:
    """Return the ids of the objects that the creation can have made; raises BedplateError."""
    try:
        return tuple(FINDERS[creation.type](client, creation))
    except NotThere:
        return ()


# The form of each id: section "Import" of the type in the documentation of the Pulumi AWS provider, and for routes and
# associations the functions that make it in the source of the Terraform AWS provider.
FINDERS: Mapping[str, Finder] = MappingProxyType(
    {
        "aws:autoscaling/group:Group": named.find_scaling_group,
        "aws:budgets/budget:Budget": named.find_budget,
        "aws:cloudwatch/logGroup:LogGroup": named.find_log_group,
        "aws:ebs/volume:Volume": ec2.tagged("describe_volumes", "VolumeId"),
        "aws:ec2/customerGateway:CustomerGateway": ec2.tagged("describe_customer_gateways", "CustomerGatewayId"),
        "aws:ec2/eip:Eip": ec2.tagged("describe_addresses", "AllocationId"),
        "aws:ec2/flowLog:FlowLog": ec2.tagged("describe_flow_logs", "FlowLogId", "Filter"),
        "aws:ec2/internetGateway:InternetGateway": ec2.tagged("describe_internet_gateways", "InternetGatewayId"),
        "aws:ec2/launchTemplate:LaunchTemplate": ec2.find_launch_template,
        "aws:ec2/natGateway:NatGateway": ec2.tagged("describe_nat_gateways", "NatGatewayId", "Filter"),
        "aws:ec2/networkInterface:NetworkInterface": ec2.tagged("describe_network_interfaces", "NetworkInterfaceId"),
        "aws:ec2/placementGroup:PlacementGroup": ec2.tagged("describe_placement_groups", "GroupName"),
        "aws:ec2/route:Route": ec2.find_route,
        "aws:ec2/routeTable:RouteTable": ec2.tagged("describe_route_tables", "RouteTableId"),
        "aws:ec2/routeTableAssociation:RouteTableAssociation": ec2.find_table_association,
        "aws:ec2/securityGroup:SecurityGroup": ec2.tagged("describe_security_groups", "GroupId"),
        "aws:ec2/subnet:Subnet": ec2.tagged("describe_subnets", "SubnetId"),
        "aws:ec2/subnetCidrReservation:SubnetCidrReservation": ec2.find_cidr_reservation,
        "aws:ec2/vpc:Vpc": ec2.tagged("describe_vpcs", "VpcId"),
        "aws:ec2/vpcEndpoint:VpcEndpoint": ec2.tagged("describe_vpc_endpoints", "VpcEndpointId"),
        "aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation": ec2.find_endpoint_association,
        "aws:ec2/vpcPeeringConnection:VpcPeeringConnection": ec2.tagged(
            "describe_vpc_peering_connections", "VpcPeeringConnectionId"
        ),
        "aws:ec2/vpnConnection:VpnConnection": ec2.tagged("describe_vpn_connections", "VpnConnectionId"),
        "aws:ec2/vpnGateway:VpnGateway": ec2.tagged("describe_vpn_gateways", "VpnGatewayId"),
        "aws:ec2transitgateway/peeringAttachment:PeeringAttachment": ec2.tagged(
            "describe_transit_gateway_peering_attachments", "TransitGatewayAttachmentId"
        ),
        "aws:ec2transitgateway/peeringAttachmentAccepter:PeeringAttachmentAccepter": ec2.find_accepted_attachment,
        "aws:ec2transitgateway/route:Route": ec2.find_transit_route,
        "aws:ec2transitgateway/routeTable:RouteTable": ec2.tagged(
            "describe_transit_gateway_route_tables", "TransitGatewayRouteTableId"
        ),
        "aws:ec2transitgateway/routeTableAssociation:RouteTableAssociation": ec2.find_transit_association,
        "aws:ec2transitgateway/transitGateway:TransitGateway": ec2.tagged(
            "describe_transit_gateways", "TransitGatewayId"
        ),
        "aws:ec2transitgateway/vpcAttachment:VpcAttachment": ec2.tagged(
            "describe_transit_gateway_vpc_attachments", "TransitGatewayAttachmentId"
        ),
        "aws:efs/fileSystem:FileSystem": named.find_file_system,
        "aws:efs/mountTarget:MountTarget": named.find_mount_target,
        "aws:iam/instanceProfile:InstanceProfile": named.find_instance_profile,
        "aws:iam/role:Role": named.find_role,
        "aws:kms/alias:Alias": named.find_alias,
        "aws:kms/key:Key": named.find_key,
        "aws:route53/record:Record": named.find_record,
        "aws:route53/resolverEndpoint:ResolverEndpoint": named.resolver(
            "list_resolver_endpoints", "ResolverEndpoints", Name="name"
        ),
        "aws:route53/resolverRule:ResolverRule": named.resolver("list_resolver_rules", "ResolverRules", Name="name"),
        "aws:route53/resolverRuleAssociation:ResolverRuleAssociation": named.resolver(
            "list_resolver_rule_associations",
            "ResolverRuleAssociations",
            ResolverRuleId="resolverRuleId",
            VPCId="vpcId",
        ),
        "aws:route53/zone:Zone": named.find_zone,
        "aws:route53/zoneAssociation:ZoneAssociation": named.find_zone_association,
        "aws:s3/bucket:Bucket": named.find_bucket,
        "aws:secretsmanager/secret:Secret": named.find_secret,
        "aws:secretsmanager/secretVersion:SecretVersion": named.find_secret_version,
        "aws:sns/topic:Topic": named.find_topic,
        "aws:ssm/parameter:Parameter": named.find_parameter,
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": ec2.tagged(
            "describe_security_group_rules", "SecurityGroupRuleId"
        ),
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": ec2.tagged(
            "describe_security_group_rules", "SecurityGroupRuleId"
        ),
    }
)
# Settings of another object: their creation is one call that sets a value, so that a second one changes nothing.
REPEATABLE = frozenset(
    {
        "aws:autoscaling/lifecycleHook:LifecycleHook",
        "aws:autoscaling/schedule:Schedule",
        "aws:cloudwatch/metricAlarm:MetricAlarm",
        "aws:ec2/defaultRouteTable:DefaultRouteTable",
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        "aws:ec2/peeringConnectionOptions:PeeringConnectionOptions",
        "aws:ec2/vpcPeeringConnectionAccepter:VpcPeeringConnectionAccepter",
        "aws:efs/backupPolicy:BackupPolicy",
        "aws:efs/fileSystemPolicy:FileSystemPolicy",
        "aws:iam/rolePolicy:RolePolicy",
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        "aws:s3/bucketPolicy:BucketPolicy",
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "aws:s3/bucketReplicationConfig:BucketReplicationConfig",
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "aws:s3/bucketVersioning:BucketVersioning",
        "aws:sns/topicSubscription:TopicSubscription",
    }
)
