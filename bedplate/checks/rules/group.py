"""E3: groups of machines and their ladders."""

from bedplate.checks.rules.rule import Rule

_TYPES = "EC2 DescribeInstanceTypes"
_OFFERS = "EC2 DescribeInstanceTypeOfferings"

GROUP_RULES = (
    Rule(
        "E301",
        "unknown-instance-type",
        "AWS has no such type, as far as the catalogue knows.",
        "write an EC2 instance type",
        _TYPES,
        allowable=True,
    ),
    Rule(
        "E302",
        "type-not-offered",
        "The place does not offer the type.",
        "choose another",
        _OFFERS,
        allowable=True,
    ),
    Rule("E304", "min-above-max", "A group cannot keep more than it may have.", "raise max or lower min"),
    Rule("E305", "mixed-kinds", "Types of a group must serve equally well.", "make a group of each kind"),
    Rule(
        "E306",
        "type-without-fabric",
        "Fabric efa needs types with EFA.",
        "choose a type with EFA, or drop fabric",
        _TYPES,
    ),
    Rule("E308", "rung-twice", "A second try of the same rung finds the same.", "delete one of them"),
    Rule(
        "E309",
        "undeclared-region",
        "Nothing is built in a region that the file does not declare.",
        "declare it under regions",
    ),
    Rule(
        "E310",
        "undeclared-zone",
        "A zone that the region does not list has no subnet.",
        "list it in the region's zones",
    ),
    Rule(
        "E311",
        "reservation-incomplete",
        "A reservation is an id in one zone.",
        "give both reservation and zone",
    ),
    Rule(
        "E312",
        "reservation-unused",
        "Only reserved markets use a reservation.",
        "set market, or delete the id",
    ),
    Rule("E313", "type-twice", "Naming it again changes nothing.", "delete one of them"),
    Rule("E315", "reservation-zones", "A reservation lies in one zone.", "name the zone that it lies in"),
    Rule(
        "W316",
        "group-of-none",
        "A group of at most no machines does nothing.",
        "raise max, or delete the group",
    ),
    Rule(
        "W317",
        "not-nvidia",
        "The image's driver is NVIDIA's; these accelerators would lie idle.",
        "choose another type",
        _TYPES,
    ),
    Rule("E318", "no-such-day", "A day that the calendar lacks is a slip of the pen.", "write it as '2027-01-31'"),
    Rule(
        "E319",
        "schedule-words",
        "Auto Scaling takes hours, weekdays and time zones.",
        "write start: '07:00', stop: '20:00', days: MON-FRI, zone: Europe/Zurich",
        "EC2 Auto Scaling PutScheduledUpdateGroupAction",
    ),
    Rule(
        "E320",
        "label-syntax",
        "Kubernetes takes no other labels.",
        "write it as lab.example/team: vision",
        "Kubernetes, Labels and Selectors",
    ),
    Rule(
        "E321",
        "taint-syntax",
        "Kubernetes takes no other taints.",
        "write it as team=vision:NoSchedule",
        "Kubernetes, Taints and Tolerations",
    ),
)
