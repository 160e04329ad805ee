"""A whole cluster of the example `lab.yaml`: members, workers of two regions and of a site, and laptops on the VPN.

The packet filters of the plan are on all machines of the cluster. The operator and people log in by the real ssh. AWS
is routers with static routes, moto, a metadata service in each machine, dnsmasq as Route 53, and a table of instances
for the approver.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import create_server
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli.options import Terminal
from bedplate.kubernetes.approval import KnownMachine
from bedplate.lock import lock_path, record_host_keys
from bedplate.nodes.bootstrap import PROGRAM as BOOTSTRAP
from bedplate.operate import plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import ClusterNode, ClusterPlan, as_node, cluster_plan, pool_node_kinds
from bedplate.plan.nodes import NodePlan, find_node, pool_node
from bedplate.plan.registration import Registration, machine_registration, registration
from roles.base import ManagedFile
from roles.hardened.firewall import ruleset
from roles.kubernetes.role import kubelet_files
from roles.worker.role import Worker as WorkerRole
from tests.conftest import DATA
from tests.testlab.engine.command import ACCOUNT
from tests.testlab.engine.folder import HISTORY, REPLAY, make_folder, resources
from tests.testlab.engine.lab import REGION
from tests.testlab.fakes.aws import metadata_service
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.authority import ClusterAuthority
from tests.testlab.kubernetes.control_plane import Api, wait_until
from tests.testlab.kubernetes.images import pod_image
from tests.testlab.kubernetes.joined_node import local_address
from tests.testlab.kubernetes.joining import BOOTSTRAP_DOUBLE, Approvers
from tests.testlab.kubernetes.places import EAST, HOME, WORKERS, inside, wire_places
from tests.testlab.kubernetes.real_node import RealNode, real_node
from tests.testlab.kubernetes.upstream import MIRROR
from tests.testlab.machines.control_plane import NAMES, REAL_KUBELET, ControlPlane, booted, member_path
from tests.testlab.machines.logins import RESOLV_CONF, SSHD, TOKENS, Logins
from tests.testlab.network.laptops import NAMED, LaptopLab
from tests.testlab.network.netlab import Lab, LabHost
from tests.testlab.run import ROOT

FIRST = NAMES[0]
TITAN = "titan-01.cellar"
_METADATA = "169.254.169.254"
_SYSTEMCTL = """#!/bin/sh
case "$*" in
"restart --no-block kubelet.service bedplate-worker.service") touch /run/joined ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac
"""
_SUDO = '#!/bin/sh\nshift\nexec "$@"\n'


@dataclass(frozen=True)
class Case:
    """A worker, its host in the laboratory, and what the plan promises of it."""

    node: ClusterNode
    plan: NodePlan
    host: LabHost
    address: str
    promised: Registration
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.plan.name

    @property
    def place(self) -> str:
        """The region or site."""
        return self.name.partition(".")[2]


@dataclass
class Worker:
    """A worker with its namespaces; it has containerd, and no kubelet before it has joined."""

    case: Case
    machine: RealNode

    def root_shell(self, script: str) -> str:
        """Run a shell script on the machine, with the programs of the roles in PATH."""
        return self.machine.shell(f"PATH={member_path()}\n{script}")

    def start(self, programs: Path) -> None:
        """Start what systemd starts once the machine has joined: kubelet and the agent."""
        assert wait_until((self.machine.root / "run/joined").exists, 30), self.machine.log("join")
        self.machine.start_kubelet(programs)
        self.machine.spawn("env", f"PATH={member_path()}", "bedplate-worker", "watch")

    def ready_node(self, api: Api) -> dict[str, Any]:
        """Return the Node object, once kubelet has registered it and the network of pods runs."""
        name = self.case.name
        assert wait_until(lambda: api.try_kubectl("get", "node", name).returncode == 0, 60), self.machine.log("kubelet")
        api.kubectl("wait", "--for=condition=Ready", f"node/{name}", "--timeout=110s")
        document: dict[str, Any] = json.loads(api.kubectl("get", "node", name, "-o=json"))
        return document

    def pass_gate(self) -> None:
        """Write the verdict of a passed gate, as the role's program does."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        verdict = json.dumps({"ok": True, "boot": boot})
        self.root_shell(f"mkdir -p /var/lib/bedplate; echo '{verdict}' >/var/lib/bedplate/gate.json")


@dataclass
class WholeCluster:
    """The laboratory. The members run; the rest is for the tests, in their order."""

    folder: Path
    lab: LaptopLab
    vpc: Lab
    plane: ControlPlane
    logins: Logins
    programs: Path
    stack: ExitStack = field(default_factory=ExitStack)
    hosts: dict[str, LabHost] = field(default_factory=dict)
    """The host of the worker of each region."""
    agents: Mapping[str, str] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    api: Api = field(init=False)
    approvers: Approvers = field(init=False)

    @property
    def fleet(self) -> Path:
        """The fleet file of the operator."""
        return self.plane.fleet

    @property
    def plan(self) -> FleetPlan:
        """The plan of the fleet file and its lock."""
        return plan_of(Terminal(self.fleet))

    @property
    def cluster(self) -> ClusterPlan:
        """The plan of the cluster."""
        cluster = cluster_plan(self.plan)
        assert cluster
        return cluster

    def on_laptop(self, person: str, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the laptop of a person, in the folder of the fleet, with their ssh agent."""
        host = self.lab.laptops[person].host
        names = host.folder / "resolv.conf"
        names.write_text(RESOLV_CONF)
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "")
        agent = {"SSH_AUTH_SOCK": self.agents[person], "XDG_CACHE_HOME": str(host.folder / "cache")}
        own = {**agent, "LOGNAME": person, "PATH": os.environ["PATH"], **proxies}
        return subprocess.run(
            ("ip", "netns", "exec", host.namespace, "sh", "-c", NAMED, str(names), *command),
            env={**os.environ, **own, **variables},
            cwd=self.fleet.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def bedplate(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `bedplate` on ada's laptop."""
        python = sys.executable
        settings = {"LAB_HOST_KEY": str(self.logins.host_key), "PYTHONPATH": str(ROOT)}
        # Upstream's manifests are in the cache of the tests.
        settings["XDG_CACHE_HOME"] = str(MIRROR.parents[2])
        return self.on_laptop("ada", python, "-m", "tests.testlab.kubernetes.operator", *words, **settings)

    def open_api(self) -> None:
        """Use the API as tests do, and run the approver on the first member."""
        (self.folder / "api").mkdir()
        for name in ("ca.crt", "ca.key"):
            (self.folder / "api" / name).write_bytes((self.plane.volume(FIRST) / "pki" / name).read_bytes())
        self.api = Api(self.programs, self.folder / "api", f"https://{self.plane.node(FIRST).address}:6443")
        self.api.authority = ClusterAuthority(self.folder / "api")
        self.stack.callback(self.api.close)
        self.approvers = Approvers(self.api)
        member = self.plane.node(FIRST)
        self.approvers.machines[FIRST] = KnownMachine(frozenset({str(member.address)}), "i-0000000000000000c")
        self.stack.enter_context(self.approvers.running("control-1"))

    def add_router(self, images: Sequence[Path]) -> None:
        """Run a real kubelet on the first member, beside the double that runs its static pods."""
        node, host = self.plane.node(FIRST), self.plane.hosts[FIRST]
        assert node.cluster
        pid = int((host.folder / "pid").read_text())
        facts = {"instance-id": "i-0000000000000000c", "placement/availability-zone": "us-west-2a"}
        self._serve_metadata(host, {**facts, "instance-type": "m7i.xlarge", "local-ipv4": str(node.address)})
        machine = self.stack.enter_context(real_node(node.cluster, None, str(node.address), host.namespace, member=pid))
        machine.start_containerd([pod_image(machine.folder), *images], None)
        machine.shell("/usr/local/lib/bedplate/kubelet-settings")
        machine.start_kubelet(self.programs)

    def _serve_metadata(self, host: LabHost, facts: dict[str, str]) -> None:
        host.run("ip", "address", "add", f"{_METADATA}/32", "dev", "lo")
        with inside(host):
            listener = create_server((_METADATA, 80))
        self.stack.enter_context(metadata_service(facts, listener))

    def add_worker(self, case: Case, images: Sequence[Path]) -> Worker:
        """Boot a worker with the files of its roles."""
        is_cloud = bool(case.facts)
        machine = self.stack.enter_context(real_node(case.node, None, case.address, case.host.namespace))
        double = BOOTSTRAP_DOUBLE.format(root=machine.root)
        programs = {"/usr/local/sbin/systemctl": _SYSTEMCTL, "/usr/local/sbin/sudo": _SUDO, BOOTSTRAP: double}
        machine.write_files(
            [
                *kubelet_files(case.node),
                *WorkerRole(case.node, is_cloud).files(),
                *self.logins.files(),
                *(ManagedFile("", path, text, "755") for path, text in programs.items()),
            ]
        )
        if is_cloud:
            self._serve_metadata(case.host, case.facts)
        case.host.load_rules(ruleset(case.plan.firewall_rules, case.plan.roles, case.plan.pod_rules))
        machine.start_containerd([pod_image(machine.folder), *images], None)
        self.approvers.machines[case.name] = KnownMachine(frozenset({case.address}), case.facts.get("instance-id"))
        self.approvers.folder[case.name] = machine.root
        worker = self.workers[case.name] = Worker(case, machine)
        return worker

    def serve_logins(self, worker: Worker) -> None:
        """Start sshd on a worker, and record its host key."""
        worker.root_shell("mkdir -p /run/sshd")
        worker.machine.spawn(*SSHD)
        key = " ".join(self.logins.host_key.read_text().split()[:2])
        plan, name = self.plan, worker.case.name
        record_host_keys(lock_path(self.fleet), plan.name, name, (key,), None, replace_known=False)

    def token_request(self, person: str) -> Sequence[str]:
        """Return the command by which the kubeconfig of a person asks for a token."""
        document = json.loads(self.fleet.with_name(f"{person}.kubeconfig").read_text())
        (user,) = document["users"]
        return (user["user"]["exec"]["command"], *user["user"]["exec"]["args"])

    def cases(self) -> Iterator[Case]:
        """Yield a worker of a pool in each of two regions, and one of the site."""
        plan, catalog = self.plan, load_catalog()
        for number, (region, zone) in enumerate(((HOME, "us-west-2a"), (EAST, "us-east-1a"))):
            pool = next(pool for pool in plan.pools if pool.name == f"burst-{region}-spot")
            instance, kind, address = f"i-0000000000000000{number}a", pool.types[-1], WORKERS[region]
            facts = {"instance-id": instance, "placement/availability-zone": zone, "instance-type": kind}
            name = f"{pool.group}-{instance[-8:]}.{region}"
            yield Case(
                pool_node_kinds(self.cluster, pool, catalog),
                pool_node(plan, pool, name, catalog),
                self.hosts[region],
                address,
                registration(pool, kind, zone, catalog),
                {**facts, "local-ipv4": address},
            )
        site, titan = plan.sites_by_name["cellar"], as_node(plan, TITAN)
        assert titan
        promised = machine_registration(site, site.machines["titan-01"])
        yield Case(titan, find_node(plan, TITAN, catalog), self.lab.machine, str(titan.address), promised)


@contextmanager
def whole_cluster(folder: Path, programs: Path, patch: pytest.MonkeyPatch) -> Iterator[WholeCluster]:
    """Yield booted members, and laptops on the VPN; the block runs in the network of the first member."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        patch.delenv(name, raising=False)
    patch.setenv("PATH", f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin")
    logins = Logins.create(folder / "logins", lab_plan())
    fleet = _fleet(folder / "fleet", logins, patch)
    with LaptopLab("whole", "ada", "grace") as lab, Lab("vpc") as vpc:
        plane = ControlPlane(vpc, fleet, {name: vpc.host(name) for name in NAMES}, tuple(logins.files()))
        cluster = WholeCluster(folder, lab, vpc, plane, logins, programs)
        cluster.hosts = wire_places(
            lab, vpc, {member.address: plane.hosts[member.name] for member in cluster.cluster.members}
        )
        with _running(cluster), cluster.stack:
            yield cluster


def _fleet(folder: Path, logins: Logins, patch: pytest.MonkeyPatch) -> Path:
    """Make the folder of the operator, with the keys of the laboratory and a `pulumi` that replays recorded events."""
    parts = {"shared": "box.shared", **dict.fromkeys((HOME, EAST, "eu-north-1"), f"box.{REGION}"), "links": ""}
    states = {f"lab.{part}": resources(f"lab.{part}", "aws:iam/role:Role") for part in parts}
    documents = {f"{stack}.json": {"version": 3, "deployment": {"resources": state}} for stack, state in states.items()}
    rows = [{"name": stack, "current": False, "resourceCount": len(state)} for stack, state in states.items()]
    texts = {name: json.dumps(document) for name, document in documents.items()}
    texts |= {"stacks.json": json.dumps(rows), "history.json": json.dumps(HISTORY)}
    recorded = (DATA / "engine/first-hour.jsonl").read_text()
    lines = [
        line.replace(source, f"lab.{part}")
        for part, source in parts.items()
        for line in recorded.splitlines()
        if source and f'"stack": "{source}", "operation": "up"' in line
    ]
    texts |= {"run.jsonl": "\n".join(lines), "fleet.yaml": _fleet_text(logins)}
    folder.mkdir()
    make_folder(folder, patch, REPLAY.replace("cat stacks.json", "[ -e calls ] && cat stacks.json || echo '[]'"), texts)
    patch.setenv("PULUMI_BACKEND_URL", "file:///unused")
    return folder / "fleet.yaml"


def _fleet_text(logins: Logins) -> str:
    text = (ROOT / "examples" / "lab.yaml").read_text().replace("111122223333", ACCOUNT)
    for name in logins.plan.accounts.uids:
        text = re.sub(rf"(  {name}: .*keys: \[)[^]]*", rf'\1"{logins.key(name)}"', text)
    return text


@contextmanager
def _running(cluster: WholeCluster) -> Iterator[None]:
    """Boot the members, and connect the laptops."""
    plane, lab, planned = cluster.plane, cluster.lab, cluster.cluster
    hosts = [
        (name, member.address)
        for member in planned.members
        for name in (planned.api, f"{member.name}.{planned.domain}")
    ]
    names = (f"--host-record={name},{address}" for name, address in hosts)
    lab.answer_names(f"--server=/{planned.short_domain}/{planned.dns}", *names)
    laptops = {person: laptop.host for person, laptop in lab.laptops.items()}
    with booted(plane), cluster.logins.agents(laptops) as cluster.agents:
        plane.shell(FIRST, f"touch {REAL_KUBELET}")
        for name, host in plane.hosts.items():
            node = plane.node(name)
            host.load_rules(ruleset(node.firewall_rules, node.roles, node.pod_rules))
            plane.shell(name, "mkdir -p /run/sshd")
            plane.start(name, *SSHD, log="sshd.log")
            plane.start(name, "bash", "-c", TOKENS, log="token.log")
        lab.serve()
        for person, laptop in lab.laptops.items():
            laptop.connect(lab.profile(person))
            laptop.wait()
        with local_address(str(planned.members[0].address)), inside(plane.hosts[FIRST]):
            yield
