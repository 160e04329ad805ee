"""What EC2 offers in a region today: its instance types, and the zones of each."""

import re
from collections import defaultdict

from bedplate.account.door import Door
from bedplate.account.instances import read_instance
from bedplate.catalog.facts import InstanceFacts
from bedplate.catalog.renewal import RegionAnswer


def enabled_regions(door: Door, region: str) -> tuple[str, ...]:
    """Return the regions that the account may use; `region` is the one to ask."""
    return tuple(one["RegionName"] for one in door.call("ec2", region, "describe_regions")["Regions"])


def region_answer(door: Door, region: str) -> RegionAnswer:
    """Return what EC2 says of its types in a region, and of where it offers them."""
    return RegionAnswer(region_types(door, region), region_offers(door, region))


def region_types(door: Door, region: str) -> dict[str, InstanceFacts]:
    """Return the facts of the types that a region has, by name."""
    pages = door.pages("ec2", region, "describe_instance_types")
    facts = (read_instance(entry) for page in pages for entry in page["InstanceTypes"])
    return {one.name: one for one in facts if one}


def region_offers(door: Door, region: str) -> dict[str, str]:
    """Return the letters of the zones by type; Local Zones and Wavelength Zones are no zones of a fleet."""
    zone, letters = re.compile(rf"{region}([a-z])"), defaultdict(set)
    for page in door.pages("ec2", region, "describe_instance_type_offerings", LocationType="availability-zone"):
        for offer in page["InstanceTypeOfferings"]:
            if found := zone.fullmatch(offer["Location"]):
                letters[offer["InstanceType"]].add(found[1])
    return {name: "".join(sorted(found)) for name, found in letters.items()}
