"""Which packages change by themselves: security's, but for those that running jobs stand on.

A driver, a kernel, a container runtime or a fabric changes with the image or by an apply, never in the night.
"""

from roles.shipped import Shipped
from roles.template import rendered, text_of

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
CONTAINERS = ("containerd", "docker", "runc$", "kubelet$", "kubeadm$", "kubectl$", "kubernetes-cni$", "cri-tools$")
FABRICS = (
    "efa",
    "libfabric",
    "rdma-core$",
    "ibverbs-",
    "libibverbs",
    "librdmacm",
    "openmpi",
    "libopenmpi",
    "lustre-client-",
    "slurm",
)
HELD = (*DRIVERS, *KERNELS, *CONTAINERS, *FABRICS)


def upgrades() -> tuple[Shipped, ...]:
    """Return apt's settings and those of what restarts services after an upgrade."""
    return (
        Shipped("Security upgrades", "/etc/apt/apt.conf.d/60bedplate", rendered("baseline/apt.conf.j2", held=HELD)),
        Shipped("Pins", "/etc/apt/preferences.d/bedplate", text_of("baseline/preferences")),
        Shipped(
            "Restarts after upgrades", "/etc/needrestart/conf.d/bedplate.conf", text_of("baseline/needrestart.conf")
        ),
    )
