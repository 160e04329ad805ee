"""Zones of both sorts: Availability Zones of a region, and hosted zones of Route 53."""

from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.lookups.lookup import Lookup, filters, only_one, picked
from bedplate.rehearsal.simulation import Aws


def _zones(aws: Aws, args: Props) -> dict[str, Any]:
    found = _listed(aws, args)
    left_out = {*(args.get("excludeNames") or []), *(args.get("excludeZoneIds") or [])}
    kept = [zone for zone in found if not left_out & {zone["ZoneName"], zone["ZoneId"]}]
    kept.sort(key=lambda zone: str(zone["ZoneName"]))
    return {
        "groupNames": sorted({zone.get("GroupName", aws.region) for zone in kept}),
        "id": aws.region,
        "names": [zone["ZoneName"] for zone in kept],
        "zoneIds": [zone["ZoneId"] for zone in kept],
    }


def _listed(aws: Aws, args: Props) -> list[dict[str, Any]]:
    where = filters(args, {"state": "state", "name": "zone-name", "zoneId": "zone-id"})
    found: list[dict[str, Any]] = aws.call("ec2", "describe_availability_zones", Filters=where)["AvailabilityZones"]
    return found


AVAILABILITY_ZONES = Lookup(
    "aws:index/getAvailabilityZones:getAvailabilityZones",
    frozenset({"allAvailabilityZones", "excludeNames", "excludeZoneIds", "filters", "state"}),
    _zones,
)


def _zone(aws: Aws, args: Props) -> dict[str, Any]:
    found = only_one("EC2 Availability Zone", _listed(aws, args))
    return {
        "groupName": found.get("GroupName") or aws.region,
        "id": found["ZoneName"],
        "name": found["ZoneName"],
        "nameSuffix": found["ZoneName"].removeprefix(aws.region),
        "networkBorderGroup": found.get("NetworkBorderGroup") or aws.region,
        "optInStatus": found.get("OptInStatus") or "opt-in-not-required",
        "state": found["State"],
        "zoneId": found["ZoneId"],
        "zoneType": found.get("ZoneType") or "availability-zone",
    }


AVAILABILITY_ZONE = Lookup(
    "aws:index/getAvailabilityZone:getAvailabilityZone",
    frozenset({"allAvailabilityZones", "filters", "name", "state", "zoneId"}),
    _zone,
)


def _matches(aws: Aws, zone: dict[str, Any], args: Props) -> bool:
    if zone["Config"]["PrivateZone"] != bool(args.get("privateZone") or args.get("vpcId")):
        return False
    if args.get("vpcId"):
        homes = aws.call("route53", "get_hosted_zone", Id=zone["Id"]).get("VPCs", [])
        return args["vpcId"] in [vpc["VPCId"] for vpc in homes]
    return True


def _hosted(aws: Aws, args: Props) -> dict[str, Any]:
    if args.get("zoneId"):
        zone = aws.call("route53", "get_hosted_zone", Id=args["zoneId"])["HostedZone"]
    else:
        name = f"{str(args.get('name') or '').rstrip('.')}."
        listed = aws.call("route53", "list_hosted_zones")["HostedZones"]
        same = [zone for zone in listed if zone["Name"] == name and _matches(aws, zone, args)]
        zone = only_one("Route 53 Hosted Zone", same)
    ident = zone["Id"].rpartition("/")[2]
    found = aws.call("route53", "get_hosted_zone", Id=ident)
    servers = sorted(found.get("DelegationSet", {}).get("NameServers", []))
    return {
        "arn": f"arn:aws:route53:::hostedzone/{ident}",
        "comment": zone["Config"].get("Comment") or "",
        "id": ident,
        "name": zone["Name"].rstrip("."),
        "nameServers": servers,
        "primaryNameServer": servers[0] if servers else "",
        "privateZone": zone["Config"]["PrivateZone"],
        "zoneId": ident,
        **picked(zone, {"callerReference": "CallerReference", "resourceRecordSetCount": "ResourceRecordSetCount"}),
    }


HOSTED_ZONE = Lookup("aws:route53/getZone:getZone", frozenset({"name", "privateZone", "vpcId", "zoneId"}), _hosted)
