"""Real kubelets of a pool and of a site join by the path of the roles, run a pod, and leave.

kubelet, containerd and runc run in a network namespace; AWS is a fake metadata service and a table of the test.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.cluster.approval import KnownMachine
from bedplate.plan.cluster import ClusterNode, as_node, cluster_plan, pool_node_kinds
from bedplate.plan.joining import BOOTSTRAPPERS, machine_group
from bedplate.plan.registration import Registration, machine_registration, registration
from bedplate.worker import join as agent_join
from bedplate.worker.__main__ import Agent
from bedplate.worker.leaving import Departure, drain
from tests.testlab import run
from tests.testlab.fakes.aws import metadata_service
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.binaries import find_programs
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.kubernetes.joining import Approvers, JoiningMachine
from tests.testlab.kubernetes.real_node import HOST, NODE, PROGRAMS, RealNode, pod, real_node
from tests.testlab.run import lack

TITAN, WORKER = "titan-01.cellar", "prep-0000000a.us-west-2"
FACTS = {
    "instance-id": "i-00000000a",
    "placement/availability-zone": "us-west-2b",
    "instance-type": "c7i.24xlarge",
    "local-ipv4": NODE,
}


@dataclass
class Case:
    """A machine of a pool or of a site, and what the plan promises of it."""

    node: ClusterNode
    name: str
    promised: Registration
    instance: str | None = None


def _cases() -> dict[str, Case]:
    plan = lab_plan()
    cluster, titan, site = cluster_plan(plan), as_node(plan, TITAN), plan.sites_by_name["cellar"]
    pool = next(pool for pool in plan.pools if FACTS["instance-type"] in pool.types and pool.region == "us-west-2")
    assert cluster
    assert titan
    promised = registration(pool, FACTS["instance-type"], FACTS["placement/availability-zone"], load_catalog())
    name = f"{pool.group}-0000000a.us-west-2"
    return {
        "pool": Case(pool_node_kinds(cluster, pool, load_catalog()), name, promised, FACTS["instance-id"]),
        "site": Case(titan, TITAN, machine_registration(site, site.machines["titan-01"])),
    }


CASES = _cases()


@dataclass
class Running:
    """A node that has joined, with its agent."""

    case: Case
    approvers: Approvers
    machine: RealNode
    agent: Agent
    facts: dict[str, str]
    seconds: float

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


@pytest.fixture(scope="module", params=sorted(CASES))
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a node that has joined by the path of the roles."""
    programs, case, root = find_programs(), CASES[request.param], tmp_path_factory.mktemp("root")
    if programs is None or os.geteuid() or not all(map(shutil.which, PROGRAMS)):
        lack(f"needs root, the programs of Kubernetes, and {', '.join(PROGRAMS)}")
    facts = dict(FACTS)
    with (
        _local(HOST) as patch,
        real_node(case.node, root) as machine,
        metadata_service(facts) as metadata,
        ControlPlane(programs, address=HOST) as plane,
    ):
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        patch.setattr(agent_join, "SETTINGS_PROGRAM", "true")
        approvers = Approvers(plane)
        approvers.machines[case.name] = KnownMachine(frozenset({NODE, str(case.node.address)}), case.instance)
        approvers.folder[case.name] = root
        machine.start_containerd()
        with approvers.running("control-1"):
            started = time.monotonic()
            joining = JoiningMachine(root, plane, case.name, cloud=case.instance is not None)
            machine.write_settings(metadata)
            if not case.instance:
                _give_address(root, str(case.node.address))
            joining.join(_token(approvers, case))
            machine.start_kubelet(programs)
            result = Running(case, approvers, machine, _agent(joining, metadata, case.name, root), facts, 0.0)
            assert wait_until(lambda: _is_ready(result), 90), machine.log("kubelet")
            result.seconds = time.monotonic() - started
            yield result


@contextmanager
def _local(address: str) -> Iterator[pytest.MonkeyPatch]:
    """Treat an address of this machine as loopback: no proxy, and no failure of the test."""
    is_loopback = run._is_loopback  # noqa: SLF001
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_is_loopback", lambda name: name == address or is_loopback(name))
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, f"{os.environ.get(name, '')},{address}")
        yield patch


def _give_address(root: Path, planned: str) -> None:
    """Let the site's machine have the address of the namespace instead of the planned one."""
    file = root / "run/bedplate/kubelet.env"
    file.write_text(file.read_text().replace(planned, NODE))


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


def _is_ready(running: Running) -> bool:
    done = running.approvers.plane.try_kubectl("get", "node", running.case.name, "-o=json")
    conditions = json.loads(done.stdout)["status"].get("conditions", ()) if done.stdout else ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def test_it_registers_exactly_what_the_plan_promises(running: Running) -> None:
    """Labels of the fleet and of topology, and taints; nothing besides what kubelet and controllers add themselves."""
    node, promised = running.node(), running.case.promised
    taints = {f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in node["spec"]["taints"]}
    own = {"beta.kubernetes.io/arch", "beta.kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/hostname"}
    added = own | {"kubernetes.io/os", "beta.kubernetes.io/instance-type"}
    legacy = {f"failure-domain.beta.kubernetes.io/{word}" for word in ("region", "zone")}

    labels = {key: value for key, value in node["metadata"]["labels"].items() if key not in added | legacy}

    assert labels == {key: value for key, value in promised.labels.items() if key not in added}
    assert taints - {"bedplate/gate=pending:NoSchedule"} == set(promised.taints)
    assert "bedplate/gate=pending:NoSchedule" in taints
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == running.case.name
    provider = "aws:///us-west-2b/i-00000000a" if running.case.instance else "bedplate://cellar/titan-01"
    assert node["spec"]["providerID"] == provider


def test_it_gets_a_serving_certificate_of_its_address(running: Running) -> None:
    """The approver answers kubelet's second request."""
    assert wait_until(lambda: any("approve: the addresses of" in line for line in running.approvers.log), 30)


def test_pods_run_after_the_gate_has_passed(running: Running) -> None:
    """A pod waits for the gate; the agent reports the gate, the approver removes the taint, and the container runs."""
    tolerated = [taint.partition("=")[0] for taint in running.case.promised.taints]
    running.kubectl("create", "-f", "-", text=pod("first", tolerated, {"app": "train"}))
    running.agent.step()
    time.sleep(2)
    assert running.phase("first") == "Pending"

    verdict = running.agent.root / "var/lib/bedplate/gate.json"
    verdict.parent.mkdir(parents=True, exist_ok=True)
    verdict.write_text('{"ok": true, "boot": "boot-1"}')
    running.agent.step()

    assert wait_until(lambda: running.phase("first") == "Running", 60), running.machine.log("kubelet")


def test_it_drains_within_its_time_as_budgets_permit(running: Running) -> None:
    """A budget keeps the pod until the time is over; without the budget it leaves. The hook is answered each time.

    A machine of a site leaves at its shutdown, one of a pool when Auto Scaling ends it.
    """
    running.kubectl("create", "pdb", "train", "--selector=app=train", "--min-available=1")
    running.agent.settings = type(running.agent.settings)(**{**vars(running.agent.settings), "drain": 6})
    started = time.monotonic()
    leave(running)
    assert 5 < time.monotonic() - started < 20
    assert running.phase("first") == "Running"
    assert running.node()["spec"]["unschedulable"] is True

    running.kubectl("delete", "pdb", "train")
    running.agent.has_answered = False
    leave(running)

    assert running.phase("first") == ""
    assert running.agent.root.joinpath("drained").exists() == (running.case.instance is not None)


def leave(running: Running) -> None:
    """Announce the end of the machine."""
    if running.case.instance:
        running.facts["autoscaling/target-lifecycle-state"] = "Terminated"
        running.agent.step()
    else:
        drain(running.case.name, Departure("this machine shuts down", 6), print, running.agent.kubectl)


def test_after_a_reboot_it_takes_pods_again(running: Running) -> None:
    """The agent uncordons a node that it has cordoned, and leaves one alone that a person has cordoned."""
    running.facts.pop("autoscaling/target-lifecycle-state", None)
    fresh = Agent(running.agent.settings, running.case.name, running.agent.root)
    fresh.step()
    assert "unschedulable" not in running.node()["spec"]

    running.kubectl("cordon", running.case.name)
    Agent(running.agent.settings, running.case.name, running.agent.root).step()
    assert running.node()["spec"]["unschedulable"] is True
