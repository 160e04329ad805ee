"""Route 53 Resolver: inbound and outbound endpoints, forwarding rules and their associations with VPCs."""

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds import ec2
from bedplate.rehearsal.kinds.calls import aws_names, copied, deletes, renamed
from bedplate.rehearsal.kinds.limits import (
    Choice,
    Number,
    Tagger,
    Text,
    check_nested,
    checks,
    is_ipv4_address,
    tag_pairs,
)
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

# --- Endpoints

SERVICE = "route53resolver"
# Route 53 Resolver API reference, 2026-07.
NAME = Text(1, 64, r"(?!\d+$)[a-zA-Z0-9_ -]+", "letters, digits, spaces and -_, and not only digits")
_LIMITS = {
    "direction": Choice(("INBOUND", "OUTBOUND", "INBOUND_DELEGATION")),
    "name": NAME,
}
_PROTOCOLS = ("DoH", "Do53", "DoH-FIPS")
_MIN_ADDRESSES, _MAX_ADDRESSES = 2, 10
_TAGS = Tagger(service=SERVICE, ident="ResourceArn")


def _check_endpoint(inputs: Props) -> Iterator[InvalidInput]:
    addresses, protocols = inputs.get("ipAddresses"), inputs.get("protocols")
    if isinstance(addresses, list) and not _MIN_ADDRESSES <= len(addresses) <= _MAX_ADDRESSES:
        yield InvalidInput(
            "ipAddresses", f"has {len(addresses)} addresses, {_MIN_ADDRESSES} to {_MAX_ADDRESSES} are allowed"
        )
    if isinstance(protocols, list) and not {protocol for protocol in protocols if isinstance(protocol, str)} <= set(
        _PROTOCOLS
    ):
        yield InvalidInput("protocols", f"must be some of {', '.join(_PROTOCOLS)}, not {protocols}")


def _create_endpoint(aws: Aws, inputs: Props) -> str:
    _require_one_vpc(aws, inputs)
    _require_free_addresses(aws, inputs["ipAddresses"])
    response = aws.call(
        SERVICE,
        "create_resolver_endpoint",
        CreatorRequestId=uuid4().hex,
        IpAddresses=[_address(block) for block in inputs["ipAddresses"]],
        SecurityGroupIds=sorted(inputs["securityGroupIds"]),
        Tags=tag_pairs(inputs.get("tags")),
        **renamed(inputs, aws_names("direction", "name")),
    )
    return str(response["ResolverEndpoint"]["Id"])


def _require_one_vpc(aws: Aws, inputs: Props) -> None:
    """Raise ResourceError for subnets and security groups of more than one VPC."""
    subnets = [ec2.lasting(aws, ec2.SUBNET, block["subnetId"]) for block in inputs["ipAddresses"]]
    groups = [ec2.lasting(aws, ec2.SECURITY_GROUP, ident) for ident in inputs["securityGroupIds"]]
    vpcs = {resource["VpcId"] for resource in (*subnets, *groups)}
    if len(vpcs) > 1:
        message = f"Subnets and security groups of an endpoint must be in one VPC, not in {', '.join(sorted(vpcs))}"
        raise ResourceError("InvalidRequestException", message)


def _require_free_addresses(aws: Aws, blocks: Iterable[Props]) -> None:
    for block in blocks:
        if block.get("ip") and block["ip"] in ec2.used_addresses(aws, block["subnetId"]):
            message = f"The IP address '{block['ip']}' in subnet '{block['subnetId']}' is already in use"
            raise ResourceError("ResourceExistsException", message, key="ipAddresses")


def _address(block: Props) -> dict[str, str]:
    return renamed(block, aws_names("ip", "subnetId"))


def _read_endpoint(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    endpoint = aws.call(SERVICE, "get_resolver_endpoint", ResolverEndpointId=ident)["ResolverEndpoint"]
    addresses = sorted(_addresses(aws, ident), key=lambda address: (address["SubnetId"], address["Ip"]))
    return {
        "arn": endpoint["Arn"],
        "hostVpcId": endpoint["HostVPCId"],
        "ipAddresses": [
            {"ip": address["Ip"], "ipId": address["IpId"], "ipv6": "", "subnetId": address["SubnetId"]}
            for address in addresses
        ],
        "protocols": inputs.get("protocols") or ["Do53"],
        "resolverEndpointType": "IPV4",
    }


def _addresses(aws: Aws, ident: str) -> list[dict[str, Any]]:
    response = aws.call(SERVICE, "list_resolver_endpoint_ip_addresses", ResolverEndpointId=ident)
    addresses: list[dict[str, Any]] = response["IpAddresses"]
    return addresses


def _update_endpoint(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("name") != new.get("name"):
        aws.call(SERVICE, "update_resolver_endpoint", ResolverEndpointId=ident, Name=new.get("name") or "")
    _require_one_vpc(aws, new)
    _update_addresses(aws, ident, new)
    _TAGS.retag(aws, aws.arn(SERVICE, f"resolver-endpoint/{ident}"), old, new)


def _update_addresses(aws: Aws, ident: str, new: Props) -> None:
    """Change the addresses to those of the inputs; add before removing, as an endpoint always needs two."""
    unused, missing = _addresses(aws, ident), []
    # Blocks with an address first: one without matches any address of its subnet.
    for block in sorted(new["ipAddresses"], key=lambda address: not address.get("ip")):
        matching = [address for address in unused if _matches(address, block)]
        if matching:
            unused.remove(matching[0])
        else:
            missing.append(block)
    _require_free_addresses(aws, missing)
    for block in missing:
        call = {"ResolverEndpointId": ident, "IpAddress": _address(block)}
        aws.call(SERVICE, "associate_resolver_endpoint_ip_address", **call)
    for address in unused:
        call = {"ResolverEndpointId": ident, "IpAddress": {key: address[key] for key in ("SubnetId", "Ip")}}
        aws.call(SERVICE, "disassociate_resolver_endpoint_ip_address", **call)


def _matches(address: dict[str, Any], block: Props) -> bool:
    return bool(address["SubnetId"] == block["subnetId"] and block.get("ip") in (None, "", address["Ip"]))


RESOLVER_ENDPOINT = ResourceKind(
    token="aws:route53/resolverEndpoint:ResolverEndpoint",
    inputs=updates("ipAddresses", "name", "protocols", "tags") | replaces("direction", "securityGroupIds"),
    computed=frozenset({"protocols"}),
    sets=frozenset({"ipAddresses", "protocols", "securityGroupIds"}),
    create=_create_endpoint,
    read=_read_endpoint,
    update=_update_endpoint,
    delete=deletes(SERVICE, "delete_resolver_endpoint", "ResolverEndpointId"),
    complaints=checks(_LIMITS, _check_endpoint),
    note="IPv4 only; moto does not store protocols: they are taken from the inputs",
)


# --- Rules

_RESOLVER_RULE_LIMITS = {
    "domainName": Text(1, 256),
    "name": NAME,
    "ruleType": Choice(("FORWARD", "SYSTEM", "RECURSIVE", "DELEGATE")),
}
_TARGET_LIMITS = {"port": Number(1, 65535), "protocol": Choice(_PROTOCOLS)}
_MAX_TARGETS = 6  # Route 53 quotas, 2026-11
_TARGET_DEFAULTS = {"port": 53, "protocol": "Do53"}


def _check_rule(inputs: Props) -> Iterator[InvalidInput]:
    yield from check_nested(inputs, "targetIps", _TARGET_LIMITS)
    targets = inputs.get("targetIps")
    if isinstance(targets, list) and len(targets) > _MAX_TARGETS:
        yield InvalidInput("targetIps", f"has {len(targets)} targets, at most {_MAX_TARGETS} are allowed")
    for number, target in enumerate(targets if isinstance(targets, list) else []):
        if is_known(target) and not is_ipv4_address(str(target.get("ip"))):
            yield InvalidInput(f"targetIps[{number}].ip", f"must be an IPv4 address, not {target.get('ip')!r}")
    for key in ("resolverEndpointId", "targetIps"):
        if inputs.get("ruleType") == "FORWARD" and not inputs.get(key):
            yield InvalidInput(key, "is required when ruleType is FORWARD")


def _create_rule(aws: Aws, inputs: Props) -> str:
    _require_outbound_endpoint(aws, inputs)
    response = aws.call(
        SERVICE,
        "create_resolver_rule",
        CreatorRequestId=uuid4().hex,
        DomainName=_bare_domain(inputs),
        RuleType=inputs["ruleType"],
        Tags=tag_pairs(inputs.get("tags")),
        **_rule_config(inputs),
    )
    return str(response["ResolverRule"]["Id"])


def _require_outbound_endpoint(aws: Aws, inputs: Props) -> None:
    """Raise ResourceError when the endpoint of a rule does not exist, or is not outbound."""
    endpoint_id = inputs.get("resolverEndpointId")
    if not endpoint_id:
        return
    endpoint = aws.call(SERVICE, "get_resolver_endpoint", ResolverEndpointId=endpoint_id)["ResolverEndpoint"]
    if endpoint["Direction"] != "OUTBOUND":
        message = f"Cannot create a rule with {endpoint_id}: its direction is {endpoint['Direction']}, not OUTBOUND"
        raise ResourceError("InvalidRequestException", message, key="resolverEndpointId")


def _bare_domain(inputs: Props) -> str:
    domain = str(inputs["domainName"])
    return domain if domain == "." else domain.removesuffix(".")


def _rule_config(inputs: Props) -> dict[str, Any]:
    """Return the parameters of a rule that can be updated."""
    targets = [
        {"Ip": target["ip"], "Port": target.get("port") or _TARGET_DEFAULTS["port"]}
        for target in inputs.get("targetIps") or []
    ]
    return renamed({**inputs, "targetIps": targets}, aws_names("name", "resolverEndpointId", "targetIps"))


def _read_rule(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    rule = aws.call(SERVICE, "get_resolver_rule", ResolverRuleId=ident)["ResolverRule"]
    return {
        **copied(rule, "arn", "ownerId", "shareStatus"),
        "domainName": _bare_domain(inputs),
        "targetIps": [{**_TARGET_DEFAULTS, "ipv6": "", **target} for target in inputs.get("targetIps") or []],
    }


def _update_rule(aws: Aws, ident: str, old: Props, new: Props) -> None:
    _require_outbound_endpoint(aws, new)
    if _rule_config(old) != _rule_config(new):
        aws.call(SERVICE, "update_resolver_rule", ResolverRuleId=ident, Config=_rule_config(new))
    _TAGS.retag(aws, aws.arn(SERVICE, f"resolver-rule/{ident}"), old, new)


RESOLVER_RULE = ResourceKind(
    token="aws:route53/resolverRule:ResolverRule",
    inputs=updates("name", "resolverEndpointId", "tags", "targetIps") | replaces("domainName", "ruleType"),
    sets=frozenset({"targetIps"}),
    create=_create_rule,
    read=_read_rule,
    update=_update_rule,
    delete=deletes(SERVICE, "delete_resolver_rule", "ResolverRuleId"),
    complaints=checks(_RESOLVER_RULE_LIMITS, _check_rule),
    note="IPv4 targets only; moto does not store the protocol of a target",
)


# --- Rule associations


def _create_association(aws: Aws, inputs: Props) -> str:
    rule, vpc = inputs["resolverRuleId"], inputs["vpcId"]
    ec2.require(aws, ec2.VPC, vpc)
    _require_unused_domain(aws, rule, vpc)
    name = renamed(inputs, aws_names("name"))
    response = aws.call(SERVICE, "associate_resolver_rule", ResolverRuleId=rule, VPCId=vpc, **name)
    return str(response["ResolverRuleAssociation"]["Id"])


def _require_unused_domain(aws: Aws, rule: str, vpc: str) -> None:
    """Raise ResourceError for a second rule with the same domain in a VPC."""
    domain = _domain_of(aws, rule)
    filters = [{"Name": "VPCId", "Values": [vpc]}]
    associations = aws.call(SERVICE, "list_resolver_rule_associations", Filters=filters)["ResolverRuleAssociations"]
    for association in associations:
        if _domain_of(aws, association["ResolverRuleId"]) == domain:
            message = "Cannot associate rules with same domain name with same VPC. Conflict with resolver rule"
            raise ResourceError("InvalidRequestException", f"{message} '{association['ResolverRuleId']}'")


def _domain_of(aws: Aws, rule: str) -> str:
    return str(aws.call(SERVICE, "get_resolver_rule", ResolverRuleId=rule)["ResolverRule"]["DomainName"])


def _read_association(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    aws.call(SERVICE, "get_resolver_rule_association", ResolverRuleAssociationId=ident)
    return {}


RESOLVER_RULE_ASSOCIATION = ResourceKind(
    token="aws:route53/resolverRuleAssociation:ResolverRuleAssociation",
    inputs=replaces("name", "resolverRuleId", "vpcId"),
    create=_create_association,
    read=_read_association,
    delete=deletes(
        SERVICE, "disassociate_resolver_rule", outputs={"resolverRuleId": "ResolverRuleId", "vpcId": "VPCId"}
    ),
    complaints=checks({"name": NAME}),
)
