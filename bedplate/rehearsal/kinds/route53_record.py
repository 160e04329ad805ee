"""Records of a Route 53 zone."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.limits import Choice, Number, Text, beyond, together
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_TYPES = ("A", "AAAA", "CAA", "CNAME", "DS", "HTTPS", "MX", "NAPTR", "NS", "PTR", "SOA", "SPF", "SRV", "SSHFP")
_LIMITS = {
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


def _create(aws: Aws, inputs: Props) -> str:
    zone, record = inputs["zoneId"], _record(aws, inputs)
    if _find(aws, zone, record) and not inputs.get("allowOverwrite"):
        said = f"Tried to create resource record set {record['Name']} {record['Type']} but it already exists"
        raise Refusal("InvalidChangeBatch", said, key="name")
    _change(aws, zone, ("UPSERT", record))
    parts = (zone, str(inputs["name"]).lower().rstrip("."), inputs["type"], inputs.get("setIdentifier"))
    return "_".join(filter(None, parts))


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    before, after = _record(aws, old), _record(aws, new)
    keys = ("Type", "SetIdentifier")
    # Route 53 knows a record by its name, type and set: under another type it is another record.
    moved = [before.get(key) for key in keys] != [after.get(key) for key in keys]
    gone = _find(aws, new["zoneId"], before) if moved else None
    _change(aws, new["zoneId"], *([("DELETE", gone)] if gone else []), ("UPSERT", after))


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    record = {"Name": _fqdn(aws, inputs), "Type": inputs["type"], "SetIdentifier": inputs.get("setIdentifier")}
    if not _find(aws, inputs["zoneId"], record):
        raise Refusal("InvalidChangeBatch", f"{record['Name']} {record['Type']} was not found")
    return {"fqdn": record["Name"]}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    found = _find(aws, outputs["zoneId"], _record(aws, outputs))
    if found:
        _change(aws, outputs["zoneId"], ("DELETE", found))


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
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
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
