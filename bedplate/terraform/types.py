"""What Terraform's AWS provider, from which Pulumi's is made, calls types and properties; never what they hold.

Most names follow from Pulumi's: the module, and the words in snake_case. The tables hold those that do not.
"""

import re
from collections.abc import Mapping
from typing import Final

_NEXT_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# Modules that a type's name in Terraform does not begin with, and what it begins with instead.
_PREFIXES: Final[Mapping[str, str]] = {"ec2": "", "ec2transitgateway": "ec2_transit_gateway_"}

# Source of both tables: the resources' pages in the documentation of Terraform's AWS provider 6, seen on 2026-11-21.
_TYPES: Final[Mapping[str, str]] = {
    "aws:ec2/peeringConnectionOptions:PeeringConnectionOptions": "aws_vpc_peering_connection_options",
    "aws:ec2/subnetCidrReservation:SubnetCidrReservation": "aws_ec2_subnet_cidr_reservation",
    "aws:ec2transitgateway/transitGateway:TransitGateway": "aws_ec2_transit_gateway",
    "aws:s3/bucketObjectv2:BucketObjectv2": "aws_s3_object",
    "aws:s3/bucketReplicationConfig:BucketReplicationConfig": "aws_s3_bucket_replication_configuration",
}

# By Terraform's type, and the way to the property in Pulumi's names: what may stand several times has a plural there.
RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "aws_autoscaling_group": {
        "initialLifecycleHooks": "initial_lifecycle_hook",
        "mixedInstancesPolicy.launchTemplate.overrides": "override",
        "tags": "tag",
        "trafficSources": "traffic_source",
        "vpcZoneIdentifiers": "vpc_zone_identifier",
    },
    "aws_budgets_budget": {
        "costFilters": "cost_filter",
        "notifications": "notification",
        "plannedLimits": "planned_limit",
    },
    "aws_cloudwatch_metric_alarm": {"metricQueries": "metric_query", "name": "alarm_name"},
    "aws_default_route_table": {"routes": "route"},
    "aws_efs_file_system": {"lifecyclePolicies": "lifecycle_policy"},
    "aws_iam_role": {"inlinePolicies": "inline_policy"},
    "aws_instance": {
        "ebsBlockDevices": "ebs_block_device",
        "ephemeralBlockDevices": "ephemeral_block_device",
        "networkInterfaces": "network_interface",
        "secondaryNetworkInterfaces": "secondary_network_interface",
    },
    "aws_launch_template": {"licenseSpecifications": "license_specification"},
    "aws_nat_gateway": {"availabilityZoneAddresses": "availability_zone_address"},
    "aws_network_interface": {
        "attachments": "attachment",
        "ipv6AddressLists": "ipv6_address_list",
        "privateIpLists": "private_ip_list",
    },
    "aws_route53_record": {
        "aliases": "alias",
        "failoverRoutingPolicies": "failover_routing_policy",
        "geolocationRoutingPolicies": "geolocation_routing_policy",
        "latencyRoutingPolicies": "latency_routing_policy",
        "weightedRoutingPolicies": "weighted_routing_policy",
    },
    "aws_route53_resolver_endpoint": {"ipAddresses": "ip_address"},
    "aws_route53_resolver_rule": {"targetIps": "target_ip"},
    "aws_route53_zone": {"vpcs": "vpc"},
    "aws_route_table": {"routes": "route"},
    "aws_s3_bucket": {
        "corsRules": "cors_rule",
        "grants": "grant",
        "lifecycleRules": "lifecycle_rule",
        "lifecycleRules.noncurrentVersionTransitions": "noncurrent_version_transition",
        "lifecycleRules.transitions": "transition",
    },
    "aws_s3_bucket_lifecycle_configuration": {
        "rules": "rule",
        "rules.noncurrentVersionTransitions": "noncurrent_version_transition",
        "rules.transitions": "transition",
    },
    "aws_s3_bucket_replication_configuration": {"rules": "rule"},
    "aws_s3_bucket_server_side_encryption_configuration": {"rules": "rule"},
    "aws_secretsmanager_secret": {"replicas": "replica"},
    "aws_sns_topic_subscription": {"topic": "topic_arn"},
    "aws_vpc_endpoint": {"subnetConfigurations": "subnet_configuration"},
}


def terraform_type(token: str) -> str:
    """Return what Terraform calls a type, such as `aws_vpc` for `aws:ec2/vpc:Vpc`."""
    if token in _TYPES:
        return _TYPES[token]
    _, module, name = token.split(":")
    module = module.partition("/")[0]
    return f"aws_{_PREFIXES.get(module, f'{module}_')}{_snake(name)}"


def terraform_property(kind: str, path: str) -> str:
    """Return what Terraform calls the last property of a path, such as `rules.transitions`, in a type of its own."""
    return RENAMED.get(kind, {}).get(path) or _snake(path.rpartition(".")[2])


def _snake(name: str) -> str:
    return _NEXT_WORD.sub("_", name).lower()
