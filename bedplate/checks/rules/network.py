"""E20 and E23: regions and zones, and what the plan of addresses refuses."""

from bedplate.checks.rules.rule import Rule

NETWORK_RULES = (
    Rule(
        "E201",
        "unknown-region",
        "AWS has no such region, as far as the catalogue knows.",
        "write an AWS region's name",
        "EC2 DescribeRegions",
        allowable=True,
        at_key=True,
    ),
    Rule(
        "E202",
        "unknown-zone",
        "The region has no such zone for new accounts; local zones are not supported.",
        "write one of the region's zones",
        "EC2 DescribeAvailabilityZones",
        allowable=True,
    ),
    Rule("E203", "zone-elsewhere", "A zone belongs to one region.", "write a zone of this region"),
    Rule(
        "E204",
        "opt-in-region",
        "An account must enable this region before anything can be made in it.",
        "enable it, then allow E204 with the date; or choose another region",
        "AWS General Reference, enabling regions",
        allowable=True,
        at_key=True,
    ),
    Rule("E205", "zone-twice", "Each zone gets one edge and one node subnet.", "delete one of them"),
    Rule(
        "E206",
        "home-region",
        "One region holds what the fleet has once.",
        "write `home: true` in exactly one region",
    ),
    Rule(
        "W208",
        "carries-less",
        "Peerings and virtual private gateways lead to their VPCs' own blocks alone, and gateways of laptops to the "
        "regions that have one.",
        "write `interconnect: transit`, or give each region a gateway of laptops where it is none",
        "Amazon VPC peering guide, limitations; AWS Site-to-Site VPN user guide, virtual private gateways",
        allowable=True,
    ),
    Rule("E209", "endpoint-twice", "A service has one endpoint a region.", "delete one of them"),
    Rule("E230", "supernet-exhausted", "Every block lies in the supernet.", "declare a larger supernet"),
    Rule("E231", "renumbers-block", "Blocks in use never move.", "keep the size that is recorded"),
    Rule("E232", "touches-recorded-block", "Two places cannot share addresses.", "declare another block"),
    Rule("E233", "outside-supernet", "Recorded blocks lie in the supernet.", "keep the recorded supernet"),
    Rule("E234", "subnets-do-not-fit", "Each zone needs an edge and a node subnet.", "declare a larger block"),
    Rule("E235", "zone-slots-exhausted", "A region has room for seven zones.", "use zones that it had before"),
    Rule("E236", "tunnels-exhausted", "Each tunnel needs its own /30.", "declare fewer sites or regions"),
    Rule("E290", "unusable-lock", "What is recorded must be known before more is.", "restore it from its history"),
)
