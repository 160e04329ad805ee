"""`python3 -m bedplate.machine new|ready`: one configuration run of this machine.

A `new` machine gets all roles, and answers its lifecycle hook after the gate. It skips the install stage if its image
has its packages. On a `ready` machine, roles whose changes need a drain or a reboot wait.

A run that changes nothing is not audited again for a day.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bedplate.errors import BedplateError
from bedplate.files import read_json, write_whole
from bedplate.machine.calls import (
    apply_roles,
    audit,
    check_machine,
    gate_sentence,
    heartbeats,
    reboot,
    run_step,
)
from bedplate.machine.freeze import is_installed
from bedplate.machine.state import State, Status
from bedplate.plan.laptops import Transport
from bedplate.plan.nodes import NodePlan
from bedplate.programs.gateway.paths import GatewayPaths
from roles.base import Disruption
from roles.catalog import roles_of
from roles.openvpn.role import OpenVpn

_AFTER_INSTALL = frozenset({"configure", "activate"})
_AT_ONCE = (Disruption.NONE, Disruption.SERVICE)
_LOWEST_PRIORITY = 19
_AUDIT_PERIOD = 24 * 3600.0
_ATTEMPTS = 3
"""The failed runs since boot after which a new machine is abandoned if its roles fail, or counted if its gate fails."""


def main(state: State, *, is_new: bool) -> int:
    """Configure this machine; return the exit status, 1 if a later run may succeed."""
    started, audited = time.monotonic(), _take_audited(state)
    with heartbeats():
        try:
            node = state.node()
            status = _configure(state, node, is_new=is_new)
        except BedplateError as error:
            node, status = None, Status(ok=False, sentence=f"{error.what}; {error.fix}" if error.fix else error.what)
        exit_status = 0 if status.ok else 1
        verdict = check_machine(state, node, is_new=is_new) if node and status.ok else None
        if verdict and not verdict["ok"]:
            status = replace(status, ok=False, sentence=gate_sentence(verdict))
            exit_status = int(is_new and verdict["verdict"] != "hardware")
        is_ready = not is_new
        if is_new:
            is_ready = status.ok and run_step("report_ready")
    status = replace(status, seconds=round(time.monotonic() - started, 1))
    state.write_run(status, time.time(), is_ready=is_ready)
    sys.stdout.write(f"{status.sentence}\n")
    run_step("put_status")
    if is_new and not is_ready:
        _give_up(state, verdict)
    elif node and status.ok:
        _audit(state, node, {} if status.changed else audited)
    return exit_status


def _take_audited(state: State) -> Mapping[str, Any]:
    """Return what the last audit was about, and forget it: if this run is killed, the next one audits."""
    audited = read_json(state.audited)
    state.audited.unlink(missing_ok=True)
    return audited


def _audit(state: State, node: NodePlan, audited: Mapping[str, Any]) -> None:
    """Write the findings of an audit, unless the last one was today, about the same, and found nothing."""
    subject, now = state.audit_subject(), time.time()
    if not (audited.items() >= subject.items() and 0 <= now - audited.get("time", 0.0) < _AUDIT_PERIOD):
        # At the lowest priority, which remains.
        os.nice(_LOWEST_PRIORITY)
        document = {"version": 1, "time": int(now), **audit(state, node)}
        state.write_status("audit", document)
        run_step("put_status")
        audited = {**subject, "time": now} if document["ok"] else {}
    if audited:
        state.audited.parent.mkdir(parents=True, exist_ok=True)
        write_whole(state.audited, json.dumps(audited).encode())


def _configure(state: State, node: NodePlan, *, is_new: bool) -> Status:
    """Apply the roles that may run now."""
    roles = roles_of(node)
    later = frozenset(role.name for role in roles if role.disruption not in _AT_ONCE) if not is_new else frozenset()
    is_unresolved = node.laptops is not None and not node.laptops.name_servers(Transport.UDP)
    blocked = later | {OpenVpn.name} if is_unresolved else later
    only = frozenset(role.name for role in roles) - blocked if blocked else None
    stages = _AFTER_INSTALL if is_new and is_installed(state, node) else None
    result = apply_roles(node, only, stages=stages)
    if not result.is_done:
        error = result.error
        return Status(ok=False, sentence=error.words if error else "stopped", changed=tuple(result.changed))
    waiting = tuple(sorted(later)) if later and apply_roles(node, later, check=True).changed else ()
    words = f"{len(result.changed)} changed" if result.changed else "up to date"
    if stages:
        words += "; installed by its image"
    if node.laptops and (is_unresolved or not GatewayPaths().crl.exists()):
        reason = "no DNS resolver is recorded" if is_unresolved else "its volume has no keys"
        words += f"; OpenVPN waits: {reason}: run `bedplate vpn up`"
    if waiting:
        words += f"; {', '.join(waiting)}: changes wait for a drain or a reboot"
    return Status(ok=True, sentence=words, changed=tuple(result.changed), waiting=waiting)


def _give_up(state: State, verdict: Mapping[str, Any] | None) -> None:
    """End a new machine whose roles or hardware failed, after a reboot if the gate requires it.

    Without a fault of its hardware it tries again, and another machine would have the same fault: AWS ends it when the
    hook expires. The alarm of the group counts it as well.
    """
    attempts = state.count("attempts")
    if verdict is None:
        if attempts >= _ATTEMPTS:
            run_step("report_failed")
        return
    checks = " ".join(dict.fromkeys(finding["check"] for finding in verdict["findings"] if not finding["ok"]))
    if verdict["action"] == "reboot" and state.count_ever("reboots") == 1:
        reboot()
    elif verdict["verdict"] == "hardware":
        run_step("report_failed", CHECKS=checks)
    elif attempts == _ATTEMPTS:
        run_step("count_failed", CHECKS=checks)


if __name__ == "__main__":
    sys.exit(main(State(), is_new=sys.argv[1:] != ["ready"]))
