"""Names and words as the fleet file writes them, each with the syntax that its use demands."""

from typing import Annotated

from pydantic import StringConstraints

# Prefix of every resource's name: short, so that what AWS limits to 63 or 64 characters still fits.
FleetName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*[a-z0-9]$", max_length=20)]
# A word of the file that becomes part of names in AWS and in DNS: a group, a site, a store.
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$", max_length=32)]
AccountId = Annotated[str, StringConstraints(pattern=r"^\d{12}$")]
Owner = Annotated[str, StringConstraints(min_length=1, max_length=256)]
# One label of a host name, RFC 1123.
HostLabel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
DomainName = Annotated[str, StringConstraints(max_length=253)]
RegionName = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-\d+$")]
ZoneName = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-\d+[a-z]$")]
InstanceType = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")]
ReservationId = Annotated[str, StringConstraints(pattern=r"^cr-[0-9a-f]{8,17}$")]
MountPath = Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9._/-]*$")]
UserName = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]*$", max_length=32)]
SshKey = Annotated[str, StringConstraints(min_length=1)]
KubernetesVersion = Annotated[str, StringConstraints(pattern=r"^1\.\d{1,2}$")]
DriverBranch = Annotated[str, StringConstraints(pattern=r"^\d{3}$")]
