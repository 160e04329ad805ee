"""What the role `baseline` lets a node upgrade by itself, and what it holds back."""

import re

import pytest

from roles.baseline.role import Baseline
from roles.baseline.upgrades import CONTAINERS, DRIVERS, FABRICS, HELD, KERNELS
from tests.support.nodes import lab_node
from tests.support.recorded import recorded
from tests.support.recorder import Recorder


@pytest.mark.parametrize(
    ("names", "package"),
    [
        (DRIVERS, "nvidia-headless-595-server-open"),
        (DRIVERS, "libnvidia-compute-595-server"),
        (DRIVERS, "nvidia-fabricmanager-595"),
        (DRIVERS, "linux-modules-nvidia-595-server-open-aws"),
        (DRIVERS, "datacenter-gpu-manager-4-core"),
        (KERNELS, "linux-image-6.8.0-1030-aws"),
        (KERNELS, "linux-aws"),
        (KERNELS, "linux-headers-generic"),
        (CONTAINERS, "containerd.io"),
        (CONTAINERS, "docker-ce"),
        (CONTAINERS, "kubelet"),
        (CONTAINERS, "podman"),
        (CONTAINERS, "crun"),
        (CONTAINERS, "conmon"),
        (CONTAINERS, "cri-o-1.33"),
        (FABRICS, "libibumad3"),
        (FABRICS, "munge"),
        (FABRICS, "libmunge2"),
        (FABRICS, "efa"),
        (FABRICS, "rdma-core"),
        (FABRICS, "libibverbs1"),
        (FABRICS, "slurm-smd-slurmd"),
    ],
)
def test_what_jobs_stand_on_is_never_upgraded_in_the_night(names: tuple[str, ...], package: str) -> None:
    """Drivers, kernels, containers and fabrics change with the image or an apply alone."""
    assert any(re.match(name, package) for name in names)


@pytest.mark.parametrize(
    "package", ["openssh-server", "libssl3", "sudo", "curl", "runcible", "kubectl-extra", "linux-base"]
)
def test_everything_else_is_upgraded(package: str) -> None:
    """The list holds back nothing that it does not mean."""
    assert not any(re.match(name, package) for name in HELD)


def test_only_security_is_upgraded_by_itself_and_nothing_boots_by_itself() -> None:
    """The distribution's own list of origins is cleared before ours is given."""
    text = (
        Recorder(recorded("ubuntu-24.04"))
        .play(Baseline(lab_node("titan-01.cellar")))
        .written("/etc/apt/apt.conf.d/zz-bedplate")
    )

    assert text.index("#clear Unattended-Upgrade::Origins-Pattern;") < text.index("archive=${distro_codename}-security")
    assert re.findall(r'"origin=(\w+),\w+=\$\{distro_codename\}([-\w]+)', text) == [
        ("Debian", "-security"),
        ("Ubuntu", "-security"),
        ("UbuntuESM", "-infra-security"),
        ("UbuntuESMApps", "-apps-security"),
    ]
    assert 'Automatic-Reboot "false"' in text
