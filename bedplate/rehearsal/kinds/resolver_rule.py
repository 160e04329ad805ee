"""Rules of Route 53 Resolver: which servers are asked for the names of a domain, and in which VPCs that holds."""

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.described import VPC, require
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond, inside
from bedplate.rehearsal.kinds.resolver_endpoint import NAME, SERVICE
from bedplate.rehearsal.kinds.tagging import Tagger, tag_pairs
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_LIMITS = {
    "domainName": Text(1, 256),
    "name": NAME,
    "ruleType": Choice(("FORWARD", "SYSTEM", "RECURSIVE", "DELEGATE")),
}
_TARGET_LIMITS = {"port": Number(1, 65535), "protocol": Choice(("DoH", "Do53", "DoH-FIPS"))}
_MOST_TARGETS = 6  # Route 53 quotas, 2026-11
_TARGET_DEFAULTS = {"port": 53, "protocol": "Do53"}
_TAGS = Tagger(service=SERVICE, ident="ResourceArn")


def _create(aws: Aws, inputs: Props) -> str:
    _require_endpoint(aws, inputs)
    made = aws.call(
        SERVICE,
        "create_resolver_rule",
        CreatorRequestId=uuid4().hex,
        DomainName=_bare_domain(inputs),
        RuleType=inputs["ruleType"],
        Tags=tag_pairs(inputs.get("tags")),
        **_config(inputs),
    )
    return str(made["ResolverRule"]["Id"])


def _bare_domain(inputs: Props) -> str:
    domain = str(inputs["domainName"])
    return domain if domain == "." else domain.removesuffix(".")


def _config(inputs: Props) -> dict[str, Any]:
    """Return the parameters that an update may change."""
    targets = [
        {"Ip": each["ip"], "Port": each.get("port") or _TARGET_DEFAULTS["port"]}
        for each in inputs.get("targetIps") or []
    ]
    wanted = {"Name": inputs.get("name"), "ResolverEndpointId": inputs.get("resolverEndpointId"), "TargetIps": targets}
    return {key: value for key, value in wanted.items() if value}


def _require_endpoint(aws: Aws, inputs: Props) -> None:
    """Refuse a rule that names no endpoint which exists and leads out."""
    endpoint = inputs.get("resolverEndpointId")
    if not endpoint:
        return
    found = aws.call(SERVICE, "get_resolver_endpoint", ResolverEndpointId=endpoint)["ResolverEndpoint"]
    if found["Direction"] != "OUTBOUND":
        told = (
            f"Cannot create a rule with {endpoint}: it is {found['Direction']}, and a rule needs an OUTBOUND endpoint"
        )
        raise Refusal("InvalidRequestException", told, key="resolverEndpointId")


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _require_endpoint(aws, new)
    if _config(old) != _config(new):
        aws.call(SERVICE, "update_resolver_rule", ResolverRuleId=ident, Config=_config(new))
    _TAGS.retag(aws, aws.arn(SERVICE, f"resolver-rule/{ident}"), old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call(SERVICE, "get_resolver_rule", ResolverRuleId=ident)["ResolverRule"]
    return {
        "arn": found["Arn"],
        "domainName": _bare_domain(inputs),
        "ownerId": found["OwnerId"],
        "shareStatus": found["ShareStatus"],
        "targetIps": [{**_TARGET_DEFAULTS, "ipv6": "", **each} for each in inputs.get("targetIps") or []],
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call(SERVICE, "delete_resolver_rule", ResolverRuleId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from inside(inputs, "targetIps", _TARGET_LIMITS)
    targets = inputs.get("targetIps")
    if isinstance(targets, list) and len(targets) > _MOST_TARGETS:
        yield Complaint("targetIps", f"a rule has at most {_MOST_TARGETS} targets")
    for number, target in enumerate(targets if isinstance(targets, list) else []):
        if is_known(target) and not _is_address(target.get("ip")):
            yield Complaint(f"targetIps[{number}].ip", f"{target.get('ip')!r} is no IPv4 address")
    for key in ("resolverEndpointId", "targetIps"):
        if inputs.get("ruleType") == "FORWARD" and not inputs.get(key):
            yield Complaint(key, "is needed by a rule that forwards")


def _is_address(text: object) -> bool:
    try:
        IPv4Address(str(text))
    except ValueError:
        return False
    return True


RESOLVER_RULE = Kind(
    token="aws:route53/resolverRule:ResolverRule",
    inputs=updates("name", "resolverEndpointId", "tags", "targetIps") | replaces("domainName", "ruleType"),
    sets=frozenset({"targetIps"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="IPv4 targets only; moto keeps no protocol of a target",
)


def _associate(aws: Aws, inputs: Props) -> str:
    rule, vpc = inputs["resolverRuleId"], inputs["vpcId"]
    require(aws, VPC, vpc)
    _require_other_domains(aws, rule, vpc)
    words = {"Name": inputs["name"]} if inputs.get("name") else {}
    made = aws.call(SERVICE, "associate_resolver_rule", ResolverRuleId=rule, VPCId=vpc, **words)
    return str(made["ResolverRuleAssociation"]["Id"])


def _require_other_domains(aws: Aws, rule: str, vpc: str) -> None:
    """Refuse a second rule for one domain in a VPC."""
    domain = _domain_of(aws, rule)
    ours = [{"Name": "VPCId", "Values": [vpc]}]
    listed = aws.call(SERVICE, "list_resolver_rule_associations", Filters=ours)["ResolverRuleAssociations"]
    for found in listed:
        if _domain_of(aws, found["ResolverRuleId"]) == domain:
            told = "Cannot associate rules with same domain name with same VPC. Conflict with resolver rule"
            raise Refusal("InvalidRequestException", f"{told} '{found['ResolverRuleId']}'")


def _domain_of(aws: Aws, rule: str) -> str:
    return str(aws.call(SERVICE, "get_resolver_rule", ResolverRuleId=rule)["ResolverRule"]["DomainName"])


def _read_association(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aws.call(SERVICE, "get_resolver_rule_association", ResolverRuleAssociationId=ident)
    return {}


def _disassociate(aws: Aws, ident: str, outputs: Props) -> None:
    call = {"ResolverRuleId": outputs["resolverRuleId"], "VPCId": outputs["vpcId"]}
    aws.call(SERVICE, "disassociate_resolver_rule", **call)


def _association_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, {"name": NAME})


RESOLVER_RULE_ASSOCIATION = Kind(
    token="aws:route53/resolverRuleAssociation:ResolverRuleAssociation",
    inputs=replaces("name", "resolverRuleId", "vpcId"),
    create=_associate,
    read=_read_association,
    delete=_disassociate,
    complaints=_association_complaints,
)
