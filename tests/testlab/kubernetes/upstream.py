"""A mirror of upstream's manifests, from the zips of the Go module proxy; it has only the proxy's files.

NVIDIA's repositories are not on the proxy: their manifests have short stand-ins of the same shape.
"""

import json
import subprocess
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from bedplate.catalog.catalog import load_addons
from bedplate.catalog.software import AddonPins, ManifestPin
from bedplate.kubernetes.addons import ADDON_LABEL, Object
from bedplate.kubernetes.desired import desired_objects
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterPlan
from tests.testlab.kubernetes.binaries import CACHE

# The others need images that cannot be built here.
_ADDONS = {"flannel", "kube-proxy", "coredns", "policy", "people", "volumes"}
MIRROR = CACHE / "mirror"
_MODULES = {
    "flannel-io/flannel": "github.com/flannel-io/flannel",
    "kubernetes/kubernetes": "k8s.io/kubernetes",
    "kubernetes-sigs/jobset": "sigs.k8s.io/jobset",
    "kubernetes-sigs/kueue": "sigs.k8s.io/kueue",
    "kubernetes-sigs/kube-network-policies": "sigs.k8s.io/kube-network-policies",
    "kubernetes-sigs/metrics-server": "sigs.k8s.io/metrics-server",
}
_DAEMONS = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: {name}{namespace}}}
spec:
  selector: {{matchLabels: {{name: {name}}}}}
  template:
    metadata: {{labels: {{name: {name}}}}}
    spec:
      containers:
      - name: main
        image: {image}
        env: []
        volumeMounts: [{{name: kubelet, mountPath: /var/lib/kubelet/device-plugins}}]
      volumes: [{{name: kubelet, hostPath: {{path: /var/lib/kubelet/device-plugins}}}}]
"""


def fetch_manifests() -> None:
    """Write the manifests that are missing in the mirror."""
    for address in (file.address for addon in load_addons() for file in addon.files):
        path = mirrored(address)
        owner, name, version, *rest = urlsplit(address).path.strip("/").split("/")
        module = _MODULES.get(f"{owner}/{name}")
        if module and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_from_module(module, version, "/".join(rest)))


def mirrored(address: str) -> Path:
    """Return the file of an address in the mirror."""
    parts = urlsplit(address)
    return MIRROR / parts.netloc / parts.path.strip("/")


def _from_module(module: str, version: str, path: str) -> bytes:
    command = ("go", "mod", "download", "-json", f"{module}@{version}")
    reply = json.loads(subprocess.run(command, cwd="/", capture_output=True, check=True).stdout)
    with zipfile.ZipFile(reply["Zip"]) as archive:
        return archive.read(f"{module}@{version}/{path}")


def stand_in(addon: AddonPins) -> bytes:
    """Return a manifest for an add-on whose own one is not available."""
    (image,) = addon.images
    namespace = ", namespace: kube-system" if addon.name == "nvidia-device-plugin" else ""
    return _DAEMONS.format(name=addon.name, image=image, namespace=namespace).encode()


def available_pins(pins: Iterable[AddonPins]) -> tuple[AddonPins, ...]:
    """Return the pins with the checksums of the stand-ins."""
    return tuple(replace(addon, files=tuple(_available(addon))) for addon in pins)


def _available(addon: AddonPins) -> Iterable[ManifestPin]:
    for file in addon.files:
        if file.verified:
            yield file
        else:
            yield replace(file, checksum=sha256(stand_in(addon)).hexdigest(), verified=True)


def read_upstream(address: str) -> bytes:
    """Return the file of an address: from the mirror, or its stand-in."""
    path = mirrored(address)
    if path.exists():
        return path.read_bytes()
    return next(stand_in(addon) for addon in load_addons() if address in {file.address for file in addon.files})


def runnable_objects(plan: FleetPlan, cluster: ClusterPlan) -> tuple[Object, ...]:
    """Return the objects of `kube addons apply` whose images can be built here."""
    desired = desired_objects(plan, cluster, available_pins(load_addons()), read_upstream)
    objects = tuple(item for item in desired if item["metadata"]["labels"][ADDON_LABEL] in _ADDONS)
    # The kernel permits this setting in the machine's own network namespace only.
    (settings,) = (item["data"] for item in objects if "config.conf" in item.get("data", {}))
    settings["config.conf"] += "conntrack: {maxPerCore: 0}\n"
    return objects
