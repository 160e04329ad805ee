"""Fixtures of Route 53, its resolver, CloudWatch, SNS and budgets."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.resolver import SERVICE
from bedplate.rehearsal.simulation import Aws
from tests.testlab.kinds import world as services
from tests.testlab.kinds.world import KindFixture, World, fresh
from tests.testlab.rehearsal.live import Describe, describe_all, describe_by_call, id_list, own_id, stable_reply


def _record(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    call = {"HostedZoneId": inputs["zoneId"]}
    records = aws.call("route53", "list_resource_record_sets", **call)["ResourceRecordSets"]
    return stable_reply([record for record in records if record["Name"].startswith(inputs["name"])])


def _home(ident: str, inputs: Mapping[str, Any]) -> object:
    return inputs["zoneId"]


def _arn(service: str, resource: str) -> Describe:
    """Return a function that reads the tags of a resource by ARN."""

    def read(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        arn = aws.arn(service, f"{resource}:{ident}")
        name = "ResourceARN" if service == "cloudwatch" else "resourceArn"
        return stable_reply(aws.call(service, "list_tags_for_resource", **{name: arn}))

    return read


def _budget(operation: str) -> Describe:
    return describe_by_call(
        "budgets",
        operation,
        AccountId=lambda ident, _inputs: ident.partition(":")[0],
        BudgetName=lambda ident, _inputs: ident.partition(":")[2],
    )


_ALARM = {
    "comparisonOperator": "GreaterThanThreshold",
    "evaluationPeriods": 2,
    "metricName": "GPUUtilization",
    "namespace": "Lab",
    "period": 60,
    "statistic": "Average",
    "threshold": 80.0,
    "dimensions": {"Pool": "train"},
}
_NOTICE = {
    "comparisonOperator": "GREATER_THAN",
    "notificationType": "ACTUAL",
    "threshold": 80.0,
    "thresholdType": "PERCENTAGE",
    "subscriberEmailAddresses": ["owner@lab.example"],
}

NAMES = (
    KindFixture(
        "aws:route53/zone:Zone",
        inputs=lambda world: {"name": f"{fresh('lab')}.internal", "vpcs": [{"vpcId": world.vpc}]},
        changes=lambda world: {
            "comment": "names of the lab",
            "vpcs": [{"vpcId": world.vpc}, {"vpcId": world.far_vpc}],
        },
        read_back=describe_all(
            describe_by_call("route53", "get_hosted_zone", Id=own_id),
            describe_by_call(
                "route53",
                "list_tags_for_resource",
                ResourceId=own_id,
                ResourceType=lambda _ident, _inputs: "hostedzone",
            ),
            lambda aws, ident, _inputs: str(aws.call("route53", "get_hosted_zone", Id=ident)["HostedZone"]["Name"])[
                :-1
            ],
        ),
        not_returned=frozenset({"forceDestroy"}),
    ),
    KindFixture(
        "aws:route53/zoneAssociation:ZoneAssociation",
        inputs=lambda world: {"zoneId": services.zone(world), "vpcId": world.far_vpc},
        read_back=describe_by_call("route53", "get_hosted_zone", Id=_home),
        not_returned=frozenset({"zoneId"}),
    ),
    KindFixture(
        "aws:route53/record:Record",
        inputs=lambda world: {
            "zoneId": services.zone(world),
            "name": "gate",
            "type": "A",
            "ttl": 60,
            "records": ["10.20.0.5"],
        },
        changes={"records": ["10.20.0.6", "10.20.0.7"], "ttl": 300, "type": "TXT"},
        read_back=lambda aws, ident, inputs: [_record(aws, ident, inputs), "gate"],
        not_returned=frozenset({"zoneId"}),
    ),
    KindFixture(
        "aws:cloudwatch/logGroup:LogGroup",
        inputs=lambda _world: {"name": fresh("/lab/nodes")},
        changes={"retentionInDays": 30},
        read_back=describe_all(
            describe_by_call("logs", "describe_log_groups", logGroupNamePrefix=own_id),
            _arn("logs", "log-group"),
        ),
    ),
    KindFixture(
        "aws:sns/topic:Topic",
        inputs=lambda _world: {"name": fresh("alerts")},
        changes=lambda world: {
            "kmsMasterKeyId": services.key(world),
            "policy": services.open_policy("sns:Publish"),
        },
        read_back=describe_all(
            describe_by_call("sns", "get_topic_attributes", TopicArn=own_id),
            describe_by_call("sns", "list_tags_for_resource", ResourceArn=own_id),
            lambda _aws, ident, _inputs: ident.rpartition(":")[2],
        ),
    ),
    KindFixture(
        "aws:sns/topicSubscription:TopicSubscription",
        inputs=lambda world: {
            "topic": world.create("create_topic", "TopicArn", "sns", Name=fresh("news")),
            "protocol": "email",
            "endpoint": "lab@example.org",
        },
        read_back=describe_by_call("sns", "get_subscription_attributes", SubscriptionArn=own_id),
    ),
    KindFixture(
        "aws:cloudwatch/metricAlarm:MetricAlarm",
        inputs=lambda _world: {"name": fresh("busy"), **_ALARM},
        changes={
            "alarmActions": ["arn:aws:sns:us-west-2:111122223333:a"],
            "alarmDescription": "busy machines",
            "comparisonOperator": "LessThanThreshold",
            "datapointsToAlarm": 1,
            "dimensions": {"Pool": "burst"},
            "evaluationPeriods": 3,
            "metricName": "GPUMemory",
            "namespace": "Fleet",
            "okActions": ["arn:aws:sns:us-west-2:111122223333:c"],
            "period": 120,
            "statistic": "Maximum",
            "threshold": 90.0,
            "treatMissingData": "breaching",
        },
        read_back=describe_all(
            describe_by_call("cloudwatch", "describe_alarms", AlarmNames=id_list),
            _arn("cloudwatch", "alarm"),
        ),
        not_returned=frozenset({"metricQueries"}),
    ),
    KindFixture(
        "aws:budgets/budget:Budget",
        inputs=lambda _world: {
            "name": fresh("month"),
            "budgetType": "COST",
            "timeUnit": "MONTHLY",
            "limitAmount": "100",
            "limitUnit": "USD",
        },
        changes={
            "limitAmount": "200",
            "limitUnit": "EUR",
            "timeUnit": "DAILY",
            "notifications": [_NOTICE],
            "budgetType": "USAGE",
        },
        read_back=describe_all(_budget("describe_budget"), _budget("describe_notifications_for_budget")),
        not_returned=frozenset({"tags"}),
    ),
)


ENDPOINT = "aws:route53/resolverEndpoint:ResolverEndpoint"
RULE = "aws:route53/resolverRule:ResolverRule"


def endpoint(world: World) -> dict[str, Any]:
    """Return the inputs of an endpoint in two zones, with one fixed address."""
    return {
        "direction": "OUTBOUND",
        "name": "sites",
        "securityGroupIds": [world.group],
        "ipAddresses": [{"subnetId": world.subnet, "ip": "10.20.0.53"}, {"subnetId": world.other_subnet}],
    }


def made_endpoint(world: World, **changes: object) -> str:
    """Make an endpoint without fixed addresses, outbound by default; return its id."""
    addresses = [{"subnetId": world.subnet}, {"subnetId": world.other_subnet}]
    return KINDS[ENDPOINT].create(world.aws, {**endpoint(world), "ipAddresses": addresses, **changes})


def made_rule(world: World, domain: str) -> str:
    """Make a rule that forwards a domain; return its id."""
    return KINDS[RULE].create(world.aws, {**rule(world), "domainName": domain})


def rule(world: World) -> dict[str, Any]:
    """Return the inputs of a rule that forwards the domain of a site."""
    return {
        "domainName": "basement.lab",
        "name": "basement",
        "ruleType": "FORWARD",
        "resolverEndpointId": made_endpoint(world),
        "targetIps": [{"ip": "192.168.40.2"}, {"ip": "192.168.40.3", "port": 5353}],
    }


def read_by_call(operation: str, parameter: str, key: str, resource_type: str = "") -> Describe:
    """Return a function that reads a resolver resource and, with `resource_type` for its ARN, its tags."""

    def read(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        response = aws.call(SERVICE, operation, **{parameter: ident})[key]
        arn = aws.arn(SERVICE, f"{resource_type}/{ident}")
        tags = aws.call(SERVICE, "list_tags_for_resource", ResourceArn=arn)["Tags"] if resource_type else []
        return [{key: value for key, value in response.items() if not key.endswith("Time")}, tags]

    return read


def read_endpoint(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return the description of an endpoint and its addresses."""
    addresses = aws.call(SERVICE, "list_resolver_endpoint_ip_addresses", ResolverEndpointId=ident)["IpAddresses"]
    read = read_by_call("get_resolver_endpoint", "ResolverEndpointId", "ResolverEndpoint", "resolver-endpoint")
    return [read(aws, ident, inputs), [[address["SubnetId"], address["Ip"]] for address in addresses]]


RESOLVER = (
    KindFixture(
        ENDPOINT,
        inputs=endpoint,
        read_back=lambda aws, ident, inputs: [read_endpoint(aws, ident, inputs), *inputs["securityGroupIds"]],
        changes=lambda world: {
            "name": "offices",
            "ipAddresses": [{"subnetId": world.subnet, "ip": "10.20.0.55"}, {"subnetId": world.other_subnet}],
        },
        not_returned=frozenset({"protocols", "resolverEndpointType"}),
    ),
    KindFixture(
        RULE,
        inputs=rule,
        read_back=read_by_call("get_resolver_rule", "ResolverRuleId", "ResolverRule", "resolver-rule"),
        changes=lambda world: {
            "name": "office",
            "resolverEndpointId": made_endpoint(world),
            "targetIps": [{"ip": "192.168.44.2"}],
        },
        not_returned=frozenset({"domainName"}),
    ),
    KindFixture(
        "aws:route53/resolverRuleAssociation:ResolverRuleAssociation",
        inputs=lambda world: {
            "name": "here",
            "resolverRuleId": made_rule(world, "basement.lab"),
            "vpcId": world.vpc,
        },
        read_back=read_by_call("get_resolver_rule_association", "ResolverRuleAssociationId", "ResolverRuleAssociation"),
    ),
)
