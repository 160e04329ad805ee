"""Hosted zones of Route 53, public and private."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Text, beyond, together
from bedplate.rehearsal.kinds.tagging import tag_pairs
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

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
