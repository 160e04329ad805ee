"""The add-ons of the cluster: upstream's manifests with the fleet's values and small patches, and own manifests.

Pure: texts and the plan in, objects of the Kubernetes API out.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from bedplate.catalog.software import AddonPins
from bedplate.catalog.tables import minor_of
from bedplate.errors import InputError
from bedplate.foreign import LARGE, parse_json
from bedplate.plan.cluster import NODE_DNS, ClusterPlan
from bedplate.plan.firewall import OVERLAY
from bedplate.plan.registration import ACCELERATOR, INSTANCE_TYPE

Object = dict[str, Any]
"""An object of the Kubernetes API, as its JSON."""
ADDON_LABEL = "bedplate/addon"
OF_PEOPLE: Object = {"matchExpressions": [{"key": "bedplate/uid", "operator": "Exists"}]}
"""The selector of the namespaces of people."""
_MANIFESTS = Path(__file__).parent / "manifests"
_DOMAIN = "cluster.local"
# Members take pods of the control plane only; before the first worker exists, DNS and metrics run there.
_ON_MEMBERS = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}
_EVERYWHERE = [{"operator": "Exists", "effect": "NoSchedule"}]
_AUTHORITY = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


@dataclass(frozen=True, slots=True)
class Setting:
    """The values of the fleet that add-ons use: its cluster, and the EC2 types with EFA interfaces."""

    cluster: ClusterPlan
    efa_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Addon:
    """An add-on: the words that its text has for values of the fleet, and the patch of an object and of its pod.

    The pod is empty unless the object is a DaemonSet or Deployment. `manifests` are those of this package, besides
    upstream's files.
    """

    name: str
    words: Callable[[ClusterPlan], Mapping[str, str]] = lambda _: {}
    patch: Callable[[Object, Object, Setting], None] = lambda *_: None
    manifests: tuple[str, ...] = ()


def render_addon(addon: Addon, pins: AddonPins, texts: Sequence[str], setting: Setting) -> tuple[Object, ...]:
    """Return the objects of an add-on from the texts of its files and its manifests here.

    Images have the pinned tag and digest, whatever tag upstream's manifest has.
    """
    values = {**addon.words(setting.cluster), "__VERSION__": pins.version}
    sources = (*texts, *map(own_manifest, addon.manifests))
    objects = tuple(document for text in sources for document in load_objects(text, values))
    pinned = {_repository(image): f"{image}@{digest}".removesuffix("@") for image, digest in pins.images.items()}
    for document in objects:
        pod = document["spec"]["template"]["spec"] if document["kind"] in {"DaemonSet", "Deployment"} else {}
        addon.patch(document, pod, setting)
        for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
            container["image"] = pinned.get(_repository(container["image"]), container["image"])
    return labelled(objects, addon.name)


def _repository(image: str) -> str:
    return image.partition(":")[0]


def own_manifest(name: str) -> str:
    """Return a manifest of this package."""
    return (_MANIFESTS / f"{name}.yaml").read_text(encoding="utf-8")


def load_objects(text: str, words: Mapping[str, str]) -> Iterator[Object]:
    """Yield the objects of a manifest whose words, which are in strings, are replaced."""
    filled = _as_json(text)
    for word, value in words.items():
        filled = filled.replace(word, json.dumps(value)[1:-1])
    yield from parse_json(filled, LARGE)


@cache
def _as_json(manifest: str) -> str:
    """Return the objects of a manifest as JSON: to parse the YAML of each person takes most time of an apply."""
    return json.dumps([*filter(None, YAML(typ="safe", pure=True).load_all(manifest))])


def labelled(objects: Iterable[Object], name: str) -> tuple[Object, ...]:
    """Return the objects with the label of their add-on."""
    return tuple(
        {**item, "metadata": {**item["metadata"], "labels": {**item["metadata"].get("labels", {}), ADDON_LABEL: name}}}
        for item in objects
    )


def choose_pins(pins: Iterable[AddonPins], cluster: ClusterPlan) -> Mapping[str, AddonPins]:
    """Return the version of each add-on by name; kube-proxy has the version of the control plane.

    The image of a version without pins is used by its tag. Raises InputError if the patch is unknown.
    """
    if cluster.version == minor_of(cluster.version):
        raise InputError(
            f"kubernetes.version: the newest patch of {cluster.version} is unknown",
            fix=f"write '{cluster.version}.' and the number of the patch",
        )
    proxy = AddonPins(_PROXY, cluster.version)
    return {_PROXY: proxy} | {pin.name: pin for pin in pins if pin.name != _PROXY or pin.version == cluster.version}


def _patch_flannel(document: Object, _pod: Object, setting: Setting) -> None:
    """Set the block of pods, and the size of packets: flannel takes 50 bytes from it."""
    if document["kind"] == "ConfigMap":
        cluster = setting.cluster
        backend = {"Type": "vxlan", "Port": OVERLAY, "MTU": cluster.mtu}
        network = {"Network": str(cluster.pods), "EnableNFTables": True, "Backend": backend}
        document["data"]["net-conf.json"] = json.dumps(network, indent=2)


# A service has a short name for laptops, `board.grace.pods.lab.internal`, and a long one in the cluster.
_SHORT_NAMES = """\
{short}:53 {{
    errors
    rewrite name suffix .{short}. .svc.{inside}. answer auto
    kubernetes {inside} {{
        ttl 30
    }}
    cache 30
}}
"""


def _patch_coredns(document: Object, pod: Object, setting: Setting) -> None:
    """Two servers on different nodes; NodeLocal DNSCache answers most questions on each node.

    Laptops ask for services in the fleet's own domain.
    """
    if document["kind"] == "ConfigMap":
        document["data"]["Corefile"] += _SHORT_NAMES.format(short=setting.cluster.short_domain, inside=_DOMAIN)
    if pod:
        document["spec"]["replicas"] = 2
        pod["tolerations"].append(_ON_MEMBERS)


def _patch_node_dns(document: Object, pod: Object, _setting: Setting) -> None:
    """Listen on the link-local address only: with nftables, kube-proxy owns the address of the service."""
    if document["metadata"]["name"] == "node-local-dns" and pod:
        pod["containers"][0]["args"][1] = str(NODE_DNS)


_METRICS = {"k8s-app": "metrics-server"}


def _patch_metrics(document: Object, pod: Object, _setting: Setting) -> None:
    """Select by a label, as upstream's kustomization does, and verify kubelets' certificates."""
    if document["kind"] == "Service":
        document["spec"]["selector"] = _METRICS
    if pod:
        document["spec"]["selector"] = {"matchLabels": _METRICS}
        document["spec"]["template"]["metadata"] = {"labels": dict(_METRICS)}
        pod["tolerations"] = [_ON_MEMBERS]
        (container,) = pod["containers"]
        container["image"] = "registry.k8s.io/metrics-server/metrics-server"
        container["args"].append(f"--kubelet-certificate-authority={_AUTHORITY}")


def _patch_policies(_document: Object, pod: Object, _setting: Setting) -> None:
    """Show metrics to the node only."""
    if pod:
        (container,) = pod["containers"]
        container["args"].append("--metrics-bind-address=127.0.0.1:9080")


def _patch_gpus(_document: Object, pod: Object, _setting: Setting) -> None:
    """Run on nodes with GPUs, with the host's driver, and pass devices by CDI; there is no runtime of NVIDIA."""
    if pod:
        _only_with_gpus(pod)
        (container,) = pod["containers"]
        values = {"DEVICE_LIST_STRATEGY": "cdi-cri", "NVIDIA_DRIVER_ROOT": "/", "NVIDIA_CDI_HOOK_PATH": _CDI_HOOK}
        container["env"] = [{"name": name, "value": value} for name, value in values.items()]
        container["securityContext"] = {"privileged": True}
        for name, path, mount in (("driver-root", "/", "/driver-root"), ("cdi-root", "/var/run/cdi", "/var/run/cdi")):
            container["volumeMounts"].append({"name": name, "mountPath": mount})
            pod["volumes"].append({"name": name, "hostPath": {"path": path}})


_CDI_HOOK = "/usr/bin/nvidia-cdi-hook"


def _only_with_gpus(pod: Object) -> None:
    pod["tolerations"] = _EVERYWHERE
    expression = {"key": ACCELERATOR, "operator": "Exists"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _patch_efa(_document: Object, pod: Object, setting: Setting) -> None:
    """Run on the types with EFA interfaces."""
    term = {"key": INSTANCE_TYPE, "operator": "In", "values": list(setting.efa_types)}
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    affinity["nodeSelectorTerms"] = [{"matchExpressions": [term]}]


def _patch_controller(document: Object, pod: Object, _setting: Setting, *, name: str) -> None:
    """Name upstream's rights by the controller, and restart it after a change of its settings."""
    metadata = document["metadata"]
    if metadata["name"] == "manager-role":
        metadata["name"] = f"{name}-manager"
        for rule in document["rules"]:
            hooks = [word for word in rule.get("resourceNames", ()) if word.endswith("-webhook-configuration")]
            rule.update({"resourceNames": [f"{name}-{word}" for word in hooks]} if hooks else {})
    if pod:
        settings = sha256(own_manifest(name).encode()).hexdigest()
        document["spec"]["template"]["metadata"]["annotations"] = {"bedplate/settings": settings}
    if document["kind"].endswith("WebhookConfiguration"):
        metadata["name"] = f"{name}-{metadata['name']}"
        document["webhooks"] = [_patch_hook(hook, name) for hook in document["webhooks"] if hook["name"] in _HOOKS]
    if document["kind"] == "CustomResourceDefinition" and name == KUEUE:
        _keep_one_version(document["spec"])


# None for pods: a dead controller refuses no pod. The value is what happens while it is dead; the first apply creates a
# queue before Kueue runs.
_HOOKS = dict.fromkeys(("mjob.kb.io", "vjob.kb.io", "mjobset.kb.io", "vjobset.kb.io"), "Fail")
_HOOKS |= dict.fromkeys(("vworkload.kb.io", "vclusterqueue.kb.io"), "Ignore")


def _patch_hook(hook: Object, name: str) -> Object:
    """Let a webhook of Kueue judge Jobs and JobSets of people only."""
    policy = _HOOKS[hook["name"]]
    hook["clientConfig"]["service"] |= {"name": f"{name}-webhook-service", "namespace": f"{name}-system"}
    own = {"namespaceSelector": OF_PEOPLE} if (name, policy) == (KUEUE, "Fail") else {}
    return {**hook, "failurePolicy": policy, **own}


def _keep_one_version(spec: Object) -> None:
    """Serve the stored version only, so that a dead controller keeps nobody from reading objects.

    Kueue writes its authority into the webhook of conversion, without which it does not start; nothing calls it.
    """
    spec["versions"] = [version for version in spec["versions"] if version["storage"]]
    service = {"name": "kueue-webhook-service", "namespace": "kueue-system", "path": "/convert"}
    webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
    spec["conversion"] = {"strategy": "Webhook", "webhook": webhook}


def _controller(name: str) -> Addon:
    patch = partial(_patch_controller, name=name)
    return Addon(name, lambda _: {"__NAME__": name}, patch, ("controller", name))


_PROXY = "kube-proxy"
EFA_ADDON = "efa-device-plugin"
KUEUE, JOBSET = QUEUE_ADDONS = ("kueue", "jobset")
# In the order in which a new cluster needs them.
ADDONS = (
    Addon("flannel", patch=_patch_flannel),
    Addon(
        _PROXY,
        lambda cluster: {"__PODS__": str(cluster.pods), "__ENDPOINT__": cluster.endpoint},
        manifests=(_PROXY,),
    ),
    Addon(
        "coredns",
        lambda cluster: {
            "__DNS__SERVER__": str(cluster.dns),
            "__DNS__DOMAIN__": _DOMAIN,
            "__DNS__MEMORY__LIMIT__": "170Mi",
        },
        _patch_coredns,
    ),
    Addon(
        "node-local-dns",
        lambda _: {
            "__PILLAR__LOCAL__DNS__ __PILLAR__DNS__SERVER__": str(NODE_DNS),
            "__PILLAR__LOCAL__DNS__": str(NODE_DNS),
            "__PILLAR__DNS__DOMAIN__": _DOMAIN,
        },
        _patch_node_dns,
    ),
    Addon("kube-network-policies", patch=_patch_policies),
    Addon("metrics-server", patch=_patch_metrics),
    Addon("nvidia-device-plugin", patch=_patch_gpus),
    Addon(EFA_ADDON, patch=_patch_efa, manifests=(EFA_ADDON,)),
    *map(_controller, QUEUE_ADDONS),
)
