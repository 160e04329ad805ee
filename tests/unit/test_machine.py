"""The configuration run: what follows from the result of roles and gate. The programs of the machine are fakes."""

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from bedplate.catalog import load_catalog
from bedplate.machine import __main__ as machine
from bedplate.machine import calls as programs
from bedplate.machine import upgrade
from bedplate.machine.state import State
from bedplate.nodes.apply import Event, NodeErrorKind, NodeResult, Step
from bedplate.plan.node_document import node_document, pool_document
from bedplate.plan.nodes import NodePlan, find_node
from bedplate.plan.record import Record
from bedplate.programs import probe
from bedplate.programs.gateway.paths import GatewayPaths
from tests.testlab.fleets.variants import LAPTOP_PLANS_RECORD, lab_plan
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")
PASSED = {"ok": True, "verdict": "passed", "action": "none", "findings": []}
MISSING = [{"check": "gpus", "text": "7, planned 8", "ok": False}]
FAILED = {"ok": False, "verdict": "hardware", "action": "replace", "findings": MISSING}
REBOOT = {**FAILED, "action": "reboot"}
SENTENCE = "gate failed, broken hardware: gpus: 7, planned 8"


@dataclass
class Calls:
    """The programs of a machine; `recorded` are the calls, in order, without the upload of the status."""

    verdict: Mapping[str, Any] = field(default_factory=lambda: PASSED)
    error: str = ""
    changed: tuple[str, ...] = ()
    findings: Mapping[str, Any] = field(default_factory=lambda: {"ok": True, "nodes": []})
    recorded: list[str] = field(default_factory=list)
    audits: int = 0

    def audit(self, state: State, node: NodePlan) -> Mapping[str, Any]:
        """Return the prepared findings."""
        del state, node
        self.audits += 1
        return self.findings

    def apply_roles(
        self,
        node: NodePlan,
        only: frozenset[str] | None,
        *,
        check: bool = False,
        stages: frozenset[str] | None = None,
        report: object = None,
    ) -> NodeResult:
        """Return a prepared result."""
        del report
        words = (
            "check" if check else "apply",
            "all" if only is None else ",".join(sorted(only)),
            *sorted(stages or ()),
        )
        self.recorded.append(" ".join(words))
        error = Event(node.name, Step.ERROR, words=self.error, kind=NodeErrorKind.FAILED) if self.error else None
        return NodeResult(node.name, [*self.changed], error=error, is_done=not error)

    def run_gate(self, *, is_new: bool) -> Mapping[str, Any]:
        """Return the prepared verdict."""
        del is_new
        self.recorded.append("gate")
        return self.verdict

    def run_step(self, name: str, **environment: str) -> bool:
        """Record a step of the bootstrap."""
        if name != "put_status":
            self.recorded.append(" ".join((name, *environment.values())))
        return True


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Return the programs, which all succeed."""
    fakes = Calls()
    for module in (machine, upgrade):
        for name in ("apply_roles", "run_step"):
            monkeypatch.setattr(module, name, getattr(fakes, name))
        monkeypatch.setattr(module, "reboot", lambda: fakes.recorded.append("reboot"))
    monkeypatch.setattr(programs, "run_gate", fakes.run_gate)
    monkeypatch.setattr(machine, "audit", fakes.audit)
    monkeypatch.setattr("os.nice", lambda _increment: 0)
    return fakes


@pytest.fixture
def state(tmp_path: Path) -> State:
    """Return the files of a machine of a pool with GPUs, after its bootstrap."""
    (tmp_path / "kept").mkdir()
    pool = next(pool for pool in LAB.pools if pool.group == "workbench-gpu")
    (tmp_path / "kept/document.json").write_text(pool_document(LAB, pool, load_catalog()))
    (tmp_path / "kept/node.json").write_text('{"bundle": "abc", "sequence": 7}')
    return State(tmp_path / "kept", tmp_path / "volatile")


def status(state: State) -> dict[str, Any]:
    """Return the status of the last run."""
    document: dict[str, Any] = json.loads((state.folder / "status/run.json").read_text())
    return document


def test_a_new_machine_reports_ready_after_the_gate(calls: Calls, state: State) -> None:
    """All roles are applied, also those that need a reboot; the status names the bundle."""
    calls.changed = ("Install packages",)

    assert machine.main(state, is_new=True) == 0
    assert calls.recorded == ["apply all", "gate", "report_ready"]
    assert {"ok": True, "ready": True, "sentence": "1 changed", "bundle": "abc", "sequence": 7}.items() <= status(
        state
    ).items()
    assert (state.folder / "status/audit.json").exists()


def test_a_new_machine_skips_the_install_stage_of_its_image(
    calls: Calls, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ready machine runs it, so drift and newer versions are corrected."""
    monkeypatch.setattr(machine, "is_installed", lambda *_: True)

    machine.main(state, is_new=True)

    assert calls.recorded[0] == "apply all activate configure"
    assert status(state)["sentence"].endswith("installed by its image")
    calls.recorded.clear()
    machine.main(state, is_new=False)
    assert calls.recorded[0].split()[-1] not in {"activate", "configure"}


def test_changes_that_need_a_reboot_wait_on_a_ready_machine(calls: Calls, state: State) -> None:
    """The other roles are applied; the status names the role that waits, and no hook is answered."""
    calls.changed = ("Install the driver",)

    assert machine.main(state, is_new=False) == 0
    applied, checked, gate = calls.recorded
    assert (checked, gate) == ("check nvidia", "gate")
    assert "nvidia" not in applied.removeprefix("apply ").split(",")
    assert "baseline" in applied
    assert status(state)["waiting"] == ["nvidia"]


@pytest.mark.parametrize(
    "case",
    [
        (LAPTOP_PLANS_RECORD, (), "all", "up to date; OpenVPN waits: its volume has no keys: run `bedplate vpn up`"),
        (LAPTOP_PLANS_RECORD, ("crl.pem",), "all", "up to date"),
        (
            Record({}),
            ("crl.pem",),
            "baseline,hardened,monitoring,people,storage,vpnagent",
            "up to date; OpenVPN waits: no DNS resolver is recorded: run `bedplate vpn up`",
        ),
    ],
    ids=["no keys", "keys", "no resolver"],
)
def test_a_gateway_before_vpn_up_is_ready_and_says_what_it_waits_for(
    calls: Calls, state: State, monkeypatch: pytest.MonkeyPatch, case: tuple[Record, tuple[str, ...], str, str]
) -> None:
    """Another machine would wait too, so it is not abandoned; without a resolver all roles but openvpn are applied."""
    record, files, applied, sentence = case
    state.document.write_text(node_document(find_node(lab_plan(record), "laptops.us-west-2", load_catalog())))
    monkeypatch.setattr(machine, "GatewayPaths", lambda: GatewayPaths(settings=state.folder))
    for file in files:
        (state.folder / file).touch()

    assert machine.main(state, is_new=True) == 0

    assert calls.recorded == [f"apply {applied}", "report_ready"]
    assert status(state)["sentence"] == sentence


def test_a_failed_run_is_repeated_before_a_new_machine_is_abandoned(calls: Calls, state: State) -> None:
    """Systemd repeats a run with exit status 1; after the third failure the group replaces the machine."""
    calls.error = "Install packages: cannot reach a package repository"

    codes = [machine.main(state, is_new=True) for _ in range(3)]

    assert codes == [1, 1, 1]
    assert calls.recorded == ["apply all"] * 3 + ["report_failed"]
    assert (status(state)["ok"], status(state)["sentence"]) == (False, calls.error)


@pytest.mark.parametrize(
    ("verdict", "ends"),
    [(FAILED, ["report_failed gpus", "report_failed gpus"]), (REBOOT, ["reboot", "report_failed gpus"])],
    ids=["replace", "reboot"],
)
def test_a_new_machine_that_fails_its_gate_is_replaced(
    calls: Calls, state: State, verdict: Mapping[str, Any], ends: list[str]
) -> None:
    """One reboot comes first if the gate requires it. The status has the failed checks."""
    calls.verdict = verdict

    for _ in ends:
        machine.main(state, is_new=True)

    assert [call for call in calls.recorded if call not in ("apply all", "gate")] == ends
    assert status(state)["sentence"] == SENTENCE


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [("software", "gate failed, broken software: gpus: 7"), ("unknown", "gate failed, cannot tell why: gpus: 7")],
)
def test_a_new_machine_without_a_fault_of_its_hardware_tries_again(
    calls: Calls, state: State, verdict: str, sentence: str
) -> None:
    """Another machine would have the same fault. It is counted once, for the alarm, and AWS ends the hook."""
    calls.verdict = {**FAILED, "verdict": verdict, "action": "repair"}

    assert [machine.main(state, is_new=True) for _ in range(5)] == [1] * 5
    assert [call for call in calls.recorded if call not in ("apply all", "gate")] == ["count_failed gpus"]
    assert status(state)["sentence"].startswith(sentence)
    calls.verdict = PASSED
    assert machine.main(state, is_new=True) == 0
    assert calls.recorded[-1] == "report_ready"


def test_a_reboot_for_software_comes_once(calls: Calls, state: State) -> None:
    """Then the machine tries again without one."""
    calls.verdict = {**REBOOT, "verdict": "software"}

    for _ in range(3):
        machine.main(state, is_new=True)

    assert [call for call in calls.recorded if call not in ("apply all", "gate")] == ["reboot", "count_failed gpus"]


def test_a_ready_machine_is_never_abandoned(calls: Calls, state: State) -> None:
    """Its users keep it; operators see the status."""
    calls.verdict = FAILED

    assert machine.main(state, is_new=False) == 0
    assert calls.recorded[-1] == "gate"
    assert not status(state)["ok"]


def test_an_unchanged_machine_is_audited_once_a_day(calls: Calls, state: State) -> None:
    """A run without a change keeps the findings of the last audit, and their date."""
    machine.main(state, is_new=True)
    findings = (state.folder / "status/audit.json").read_text()
    for _ in range(2):
        machine.main(state, is_new=False)

    assert calls.audits == 1
    assert (state.folder / "status/audit.json").read_text() == findings
    state.audited.write_text(json.dumps({**json.loads(state.audited.read_text()), "time": time.time() - 86400}))
    machine.main(state, is_new=False)
    assert calls.audits == 2


def _edit_document(state: State) -> None:
    state.document.write_text(state.document.read_text() + " ")


@pytest.mark.parametrize(
    "change",
    [
        lambda state, *_: _edit_document(state),
        lambda state, *_: (state.folder / "node.json").write_text('{"bundle": "def", "sequence": 8}'),
        lambda state, *_: shutil.rmtree(state.volatile),
        lambda _, calls, __: setattr(calls, "changed", ("Configure chrony",)),
        lambda state, _, terminal: upgrade.main("now", state, replace(terminal, uid=None)),
        lambda state, *_: state.audited.write_text(json.dumps({**json.loads(state.audited.read_text()), "time": 9e9})),
    ],
    ids=["document", "bundle", "boot", "drift", "upgrade", "clock"],
)
def test_a_changed_machine_is_audited_at_once(
    change: Callable[[State, Calls, "Terminal"], object], calls: Calls, state: State, terminal: "Terminal"
) -> None:
    """Another bundle or document, a boot, a corrected drift, an upgrade, and a clock that was set back."""
    machine.main(state, is_new=True)
    change(state, calls, terminal)

    machine.main(state, is_new=False)

    assert calls.audits == 2


def test_an_audit_with_findings_is_repeated(calls: Calls, state: State) -> None:
    """After a repair the status is right within the hour."""
    calls.findings = {"ok": False, "nodes": []}
    for is_new in (True, False, False):
        machine.main(state, is_new=is_new)

    assert calls.audits == 3


def test_a_killed_run_is_followed_by_an_audit(calls: Calls, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """The killed run may have changed the machine."""
    machine.main(state, is_new=True)
    with monkeypatch.context() as patch:
        patch.setattr(machine, "apply_roles", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            machine.main(state, is_new=False)
    machine.main(state, is_new=False)

    assert calls.audits == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{", "invalid node document"), ('{"version": 99, "node": {}}', "version 99"), (None, "cannot read")],
    ids=["broken", "version", "missing"],
)
def test_an_unusable_document_changes_nothing(calls: Calls, state: State, text: str | None, sentence: str) -> None:
    """No role is applied, and the status has the reason."""
    if text is None:
        state.document.unlink()
    else:
        state.document.write_text(text)

    assert machine.main(state, is_new=False) == 1
    assert calls.recorded == []
    assert sentence in status(state)["sentence"]


@dataclass
class Terminal(upgrade.Operator):
    """The operator's command, which keeps the events of an upgrade."""

    events: list[Event] = field(default_factory=list)

    def report(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    """Return the operator of an upgrade; waiting takes no time, and nobody works on the machine."""
    for name in ("_PAUSE", "_GRACE", "_WAIT"):
        monkeypatch.setattr(upgrade, name, 0.0)
    monkeypatch.setattr(upgrade, "NO_LOGIN", tmp_path / "nologin")
    monkeypatch.setattr(upgrade, "REBOOTING", tmp_path / "reboots")
    monkeypatch.setattr(upgrade, "_REBOOT_REQUIRED", tmp_path / "reboot-required")
    monkeypatch.setattr(upgrade, "_tell_people", lambda: None)
    monkeypatch.setattr(upgrade, "running_uids", lambda: iter(()))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    _write_needrestart(tmp_path, "")
    return Terminal(uid=-1)


def _write_needrestart(folder: Path, services: str) -> None:
    """Write a program that prints what needrestart does."""
    (folder / "needrestart").write_text(f"#!/bin/sh\nprintf 'NEEDRESTART-VER: 3.6\\n{services}'\n")
    (folder / "needrestart").chmod(0o755)


def test_an_upgrade_applies_what_waits_and_reboots(calls: Calls, state: State, terminal: Terminal) -> None:
    """A change of the driver drains the machine and reboots it; the command then continues with roles and gate."""
    calls.changed = ("Install the driver",)

    upgrade.main("wait", state, terminal)
    before = [*calls.recorded]
    calls.changed = ()
    upgrade.main("end", state, terminal)

    assert before == ["check nvidia", "apply all", "gate", "reboot"]
    assert calls.recorded[4:] == ["apply all", "gate"]
    assert [event.step for event in terminal.events if event.step is not Step.NOTE] == [Step.REBOOT, Step.DONE]
    assert status(state)["sentence"] == "up to date"


def test_an_upgrade_reboots_a_machine_with_replaced_programs(
    calls: Calls, state: State, terminal: Terminal, tmp_path: Path
) -> None:
    """Package upgrades do not restart services of jobs and tunnels."""
    _write_needrestart(tmp_path, "NEEDRESTART-SVC: bedplate-upgrade.service\\nNEEDRESTART-SVC: openvpn@udp.service\\n")

    upgrade.main("wait", state, terminal)

    assert calls.recorded == ["apply all", "gate", "reboot"]
    assert "runs replaced programs: openvpn@udp.service" in [event.words for event in terminal.events]


def test_an_upgrade_without_waiting_changes_disturbs_nobody(calls: Calls, state: State, terminal: Terminal) -> None:
    """Without a change that waits, people stay logged in."""
    upgrade.main("now", state, replace(terminal, uid=None))

    assert calls.recorded == ["check nvidia", "apply all", "gate"]


@pytest.mark.parametrize("operator", ["ada", "grace"])
def test_an_upgrade_waits_for_people(
    calls: Calls, state: State, terminal: Terminal, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that somebody but the operator uses is not changed after the wait, and accepts logins again."""
    calls.changed = ("Install the driver",)
    uids, end = state.node().accounts.uids, Step.REBOOT if operator == "grace" else Step.ERROR
    terminal.uid = uids[operator]
    monkeypatch.setattr(upgrade, "running_uids", lambda: iter((0, uids["grace"])))

    upgrade.main("wait", state, terminal)

    assert terminal.events[-1].step is end
    assert ("apply all" in calls.recorded) == (end is Step.REBOOT)
    assert end is Step.REBOOT or terminal.events[-1].words == "still in use by grace"
    assert not (state.folder.parent / "nologin").exists()


def test_an_upgrade_without_its_operator_does_not_reboot(calls: Calls, state: State, terminal: Terminal) -> None:
    """The changes are applied; the reboot waits for the next command."""
    calls.changed = ("Install the driver",)
    terminal.has_gone.set()

    upgrade.main("wait", state, terminal)

    assert "reboot" not in calls.recorded
    assert terminal.events[-1].kind is NodeErrorKind.STOPPED


def test_an_upgrade_with_a_failed_gate_is_an_error(calls: Calls, state: State, terminal: Terminal) -> None:
    """The machine stays; the status and the operator get the failed checks."""
    calls.verdict = FAILED

    upgrade.main("wait", state, terminal)

    assert terminal.events[-1].words == status(state)["sentence"] == SENTENCE


def test_a_gate_without_a_verdict_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that cannot run, or does not end, requires a repair; its last words are the finding."""
    gate = tmp_path / "gate"
    gate.write_text("#!/bin/sh\necho 'no module named programs' >&2\n[ ! -e \"$0.hangs\" ] || sleep 60\nexit 1\n")
    gate.chmod(0o755)
    monkeypatch.setattr(programs, "GATE", str(gate))
    monkeypatch.setattr(programs, "_GATE_SECONDS", 0.5)

    sentence = programs.gate_sentence(programs.run_gate(is_new=False))
    assert sentence == "gate failed, cannot tell why: gate: gate --json failed: no module named programs"
    (tmp_path / "gate.hangs").touch()
    assert "did not end within" in programs.gate_sentence(programs.run_gate(is_new=False))


KEY, OTHER_KEY = ("ssh-ed25519 AAAA", "ssh-ed25519 BBBB")


@pytest.mark.parametrize(("key", "has_source"), [(OTHER_KEY, True), ("", True), (KEY, False), (KEY, True)])
def test_a_change_is_confirmed_only_on_a_reachable_machine(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_source: bool
) -> None:
    """Sshd must answer with the key of the machine, and the source of bundles must answer; else it is reverted."""
    keyscan, ran = tmp_path / "ssh-keyscan", list[tuple[str, ...]]()
    keyscan.write_text(f"#!/bin/sh\necho '# 10.0.0.1:22'\necho '10.0.0.1 {key}'\n")
    keyscan.chmod(0o755)
    (tmp_path / "key.pub").write_text(f"{KEY} root@host\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(probe, "_KEY", tmp_path / "key.pub")
    monkeypatch.setattr(probe, "own_address", lambda: "10.0.0.1")
    monkeypatch.setattr(probe, "_BOOTSTRAP", "true" if has_source else "false")
    monkeypatch.setattr("os.execvp", lambda _program, argv: ran.append(argv))

    with nullcontext() if key == KEY and has_source else pytest.raises(SystemExit, match="255"):
        probe.main("confirm")

    assert bool(ran) == (key == KEY and has_source)
