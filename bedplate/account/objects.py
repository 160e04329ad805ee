"""Objects in an AWS account, found by the inputs of the resource that was to create them: one rule for each type.

Ids have the form of the Pulumi AWS provider, whose source is Terraform's: it makes up those of routes and associations.
The calls describe objects of EC2 directly: the Resource Groups Tagging API sees new objects later, so a search by it
would miss them, and they would be created twice.
"""

import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from bedplate.account import named_objects as named
from bedplate.account.client import AwsClient, NotThere
from bedplate.account.creation import Creation, Finder, filters, has_tags, is_live


def find_ids(client: AwsClient, creation: Creation) -> tuple[str, ...]:
    """Return the ids of the objects that the creation can have made; raises BedplateError."""
    try:
        return tuple(FINDERS[creation.type](client, creation))
    except NotThere:
        return ()


def _items(client: AwsClient, creation: Creation, operation: str, **params: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401
    """Yield what an operation of EC2 lists, on all pages, without deleted objects."""
    token: dict[str, str] = {}
    while True:
        reply = client.call("ec2", creation.region, operation, **params, **token)
        for item in next((value for value in reply.values() if isinstance(value, list)), []):
            if is_live(item):
                yield item
        if not reply.get("NextToken"):
            return
        token = {"NextToken": reply["NextToken"]}


def tagged(operation: str, key: str, parameter: str = "Filters") -> Finder:
    """Return the finder of a type of EC2 with tags; `key` is that of the id in a description."""

    def find(client: AwsClient, creation: Creation) -> Iterator[str]:
        *_, (name, value) = creation.tags.items()
        params = {parameter: filters({f"tag:{name}": value})}
        for item in _items(client, creation, operation, **params):
            if has_tags(creation, item.get("Tags") or item.get("TagSet", ())):
                yield item[key]

    return find


_DESTINATIONS = {
    "destinationCidrBlock": "DestinationCidrBlock",
    "destinationIpv6CidrBlock": "DestinationIpv6CidrBlock",
    "destinationPrefixListId": "DestinationPrefixListId",
}


def find_launch_template(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the template with the name."""
    conditions = filters({"launch-template-name": creation.inputs["name"]})
    for template in _items(client, creation, "describe_launch_templates", Filters=conditions):
        yield template["LaunchTemplateId"]


def find_route(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the route with the table and the destination; AWS gives routes no id."""
    table_id = creation.inputs["routeTableId"]
    key = next(key for key in _DESTINATIONS if creation.inputs.get(key))
    for table in _items(client, creation, "describe_route_tables", Filters=filters({"route-table-id": table_id})):
        if any(route.get(_DESTINATIONS[key]) == creation.inputs[key] for route in table["Routes"]):
            yield f"r-{table_id}{zlib.crc32(creation.inputs[key].encode())}"


def find_table_association(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the association of the table with the subnet or gateway."""
    table_id, inputs = creation.inputs["routeTableId"], creation.inputs
    for table in _items(client, creation, "describe_route_tables", Filters=filters({"route-table-id": table_id})):
        for association in table["Associations"]:
            if (association.get("SubnetId"), association.get("GatewayId")) == (
                inputs.get("subnetId"),
                inputs.get("gatewayId"),
            ):
                yield association["RouteTableAssociationId"]


def find_endpoint_association(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the association of the endpoint with the route table; AWS gives it no id."""
    endpoint_id, table_id = creation.inputs["vpcEndpointId"], creation.inputs["routeTableId"]
    for endpoint in _items(client, creation, "describe_vpc_endpoints", VpcEndpointIds=[endpoint_id]):
        if table_id in endpoint.get("RouteTableIds", ()):
            yield f"a-{endpoint_id}{zlib.crc32(table_id.encode())}"


def find_cidr_reservation(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the reservation of the block in the subnet."""
    subnet_id = creation.inputs["subnetId"]
    for reservation in _items(client, creation, "get_subnet_cidr_reservations", SubnetId=subnet_id):
        if reservation["Cidr"] == creation.inputs["cidrBlock"]:
            yield reservation["SubnetCidrReservationId"]


def find_transit_route(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the static route with the table and the block; AWS gives routes no id."""
    table_id, block = creation.inputs["transitGatewayRouteTableId"], creation.inputs["destinationCidrBlock"]
    conditions = filters({"route-search.exact-match": block, "type": "static"})
    params = {"TransitGatewayRouteTableId": table_id, "Filters": conditions}
    yield from (f"{table_id}_{block}" for _ in _items(client, creation, "search_transit_gateway_routes", **params))


def find_transit_association(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the association of the table with the attachment; AWS gives it no id."""
    table_id, attachment = (creation.inputs[f"transitGateway{name}Id"] for name in ("RouteTable", "Attachment"))
    query = {"TransitGatewayRouteTableId": table_id}
    listed = _items(client, creation, "get_transit_gateway_route_table_associations", **query)
    if any(association["TransitGatewayAttachmentId"] == attachment for association in listed):
        yield f"{table_id}_{attachment}"


def find_accepted_attachment(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the peering attachment if it is accepted: accepting it again is an error."""
    ident = creation.inputs["transitGatewayAttachmentId"]
    conditions = filters({"transit-gateway-attachment-id": ident})
    for attachment in _items(client, creation, "describe_transit_gateway_peering_attachments", Filters=conditions):
        if attachment["State"] in ("available", "pending"):
            yield ident


# The form of each id: section "Import" of the type in the documentation of the Pulumi AWS provider, and for routes and
# associations the functions that make it in the source of the Terraform AWS provider.
FINDERS: Mapping[str, Finder] = MappingProxyType(
    {
        "aws:autoscaling/group:Group": named.find_scaling_group,
        "aws:budgets/budget:Budget": named.find_budget,
        "aws:cloudwatch/logGroup:LogGroup": named.find_log_group,
        "aws:ebs/volume:Volume": tagged("describe_volumes", "VolumeId"),
        "aws:cloudwatch/metricAlarm:MetricAlarm": named.find_alarm,
        "aws:ec2/customerGateway:CustomerGateway": tagged("describe_customer_gateways", "CustomerGatewayId"),
        "aws:ec2/eip:Eip": tagged("describe_addresses", "AllocationId"),
        "aws:ec2/flowLog:FlowLog": tagged("describe_flow_logs", "FlowLogId", "Filter"),
        "aws:ec2/internetGateway:InternetGateway": tagged("describe_internet_gateways", "InternetGatewayId"),
        "aws:ec2/launchTemplate:LaunchTemplate": find_launch_template,
        "aws:ec2/natGateway:NatGateway": tagged("describe_nat_gateways", "NatGatewayId", "Filter"),
        "aws:ec2/networkInterface:NetworkInterface": tagged("describe_network_interfaces", "NetworkInterfaceId"),
        "aws:ec2/placementGroup:PlacementGroup": tagged("describe_placement_groups", "GroupName"),
        "aws:ec2/route:Route": find_route,
        "aws:ec2/routeTable:RouteTable": tagged("describe_route_tables", "RouteTableId"),
        "aws:ec2/routeTableAssociation:RouteTableAssociation": find_table_association,
        "aws:ec2/securityGroup:SecurityGroup": tagged("describe_security_groups", "GroupId"),
        "aws:ec2/subnet:Subnet": tagged("describe_subnets", "SubnetId"),
        "aws:ec2/subnetCidrReservation:SubnetCidrReservation": find_cidr_reservation,
        "aws:ec2/vpc:Vpc": tagged("describe_vpcs", "VpcId"),
        "aws:ec2/vpcEndpoint:VpcEndpoint": tagged("describe_vpc_endpoints", "VpcEndpointId"),
        "aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation": find_endpoint_association,
        "aws:ec2/vpcPeeringConnection:VpcPeeringConnection": tagged(
            "describe_vpc_peering_connections", "VpcPeeringConnectionId"
        ),
        "aws:ec2/vpnConnection:VpnConnection": tagged("describe_vpn_connections", "VpnConnectionId"),
        "aws:ec2/vpnGateway:VpnGateway": tagged("describe_vpn_gateways", "VpnGatewayId"),
        "aws:ec2transitgateway/peeringAttachment:PeeringAttachment": tagged(
            "describe_transit_gateway_peering_attachments", "TransitGatewayAttachmentId"
        ),
        "aws:ec2transitgateway/peeringAttachmentAccepter:PeeringAttachmentAccepter": find_accepted_attachment,
        "aws:ec2transitgateway/route:Route": find_transit_route,
        "aws:ec2transitgateway/routeTable:RouteTable": tagged(
            "describe_transit_gateway_route_tables", "TransitGatewayRouteTableId"
        ),
        "aws:ec2transitgateway/routeTableAssociation:RouteTableAssociation": find_transit_association,
        "aws:ec2transitgateway/transitGateway:TransitGateway": tagged("describe_transit_gateways", "TransitGatewayId"),
        "aws:ec2transitgateway/vpcAttachment:VpcAttachment": tagged(
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
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": tagged(
            "describe_security_group_rules", "SecurityGroupRuleId"
        ),
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": tagged(
            "describe_security_group_rules", "SecurityGroupRuleId"
        ),
    }
)
# Settings of another object: their creation is one call that sets a value, so that a second one changes nothing.
REPEATABLE = frozenset(
    {
        "aws:autoscaling/lifecycleHook:LifecycleHook",
        "aws:autoscaling/schedule:Schedule",
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
