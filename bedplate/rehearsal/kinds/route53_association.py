"""Which VPCs resolve a private zone of Route 53, as resources of their own."""

from typing import Any

from bedplate.rehearsal.kind import Kind, Props, replaces
from bedplate.rehearsal.kinds.route53_zone import associate
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def _region(aws: Aws, inputs: Props) -> str:
    return str(inputs.get("vpcRegion") or aws.region)


def _create(aws: Aws, inputs: Props) -> str:
    associate(aws, inputs["zoneId"], inputs)
    return f"{inputs['zoneId']}:{inputs['vpcId']}:{_region(aws, inputs)}"


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    zone, vpc, region = ident.split(":")
    found = aws.call("route53", "get_hosted_zone", Id=zone).get("VPCs", [])
    if vpc not in [one["VPCId"] for one in found]:
        raise Refusal("VPCAssociationNotFound", f"{vpc} is not associated with {zone}")
    return {"owningAccount": aws.account, "vpcRegion": region}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    zone, vpc, region = ident.split(":")
    found = {"VPCRegion": region, "VPCId": vpc}
    aws.call("route53", "disassociate_vpc_from_hosted_zone", HostedZoneId=zone, VPC=found)


ZONE_ASSOCIATION = Kind(
    token="aws:route53/zoneAssociation:ZoneAssociation",
    inputs=replaces("vpcId", "vpcRegion", "zoneId"),
    computed=frozenset({"vpcRegion"}),
    create=_create,
    read=_read,
    delete=_delete,
)
