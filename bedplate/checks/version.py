"""Versions of Kubernetes: one that is out and still mended, and a kubelet that its control plane can live with."""

from collections.abc import Iterator

from bedplate.catalog.software import read_kernel
from bedplate.checks.evidence import Evidence
from bedplate.checks.fault import Fault
from bedplate.checks.rules import fault

# Kubernetes version skew policy, kubelet, read 2026-11.
OLDER = 3


def check_versions(evidence: Evidence) -> Iterator[Fault]:
    """Tell versions that are not out yet or have ended, and kubelets too far from the control plane."""
    cluster, kubelet = evidence.fleet.kubernetes, evidence.fleet.image.kubernetes
    if cluster is None:
        return
    yield from _released(evidence, "kubernetes.version", cluster.version)
    if kubelet is not None:
        yield from _released(evidence, "image.kubernetes", kubelet)
        yield from _skew(cluster.version, kubelet)


def _released(evidence: Evidence, key: str, version: str) -> Iterator[Fault]:
    releases = evidence.catalog.releases
    if not releases:
        return
    newest = max(releases, key=read_kernel)
    if read_kernel(version) > read_kernel(newest):
        yield fault("E615", key, f"Kubernetes {version} is not out: the newest is {newest}", f"write '{newest}'")
    elif version not in releases or releases[version] < evidence.today:
        since = f" since {releases[version]}" if version in releases else ""
        yield fault("W616", key, f"Kubernetes {version} has got no more patches{since}", f"write '{newest}'")


def _skew(version: str, kubelet: str) -> Iterator[Fault]:
    (major, minor), (node_major, node_minor) = read_kernel(version), read_kernel(kubelet)
    if (node_major, node_minor) > (major, minor):
        message = f"the image's kubelet, {kubelet}, is newer than the control plane, {version}"
    elif minor - node_minor > OLDER:
        message = (
            f"the image's kubelet, {kubelet}, is more than {OLDER} versions older than the control plane, {version}"
        )
    else:
        return
    yield fault("E607", "image.kubernetes", message, f"write '{version}', or delete it")
