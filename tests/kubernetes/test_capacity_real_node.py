"""The capacity controller with a real kubelet: a machine starts for a pod, and ends."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.capacity import capacity_lab, wait_for
from tests.testlab.kubernetes.control_plane import ControlPlane, wait_until
from tests.testlab.kubernetes.joined_node import CASES, Running, blank
from tests.testlab.kubernetes.real_node import pod


def test_the_controller_starts_a_machine_for_a_pod_and_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pending pod grows the group; the machine joins, runs the pod, and ends when it is idle; its Node goes."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    case = replace(CASES["pool"])
    pool = next(pool for pool in lab_plan().pools if pool.group == case.name.partition("-")[0])
    fleet = replace(lab_plan(), pools=(replace(pool, min=0),))
    with blank(case, tmp_path) as running, capacity_lab(control_plane(running), "default", fleet) as lab:
        tolerated = [taint.partition("=")[0] for taint in case.promised.taints]
        running.kubectl("create", "-f", "-", text=pod("job", tolerated))
        control = lab.controller()
        wait_for(lambda: bool(control.controller.observe(lab.now()).pods))
        control.controller.round(lab.now())

        ((case.instance, _),) = lab.machines.instances()
        case.name = f"{pool.group}-{case.instance[-8:]}.{pool.region}"
        running.facts["instance-id"] = case.instance
        running.join()
        running.pass_gate()
        assert wait_until(lambda: running.phase("job") == "Running", 60), running.machine.log("kubelet")
        wait_for(lambda: control.node(case.name).pods == ("default/job",))
        control.controller.round(lab.now())
        assert list(lab.machines.instances()), "a machine with work stays"

        running.kubectl("delete", "pod", "job")
        wait_for(lambda: not control.node(case.name).pods)
        for _ in range(4):
            lab.ahead += 200
            control.controller.round(lab.now())
            time.sleep(1)
        assert not list(lab.machines.instances())
        del running.approvers.machines[case.name]
        running.approvers.ahead += 3600
        assert wait_until(lambda: not running.approvers.plane.try_kubectl("get", "node", case.name).stdout, 60)


def control_plane(running: Running) -> ControlPlane:
    """Return the control plane of a machine."""
    plane = running.approvers.plane
    assert isinstance(plane, ControlPlane)
    return plane
