"""The queue for tests: Kueue and JobSet as processes beside a control plane, with the objects of the product.

    with Queues(plane, queue_folder()) as queues:
        queues.kill("kueue")

Their Deployments do not run: nodes are fake. The API server reaches them as it reaches a service of the cluster: the
services are names of loopback, and their ports are in the webhooks. Kueue makes its certificate itself, and a thread
copies it from the Secret to its folder, as kubelet does; JobSet looks for it in a fixed folder, and gets one from here.
"""

import base64
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lightkube.resources.core_v1 import Secret
from ruamel.yaml import YAML

from bedplate.catalog.catalog import load_addons
from bedplate.kubernetes.addons import ADDON_LABEL, JOBSET, KUEUE, QUEUE_ADDONS, Object
from bedplate.kubernetes.apply import apply_objects
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.desired import desired_objects
from bedplate.plan.cluster import cluster_plan
from bedplate.plan.fleet import FleetPlan
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.binaries import QUEUES, find_extra
from tests.testlab.kubernetes.control_plane import MANAGER, ControlPlane, free_ports, wait_until
from tests.testlab.kubernetes.upstream import MIRROR, available_pins, read_upstream
from tests.testlab.run import lack

_PARTS = {"policy", "people", "queues", *QUEUE_ADDONS}
_HOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_CERTIFICATE = ("tls.crt", "tls.key")


def queue_folder() -> Path:
    """Return the folder with Kueue and JobSet; the test is skipped, or fails at night, without it or the manifests."""
    folder = find_extra(QUEUES)
    if folder is None or not (MIRROR / "raw.githubusercontent.com/kubernetes-sigs/kueue").exists():
        lack("needs Kueue and JobSet: `python -m tests.testlab.kubernetes` builds them")
    return folder


class Queues:
    """Kueue and JobSet beside a control plane, and the objects that they and people need.

    `more` are labels of further add-ons of the plan whose objects are applied, `settings` replace those of Kueue.
    """

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        plan: FleetPlan | None = None,
        more: Iterable[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = settings or {}
        self.plane, self._programs, self.plan = plane, folder, plan or lab_plan()
        self._folder = plane.folder / "queues"
        self._ports = {name: free_ports(4) for name in QUEUE_ADDONS}
        cluster = cluster_plan(self.plan)
        assert cluster
        self.cluster = replace(cluster, services=IPv4Network(plane.services))
        desired = desired_objects(self.plan, self.cluster, available_pins(load_addons()), read_upstream)
        parts = _PARTS | set(more)
        self._configs = {
            item["metadata"]["name"]: item["data"]["config.yaml"]
            for item in desired
            if "config.yaml" in item.get("data", {})
        }
        chosen = [item for item in desired if item["metadata"]["labels"][ADDON_LABEL] in parts]
        self.objects: Sequence[Object] = [self._reachable(item) for item in chosen if item["kind"] != "Deployment"]
        self._stopped, self._copier = threading.Event(), threading.Thread(target=self._copy_certificate, daemon=True)

    def __enter__(self) -> Self:
        """Apply the objects, and start the controllers."""
        (self._folder / KUEUE).mkdir(parents=True)
        assert not apply_objects(ClusterClient(self.plane.client()), self.objects).failures
        # It learns of new types within a minute only, and until then their quota is unknown.
        self.plane.kill_program(MANAGER)
        self.plane.start_manager()
        self._copier.start()
        try:
            for name in QUEUE_ADDONS:
                self.start(name)
            for name in [item["metadata"]["name"] for item in self.objects if _is_person(item)]:
                self.plane.wait_for_namespace(name)
            assert wait_until(lambda: not self._fault()), self._fault()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the controllers."""
        self._end()

    def _end(self) -> None:
        self._stopped.set()
        self._copier.join()
        for name in QUEUE_ADDONS:
            self.kill(name)

    def start(self, name: str) -> None:
        """Start `kueue` or `jobset`, and wait until its webhooks answer."""
        config = self._folder / f"{name}.yaml"
        config.write_text(json.dumps(self._config(name)))
        user = f"system:serviceaccount:{name}-system:{name}-controller-manager"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{name}-system", "system:authenticated")
        kubeconfig = self.plane.kubeconfig(user, groups)
        arguments = (f"--config={config}", f"--kubeconfig={kubeconfig}")
        self.plane.start_program(self._programs / name, f"http://127.0.0.1:{self._ports[name][1]}/readyz", *arguments)

    def kill(self, name: str) -> None:
        """Kill `kueue` or `jobset`, as an outage does; nothing happens if it does not run."""
        self.plane.kill_program(name)

    def _config(self, name: str) -> dict[str, Any]:
        """Return the settings of the product, with ports on loopback and without an election."""
        settings: dict[str, Any] = YAML(typ="safe", pure=True).load(StringIO(self._configs[f"{name}-config"]))
        webhook, health, metrics, visibility = self._ports[name]
        certificates = self._folder / name
        certificates.mkdir(exist_ok=True)
        settings |= {"leaderElection": {"leaderElect": False}, "metrics": {"bindAddress": f"127.0.0.1:{metrics}"}}
        settings |= {"health": {"healthProbeBindAddress": f"127.0.0.1:{health}"}}
        settings |= {"webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(certificates)}}
        if name == KUEUE:
            settings["waitForPodsReady"]["timeout"] = "10s"
            settings |= {"visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": visibility}, **self._settings}
        else:
            settings["internalCertManagement"] = {"enable": False}
            keys = self._keys()
            for suffix in ("crt", "key"):
                (certificates / f"tls.{suffix}").write_bytes(Path(f"{keys}.{suffix}").read_bytes())
        return settings

    def _keys(self) -> Path:
        return self.plane.authority.issue(JOBSET, hosts=["jobset-webhook-service.jobset-system.svc"])

    def _reachable(self, item: Object) -> Object:
        """Return an object with which the API server finds the controllers on loopback."""
        spec, name = item.get("spec", {}), item["metadata"]["name"].partition("-")[0]
        if item["kind"] == "Service" and name in QUEUE_ADDONS:
            return {**item, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        if item["kind"] == "APIService":
            return {**item, "spec": {**spec, "service": {**spec["service"], "port": self._ports[KUEUE][3]}}}
        if item["kind"] in _HOOKS:
            return {**item, "webhooks": [self._local(hook, name) for hook in item["webhooks"]]}
        return item

    def _local(self, hook: Object, name: str) -> Object:
        config: Object = {"service": {**hook["clientConfig"]["service"], "port": self._ports[name][0]}}
        if name == JOBSET:
            config["caBundle"] = base64.b64encode(self.plane.authority.certificate.read_bytes()).decode()
        return {**hook, "clientConfig": config}

    def _copy_certificate(self) -> None:
        """Copy Kueue's certificate from its Secret whenever it changes."""
        client, folder = ClusterClient(self.plane.client()), self._folder / KUEUE
        before: dict[str, str] = {}
        while not self._stopped.wait(0.2):
            secret = client.find(Secret, "kueue-webhook-server-cert", "kueue-system")
            data = (secret and secret.data) or {}
            if data != before and all(name in data for name in _CERTIFICATE):
                for name in _CERTIFICATE:
                    (folder / name).write_bytes(base64.b64decode(data[name]))
                before = data

    def _fault(self) -> str:
        """Return why a JobSet of a person is refused, or the line cannot be read; empty if both work."""
        probe = json.dumps(job_set("probe", "grace"))
        line = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/grace/localqueues/default/pendingworkloads"
        for words in (("create", "--dry-run=server", "-f", "-"), ("get", "--raw", line)):
            done = self.plane.try_kubectl(*words, text=probe)
            if done.returncode:
                return done.stderr
        return ""


def _is_person(item: Object) -> bool:
    return item["kind"] == "Namespace" and "bedplate/uid" in item["metadata"].get("labels", {})


def job_set(  # noqa: PLR0913  what tests vary
    name: str,
    namespace: str,
    nodes: int = 1,
    gpus: int = 8,
    *,
    group: str = "train",
    priority: str = "",
    queue: str = "default",
    pod: Object | None = None,
    job: Object | None = None,
) -> Object:
    """Return a JobSet like those of `bp run`: one Job with a pod a node."""
    labels = {"kueue.x-k8s.io/queue-name": queue}
    labels |= {"kueue.x-k8s.io/priority-class": priority} if priority else {}
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}
    container = {"name": "run", "image": "none", "resources": resources}
    container["securityContext"] = {"capabilities": {"drop": ["ALL"]}}
    spec: Object = {"restartPolicy": "Never", "containers": [container]}
    spec |= {"nodeSelector": {"bedplate/group": group}} if group else {}
    spec |= {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}], **(pod or {})}
    template: Object = {"parallelism": nodes, "completions": nodes, "completionMode": "Indexed", "backoffLimit": 0}
    template |= {"template": {"metadata": {"labels": {"bedplate/run": name}}, "spec": spec}, **(job or {})}
    jobs = [
        {"name": "n", "replicas": 1, "template": {"metadata": {"labels": {"bedplate/run": name}}, "spec": template}}
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "labels": {**labels, "bedplate/run": name}},
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": jobs,
        },
    }
