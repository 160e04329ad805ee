"""Rules for workbenches and workers: the health gate runs, and its last verdict is good."""

import time

from testinfra.host import Host

from bedplate.compliance.settings import applies_to, differing_files
from bedplate.foreign import parse_json
from bedplate.plan.nodes import NodeRole
from roles.gate.role import TIMER, gate_files

pytestmark = applies_to(NodeRole.WORKBENCH, NodeRole.WORKER)

_VERDICT = "/var/lib/bedplate/gate.json"
# The timer runs every five minutes, and a check of GPUs may take one.
_LONGEST_AGE = 900


def test_health_gate_is_scheduled(host: Host) -> None:
    """The timer of the health gate is active and starts at boot."""
    timer = host.service(TIMER)

    assert timer.is_enabled
    assert timer.is_running


def test_health_gate_is_unchanged(host: Host) -> None:
    """The program of the health gate is the one that the role ships, and belongs to root."""
    changed = differing_files(host, gate_files())

    assert not changed, f"changed: {', '.join(changed)}"


def test_machine_passed_its_health_gate(host: Host) -> None:
    """The last verdict of the health gate is recent, of this boot, and good."""
    verdict = parse_json(host.file(_VERDICT).content_string)
    failed = [f"{finding['check']}: {finding['text']}" for finding in verdict["findings"] if not finding["ok"]]

    assert not failed, f"{verdict['verdict']}: {'; '.join(failed)}"
    assert verdict["boot"] == host.file("/proc/sys/kernel/random/boot_id").content_string.strip()
    assert verdict["time"] > time.time() - _LONGEST_AGE
