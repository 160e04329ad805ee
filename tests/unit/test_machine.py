"""The configuration run: what follows from the result of roles and gate. The programs of the machine are fakes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bedplate.catalog import load_catalog
from bedplate.machine import __main__ as machine
from bedplate.machine.state import State
from bedplate.nodes.apply import Event, NodeErrorKind, NodeResult, Step
from bedplate.plan.node_document import pool_document
from bedplate.plan.nodes import NodePlan
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")
PASSED = {"ok": True, "action": "none", "findings": []}
FAILED = {"ok": False, "action": "replace", "findings": [{"check": "gpus", "text": "7, planned 8", "ok": False}]}
REBOOT = {**FAILED, "action": "reboot"}


@dataclass
class Calls:
    """The programs of a machine; `asked` are the calls, in order, without the upload of the status."""

    verdict: Mapping[str, Any] = field(default_factory=lambda: PASSED)
    trouble: str = ""
    changed: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    def apply_roles(
        self,
        node: NodePlan,
        only: frozenset[str] | None,
        *,
        check: bool = False,
        stages: frozenset[str] | None = None,
    ) -> NodeResult:
        """Return a prepared result."""
        words = (
            "check" if check else "apply",
            "all" if only is None else ",".join(sorted(only)),
            *sorted(stages or ()),
        )
        self.asked.append(" ".join(words))
        error = Event(node.name, Step.TROUBLE, words=self.trouble, kind=NodeErrorKind.FAILED) if self.trouble else None
        return NodeResult(node.name, [*self.changed], trouble=error, is_done=not error)

    def run_gate(self, *, is_new: bool) -> Mapping[str, Any]:
        """Return the prepared verdict."""
        del is_new
        self.asked.append("gate")
        return self.verdict

    def run_step(self, name: str) -> bool:
        """Record a step of the bootstrap."""
        if name != "put_status":
            self.asked.append(name)
        return True


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Return the programs, which all succeed."""
    fakes = Calls()
    for name in ("apply_roles", "run_gate", "run_step"):
        monkeypatch.setattr(machine, name, getattr(fakes, name))
    monkeypatch.setattr(machine, "audit", lambda *_: {"nodes": []})
    monkeypatch.setattr(machine, "reboot", lambda: fakes.asked.append("reboot"))
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
    assert calls.asked == ["apply all", "gate", "report_ready"]
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

    assert calls.asked[0] == "apply all activate configure"
    assert status(state)["sentence"].endswith("installed by its image")
    calls.asked.clear()
    machine.main(state, is_new=False)
    assert calls.asked[0].split()[-1] not in {"activate", "configure"}


def test_changes_that_need_a_reboot_wait_on_a_ready_machine(calls: Calls, state: State) -> None:
    """The other roles are applied; the status names the role that waits, and no hook is answered."""
    calls.changed = ("Install the driver",)

    assert machine.main(state, is_new=False) == 0
    applied, checked, gate = calls.asked
    assert (checked, gate) == ("check nvidia", "gate")
    assert "nvidia" not in applied.removeprefix("apply ").split(",")
    assert "baseline" in applied
    assert status(state)["waiting"] == ["nvidia"]


def test_a_failed_run_is_repeated_before_a_new_machine_is_abandoned(calls: Calls, state: State) -> None:
    """Systemd repeats a run with exit status 1; after the third failure the group replaces the machine."""
    calls.trouble = "Install packages: cannot reach a package repository"

    codes = [machine.main(state, is_new=True) for _ in range(3)]

    assert codes == [1, 1, 1]
    assert calls.asked == ["apply all"] * 3 + ["report_failed"]
    assert (status(state)["ok"], status(state)["sentence"]) == (False, calls.trouble)


@pytest.mark.parametrize(
    ("verdict", "ends"),
    [(FAILED, ["report_failed", "report_failed"]), (REBOOT, ["reboot", "report_failed"])],
    ids=["replace", "reboot"],
)
def test_a_new_machine_that_fails_its_gate_is_replaced(
    calls: Calls, state: State, verdict: Mapping[str, Any], ends: list[str]
) -> None:
    """One reboot comes first if the gate requires it. The status has the failed checks."""
    calls.verdict = verdict

    for _ in ends:
        machine.main(state, is_new=True)

    assert [call for call in calls.asked if call not in ("apply all", "gate")] == ends
    assert status(state)["sentence"] == "gate failed: gpus: 7, planned 8"


def test_a_ready_machine_is_never_abandoned(calls: Calls, state: State) -> None:
    """Its users keep it; operators see the status."""
    calls.verdict = FAILED

    assert machine.main(state, is_new=False) == 0
    assert "report_failed" not in calls.asked
    assert not status(state)["ok"]


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
    assert calls.asked == []
    assert sentence in status(state)["sentence"]
