"""A real kubelet that joins by the path of the roles: a machine of a pool, or of a site.

AWS is a fake metadata service and a table of the test.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.kubernetes.approval import KnownMachine
from bedplate.plan.cluster import BOOTSTRAPPERS, ClusterNode, as_node, cluster_plan, machine_group, pool_node_kinds
from bedplate.plan.registration import Registration, machine_registration, registration
from bedplate.programs.worker import join as agent_join
from bedplate.programs.worker.__main__ import Agent
from tests.testlab import run
from tests.testlab.fakes.aws import metadata_service
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.kubernetes.images import pod_image
from tests.testlab.kubernetes.joining import Approvers, JoiningMachine
from tests.testlab.kubernetes.real_node import HOST, NODE, PODS, RealNode, need_real_nodes, real_node, segment

TITAN = "titan-01.cellar"
FACTS = {
    "instance-id": "i-00000000a",
    "placement/availability-zone": "us-west-2b",
    "instance-type": "c7i.24xlarge",
}


@dataclass
class Case:
    """A machine of a pool or of a site, and what the plan promises of it."""

    node: ClusterNode
    name: str
    promised: Registration
    instance: str | None = None
    facts: Mapping[str, str] = field(default_factory=lambda: FACTS)


def pool_case(kind: str = FACTS["instance-type"], instance: str = FACTS["instance-id"]) -> Case:
    """Return an instance of a type, and so of its pool."""
    plan = lab_plan()
    cluster = cluster_plan(plan)
    pool = next(pool for pool in plan.pools if kind in pool.types and pool.region == "us-west-2")
    assert cluster
    promised = registration(pool, kind, FACTS["placement/availability-zone"], load_catalog())
    facts = {**FACTS, "instance-type": kind, "instance-id": instance}
    name = f"{pool.group}-{instance[-8:]}.us-west-2"
    return Case(pool_node_kinds(cluster, pool, load_catalog()), name, promised, instance, facts)


def _site_case() -> Case:
    plan = lab_plan()
    titan, site = as_node(plan, TITAN), plan.sites_by_name["cellar"]
    assert titan
    return Case(titan, TITAN, machine_registration(site, site.machines["titan-01"]))


CASES = {"pool": pool_case(), "site": _site_case()}


@dataclass
class Running:
    """A machine, with the agent that it has once it has joined."""

    case: Case
    approvers: Approvers
    machine: RealNode
    metadata: str
    facts: dict[str, str]
    agent: Agent = field(init=False)

    def join(self) -> None:
        """Join the cluster by the path of the roles."""
        case, approvers, root, address = self.case, self.approvers, self.machine.root, self.machine.address
        approvers.machines[case.name] = KnownMachine(frozenset({address, str(case.node.address)}), case.instance)
        approvers.folder[case.name] = root
        joining = JoiningMachine(root, approvers.plane, case.name, cloud=case.instance is not None)
        self.machine.write_settings(self.metadata)
        if not case.instance:
            _give_address(root, str(case.node.address), address)
        joining.join(_token(approvers, case))
        self.machine.start_kubelet(approvers.plane.programs)
        self.agent = _agent(joining, self.metadata, case.name, root)
        assert wait_until(lambda: is_ready(self), 90), self.machine.log("kubelet")

    def pass_gate(self) -> None:
        """Report a passed gate."""
        self.write_verdict({"ok": True, "boot": "boot-1"})

    def write_verdict(self, verdict: Mapping[str, object]) -> None:
        """Write the verdict of a gate, and let the agent report it."""
        file = self.agent.root / "var/lib/bedplate/gate.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(verdict))
        self.agent.step()

    def node(self) -> dict[str, Any]:
        """Return the Node object."""
        document: dict[str, Any] = json.loads(self.kubectl("get", "node", self.case.name, "-o=json"))
        return document

    def kubectl(self, *words: str, text: str = "") -> str:
        """Run kubectl as an administrator."""
        return self.approvers.plane.kubectl(*words, text=text)

    def phase(self, name: str) -> str:
        """Return the phase of a pod; empty if it is gone."""
        return self.approvers.plane.try_kubectl("get", "pod", name, "-o=jsonpath={.status.phase}").stdout


@contextmanager
def blank(case: Case, root: Path) -> Iterator[Running]:
    """Yield a machine that has not joined, with its control plane, approver and metadata service."""
    with cluster() as approvers, machine(approvers, case, root) as running:
        yield running


@contextmanager
def cluster() -> Iterator[Approvers]:
    """Yield the approver of a control plane with the blocks of the plan, which nodes of the segment reach."""
    programs, plan = need_real_nodes(), cluster_plan(lab_plan())
    assert plan
    with (
        local_address(HOST) as patch,
        segment(),
        ControlPlane(programs, HOST, str(plan.services), str(plan.pods)) as plane,
    ):
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        patch.setattr(agent_join, "SETTINGS_PROGRAM", "true")
        approvers = Approvers(plane)
        with approvers.running("control-1"):
            yield approvers


@contextmanager
def machine(
    approvers: Approvers, case: Case, root: Path, address: str = NODE, addons: Sequence[Path] = ()
) -> Iterator[Running]:
    """Yield a machine that has not joined, with its metadata service.

    With the images of add-ons, one of them sets up the network of pods.
    """
    facts = {**case.facts, "local-ipv4": address}
    with real_node(case.node, root, address) as node, metadata_service(facts) as metadata:
        node.start_containerd([pod_image(node.folder), *addons], None if addons else PODS)
        yield Running(case, approvers, node, metadata, facts)


@contextmanager
def local_address(address: str) -> Iterator[pytest.MonkeyPatch]:
    """Treat an address of this machine as loopback: no proxy, also to its segment, and no failure of the test."""
    is_loopback = run._is_loopback  # noqa: SLF001
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_is_loopback", lambda name: name == address or is_loopback(name))
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, f"{os.environ.get(name, '')},{address},{address}/24")
        yield patch


def _give_address(root: Path, planned: str, address: str) -> None:
    """Let the site's machine have the address of the namespace instead of the planned one."""
    file = root / "run/bedplate/kubelet.env"
    file.write_text(file.read_text().replace(planned, address))


def _token(approvers: Approvers, case: Case) -> str:
    if case.instance:
        return approvers.approver.make_token()
    groups = ("--groups", BOOTSTRAPPERS, "--groups", machine_group(case.name))
    return approvers.plane.kubeadm("token", "create", "--ttl", "15m", "--usages", "authentication", *groups).strip()


def _agent(joining: JoiningMachine, metadata: str, name: str, root: Path) -> Agent:
    settings = joining.settings
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    return Agent(type(settings)(**{**vars(settings), "metadata": f"{metadata}/latest"}), name, root)


def is_ready(running: Running) -> bool:
    """Return whether the node is ready."""
    done = running.approvers.plane.try_kubectl("get", "node", running.case.name, "-o=json")
    conditions = json.loads(done.stdout)["status"].get("conditions", ()) if done.stdout else ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
