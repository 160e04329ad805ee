"""Endpoints of Route 53 Resolver: where names are asked for from outside a VPC, or passed on to servers outside."""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.ec2 import SECURITY_GROUP, SUBNET, VPC, described, require, taken_addresses
from bedplate.rehearsal.kinds.limits import Choice, Number, Tagger, Text, beyond, inside, tag_pairs
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal
from bedplate.rehearsal.wire import is_known

SERVICE = "route53resolver"
# Route 53 Resolver API reference, 2026-07.
NAME = Text(1, 64, r"(?!\d+$)[a-zA-Z0-9_ -]+", "letters, digits, -, _ and blanks, and not digits alone")
_LIMITS = {
    "direction": Choice(("INBOUND", "OUTBOUND", "INBOUND_DELEGATION")),
    "name": NAME,
    "resolverEndpointType": Choice(("IPV4", "IPV6", "DUALSTACK")),
}
_PROTOCOLS = ("DoH", "Do53", "DoH-FIPS")
_LEAST_ADDRESSES, _MOST_ADDRESSES = 2, 10
_TAGS = Tagger(service=SERVICE, ident="ResourceArn")


def _create(aws: Aws, inputs: Props) -> str:
    _require_one_network(aws, inputs)
    _require_free(aws, inputs["ipAddresses"])
    words = {"Name": inputs["name"]} if inputs.get("name") else {}
    made = aws.call(
        SERVICE,
        "create_resolver_endpoint",
        CreatorRequestId=uuid4().hex,
        Direction=inputs["direction"],
        IpAddresses=[_address(each) for each in inputs["ipAddresses"]],
        SecurityGroupIds=sorted(inputs["securityGroupIds"]),
        Tags=tag_pairs(inputs.get("tags")),
        **words,
    )
    return str(made["ResolverEndpoint"]["Id"])


def _require_one_network(aws: Aws, inputs: Props) -> None:
    """Refuse subnets and security groups of more than one VPC."""
    subnets = {each["subnetId"]: described(aws, SUBNET, each["subnetId"]) for each in inputs["ipAddresses"]}
    groups = {ident: described(aws, SECURITY_GROUP, ident) for ident in inputs["securityGroupIds"]}
    networks = {found["VpcId"] for found in (*subnets.values(), *groups.values())}
    if len(networks) > 1:
        told = f"Subnets and security groups of an endpoint belong to one VPC, not to {', '.join(sorted(networks))}"
        raise Refusal("InvalidRequestException", told)


def _require_free(aws: Aws, blocks: Iterable[Props]) -> None:
    for block in blocks:
        if block.get("ip") and block["ip"] in taken_addresses(aws, block["subnetId"]):
            told = f"The IP address '{block['ip']}' in subnet '{block['subnetId']}' is already in use"
            raise Refusal("ResourceExistsException", told, key="ipAddresses")


def _address(block: Props) -> dict[str, str]:
    fixed = {"Ip": block["ip"]} if block.get("ip") else {}
    return {"SubnetId": block["subnetId"], **fixed}


def _addresses(aws: Aws, ident: str) -> list[dict[str, Any]]:
    listed = aws.call(SERVICE, "list_resolver_endpoint_ip_addresses", ResolverEndpointId=ident)
    found: list[dict[str, Any]] = listed["IpAddresses"]
    return found


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("name") != new.get("name"):
        aws.call(SERVICE, "update_resolver_endpoint", ResolverEndpointId=ident, Name=new.get("name") or "")
    _require_one_network(aws, new)
    _readdress(aws, ident, new)
    _TAGS.retag(aws, aws.arn(SERVICE, f"resolver-endpoint/{ident}"), old, new)


def _readdress(aws: Aws, ident: str, new: Props) -> None:
    """Bring the addresses to those wanted; new ones come before old ones go, for there must always be two."""
    unclaimed, missing = _addresses(aws, ident), []
    # Named addresses first: one that is left to AWS may be any of its subnet's.
    for wanted in sorted(new["ipAddresses"], key=lambda each: not each.get("ip")):
        fits = [each for each in unclaimed if _serves(each, wanted)]
        if fits:
            unclaimed.remove(fits[0])
        else:
            missing.append(wanted)
    _require_free(aws, missing)
    for wanted in missing:
        call = {"ResolverEndpointId": ident, "IpAddress": _address(wanted)}
        aws.call(SERVICE, "associate_resolver_endpoint_ip_address", **call)
    for each in unclaimed:
        gone = {"SubnetId": each["SubnetId"], "Ip": each["Ip"]}
        aws.call(SERVICE, "disassociate_resolver_endpoint_ip_address", ResolverEndpointId=ident, IpAddress=gone)


def _serves(found: dict[str, Any], wanted: Props) -> bool:
    return bool(found["SubnetId"] == wanted["subnetId"] and wanted.get("ip") in (None, "", found["Ip"]))


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call(SERVICE, "get_resolver_endpoint", ResolverEndpointId=ident)["ResolverEndpoint"]
    addresses = sorted(_addresses(aws, ident), key=lambda each: (each["SubnetId"], each["Ip"]))
    return {
        "arn": found["Arn"],
        "hostVpcId": found["HostVPCId"],
        "ipAddresses": [
            {"ip": each["Ip"], "ipId": each["IpId"], "ipv6": "", "subnetId": each["SubnetId"]} for each in addresses
        ],
        "protocols": inputs.get("protocols") or ["Do53"],
        "resolverEndpointType": inputs.get("resolverEndpointType") or "IPV4",
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call(SERVICE, "delete_resolver_endpoint", ResolverEndpointId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    addresses, protocols = inputs.get("ipAddresses"), inputs.get("protocols")
    if isinstance(addresses, list) and not _LEAST_ADDRESSES <= len(addresses) <= _MOST_ADDRESSES:
        yield Complaint("ipAddresses", f"an endpoint has {_LEAST_ADDRESSES} to {_MOST_ADDRESSES} addresses")
    if isinstance(protocols, list) and not {each for each in protocols if isinstance(each, str)} <= set(_PROTOCOLS):
        yield Complaint("protocols", f"expected some of {list(_PROTOCOLS)}, got {protocols}")


RESOLVER_ENDPOINT = Kind(
    token="aws:route53/resolverEndpoint:ResolverEndpoint",
    inputs=updates("ipAddresses", "name", "protocols", "resolverEndpointType", "tags")
    | replaces("direction", "securityGroupIds"),
    computed=frozenset({"protocols", "resolverEndpointType"}),
    sets=frozenset({"ipAddresses", "protocols", "securityGroupIds"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="IPv4 only; moto keeps no protocols: they are told back",
)


_RESOLVER_RULE_LIMITS = {
    "domainName": Text(1, 256),
    "name": NAME,
    "ruleType": Choice(("FORWARD", "SYSTEM", "RECURSIVE", "DELEGATE")),
}
_TARGET_LIMITS = {"port": Number(1, 65535), "protocol": Choice(("DoH", "Do53", "DoH-FIPS"))}
_MOST_TARGETS = 6  # Route 53 quotas, 2026-11
_TARGET_DEFAULTS = {"port": 53, "protocol": "Do53"}


def _resolver_rule_create(aws: Aws, inputs: Props) -> str:
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


def _resolver_rule_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _require_endpoint(aws, new)
    if _config(old) != _config(new):
        aws.call(SERVICE, "update_resolver_rule", ResolverRuleId=ident, Config=_config(new))
    _TAGS.retag(aws, aws.arn(SERVICE, f"resolver-rule/{ident}"), old, new)


def _resolver_rule_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call(SERVICE, "get_resolver_rule", ResolverRuleId=ident)["ResolverRule"]
    return {
        "arn": found["Arn"],
        "domainName": _bare_domain(inputs),
        "ownerId": found["OwnerId"],
        "shareStatus": found["ShareStatus"],
        "targetIps": [{**_TARGET_DEFAULTS, "ipv6": "", **each} for each in inputs.get("targetIps") or []],
    }


def _resolver_rule_delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call(SERVICE, "delete_resolver_rule", ResolverRuleId=ident)


def _resolver_rule_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _RESOLVER_RULE_LIMITS)
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
    create=_resolver_rule_create,
    read=_resolver_rule_read,
    update=_resolver_rule_update,
    delete=_resolver_rule_delete,
    complaints=_resolver_rule_complaints,
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
