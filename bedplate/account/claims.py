"""What machines have written into the fleet's private zone: whose a name is, at which address, by which host key.

Read from Route 53's API, never from DNS, which others on the path can answer. Any process of a machine of an ssh group
can write these records, so that a caller must compare them with EC2.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from bedplate.account.door import Door
from bedplate.errors import PartError
from bedplate.nodes.host_key import fingerprint_of_sshfp
from bedplate.plan.fleet import FleetPlan

_Values = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A name, without the domain, and the `instance` that took it; `fingerprints` are those of its host keys."""

    name: str
    instance: str
    address: IPv4Address | None = None
    fingerprints: tuple[str, ...] = ()


def claims(door: Door, plan: FleetPlan) -> tuple[Claim, ...]:
    """Return every name that a machine has taken; raises as the door does."""
    return tuple(claim for zone in _zones(door, plan) for claim in _of_zone(door, plan, zone))


def claim_of(told: Iterable[Claim], name: str) -> Claim:
    """Return who has a name, and has told a host key. Raises PartError where nobody has, or more than one."""
    found = [claim for claim in told if claim.name == name]
    if not found:
        raise PartError(f"no machine has the name {name} now", fix="`bedplate node list --live` shows those that run")
    if len(found) > 1:
        owners = ", ".join(claim.instance for claim in found)
        fix = "one zone alone is the fleet's: delete the other, or its records of that name"
        raise PartError(f"two private zones tell of {name}: {owners}", fix=fix)
    if not found[0].fingerprints:
        fix = f"let its group replace it, or read it in a session, then `bedplate node trust {name} SHA256:...`"
        raise PartError(f"{name} ({found[0].instance}) has told AWS no host key", fix=fix)
    return found[0]


def _of_zone(door: Door, plan: FleetPlan, zone: str) -> Iterator[Claim]:
    told: defaultdict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for page in door.pages("route53", plan.home.name, "list_resource_record_sets", HostedZoneId=zone):
        for one in page["ResourceRecordSets"]:
            told[one["Name"]][one["Type"]] = tuple(each["Value"] for each in one.get("ResourceRecords", ()))
    for name, values in told.items():
        if values.get("TXT"):
            yield _claim(name.rstrip(".").removesuffix(f".{plan.domain}"), values)


def _claim(name: str, values: _Values) -> Claim:
    address = next((IPv4Address(each) for each in values.get("A", ())), None)
    fingerprints = tuple(found for each in values.get("SSHFP", ()) if (found := fingerprint_of_sshfp(each)))
    return Claim(name, values["TXT"][0].strip('"'), address, fingerprints)


def _zones(door: Door, plan: FleetPlan) -> Iterator[str]:
    listed = door.call("route53", plan.home.name, "list_hosted_zones_by_name", DNSName=plan.domain)["HostedZones"]
    for zone in listed:
        if zone["Name"] == f"{plan.domain}." and zone["Config"]["PrivateZone"]:
            yield zone["Id"].rpartition("/")[2]
