"""A real control plane for tests: etcd, API server with RBAC, controller manager and scheduler as processes.

    with ControlPlane(find_programs()) as plane:
        plane.start_kwok()
        plane.add_nodes(5, {"nvidia.com/gpu": "8"})
        plane.kubectl("get", "nodes")

Every process ends with the one that started it. Nothing is a container, and no kubelet runs: kwok's nodes are fake.
"""

import json
import os
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from secrets import randbelow
from socket import create_server
from tempfile import mkdtemp
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self, cast

import httpx2
from lightkube import Client, KubeConfig
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node

from bedplate.plan.links import API_PORT
from roles.control.role import ADMISSION
from tests.testlab.kubernetes.authority import ClusterAuthority

ADMIN = "admin"
_KWOK = "kwok"
MANAGER = "kube-controller-manager"
_SERVER, _KUBELET_CLIENT, _PROXY = "kube-apiserver", "kubelet-client", "front-proxy-client"
_GROUPS = {ADMIN: ("system:masters",), _KWOK: ("system:masters",)}
# On a busy machine it takes minutes instead of 5 s.
_STARTUP_SECONDS = 300
_PATIENCE = 120
# The limits of Kubernetes' own clients are 20 requests a second, which would slow down every test.
_LIMITS = ("--kube-api-qps=1000", "--kube-api-burst=2000")
FAKE = {"kwok.x-k8s.io/node": "fake"}


class Api:
    """The API of a cluster, for which the tests have the authority: kubectl and clients of any user."""

    authority: ClusterAuthority

    def __init__(self, programs: Path, folder: Path, server: str) -> None:
        self.programs, self.folder, self.server = programs.resolve(), folder, server
        self._clients: dict[str, Client] = {}

    def kubeconfig(self, user: str = ADMIN, groups: Sequence[str] = ()) -> Path:
        """Return the kubeconfig of a user, whose certificate is issued on first use."""
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        if path.exists():
            return path
        keys = self.authority.issue(user, groups or _GROUPS.get(user, ()))
        cluster = {"server": self.server, "certificate-authority": str(self.authority.certificate)}
        credentials = {"client-certificate": f"{keys}.crt", "client-key": f"{keys}.key"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(document))  # JSON is YAML
        return path

    def client(self, user: str = ADMIN, groups: Sequence[str] = ()) -> Client:
        """Return lightkube's client of a user; it is closed with the control plane."""
        if user not in self._clients:
            config = KubeConfig.from_file(self.kubeconfig(user, groups))
            self._clients[user] = Client(config, timeout=httpx2.Timeout(_PATIENCE), trust_env=False)
        return self._clients[user]

    def kubectl(self, *words: str, user: str = ADMIN, text: str = "") -> str:
        """Return the output of kubectl, with a text on its stdin. Raises AssertionError if it fails."""
        done = self.try_kubectl(*words, user=user, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def try_kubectl(self, *words: str, user: str = ADMIN, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl as a user, and return what it did."""
        config = self.kubeconfig(user)
        options = (f"--kubeconfig={config}", f"--cache-dir={config.parent / 'cache'}")
        command = (str(self.programs / "kubectl"), *options, *words)
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=120)

    def as_person(self, token: str, *words: str, text: str = "") -> tuple[int, str]:
        """Run kubectl with a token alone; return its exit status and output."""
        done = self.try_kubectl(*self.token_options(token), *words, text=text)
        return done.returncode, done.stderr + done.stdout

    def token_options(self, token: str) -> tuple[str, ...]:
        """Return kubectl's options for a token."""
        trust = f"--certificate-authority={self.authority.certificate}"
        return ("--kubeconfig=/dev/null", f"--server={self.server}", trust, f"--token={token}")

    def kubeadm(self, *words: str) -> str:
        """Return the output of kubeadm as an administrator. Raises AssertionError if it fails."""
        command = (str(self.programs / "kubeadm"), *words, f"--kubeconfig={self.kubeconfig()}")
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def wait_for_namespace(self, name: str) -> None:
        """Wait until pods are accepted in a namespace: the controller manager gives it a service account."""
        ask = ("get", "serviceaccount", "default", f"--namespace={name}")
        assert wait_until(lambda: self.try_kubectl(*ask).returncode == 0), name

    def close(self) -> None:
        """Close all clients."""
        for client in self._clients.values():
            client.close()


class ControlPlane(Api):
    """A control plane with a state in memory.

    `address` is where the API server listens; another one than loopback lets machines in other network namespaces join,
    and pods reach it, at the port of real clusters. `services` is the block of service addresses. Each node gets a /24
    of the block of `pods`. `issuers` are the arguments of the issuers of tokens.
    """

    names: Sequence[str] = ()
    """More names of the API server in its certificate."""

    def __init__(
        self,
        programs: Path,
        address: str = "127.0.0.1",
        services: str = "10.96.0.0/16",
        pods: str = "",
        issuers: Sequence[str] = ("--service-account-issuer=https://kubernetes.default.svc",),
    ) -> None:
        self.address, self.services, self.pods, self.issuers = address, services, pods, tuple(issuers)
        memory = Path("/dev/shm")  # noqa: S108  etcd syncs every write to disk: memory is faster
        folder = Path(mkdtemp(prefix="bedplate-kube-", dir=memory if os.access(memory, os.W_OK) else None))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._is_local = IPv4Address(address).is_loopback
        self._etcd, self._peer, port, self._manager, self._scheduler = free_ports(5)
        self._port = port if self._is_local else API_PORT
        super().__init__(programs, folder, f"https://{address}:{self._port}")

    def __enter__(self) -> Self:
        """Start the control plane, within some 5 s."""
        first = str(IPv4Network(self.services)[1])
        hosts = ("localhost", "kubernetes", "kubernetes.default.svc", first, *{"127.0.0.1", self.address}, *self.names)
        self.authority = ClusterAuthority.create(self.folder)
        self.authority.issue("serving", hosts=hosts)
        self.authority.issue(_KUBELET_CLIENT, ["system:masters"])
        self.authority.issue(_PROXY)
        try:
            self._start()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes and delete the state."""
        self._kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        url, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        self._spawn(
            "etcd",
            *("--data-dir", f"{self.folder}/etcd", "--listen-peer-urls", peer),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
        )
        self.start_server()
        self.start_manager()
        self._spawn(
            "kube-scheduler",
            *("--kubeconfig", str(self.kubeconfig("system:kube-scheduler")), "--leader-elect=false"),
            *("--bind-address=127.0.0.1", f"--secure-port={self._scheduler}", *_LIMITS),
        )
        self._wait(f"https://127.0.0.1:{self._manager}/healthz")
        self._wait(f"https://127.0.0.1:{self._scheduler}/healthz")
        self.wait_for_namespace("default")

    def start_manager(self) -> None:
        """Start the controller manager, also after it was killed."""
        manager = self.kubeconfig("system:kube-controller-manager")
        self._spawn(
            MANAGER,
            *("--kubeconfig", str(manager), "--leader-elect=false", "--bind-address=127.0.0.1"),
            *(f"--secure-port={self._manager}", "--use-service-account-credentials", *_LIMITS),
            *("--controllers=*,bootstrap-signer-controller,token-cleaner-controller", "--root-ca-file=ca.crt"),
            *("--cluster-signing-cert-file=ca.crt", "--cluster-signing-key-file=ca.key"),
            "--service-account-private-key-file=sa.key",
            *(("--allocate-node-cidrs", f"--cluster-cidr={self.pods}") if self.pods else ()),
        )

    def start_server(self) -> None:
        """Start the API server, also after `stop_server`."""
        reconciler = "none" if self._is_local else "lease"
        self._spawn(
            _SERVER,
            *(f"--etcd-servers=http://127.0.0.1:{self._etcd}", f"--service-cluster-ip-range={self.services}"),
            *(f"--bind-address={self.address}", f"--secure-port={self._port}", "--profiling=false"),
            *(f"--advertise-address={self.address}", f"--endpoint-reconciler-type={reconciler}", "--allow-privileged"),
            *("--tls-cert-file=serving.crt", "--tls-private-key-file=serving.key", "--client-ca-file=ca.crt"),
            *("--authorization-mode=Node,RBAC", *(f"--{name}={value}" for name, value in ADMISSION.items())),
            *("--enable-bootstrap-token-auth", *self.issuers),
            *("--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key"),
            *("--kubelet-certificate-authority=ca.crt", "--kubelet-preferred-address-types=InternalIP"),
            *(f"--kubelet-client-certificate={_KUBELET_CLIENT}.crt", f"--kubelet-client-key={_KUBELET_CLIENT}.key"),
            # As kubeadm sets them: the API server tells its extensions who asks.
            *("--requestheader-client-ca-file=ca.crt", f"--requestheader-allowed-names={_PROXY}"),
            *("--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group"),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            *(f"--proxy-client-cert-file={_PROXY}.crt", f"--proxy-client-key-file={_PROXY}.key"),
        )
        self._wait(f"{self.server}/readyz")

    def stop_server(self) -> None:
        """Kill the API server, as an outage does; the other processes go on."""
        self.kill_program(_SERVER)

    def start_kwok(self, boot_ms: int = 0, pod_ms: int = 0, stop_ms: int = 0) -> None:
        """Start kwok: fake nodes become Ready after `boot_ms`; their pods run, and end when they are deleted."""
        stages = (
            _stage("Node", boot_ms, _NOT_READY, {"statusTemplate": _READY_NODE}),
            _stage("Pod", pod_ms, _PENDING, {"statusTemplate": _RUNNING_POD}),
            _stage("Pod", stop_ms, _DELETED, {"delete": True}),
        )
        (self.folder / "stages.yaml").write_text("\n---\n".join(json.dumps(stage) for stage in stages))
        (port,) = free_ports(1)
        self._spawn(
            _KWOK,
            *("--kubeconfig", str(self.kubeconfig(_KWOK)), "--config=stages.yaml", "--manage-all-nodes=false"),
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            *("--node-lease-duration-seconds=40", f"--server-address=127.0.0.1:{port}"),
        )
        self._wait(f"http://127.0.0.1:{port}/healthz")

    def add_nodes(
        self, count: int, capacity: Mapping[str, str], labels: Mapping[str, str] | None = None, prefix: str = "fake"
    ) -> list[str]:
        """Create fake nodes `PREFIX-0...` with resources besides 96 cores, 1 TiB, 110 pods; return their names."""
        everything = {"cpu": "96", "memory": "1Ti", "pods": "110", **capacity}
        client = self.client()
        names = [f"{prefix}-{number}" for number in range(count)]
        for name in names:
            metadata = ObjectMeta(
                name=name, annotations=FAKE, labels={"kubernetes.io/hostname": name, **(labels or {})}
            )
            status = {"capacity": everything, "allocatable": everything}
            client.create(cast("Node", Node.from_dict({"metadata": metadata.to_dict(), "status": status})))
        return names

    def start_program(self, program: Path, url: str, *arguments: str) -> None:
        """Start a program beside the control plane, and wait until a URL of it answers."""
        self._spawn(program.name, *arguments, folder=program.parent)
        self._wait(url)

    def pid(self, name: str) -> int:
        """Return the process of a program."""
        return self._processes[name].pid

    def kill_program(self, name: str) -> None:
        """Kill a program by its name, as an outage does; nothing happens if it does not run."""
        if process := self._processes.pop(name, None):
            process.kill()
            process.wait()

    def _spawn(self, name: str, *arguments: str, folder: Path | None = None) -> None:
        # setpriv: nothing outlives a killed test run.
        command = ("setpriv", "--pdeathsig", "KILL", "--", str((folder or self.programs) / name), *arguments)
        with (self.folder / f"{name}.log").open("ab") as log:
            # Tests have a proxy that refuses; the API server asks webhooks by the names of services.
            variables = {**os.environ, "NO_PROXY": "localhost,127.0.0.0/8,10.0.0.0/8,.svc"}
            self._processes[name] = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables
            )

    def _wait(self, url: str) -> None:
        """Wait until a URL answers 200 to an administrator; fail with the log of a process that ended."""
        deadline = monotonic() + _STARTUP_SECONDS
        while True:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise AssertionError(f"{name} ended:\n{self.log(name)[-3000:]}")
            with suppress(OSError), self._open(url):
                return
            if monotonic() > deadline:
                raise AssertionError(f"no answer from {url}:\n{self.log(name)[-3000:]}")
            sleep(0.05)

    def _open(self, url: str) -> Any:  # noqa: ANN401  urllib's own type
        """Open a URL as an administrator. Raises OSError, also for an answer other than 200."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        if not url.startswith(self.server):  # the health ports of the others sign their certificates themselves
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        keys = self.authority.issue(ADMIN, _GROUPS[ADMIN])
        context.load_cert_chain(f"{keys}.crt", f"{keys}.key")
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        return opener.open(url, timeout=10)

    def cpu_seconds(self) -> float:
        """Return the processor seconds of all processes."""
        texts = (Path(f"/proc/{process.pid}/stat").read_text() for process in self._processes.values())
        user_and_system = (text.rpartition(")")[2].split()[11:13] for text in texts)
        return sum(int(ticks) for pair in user_and_system for ticks in pair) / os.sysconf("SC_CLK_TCK")

    def log(self, name: str) -> str:
        """Return what a process has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _kill(self) -> None:
        self.close()
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()


def wait_until(condition: Callable[[], object], seconds: float = 120) -> bool:
    """Return whether a condition became true in time."""
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            return False
        sleep(0.2)
    return True


def free_ports(count: int) -> list[int]:
    """Return ports on loopback that no process uses now, below those that the kernel gives to connections."""
    ports: set[int] = set()
    while len(ports) < count:
        port = 20000 + randbelow(12000)
        with suppress(OSError), create_server(("127.0.0.1", port)):
            ports.add(port)
    return list(ports)


def _stage(kind: str, delay: int, conditions: Sequence[Mapping[str, Any]], then: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Stage of kwok: what happens to an object, and when. Without stages kwok does nothing."""
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"{kind.lower()}-{'-'.join(then).lower()}"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": list(conditions)},
            "delay": {"durationMilliseconds": delay},
            "next": dict(then),
        },
    }


Expressions = Sequence[Mapping[str, Any]]
_DELETION = ".metadata.deletionTimestamp"
_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
_NOT_READY: Expressions = [{"key": _READY, "operator": "NotIn", "values": ["True"]}]
_PENDING: Expressions = [
    {"key": _DELETION, "operator": "DoesNotExist"},
    {"key": ".status.phase", "operator": "In", "values": ["Pending"]},
]
_DELETED: Expressions = [{"key": _DELETION, "operator": "Exists"}]
_READY_NODE = """\
phase: Running
conditions:
- {type: Ready, status: "True", reason: Fake, message: kwok, lastHeartbeatTime: {{ Now | Quote }},
   lastTransitionTime: {{ Now | Quote }}}
"""
_RUNNING_POD = """\
phase: Running
startTime: {{ Now | Quote }}
conditions:
- {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ Now | Quote }}}
"""
