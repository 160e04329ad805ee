"""Objects in an AWS account, found by the inputs of the resource that was to create them: one rule for each type.

Ids have the form of the Pulumi AWS provider, whose source is Terraform's: the provider invents the ids of routes and
associations. The calls describe objects of EC2 directly: the Resource Groups Tagging API sees new objects later, so a
search by it would miss them, and they would be created twice.
"""

import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from bedplate.account.client import (
    DEAD,
    AwsClient,
    Creation,
    Finder,
    NotThere,
    caller_account,
    filters,
    has_tags,
    is_live,
)
from bedplate.account.machines import describe_groups, zone_records
from bedplate.errors import MachineError


def find_scaling_group(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the group with the name."""
    groups = describe_groups(client, creation.region, [creation.inputs["name"]])
    return (group["AutoScalingGroupName"] for group in groups if is_live(group))


def find_alarm(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the alarm with the name."""
    alarms = client.call("cloudwatch", creation.region, "describe_alarms", AlarmNames=[creation.inputs["name"]])
    return (alarm["AlarmName"] for alarm in alarms["MetricAlarms"])


def find_log_group(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the log group with the name."""
    name = creation.inputs["name"]
    groups = client.items("logs", creation.region, "describe_log_groups", "logGroups", logGroupNamePrefix=name)
    return (name for group in groups if group["logGroupName"] == name)


def find_budget(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the budget with the name."""
    account, name = caller_account(client, creation.region), creation.inputs["name"]
    client.call("budgets", creation.region, "describe_budget", AccountId=account, BudgetName=name)
    yield f"{account}:{name}"


def find_file_system(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the file system with the creation token."""
    query = {"CreationToken": creation.inputs["creationToken"]}
    for system in client.items("efs", creation.region, "describe_file_systems", "FileSystems", **query):
        if system["LifeCycleState"] not in DEAD and has_tags(creation, system["Tags"]):
            yield system["FileSystemId"]


def find_mount_target(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the mount target of the file system in the subnet."""
    query = {"FileSystemId": creation.inputs["fileSystemId"]}
    for target in client.items("efs", creation.region, "describe_mount_targets", "MountTargets", **query):
        if target["SubnetId"] == creation.inputs["subnetId"] and target["LifeCycleState"] not in DEAD:
            yield target["MountTargetId"]


def find_role(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the role with the name."""
    role = client.call("iam", creation.region, "get_role", RoleName=creation.inputs["name"])["Role"]
    if has_tags(creation, role.get("Tags", ())):
        yield role["RoleName"]


def find_identity_provider(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the provider of OpenID Connect with the address."""
    host = creation.inputs["url"].removeprefix("https://")
    for provider in client.call("iam", creation.region, "list_open_id_connect_providers")["OpenIDConnectProviderList"]:
        if provider["Arn"].endswith(f":oidc-provider/{host}"):
            query = {"OpenIDConnectProviderArn": provider["Arn"]}
            reply = client.call("iam", creation.region, "get_open_id_connect_provider", **query)
            if has_tags(creation, reply.get("Tags", ())):
                yield provider["Arn"]


def find_instance_profile(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the instance profile with the name."""
    query = {"InstanceProfileName": creation.inputs["name"]}
    profile = client.call("iam", creation.region, "get_instance_profile", **query)["InstanceProfile"]
    if has_tags(creation, profile.get("Tags", ())):
        yield profile["InstanceProfileName"]


def find_key(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the keys with the tags; keys of others whose policy denies reading are ignored, unless all do."""
    denials: list[MachineError] = []
    is_any_readable = False
    for key in client.items("kms", creation.region, "list_keys", "Keys"):
        try:
            is_own = _is_own_key(client, creation, key["KeyId"])
        except MachineError as error:
            denials.append(error)
            continue
        is_any_readable = True
        if is_own:
            yield key["KeyId"]
    if denials and not is_any_readable:
        raise denials[0]


def _is_own_key(client: AwsClient, creation: Creation, ident: str) -> bool:
    tags = client.call("kms", creation.region, "list_resource_tags", KeyId=ident)["Tags"]
    if not has_tags(creation, [{"Key": tag["TagKey"], "Value": tag["TagValue"]} for tag in tags]):
        return False
    key = client.call("kms", creation.region, "describe_key", KeyId=ident)["KeyMetadata"]
    return bool(key["KeyState"] != "PendingDeletion")


def find_alias(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the alias of a key with the name."""
    aliases = client.items("kms", creation.region, "list_aliases", "Aliases")
    return (alias["AliasName"] for alias in aliases if alias["AliasName"] == creation.inputs["name"])


def find_zone(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the zones with the name and the comment: Route 53 tags a zone in a second call."""
    inputs = creation.inputs
    expected = (inputs["name"].rstrip("."), inputs.get("comment"), bool(inputs.get("vpcs")))
    for zone in client.items("route53", creation.region, "list_hosted_zones", "HostedZones"):
        if (zone["Name"].rstrip("."), zone["Config"].get("Comment"), zone["Config"]["PrivateZone"]) == expected:
            yield zone["Id"].rpartition("/")[2]


def find_zone_association(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the association of the zone with the VPC."""
    zone, vpc = creation.inputs["zoneId"], creation.inputs["vpcId"]
    for network in client.call("route53", creation.region, "get_hosted_zone", Id=zone).get("VPCs", ()):
        if network["VPCId"] == vpc:
            yield f"{zone}:{vpc}:{network['VPCRegion']}"


def find_record(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the record with the name and type."""
    zone, name, kind = creation.inputs["zoneId"], creation.inputs["name"].lower().rstrip("."), creation.inputs["type"]
    domain = client.call("route53", creation.region, "get_hosted_zone", Id=zone)["HostedZone"]["Name"].rstrip(".")
    full_name = name if name == domain or name.endswith(f".{domain}") else f"{name}.{domain}"
    for record in zone_records(client, creation.region, zone):
        if (record["Name"].rstrip(".").replace(r"\052", "*"), record["Type"]) == (full_name, kind):
            yield f"{zone}_{name}_{kind}"


def resolver(operation: str, listing: str, **keys: str) -> Finder:
    """Return the finder of a type of Route 53 Resolver; `keys` are inputs by the name of their filter."""

    def find(client: AwsClient, creation: Creation) -> Iterator[str]:
        conditions = filters({name: creation.inputs[key] for name, key in keys.items()})
        items = client.items("route53resolver", creation.region, operation, listing, Filters=conditions)
        return (item["Id"] for item in items if is_live(item))

    return find


def find_bucket(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the bucket with the name."""
    client.call("s3", creation.region, "head_bucket", Bucket=creation.inputs["bucket"])
    yield creation.inputs["bucket"]


def find_repository(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the repository with the name, which is its id."""
    name = creation.inputs["name"]
    client.call("ecr", creation.region, "describe_repositories", repositoryNames=[name])
    yield name


def find_secret(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the secret with the name."""
    secret = client.call("secretsmanager", creation.region, "describe_secret", SecretId=creation.inputs["name"])
    if not secret.get("DeletedDate") and has_tags(creation, secret.get("Tags", ())):
        yield secret["ARN"]


def find_secret_version(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the current version of the secret."""
    query = {"SecretId": creation.inputs["secretId"]}
    secret = client.call("secretsmanager", creation.region, "describe_secret", **query)
    for version, stages in secret.get("VersionIdsToStages", {}).items():
        if "AWSCURRENT" in stages:
            yield f"{secret['ARN']}|{version}"


def find_topic(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the topic with the name."""
    arns = (topic["TopicArn"] for topic in client.items("sns", creation.region, "list_topics", "Topics"))
    return (arn for arn in arns if arn.rpartition(":")[2] == creation.inputs["name"])


def find_parameter(client: AwsClient, creation: Creation) -> Iterator[str]:
    """Yield the parameter with the name."""
    name = creation.inputs["name"]
    client.call("ssm", creation.region, "get_parameter", Name=name)
    yield name


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
    expected = (inputs.get("subnetId"), inputs.get("gatewayId"))
    for table in _items(client, creation, "describe_route_tables", Filters=filters({"route-table-id": table_id})):
        for association in table["Associations"]:
            if (association.get("SubnetId"), association.get("GatewayId")) == expected:
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
        "aws:autoscaling/group:Group": find_scaling_group,
        "aws:budgets/budget:Budget": find_budget,
        "aws:cloudwatch/logGroup:LogGroup": find_log_group,
        "aws:ebs/volume:Volume": tagged("describe_volumes", "VolumeId"),
        "aws:cloudwatch/metricAlarm:MetricAlarm": find_alarm,
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
        "aws:ecr/repository:Repository": find_repository,
        "aws:efs/fileSystem:FileSystem": find_file_system,
        "aws:efs/mountTarget:MountTarget": find_mount_target,
        "aws:iam/instanceProfile:InstanceProfile": find_instance_profile,
        "aws:iam/openIdConnectProvider:OpenIdConnectProvider": find_identity_provider,
        "aws:iam/role:Role": find_role,
        "aws:kms/alias:Alias": find_alias,
        "aws:kms/key:Key": find_key,
        "aws:route53/record:Record": find_record,
        "aws:route53/resolverEndpoint:ResolverEndpoint": resolver(
            "list_resolver_endpoints", "ResolverEndpoints", Name="name"
        ),
        "aws:route53/resolverRule:ResolverRule": resolver("list_resolver_rules", "ResolverRules", Name="name"),
        "aws:route53/resolverRuleAssociation:ResolverRuleAssociation": resolver(
            "list_resolver_rule_associations",
            "ResolverRuleAssociations",
            ResolverRuleId="resolverRuleId",
            VPCId="vpcId",
        ),
        "aws:route53/zone:Zone": find_zone,
        "aws:route53/zoneAssociation:ZoneAssociation": find_zone_association,
        "aws:s3/bucket:Bucket": find_bucket,
        "aws:secretsmanager/secret:Secret": find_secret,
        "aws:secretsmanager/secretVersion:SecretVersion": find_secret_version,
        "aws:sns/topic:Topic": find_topic,
        "aws:ssm/parameter:Parameter": find_parameter,
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
        "aws:ecr/replicationConfiguration:ReplicationConfiguration",
        "aws:efs/backupPolicy:BackupPolicy",
        "aws:efs/fileSystemPolicy:FileSystemPolicy",
        "aws:iam/rolePolicy:RolePolicy",
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        "aws:s3/bucketObjectv2:BucketObjectv2",
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        "aws:s3/bucketPolicy:BucketPolicy",
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "aws:s3/bucketReplicationConfig:BucketReplicationConfig",
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "aws:s3/bucketVersioning:BucketVersioning",
        "aws:sns/topicSubscription:TopicSubscription",
    }
)
