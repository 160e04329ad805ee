"""The machine image that cloud nodes start from."""

from typing import Literal

from pydantic import Field

from bedplate.spec.base import Spec
from bedplate.spec.software import DriverBranch, KernelSeries, KubernetesVersion


class Image(Spec):
    """The base system, and what is baked on it; what is left out is not judged."""

    base: Literal["ubuntu-24.04"] = Field(
        default="ubuntu-24.04", title="Base system", description="The Ubuntu release that images start from."
    )
    driver: DriverBranch = Field(
        default="580", title="Driver branch", description="NVIDIA driver branch, quoted, such as '580'."
    )
    disk: int = Field(
        default=8, ge=8, le=16384, title="Size", description="GiB that it takes: no group's root volume is smaller."
    )
    kernel: KernelSeries | None = Field(
        default=None, title="Kernel", description="Series of the kernel on it, quoted, such as '6.8'."
    )
    kubernetes: KubernetesVersion | None = Field(
        default=None,
        title="Kubernetes on it",
        description="Minor version of the kubelet on it, quoted; left out, the cluster's.",
    )
