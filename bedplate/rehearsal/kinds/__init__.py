"""The table of resource kinds: one module a noun, each a row or a few that belong together."""

from collections.abc import Mapping
from types import MappingProxyType

from bedplate.rehearsal.kind import Kind
from bedplate.rehearsal.kinds.address_association import ADDRESS_ASSOCIATION
from bedplate.rehearsal.kinds.budget import BUDGET
from bedplate.rehearsal.kinds.capacity_reservation import CAPACITY_RESERVATION
from bedplate.rehearsal.kinds.customer_gateway import CUSTOMER_GATEWAY
from bedplate.rehearsal.kinds.dhcp_options import DHCP_OPTIONS, DHCP_OPTIONS_ASSOCIATION
from bedplate.rehearsal.kinds.efs_access import ACCESS_POINT, MOUNT_TARGET
from bedplate.rehearsal.kinds.efs_file_system import FILE_SYSTEM
from bedplate.rehearsal.kinds.efs_policies import BACKUP_POLICY, FILE_SYSTEM_POLICY
from bedplate.rehearsal.kinds.efs_replication import FILE_SYSTEM_REPLICATION
from bedplate.rehearsal.kinds.elastic_address import ELASTIC_ADDRESS
from bedplate.rehearsal.kinds.flow_log import FLOW_LOG
from bedplate.rehearsal.kinds.iam_policy import POLICY, ROLE_POLICY, ROLE_POLICY_ATTACHMENT
from bedplate.rehearsal.kinds.iam_profile import INSTANCE_PROFILE
from bedplate.rehearsal.kinds.iam_role import ROLE
from bedplate.rehearsal.kinds.instance import INSTANCE
from bedplate.rehearsal.kinds.internet_gateway import INTERNET_GATEWAY
from bedplate.rehearsal.kinds.key_pair import KEY_PAIR
from bedplate.rehearsal.kinds.kms_alias import ALIAS
from bedplate.rehearsal.kinds.kms_key import KEY
from bedplate.rehearsal.kinds.kms_replica import REPLICA_KEY
from bedplate.rehearsal.kinds.launch_template import LAUNCH_TEMPLATE
from bedplate.rehearsal.kinds.lifecycle_hook import LIFECYCLE_HOOK
from bedplate.rehearsal.kinds.log_group import LOG_GROUP
from bedplate.rehearsal.kinds.managed_prefix_list import MANAGED_PREFIX_LIST
from bedplate.rehearsal.kinds.metric_alarm import METRIC_ALARM
from bedplate.rehearsal.kinds.nat_gateway import NAT_GATEWAY
from bedplate.rehearsal.kinds.network_acl import DEFAULT_NETWORK_ACL, NETWORK_ACL
from bedplate.rehearsal.kinds.network_interface import NETWORK_INTERFACE
from bedplate.rehearsal.kinds.placement_group import PLACEMENT_GROUP
from bedplate.rehearsal.kinds.resolver_endpoint import RESOLVER_ENDPOINT
from bedplate.rehearsal.kinds.resolver_rule import RESOLVER_RULE, RESOLVER_RULE_ASSOCIATION
from bedplate.rehearsal.kinds.route import ROUTE
from bedplate.rehearsal.kinds.route53_association import VPC_ASSOCIATION_AUTHORIZATION, ZONE_ASSOCIATION
from bedplate.rehearsal.kinds.route53_record import RECORD
from bedplate.rehearsal.kinds.route53_zone import ZONE
from bedplate.rehearsal.kinds.route_table import DEFAULT_ROUTE_TABLE, ROUTE_TABLE
from bedplate.rehearsal.kinds.route_table_association import MAIN_ROUTE_TABLE_ASSOCIATION, ROUTE_TABLE_ASSOCIATION
from bedplate.rehearsal.kinds.s3_bucket import BUCKET
from bedplate.rehearsal.kinds.s3_object import BUCKET_OBJECT
from bedplate.rehearsal.kinds.s3_replication import BUCKET_REPLICATION
from bedplate.rehearsal.kinds.s3_settings import (
    BUCKET_ENCRYPTION,
    BUCKET_LIFECYCLE,
    BUCKET_OWNERSHIP_CONTROLS,
    BUCKET_POLICY,
    BUCKET_PUBLIC_ACCESS_BLOCK,
    BUCKET_VERSIONING,
)
from bedplate.rehearsal.kinds.scaling_group import GROUP
from bedplate.rehearsal.kinds.scheduled_action import SCHEDULE
from bedplate.rehearsal.kinds.secret import SECRET, SECRET_VERSION
from bedplate.rehearsal.kinds.security_group import DEFAULT_SECURITY_GROUP, SECURITY_GROUP
from bedplate.rehearsal.kinds.security_group_rule import SECURITY_GROUP_RULE
from bedplate.rehearsal.kinds.ssm_parameter import PARAMETER
from bedplate.rehearsal.kinds.subnet import SUBNET
from bedplate.rehearsal.kinds.subnet_reservation import SUBNET_RESERVATION
from bedplate.rehearsal.kinds.topic import TOPIC
from bedplate.rehearsal.kinds.topic_subscription import TOPIC_SUBSCRIPTION
from bedplate.rehearsal.kinds.transit_attachment import TRANSIT_VPC_ATTACHMENT
from bedplate.rehearsal.kinds.transit_gateway import TRANSIT_GATEWAY
from bedplate.rehearsal.kinds.transit_membership import TRANSIT_ASSOCIATION, TRANSIT_PROPAGATION
from bedplate.rehearsal.kinds.transit_peering import TRANSIT_PEERING, TRANSIT_PEERING_ACCEPTER
from bedplate.rehearsal.kinds.transit_route_table import TRANSIT_ROUTE, TRANSIT_ROUTE_TABLE
from bedplate.rehearsal.kinds.volume import VOLUME
from bedplate.rehearsal.kinds.vpc import VPC
from bedplate.rehearsal.kinds.vpc_endpoint import VPC_ENDPOINT
from bedplate.rehearsal.kinds.vpc_endpoint_association import VPC_ENDPOINT_ASSOCIATION
from bedplate.rehearsal.kinds.vpc_peering import PEERING_OPTIONS, VPC_PEERING, VPC_PEERING_ACCEPTER
from bedplate.rehearsal.kinds.vpc_security_group_rule import VPC_EGRESS_RULE, VPC_INGRESS_RULE
from bedplate.rehearsal.kinds.vpn_connection import VPN_CONNECTION
from bedplate.rehearsal.kinds.vpn_connection_route import VPN_CONNECTION_ROUTE
from bedplate.rehearsal.kinds.vpn_gateway import VPN_GATEWAY, VPN_GATEWAY_ATTACHMENT

_ROWS = (
    ACCESS_POINT,
    ADDRESS_ASSOCIATION,
    ALIAS,
    BACKUP_POLICY,
    BUCKET,
    BUCKET_ENCRYPTION,
    BUCKET_LIFECYCLE,
    BUCKET_OBJECT,
    BUCKET_OWNERSHIP_CONTROLS,
    BUCKET_POLICY,
    BUCKET_PUBLIC_ACCESS_BLOCK,
    BUCKET_REPLICATION,
    BUCKET_VERSIONING,
    BUDGET,
    CAPACITY_RESERVATION,
    CUSTOMER_GATEWAY,
    DEFAULT_NETWORK_ACL,
    DEFAULT_ROUTE_TABLE,
    DEFAULT_SECURITY_GROUP,
    DHCP_OPTIONS,
    DHCP_OPTIONS_ASSOCIATION,
    ELASTIC_ADDRESS,
    FILE_SYSTEM,
    FILE_SYSTEM_POLICY,
    FILE_SYSTEM_REPLICATION,
    FLOW_LOG,
    GROUP,
    INSTANCE,
    INSTANCE_PROFILE,
    INTERNET_GATEWAY,
    KEY,
    KEY_PAIR,
    LAUNCH_TEMPLATE,
    LIFECYCLE_HOOK,
    LOG_GROUP,
    MAIN_ROUTE_TABLE_ASSOCIATION,
    MANAGED_PREFIX_LIST,
    METRIC_ALARM,
    MOUNT_TARGET,
    NAT_GATEWAY,
    NETWORK_ACL,
    NETWORK_INTERFACE,
    PARAMETER,
    PEERING_OPTIONS,
    PLACEMENT_GROUP,
    POLICY,
    RECORD,
    REPLICA_KEY,
    RESOLVER_ENDPOINT,
    RESOLVER_RULE,
    RESOLVER_RULE_ASSOCIATION,
    ROLE,
    ROLE_POLICY,
    ROLE_POLICY_ATTACHMENT,
    ROUTE,
    ROUTE_TABLE,
    ROUTE_TABLE_ASSOCIATION,
    SCHEDULE,
    SECRET,
    SECRET_VERSION,
    SECURITY_GROUP,
    SECURITY_GROUP_RULE,
    SUBNET,
    SUBNET_RESERVATION,
    TOPIC,
    TOPIC_SUBSCRIPTION,
    TRANSIT_ASSOCIATION,
    TRANSIT_GATEWAY,
    TRANSIT_PEERING,
    TRANSIT_PEERING_ACCEPTER,
    TRANSIT_PROPAGATION,
    TRANSIT_ROUTE,
    TRANSIT_ROUTE_TABLE,
    TRANSIT_VPC_ATTACHMENT,
    VOLUME,
    VPC,
    VPC_ASSOCIATION_AUTHORIZATION,
    VPC_EGRESS_RULE,
    VPC_ENDPOINT,
    VPC_ENDPOINT_ASSOCIATION,
    VPC_INGRESS_RULE,
    VPC_PEERING,
    VPC_PEERING_ACCEPTER,
    VPN_CONNECTION,
    VPN_CONNECTION_ROUTE,
    VPN_GATEWAY,
    VPN_GATEWAY_ATTACHMENT,
    ZONE,
    ZONE_ASSOCIATION,
)

KINDS: Mapping[str, Kind] = MappingProxyType({kind.token: kind for kind in _ROWS})
