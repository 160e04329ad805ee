"""E3: groups of machines, their types and their disks."""

from bedplate.checks.rules.rule import Rule

GROUP_RULES = (
    Rule(
        "E301",
        "unknown-instance-type",
        "AWS has no such type, as far as the catalogue knows.",
        "write an EC2 instance type",
        "EC2 DescribeInstanceTypes",
        allowable=True,
    ),
    Rule("E304", "min-above-max", "A group cannot keep more than it may have.", "raise max or lower min"),
    Rule("E305", "mixed-kinds", "Types of a group must serve equally well.", "make a group of each kind"),
    Rule(
        "E306",
        "type-without-fabric",
        "Fabric efa needs types with EFA.",
        "choose a type with EFA, or drop fabric",
        "EC2 DescribeInstanceTypes",
    ),
    Rule("E313", "type-twice", "Naming it again changes nothing.", "delete one of them"),
    Rule("W316", "group-of-none", "A group of at most no machines does nothing.", "raise max, or delete the group"),
    Rule(
        "W317",
        "not-nvidia",
        "The image's driver is NVIDIA's; these accelerators would lie idle.",
        "choose another type",
        "EC2 DescribeInstanceTypes",
    ),
    Rule(
        "E322",
        "mixed-gpu-counts",
        "A job asks for a number of GPUs, and whoever starts machines for it must know how many come.",
        "make a group of each number",
    ),
    Rule(
        "E323",
        "mixed-layouts",
        "All types of a group start from one list of network interfaces.",
        "make a group of each layout",
        "EC2 API, launch template network interfaces",
    ),
    Rule(
        "E324",
        "nothing-similar",
        "Likeness is judged by CPUs and memory alone.",
        "delete similar",
        "EC2 API, InstanceRequirements",
    ),
    Rule(
        "E334",
        "disk-iops",
        "A gp3 volume gives 500 operations a second for each GiB.",
        "raise disk, or lower disk_iops",
        "Amazon EBS user guide, General Purpose SSD volumes",
    ),
    Rule(
        "E335",
        "disk-throughput",
        "A gp3 volume gives a quarter of a MiB/s for each operation.",
        "raise disk_iops, or lower disk_throughput",
        "Amazon EBS user guide, General Purpose SSD volumes",
    ),
    Rule(
        "E336",
        "disk-below-image",
        "EC2 starts no machine whose root volume is smaller than its image.",
        "raise disk",
        "EC2 API, EbsBlockDevice",
    ),
)
