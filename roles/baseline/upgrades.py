"""Which packages change by themselves: security's, but for those that running jobs stand on.

A driver, a kernel, a container runtime or a fabric changes with the image or by an apply, never in the night.
"""

from roles.shipped import Shipped
from roles.template import rendered, text_of

SETTINGS = "/etc/apt/apt.conf.d/zz-bedplate"
"""The last of its folder, for the last word counts."""
PINS = "/etc/apt/preferences.d/00-bedplate"
"""The first of its folder: of two pins that name a package the first counts. Source: apt_preferences(5)."""

# Regular expressions that a package's name is matched with from its start: unattended-upgrades' README.
DRIVERS = (
    "nvidia-",
    "libnvidia-",
    "linux-modules-nvidia-",
    "linux-objects-nvidia-",
    "cuda-",
    "libcudnn",
    "libnccl",
    "datacenter-gpu-manager",
)
KERNELS = (
    "linux-image-",
    "linux-headers-",
    "linux-modules-",
    "linux-aws",
    "linux-generic",
    "linux-virtual",
    "linux-cloud-",
    "linux-tools-",
)
CONTAINERS = (
    "containerd",
    "docker",
    "runc$",
    "kubelet$",
    "kubeadm$",
    "kubectl$",
    "kubernetes-cni$",
    "cri-tools$",
    "podman",
    "crun$",
    "conmon",
    "cri-o",
)
FABRICS = (
    "efa",
    "libfabric",
    "rdma-core$",
    "ibverbs-",
    "libibverbs",
    "libibumad",
    "librdmacm",
    "openmpi",
    "libopenmpi",
    "lustre-client-",
    "slurm",
    "munge$",
    "libmunge",
)
HELD = (*DRIVERS, *KERNELS, *CONTAINERS, *FABRICS)


def upgrades() -> tuple[Shipped, ...]:
    """Return apt's settings and those of what restarts services after an upgrade."""
    return (
        Shipped("Security upgrades", SETTINGS, rendered("baseline/apt.conf.j2", held=HELD)),
        Shipped("Pins", PINS, text_of("baseline/preferences")),
        Shipped(
            "Restarts after upgrades", "/etc/needrestart/conf.d/bedplate.conf", text_of("baseline/needrestart.conf")
        ),
    )
