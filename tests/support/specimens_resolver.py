"""Specimens of Route 53 Resolver: endpoints, and rules that pass questions on."""

from collections.abc import Mapping
from typing import Any

from bedplate.rehearsal.kinds import KINDS
from bedplate.rehearsal.kinds.resolver_endpoint import SERVICE
from bedplate.rehearsal.simulation import Aws
from tests.support.specimen import Specimen
from tests.support.told import Told
from tests.support.world import World

ENDPOINT = "aws:route53/resolverEndpoint:ResolverEndpoint"
RULE = "aws:route53/resolverRule:ResolverRule"


def endpoint(world: World) -> dict[str, Any]:
    """Return the inputs of an endpoint in two zones: one address fixed, one left to AWS."""
    return {
        "direction": "OUTBOUND",
        "name": "sites",
        "securityGroupIds": [world.group],
        "ipAddresses": [{"subnetId": world.subnet, "ip": "10.20.0.53"}, {"subnetId": world.other_subnet}],
    }


def made_endpoint(world: World, **given: object) -> str:
    """Make an endpoint with addresses of AWS's choice, which leads out unless it is told otherwise."""
    addresses = [{"subnetId": world.subnet}, {"subnetId": world.other_subnet}]
    return KINDS[ENDPOINT].create(world.aws, {**endpoint(world), "ipAddresses": addresses, **given})


def made_rule(world: World, domain: str) -> str:
    """Make a rule that passes the names of a domain on."""
    return KINDS[RULE].create(world.aws, {**rule(world), "domainName": domain})


def rule(world: World) -> dict[str, Any]:
    """Return the inputs of a rule that forwards a site's names."""
    return {
        "domainName": "basement.lab",
        "name": "basement",
        "ruleType": "FORWARD",
        "resolverEndpointId": made_endpoint(world),
        "targetIps": [{"ip": "192.168.40.2"}, {"ip": "192.168.40.3", "port": 5353}],
    }


def told(operation: str, parameter: str, part: str, noun: str = "") -> Told:
    """Return what tells of a resource by a call of the resolver; `noun` is what its ARN calls it, where it has tags."""

    def tell(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
        found = aws.call(SERVICE, operation, **{parameter: ident})[part]
        arn = aws.arn(SERVICE, f"{noun}/{ident}")
        tags = aws.call(SERVICE, "list_tags_for_resource", ResourceArn=arn)["Tags"] if noun else []
        return [{key: value for key, value in found.items() if not key.endswith("Time")}, tags]

    return tell


def told_endpoint(aws: Aws, ident: str, inputs: Mapping[str, Any]) -> object:
    """Return what is said of an endpoint and of its addresses."""
    listed = aws.call(SERVICE, "list_resolver_endpoint_ip_addresses", ResolverEndpointId=ident)["IpAddresses"]
    own = told("get_resolver_endpoint", "ResolverEndpointId", "ResolverEndpoint", "resolver-endpoint")
    return [own(aws, ident, inputs), [[each["SubnetId"], each["Ip"]] for each in listed]]


RESOLVER = (
    Specimen(
        ENDPOINT,
        inputs=endpoint,
        told=lambda aws, ident, inputs: [told_endpoint(aws, ident, inputs), *inputs["securityGroupIds"]],
        changes=lambda world: {
            "name": "offices",
            "ipAddresses": [{"subnetId": world.subnet, "ip": "10.20.0.55"}, {"subnetId": world.other_subnet}],
        },
        silent=frozenset({"protocols", "resolverEndpointType"}),
    ),
    Specimen(
        RULE,
        inputs=rule,
        told=told("get_resolver_rule", "ResolverRuleId", "ResolverRule", "resolver-rule"),
        changes=lambda world: {
            "name": "office",
            "resolverEndpointId": made_endpoint(world),
            "targetIps": [{"ip": "192.168.44.2"}],
        },
        silent=frozenset({"domainName"}),
    ),
    Specimen(
        "aws:route53/resolverRuleAssociation:ResolverRuleAssociation",
        inputs=lambda world: {
            "name": "here",
            "resolverRuleId": made_rule(world, "basement.lab"),
            "vpcId": world.vpc,
        },
        told=told("get_resolver_rule_association", "ResolverRuleAssociationId", "ResolverRuleAssociation"),
    ),
)
