"""Route 53: hosted zones, records, and associations of VPCs with private zones."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import InvalidInput, Props, ResourceKind, replaces, updates
from bedplate.rehearsal.kinds.limits import (
    Choice,
    Number,
    Text,
    check_required,
    checks,
    rollback,
    tag_pairs,
)
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.state import ResourceError
from bedplate.rehearsal.wire import is_known

_LABEL = r"[!-\-/-~]{1,63}"
_LIMITS = {
    "name": Text(1, 255, rf"{_LABEL}(\.{_LABEL})*\.?", "labels of 1 to 63 printable characters, separated by dots"),
    "comment": Text(0, 256),
}


def _vpc_parameters(aws: Aws, block: Props) -> dict[str, str]:
    """Return the parameters of a VPC; raise ResourceError if it does not exist."""
    region = block.get("vpcRegion") or aws.region
    try:
        aws.in_region(region).call("ec2", "describe_vpcs", VpcIds=[block["vpcId"]])
    except ResourceError:
        raise ResourceError("InvalidVPCId", f"The VPC: {block['vpcId']} in region {region} is not found") from None
    return {"VPCRegion": region, "VPCId": block["vpcId"]}


def associate(aws: Aws, ident: str, block: Props) -> None:
    """Associate a VPC with a private zone; raise ResourceError if it has a zone of the same name."""
    vpc = _vpc_parameters(aws, block)
    name = aws.call("route53", "get_hosted_zone", Id=ident)["HostedZone"]["Name"]
    _require_unused_name(aws, name, vpc)
    aws.call("route53", "associate_vpc_with_hosted_zone", HostedZoneId=ident, VPC=vpc)


def _require_unused_name(aws: Aws, name: str, vpc: dict[str, str]) -> None:
    zones = aws.call("route53", "list_hosted_zones_by_vpc", **vpc)["HostedZoneSummaries"]
    if name.rstrip(".") in [zone["Name"].rstrip(".") for zone in zones]:
        message = f"The VPC {vpc['VPCId']} in region {vpc['VPCRegion']} has already been associated with a zone {name}"
        raise ResourceError("ConflictingDomainExists", message)


# --- Hosted zones


def _create_zone(aws: Aws, inputs: Props) -> str:
    name, vpcs = inputs["name"], [_vpc_parameters(aws, vpc) for vpc in inputs.get("vpcs") or []]
    for vpc in vpcs:
        _require_unused_name(aws, name, vpc)
    config = {"Comment": inputs.get("comment") or "", "PrivateZone": bool(vpcs)}
    # Route 53 makes a zone with a VPC private. moto needs the flag as well.
    more = {"VPC": vpcs[0]} if vpcs else {}
    call = {"Name": name, "CallerReference": str(uuid4()), "HostedZoneConfig": config, **more}
    response = aws.call("route53", "create_hosted_zone", **call)
    ident: str = response["HostedZone"]["Id"].rpartition("/")[2]
    with rollback(lambda: _delete_zone(aws, ident, inputs)):
        for vpc in vpcs[1:]:
            aws.call("route53", "associate_vpc_with_hosted_zone", HostedZoneId=ident, VPC=vpc)
        _retag_zone(aws, ident, {}, inputs)
    return ident


def _retag_zone(aws: Aws, ident: str, old: Props, new: Props) -> None:
    before, after = old.get("tags") or {}, new.get("tags") or {}
    added, removed = dict(after.items() - before.items()), sorted(before.keys() - after.keys())
    changes = {key: value for key, value in (("AddTags", tag_pairs(added)), ("RemoveTagKeys", removed)) if value}
    if changes:
        target = {"ResourceType": "hostedzone", "ResourceId": ident}
        aws.call("route53", "change_tags_for_resource", **target, **changes)


def _read_zone(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    response = aws.call("route53", "get_hosted_zone", Id=ident)
    servers = sorted(response.get("DelegationSet", {}).get("NameServers", []))
    return {
        "arn": f"arn:aws:route53:::hostedzone/{ident}",
        "comment": response["HostedZone"]["Config"].get("Comment") or "",
        "name": response["HostedZone"]["Name"].rstrip("."),
        "nameServers": servers,
        "primaryNameServer": servers[0] if servers else "",
        "vpcs": [{"vpcId": vpc["VPCId"], "vpcRegion": vpc["VPCRegion"]} for vpc in response.get("VPCs", [])],
        "zoneId": ident,
    }


def _update_zone(aws: Aws, ident: str, old: Props, new: Props) -> None:
    if old.get("comment") != new.get("comment"):
        comment = new.get("comment") or ""
        aws.call("route53", "update_hosted_zone_comment", Id=ident, Comment=comment)
    old_vpcs, new_vpcs = (
        {(vpc["vpcId"], vpc.get("vpcRegion") or aws.region): vpc for vpc in props.get("vpcs") or []}
        for props in (old, new)
    )
    # Associate first: a private zone must always have a VPC.
    for key in sorted(new_vpcs.keys() - old_vpcs.keys()):
        associate(aws, ident, new_vpcs[key])
    for vpc_id, region in sorted(old_vpcs.keys() - new_vpcs.keys()):
        vpc = {"VPCRegion": region, "VPCId": vpc_id}
        aws.call("route53", "disassociate_vpc_from_hosted_zone", HostedZoneId=ident, VPC=vpc)
    _retag_zone(aws, ident, old, new)


def _delete_zone(aws: Aws, ident: str, outputs: Props) -> None:
    if outputs.get("forceDestroy"):
        records = aws.call("route53", "list_resource_record_sets", HostedZoneId=ident)["ResourceRecordSets"]
        for record in records:
            if record["Type"] not in ("NS", "SOA"):
                _change_records(aws, ident, ("DELETE", record))
    aws.call("route53", "delete_hosted_zone", Id=ident)


ZONE = ResourceKind(
    token="aws:route53/zone:Zone",
    inputs=updates("comment", "forceDestroy", "tags", "vpcs") | replaces("name"),
    defaults={"comment": "Managed by Pulumi", "forceDestroy": False},
    sets=frozenset({"vpcs"}),
    create=_create_zone,
    read=_read_zone,
    update=_update_zone,
    delete=_delete_zone,
    complaints=checks(_LIMITS),
)


# --- Records

_TYPES = ("A", "AAAA", "CAA", "CNAME", "DS", "HTTPS", "MX", "NAPTR", "NS", "PTR", "SOA", "SPF", "SRV", "SSHFP")
_ROUTE53_RECORD_LIMITS = {
    "type": Choice((*_TYPES, "SVCB", "TLSA", "TXT")),
    "ttl": Number(0, 2147483647),
}


def _check_record(inputs: Props) -> Iterator[InvalidInput]:
    yield from check_required(inputs, ("records", "ttl"))
    yield from _check_addresses(inputs)


def _check_addresses(inputs: Props) -> Iterator[InvalidInput]:
    """Yield an error for each value of an A or AAAA record that is not an address."""
    for version, record_type, parse in (("IPv4", "A", IPv4Address), ("IPv6", "AAAA", IPv6Address)):
        values = inputs.get("records") if inputs.get("type") == record_type else ()
        for value in values if isinstance(values, list) else ():
            try:
                if is_known(value):
                    parse(value)
            except ValueError:
                yield InvalidInput("records", f"{value!r} is not an {version} address (InvalidChangeBatch)")


def _create_record(aws: Aws, inputs: Props) -> str:
    zone, record = inputs["zoneId"], _record_set(aws, inputs)
    if _find_record(aws, zone, record):
        message = f"Tried to create resource record set {record['Name']} {record['Type']} but it already exists"
        raise ResourceError("InvalidChangeBatch", message, key="name")
    _change_records(aws, zone, ("UPSERT", record))
    return "_".join((zone, str(inputs["name"]).lower().rstrip("."), inputs["type"]))


def _record_set(aws: Aws, inputs: Props) -> dict[str, Any]:
    values = [{"Value": _quoted(inputs["type"], value)} for value in inputs["records"]]
    name = _fqdn(aws, inputs)
    return {"Name": name, "Type": inputs["type"], "TTL": inputs["ttl"], "ResourceRecords": values}


def _fqdn(aws: Aws, inputs: Props) -> str:
    """Return the full name of a record; the program may omit the name of the zone."""
    zone = aws.call("route53", "get_hosted_zone", Id=inputs["zoneId"])["HostedZone"]["Name"].rstrip(".")
    name = str(inputs["name"]).rstrip(".").lower()
    return name if name == zone or name.endswith(f".{zone}") else ".".join(filter(None, (name, zone)))


def _quoted(record_type: str, value: str) -> str:
    """Return a value as Route 53 stores it: TXT and SPF values are quoted."""
    return f'"{value}"' if record_type in ("SPF", "TXT") and not value.startswith('"') else value


def _find_record(aws: Aws, zone: str, record: Mapping[str, Any]) -> dict[str, Any] | None:
    records = aws.call("route53", "list_resource_record_sets", HostedZoneId=zone)["ResourceRecordSets"]
    return next((candidate for candidate in records if _identity(candidate) == _identity(record)), None)


def _identity(record: Mapping[str, Any]) -> tuple[str, str]:
    return record["Name"].rstrip("."), record["Type"]


def _change_records(aws: Aws, zone: str, *steps: tuple[str, dict[str, Any]]) -> None:
    changes = [{"Action": action, "ResourceRecordSet": record} for action, record in steps]
    aws.call("route53", "change_resource_record_sets", HostedZoneId=zone, ChangeBatch={"Changes": changes})


def _read_record(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    record = {"Name": _fqdn(aws, inputs), "Type": inputs["type"]}
    if not _find_record(aws, inputs["zoneId"], record):
        raise ResourceError("InvalidChangeBatch", f"The record {record['Name']} {record['Type']} was not found")
    return {"fqdn": record["Name"]}


def _update_record(aws: Aws, ident: str, old: Props, new: Props) -> None:
    before, after = _record_set(aws, old), _record_set(aws, new)
    # With another type it is another record.
    replaced = _find_record(aws, new["zoneId"], before) if _identity(before) != _identity(after) else None
    _change_records(aws, new["zoneId"], *([("DELETE", replaced)] if replaced else []), ("UPSERT", after))


def _delete_record(aws: Aws, ident: str, outputs: Props) -> None:
    record = _find_record(aws, outputs["zoneId"], _record_set(aws, outputs))
    if record:
        _change_records(aws, outputs["zoneId"], ("DELETE", record))


RECORD = ResourceKind(
    token="aws:route53/record:Record",
    inputs=updates("records", "ttl", "type") | replaces("name", "zoneId"),
    sets=frozenset({"records"}),
    create=_create_record,
    read=_read_record,
    update=_update_record,
    delete=_delete_record,
    complaints=checks(_ROUTE53_RECORD_LIMITS, _check_record),
)


# --- VPC associations of private zones


def _create_association(aws: Aws, inputs: Props) -> str:
    associate(aws, inputs["zoneId"], inputs)
    return f"{inputs['zoneId']}:{inputs['vpcId']}:{inputs.get('vpcRegion') or aws.region}"


def _read_association(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    zone, vpc, region = ident.split(":")
    vpcs = aws.call("route53", "get_hosted_zone", Id=zone).get("VPCs", [])
    if vpc not in [item["VPCId"] for item in vpcs]:
        raise ResourceError("VPCAssociationNotFound", f"{vpc} is not associated with {zone}")
    return {"owningAccount": aws.account, "vpcRegion": region}


def _delete_association(aws: Aws, ident: str, outputs: Props) -> None:
    zone, vpc, region = ident.split(":")
    parameters = {"VPCRegion": region, "VPCId": vpc}
    aws.call("route53", "disassociate_vpc_from_hosted_zone", HostedZoneId=zone, VPC=parameters)


ZONE_ASSOCIATION = ResourceKind(
    token="aws:route53/zoneAssociation:ZoneAssociation",
    inputs=replaces("vpcId", "vpcRegion", "zoneId"),
    computed=frozenset({"vpcRegion"}),
    create=_create_association,
    read=_read_association,
    delete=_delete_association,
)
