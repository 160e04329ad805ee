"""The fleet's Kubernetes cluster."""

from pydantic import Field

from bedplate.spec.address import Prefix
from bedplate.spec.base import Spec
from bedplate.spec.software import KubernetesVersion
from bedplate.spec.text import InstanceType


class ControlPlane(Spec):
    """The machines that run the API servers and etcd, in the home region."""

    type: InstanceType = Field(title="Instance type", description="EC2 instance type of each machine.")
    count: int = Field(
        default=3,
        ge=1,
        le=7,
        title="Count",
        description="How many machines: an odd number, for etcd's quorum.",
    )


class Kubernetes(Spec):
    """Version, control plane and address space of the cluster."""

    version: KubernetesVersion = Field(
        title="Version", description="Minor version, quoted: 1.36 is a number, '1.36' a version."
    )
    control_plane: ControlPlane = Field(title="Control plane", description="The machines that run it.")
    pods: Prefix | None = Field(
        default=None,
        title="Pod block size",
        description="Prefix length for pods; left out, an eighth of the supernet.",
    )
    services: Prefix = Field(
        default=20, title="Service block size", description="Prefix length of the block for services."
    )
