"""The last step of `bedplate up`: machines get host keys and roles. AWS answers by stubs, the apply is a fake."""

from pathlib import Path

import pytest

from bedplate.account.machines import LiveMachine
from bedplate.cli import run
from bedplate.cli.options import Terminal
from bedplate.errors import BedplateError, MachineError, PartialError
from bedplate.lock import lock_path, record_host_keys
from bedplate.operate import machines, plan_of
from bedplate.operate.deploy import with_authorities
from bedplate.operate.machines import ready_machines
from tests.testlab.fakes.apply import FakeApply
from tests.testlab.fleets.variants import HOME

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
NAME, INSTANCE = "workbench-cpu-1.us-west-2", "i-0000000000000000b"
MACHINE = LiveMachine(
    INSTANCE,
    "workbench-cpu",
    "workbench-cpu-us-west-2",
    "us-west-2",
    "us-west-2a",
    "m7i.large",
    "InService",
    None,
    NAME,
)


@pytest.fixture
def results(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[LiveMachine | BedplateError]:
    """Return what AWS reports: one machine in service with a recorded host key, which does not answer directly."""
    assert run(["plan", str(here), "--write"]) == 0
    record_host_keys(lock_path(here), "lab", NAME, (KEY,), INSTANCE, replace_known=False)
    reported: list[LiveMachine | BedplateError] = [MACHINE]
    for name, value in {
        "deliver_bundle": lambda *_: [],
        "_pool_machines": lambda _plan, _client: reported,
        "_permanent_machines": lambda _plan, _client: (),
        "_desired": lambda _plan, _client: {"workbench-cpu-us-west-2": 1},
        "answering": lambda _hosts: frozenset(),
        "check_plugin": lambda: None,
        "_WAIT": 0,
    }.items():
        monkeypatch.setattr(machines, name, value)
    monkeypatch.setattr("bedplate.operate.open_account", lambda _plan: None)
    monkeypatch.setattr("bedplate.operate.login.answering", lambda _hosts: frozenset())
    return reported


@pytest.mark.usefixtures("results")
def test_a_running_machine_is_configured(here: Path, applies: FakeApply, capsys: pytest.CaptureFixture[str]) -> None:
    """A silent machine of a site is listed with its command; a group without machines with `node start`."""
    result = ready_machines(Terminal(here), "bedplate up")

    assert result.status == 0
    assert result.document == {"ready": [NAME], "not_ready": []}
    output = capsys.readouterr().out
    assert applies.machines == [NAME]
    assert f"{NAME}: ready" in output
    assert "titan-01.cellar: does not answer; later: `bedplate node apply titan-01.cellar`" in output
    assert "`bedplate node start workbench-gpu`" in output


def test_a_machine_that_does_not_start_does_not_stop_the_others(
    here: Path, results: list[LiveMachine | BedplateError], applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the limit: status 6, with the command that continues."""
    results.append(PartialError("i-1 of workbench-cpu is Pending"))

    assert ready_machines(Terminal(here), "bedplate up").status == 6

    assert applies.machines == [NAME]
    errors = capsys.readouterr().err
    assert "i-1 of workbench-cpu is Pending" in errors
    assert "run `bedplate up` again" in errors


def test_the_control_plane_is_started_after_its_roles(
    here: Path, results: list[LiveMachine | BedplateError], applies: FakeApply, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is that of `kube init`."""
    results[:] = []
    member = LiveMachine(
        "i-0000000000000000c", "", "", HOME, f"{HOME}a", "m7i.xlarge", "running", None, f"control-1.{HOME}"
    )
    record_host_keys(lock_path(here), "lab", f"control-1.{HOME}", (KEY,), member.instance, replace_known=False)
    monkeypatch.setattr(machines, "_permanent_machines", lambda _plan, _client: [member])

    monkeypatch.setattr(machines, "start_cluster", lambda _: 6 if applies.machines else 0)

    assert ready_machines(Terminal(here), "bedplate up").status == 6

    assert applies.machines == [f"control-1.{HOME}"]


def test_the_authorities_of_the_cluster_are_made_before_its_stacks(here: Path) -> None:
    """A stack publishes the keys of tokens, and workers trust the certificate in their documents; made once."""
    assert run(["plan", str(here), "--write"]) == 0
    plan = with_authorities(Terminal(here), plan_of(Terminal(here)))

    assert plan.record.authority.startswith("-----BEGIN CERTIFICATE-----")
    assert plan.record.account_keys[0] in lock_path(here).read_text()
    assert with_authorities(Terminal(here), plan) is plan


@pytest.mark.usefixtures("results")
def test_without_a_path_nothing_is_applied(
    here: Path, applies: FakeApply, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither VPN nor plugin: status 6 and one sentence."""

    def missing() -> None:
        raise MachineError("session-manager-plugin is not installed", fix="install it")

    monkeypatch.setattr(machines, "check_plugin", missing)

    assert ready_machines(Terminal(here), "bedplate up").status == 6

    assert not applies.requests
    assert f"no path to {NAME}: the VPN is not connected, and session-manager-plugin" in capsys.readouterr().err
