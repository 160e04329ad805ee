"""Real kubelets of a pool and of a site join by the path of the roles, run a pod, and leave.

kubelet, containerd and runc run in a network namespace; AWS is a fake metadata service and a table of the test.
"""

import time
from collections.abc import Iterator

import pytest

from bedplate.programs.worker.__main__ import Agent
from bedplate.programs.worker.leaving import Shutdown, drain
from tests.testlab.kubernetes.control_plane import wait_until
from tests.testlab.kubernetes.joined_node import CASES, Running, blank, is_ready
from tests.testlab.kubernetes.real_node import pod


@pytest.fixture(scope="module", params=sorted(CASES))
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a node that has joined by the path of the roles."""
    with blank(CASES[request.param], tmp_path_factory.mktemp("root")) as running:
        running.join()
        yield running


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

    running.pass_gate()

    assert wait_until(lambda: running.phase("first") == "Running", 60), running.machine.log("kubelet")


def test_a_deleted_node_of_a_live_machine_comes_back(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent restarts kubelet, which registers with the gate's taint; the taint goes, and a new pod runs.

    kubelet itself does not come back: systemd is replaced by a start of the program.
    """
    node, machine = running.case.name, running.machine

    def restart(*words: str) -> str:
        assert words == ("systemctl", "restart", "kubelet.service")
        machine.restart_kubelet(running.approvers.plane.programs)
        return ""

    monkeypatch.setattr("bedplate.programs.worker.__main__.output", restart)
    monkeypatch.setattr(running.agent, "period", 1.0)
    identity = running.node()["metadata"]["uid"]
    running.kubectl("delete", "pod", "first", "--wait")
    running.kubectl("delete", "node", node)

    def is_back() -> bool:
        running.agent.step()
        found = running.approvers.plane.try_kubectl("get", "node", node, "-o=jsonpath={.metadata.uid}")
        return found.stdout not in {"", identity} and is_ready(running)

    def takes_pods() -> bool:
        running.agent.step()
        return not gate_taints(running)

    assert wait_until(is_back, 60), machine.log("kubelet")
    assert wait_until(takes_pods, 30), running.node()
    tolerated = [taint.partition("=")[0] for taint in running.case.promised.taints]
    running.kubectl("create", "-f", "-", text=pod("first", tolerated, {"app": "train"}))
    assert wait_until(lambda: running.phase("first") == "Running", 60), machine.log("kubelet")


def test_a_gate_that_fails_later_keeps_new_pods_away(running: Running) -> None:
    """The node gets the taint with what is broken, and a condition with the failed check; its pod runs on."""
    verdict = {"ok": False, "boot": "boot-1", "verdict": "hardware", "action": "reboot"}
    finding = {"check": "gpu-errors", "ok": False, "text": "Xid 79 on GPU 18", "action": "reboot", "cause": "hardware"}
    running.write_verdict({**verdict, "findings": [finding]})

    assert wait_until(lambda: gate_taints(running) == ["hardware"], 30)
    (condition,) = (entry for entry in running.node()["status"]["conditions"] if entry["type"] == "GateFailed")
    assert (condition["status"], condition["message"]) == ("True", "gpu-errors: Xid 79 on GPU 18 (reboot)")
    assert running.phase("first") == "Running"

    running.pass_gate()
    assert wait_until(lambda: not gate_taints(running), 30)


def gate_taints(running: Running) -> list[str]:
    """Return the values of the gate's taint."""
    taints = running.node()["spec"].get("taints", [])
    return [taint["value"] for taint in taints if taint["key"] == "bedplate/gate"]


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
        drain(running.case.name, Shutdown("this machine shuts down", 6), print, running.agent.kubectl)


def test_after_a_reboot_it_takes_pods_again(running: Running) -> None:
    """The agent uncordons a node that it has cordoned, and leaves one alone that a person has cordoned."""
    running.facts.pop("autoscaling/target-lifecycle-state", None)
    fresh = Agent(running.agent.settings, running.case.name, running.agent.root)
    fresh.step()
    assert "unschedulable" not in running.node()["spec"]

    running.kubectl("cordon", running.case.name)
    Agent(running.agent.settings, running.case.name, running.agent.root).step()
    assert running.node()["spec"]["unschedulable"] is True
