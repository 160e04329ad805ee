"""The keeper of a gateway: what an operator's machine speaks with, and what Prometheus is told."""

from pathlib import Path

from testinfra.host import Host

import vpn.keeper
from bedplate.compliance.subject import on_duty
from bedplate.plan.nodes import Duty, NodePlan
from roles.keeper.role import FOLDER, METRICS, PROGRAM, TIMER

pytestmark = on_duty(Duty.LAPTOPS, Duty.TUNNELS)


def test_the_keeper_is_the_projects(host: Host, node: NodePlan) -> None:
    """Gateways and operators speak one language: an older keeper may not know how to cut somebody off."""
    here = {file.name: file for file in Path(vpn.keeper.__file__).parent.glob("*.py")}

    assert set(host.file(f"{FOLDER}/keeper").listdir()) - {"__pycache__"} == set(here)
    for name, file in here.items():
        assert host.file(f"{FOLDER}/keeper/{name}").content_string == file.read_text(encoding="utf-8")
    assert oct(host.file(PROGRAM).mode) == "0o755"


def test_prometheus_is_told_each_minute(host: Host, node: NodePlan) -> None:
    """What has not been written for three minutes is no news."""
    assert host.service(TIMER).is_running
    written = f"{METRICS}/bedplate-vpn.prom"
    assert host.run("test $(( $(date +%%s) - $(stat -c %%Y %s) )) -lt 180", written).rc == 0
