"""Hosted zones of Route 53, public and private."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond, tag_pairs, together, undoing
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import Refusal

_LABEL = r"[!-\-/-~]{1,63}"
_LIMITS = {
    "name": Text(1, 255, rf"{_LABEL}(\.{_LABEL})*\.?", "labels of 1 to 63 printable characters, parted by dots"),
    "comment": Text(0, 256),
}


def _vpc(aws: Aws, given: Props) -> dict[str, str]:
    """Return a VPC as Route 53 names it; refuse one that does not exist."""
    region = given.get("vpcRegion") or aws.region
    try:
        aws.elsewhere(region).call("ec2", "describe_vpcs", VpcIds=[given["vpcId"]])
    except Refusal:
        raise Refusal("InvalidVPCId", f"The VPC: {given['vpcId']} in region {region} is not found") from None
    return {"VPCRegion": region, "VPCId": given["vpcId"]}


def associate(aws: Aws, ident: str, given: Props) -> None:
    """Let a VPC resolve a private zone, unless it resolves one of the same name already."""
    vpc = _vpc(aws, given)
    name = aws.call("route53", "get_hosted_zone", Id=ident)["HostedZone"]["Name"]
    _refuse_clash(aws, name, vpc)
    aws.call("route53", "associate_vpc_with_hosted_zone", HostedZoneId=ident, VPC=vpc)


def _refuse_clash(aws: Aws, name: str, vpc: dict[str, str]) -> None:
    found = aws.call("route53", "list_hosted_zones_by_vpc", **vpc)["HostedZoneSummaries"]
    if name.rstrip(".") in [zone["Name"].rstrip(".") for zone in found]:
        said = f"The VPC {vpc['VPCId']} in region {vpc['VPCRegion']} has already been associated with a zone {name}"
        raise Refusal("ConflictingDomainExists", said)


def _create(aws: Aws, inputs: Props) -> str:
    name, vpcs = inputs["name"], [_vpc(aws, vpc) for vpc in inputs.get("vpcs") or []]
    for vpc in vpcs:
        _refuse_clash(aws, name, vpc)
    config = {"Comment": inputs.get("comment") or "", "PrivateZone": bool(vpcs)}
    more = {"DelegationSetId": inputs["delegationSetId"]} if inputs.get("delegationSetId") else {}
    # moto, unlike Route 53, does not take a zone for private because it is born with a VPC: the flag says it.
    first = {"VPC": vpcs[0]} if vpcs else {}
    token = str(uuid4())
    call = {"Name": name, "CallerReference": token, "HostedZoneConfig": config, **more, **first}
    made = aws.call("route53", "create_hosted_zone", **call)
    ident: str = made["HostedZone"]["Id"].rpartition("/")[2]
    with undoing(lambda: _delete(aws, ident, inputs)):
        for vpc in vpcs[1:]:
            aws.call("route53", "associate_vpc_with_hosted_zone", HostedZoneId=ident, VPC=vpc)
        _retag(aws, ident, {}, inputs)
    return ident


def _retag(aws: Aws, ident: str, old: Props, new: Props) -> None:
    before, after = old.get("tags") or {}, new.get("tags") or {}
    fresh, gone = dict(after.items() - before.items()), sorted(before.keys() - after.keys())
    changes = {key: value for key, value in (("AddTags", tag_pairs(fresh)), ("RemoveTagKeys", gone)) if value}
    if changes:
        target = {"ResourceType": "hostedzone", "ResourceId": ident}
        aws.call("route53", "change_tags_for_resource", **target, **changes)


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("comment") != new.get("comment"):
        comment = new.get("comment") or ""
        aws.call("route53", "update_hosted_zone_comment", Id=ident, Comment=comment)
    held, wanted = (
        {(vpc["vpcId"], vpc.get("vpcRegion") or aws.region): vpc for vpc in props.get("vpcs") or []}
        for props in (old, new)
    )
    # First those that come: a private zone is never without a VPC.
    for key in sorted(wanted.keys() - held.keys()):
        associate(aws, ident, wanted[key])
    for ref, region in sorted(held.keys() - wanted.keys()):
        vpc = {"VPCRegion": region, "VPCId": ref}
        aws.call("route53", "disassociate_vpc_from_hosted_zone", HostedZoneId=ident, VPC=vpc)
    _retag(aws, ident, old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = aws.call("route53", "get_hosted_zone", Id=ident)
    servers = sorted(found.get("DelegationSet", {}).get("NameServers", []))
    return {
        "arn": f"arn:aws:route53:::hostedzone/{ident}",
        "comment": found["HostedZone"]["Config"].get("Comment") or "",
        "name": found["HostedZone"]["Name"].rstrip("."),
        "nameServers": servers,
        "primaryNameServer": servers[0] if servers else "",
        "vpcs": [{"vpcId": v["VPCId"], "vpcRegion": v["VPCRegion"]} for v in found.get("VPCs", [])],
        "zoneId": ident,
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    if outputs.get("forceDestroy"):
        found = aws.call("route53", "list_resource_record_sets", HostedZoneId=ident)["ResourceRecordSets"]
        for record in found:
            if record["Type"] not in ("NS", "SOA"):
                batch = {"Changes": [{"Action": "DELETE", "ResourceRecordSet": record}]}
                aws.call("route53", "change_resource_record_sets", HostedZoneId=ident, ChangeBatch=batch)
    aws.call("route53", "delete_hosted_zone", Id=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    yield from together(inputs, "vpcs", "delegationSetId")


ZONE = Kind(
    token="aws:route53/zone:Zone",
    inputs=updates("comment", "forceDestroy", "tags", "vpcs") | replaces("delegationSetId", "name"),
    defaults={"comment": "Managed by Pulumi", "forceDestroy": False},
    sets=frozenset({"vpcs"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)


_TYPES = ("A", "AAAA", "CAA", "CNAME", "DS", "HTTPS", "MX", "NAPTR", "NS", "PTR", "SOA", "SPF", "SRV", "SSHFP")
_ROUTE53_RECORD_LIMITS = {
    "type": Choice((*_TYPES, "SVCB", "TLSA", "TXT")),
    "ttl": Number(0, 2147483647),
    "setIdentifier": Text(1, 128),
}
# Routing policies, by what Route 53 makes of the one block of each.
_ROUTINGS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "failoverRoutingPolicies": lambda block: {"Failover": block["type"]},
    "latencyRoutingPolicies": lambda block: {"Region": block["region"]},
    "weightedRoutingPolicies": lambda block: {"Weight": int(block["weight"])},
    "geolocationRoutingPolicies": lambda block: {
        "GeoLocation": {
            name: block[key]
            for key, name in (
                ("continent", "ContinentCode"),
                ("country", "CountryCode"),
                ("subdivision", "SubdivisionCode"),
            )
            if block.get(key)
        }
    },
}
_PLAIN = {
    "healthCheckId": "HealthCheckId",
    "multivalueAnswerRoutingPolicy": "MultiValueAnswer",
    "setIdentifier": "SetIdentifier",
}


def _fqdn(aws: Aws, inputs: Props) -> str:
    """Return the whole name of a record; the program may leave the zone's name out."""
    zone = aws.call("route53", "get_hosted_zone", Id=inputs["zoneId"])["HostedZone"]["Name"].rstrip(".")
    name = str(inputs["name"]).rstrip(".").lower()
    return name if name == zone or name.endswith(f".{zone}") else ".".join(filter(None, (name, zone)))


def _quoted(kind: str, value: str) -> str:
    """Return a value as Route 53 keeps it: texts stand in quotes."""
    return f'"{value}"' if kind in ("SPF", "TXT") and not value.startswith('"') else value


def _record(aws: Aws, inputs: Props) -> dict[str, Any]:
    found: dict[str, Any] = {"Name": _fqdn(aws, inputs), "Type": inputs["type"]}
    for alias in inputs.get("aliases") or []:
        found["AliasTarget"] = {
            "HostedZoneId": alias["zoneId"],
            "DNSName": alias["name"],
            "EvaluateTargetHealth": bool(alias["evaluateTargetHealth"]),
        }
    if inputs.get("records"):
        values = [{"Value": _quoted(inputs["type"], value)} for value in inputs["records"]]
        found |= {"TTL": inputs["ttl"], "ResourceRecords": values}
    for key, build in _ROUTINGS.items():
        for block in inputs.get(key) or []:
            found |= build(block)
    return found | {name: inputs[key] for key, name in _PLAIN.items() if inputs.get(key)}


def _change(aws: Aws, zone: str, *steps: tuple[str, dict[str, Any]]) -> None:
    changes = [{"Action": action, "ResourceRecordSet": record} for action, record in steps]
    aws.call("route53", "change_resource_record_sets", HostedZoneId=zone, ChangeBatch={"Changes": changes})


def _find(aws: Aws, zone: str, record: Mapping[str, Any]) -> dict[str, Any] | None:
    found = aws.call("route53", "list_resource_record_sets", HostedZoneId=zone)["ResourceRecordSets"]
    wanted = (record["Name"].rstrip("."), record["Type"], record.get("SetIdentifier"))
    same = [one for one in found if (one["Name"].rstrip("."), one["Type"], one.get("SetIdentifier")) == wanted]
    return same[0] if same else None


def _route53_record_create(aws: Aws, inputs: Props) -> str:
    zone, record = inputs["zoneId"], _record(aws, inputs)
    if _find(aws, zone, record) and not inputs.get("allowOverwrite"):
        said = f"Tried to create resource record set {record['Name']} {record['Type']} but it already exists"
        raise Refusal("InvalidChangeBatch", said, key="name")
    _change(aws, zone, ("UPSERT", record))
    parts = (zone, str(inputs["name"]).lower().rstrip("."), inputs["type"], inputs.get("setIdentifier"))
    return "_".join(filter(None, parts))


def _route53_record_update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    before, after = _record(aws, old), _record(aws, new)
    keys = ("Type", "SetIdentifier")
    # Route 53 knows a record by its name, type and set: under another type it is another record.
    moved = [before.get(key) for key in keys] != [after.get(key) for key in keys]
    gone = _find(aws, new["zoneId"], before) if moved else None
    _change(aws, new["zoneId"], *([("DELETE", gone)] if gone else []), ("UPSERT", after))


def _route53_record_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    record = {"Name": _fqdn(aws, inputs), "Type": inputs["type"], "SetIdentifier": inputs.get("setIdentifier")}
    if not _find(aws, inputs["zoneId"], record):
        raise Refusal("InvalidChangeBatch", f"{record['Name']} {record['Type']} was not found")
    return {"fqdn": record["Name"]}


def _route53_record_delete(aws: Aws, ident: str, outputs: Props) -> None:
    found = _find(aws, outputs["zoneId"], _record(aws, outputs))
    if found:
        _change(aws, outputs["zoneId"], ("DELETE", found))


def _route53_record_complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _ROUTE53_RECORD_LIMITS)
    yield from together(inputs, "aliases", "records")
    if inputs.get("aliases") is None and inputs.get("records") is None:
        yield Complaint("records", "one of aliases and records must be given")
    if (inputs.get("records") is None) != (inputs.get("ttl") is None):
        yield Complaint("ttl", "goes with records, and they with it")
    routed = [key for key in _ROUTINGS if inputs.get(key)]
    if routed and inputs.get("setIdentifier") is None:
        yield Complaint("setIdentifier", f"must be given with {routed[0]}")


RECORD = Kind(
    token="aws:route53/record:Record",
    inputs=updates("aliases", "allowOverwrite", "records", "setIdentifier", "ttl", "type")
    | updates(*_ROUTINGS, *_PLAIN)
    | replaces("name", "zoneId"),
    computed=frozenset({"allowOverwrite"}),
    sets=frozenset({"aliases", "records"}),
    create=_route53_record_create,
    read=_route53_record_read,
    update=_route53_record_update,
    delete=_route53_record_delete,
    complaints=_route53_record_complaints,
)


def _region(aws: Aws, inputs: Props) -> str:
    return str(inputs.get("vpcRegion") or aws.region)


def _route53_association_create(aws: Aws, inputs: Props) -> str:
    associate(aws, inputs["zoneId"], inputs)
    return f"{inputs['zoneId']}:{inputs['vpcId']}:{_region(aws, inputs)}"


def _route53_association_read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    zone, vpc, region = ident.split(":")
    found = aws.call("route53", "get_hosted_zone", Id=zone).get("VPCs", [])
    if vpc not in [one["VPCId"] for one in found]:
        raise Refusal("VPCAssociationNotFound", f"{vpc} is not associated with {zone}")
    return {"owningAccount": aws.account, "vpcRegion": region}


def _route53_association_delete(aws: Aws, ident: str, outputs: Props) -> None:
    zone, vpc, region = ident.split(":")
    found = {"VPCRegion": region, "VPCId": vpc}
    aws.call("route53", "disassociate_vpc_from_hosted_zone", HostedZoneId=zone, VPC=found)


ZONE_ASSOCIATION = Kind(
    token="aws:route53/zoneAssociation:ZoneAssociation",
    inputs=replaces("vpcId", "vpcRegion", "zoneId"),
    computed=frozenset({"vpcRegion"}),
    create=_route53_association_create,
    read=_route53_association_read,
    delete=_route53_association_delete,
)
