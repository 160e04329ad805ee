"""Root volumes: figures that gp3 takes together, and room for the image."""

from collections.abc import Iterator

from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.rules import fault
from bedplate.spec.group import Group

# Amazon EBS user guide, General Purpose SSD volumes: 3,000 operations whatever the size, then 500 a
# GiB; and a quarter of a MiB/s an operation.
FREE_IOPS, IOPS_A_GIB, IOPS_A_MIB = 3000, 500, 4


def check_volumes(evidence: Evidence) -> Iterator[Fault]:
    """Tell root volumes that AWS would refuse, or that the image does not fit on."""
    image = evidence.fleet.image.disk
    for name, group in evidence.fleet.groups.items():
        yield from _speed(f"groups.{name}", group)
        if group.disk < image:
            message = f"{group.disk} GiB are less than the image's {image}"
            yield fault("E336", f"groups.{name}.disk", message, f"write disk: {image} or more")


def _speed(key: str, group: Group) -> Iterator[Fault]:
    most = max(FREE_IOPS, IOPS_A_GIB * group.disk)
    if group.disk_iops > most:
        message = f"{group.disk_iops} operations a second are more than {group.disk} GiB give: {most}"
        yield fault("E334", f"{key}.disk_iops", message, f"write {most}, or disk: {-(-group.disk_iops // IOPS_A_GIB)}")
    if group.disk_throughput * IOPS_A_MIB > group.disk_iops:
        least = group.disk_throughput * IOPS_A_MIB
        message = f"{group.disk_throughput} MiB/s need {least} operations a second; there are {group.disk_iops}"
        yield fault("E335", f"{key}.disk_throughput", message, f"write disk_iops: {least}, or a smaller throughput")
