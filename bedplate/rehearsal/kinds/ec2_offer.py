"""Where EC2 offers an instance type: moto knows the zones and lets any type be asked for in any of them."""

from collections.abc import Iterable

from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def offered_zones(aws: Aws, instance_type: str) -> frozenset[str]:
    """Return the zones of this region that offer a type; none for a type that does not exist."""
    only = [{"Name": "instance-type", "Values": [instance_type]}]
    call = {"LocationType": "availability-zone", "Filters": only}
    found = aws.call("ec2", "describe_instance_type_offerings", **call)["InstanceTypeOfferings"]
    return frozenset(one["Location"] for one in found)


def refuse_unknown_type(aws: Aws, instance_type: str) -> None:
    """Refuse a type that no zone of this region offers."""
    if not offered_zones(aws, instance_type):
        said = f"Invalid value '{instance_type}' for InstanceType: {aws.region} does not offer it"
        raise Refusal("InvalidParameterValue", said, key="instanceType")


def refuse_unoffered(aws: Aws, types: Iterable[str], zones: Iterable[str]) -> None:
    """Refuse types of which a zone offers none, and a type that none of the zones offers."""
    wanted, places = list(types), sorted(zones)
    offers = {one: offered_zones(aws, one) for one in wanted}
    for zone in places:
        if wanted and not any(zone in offers[one] for one in wanted):
            raise Refusal("ValidationError", f"Availability zone {zone} does not offer {', '.join(wanted)}")
    for one in wanted:
        if not offers[one].intersection(places):
            raise Refusal("ValidationError", f"{one} is offered in none of {', '.join(places)}")
