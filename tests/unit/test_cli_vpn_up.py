"""`bedplate vpn up`, with real gateway agents behind a fake ssh. The apply of roles is a fake."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bedplate.cli import run
from bedplate.errors import PartialError
from bedplate.lock import lock_path, read_lock, record_endpoints, record_host_keys
from bedplate.operate import Operator, plan_of
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import NodePlan
from tests.testlab.fakes.apply import FakeApply
from tests.testlab.fleets.variants import GATEWAY_ADDRESS, HOME, RESOLVERS
from tests.testlab.keys.operator import HOSTS
from tests.testlab.rehearsal.programs import EXAMPLES
from vpn.pki import folder_of

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


@pytest.fixture
def deployed(begun: Path, gateways: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a fleet with a recorded plan and the host key of one gateway; AWS and ssh are fakes."""
    assert run(["plan", str(begun), "--write"]) == 0
    record_host_keys(lock_path(begun), "lab", HOSTS["us-west-2"], (KEY,), replace_known=False)

    def record(operator: Operator) -> None:
        record_endpoints(lock_path(operator.fleet), "lab", {HOME: GATEWAY_ADDRESS}, {HOME: RESOLVERS})

    def trust(operator: Operator, _plan: FleetPlan, node: NodePlan) -> None:
        record_host_keys(lock_path(operator.fleet), "lab", node.name, (KEY,), replace_known=False)

    def push(operator: Operator, pythons: Sequence[str]) -> int:
        stored = plan_of(operator).record.gateways
        (operator.fleet.parent / "stored").write_text(f"{pythons} {stored}")
        return 0

    monkeypatch.setattr("bedplate.operate.vpn_setup.push", push)
    monkeypatch.setattr("bedplate.operate.vpn_setup.record_addresses", record)
    monkeypatch.setattr("bedplate.operate.vpn_setup.trust_instance", trust)
    monkeypatch.setenv("LOGNAME", "ada")
    return begun


def test_gateways_are_set_up_in_order(
    deployed: Path, gateways: Path, applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lock gets addresses and host keys, then all roles are applied, then both gateways get certificates."""
    folder_of(deployed).path.rename(deployed.with_name("away"))
    capsys.readouterr()

    assert run(["vpn", "up", str(deployed)]) == 0

    output = capsys.readouterr().out
    steps = ("record addr", "create the cert", "record the host key of gate.cellar", "apply roles", "send")
    assert [output.index(step) for step in steps] == sorted(output.index(step) for step in steps)
    record = read_lock(lock_path(deployed), "lab")
    assert record.gateways
    assert deployed.with_name("stored").read_text() == f"() {record.gateways}"
    assert set(record.host_keys) == set(HOSTS.values())
    assert (sorted(applies.machines), applies.requests[0].only) == (sorted(HOSTS.values()), None)
    assert all((gateways / host / "server.crt").exists() for host in HOSTS.values())


def test_a_second_run_continues_after_a_failure(
    deployed: Path, gateways: Path, applies: FakeApply, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first ends with status 6 and has set up the other gateway; the second skips what is done."""
    applies.silent = {"gate.cellar"}
    (gateways / "gate.cellar").rename(gateways / "away")
    assert run(["vpn", "up", str(deployed)]) == 6
    assert "gate.cellar" in capsys.readouterr().out
    assert (gateways / HOSTS["us-west-2"] / "server.crt").exists()
    journal = folder_of(deployed).journal.read_bytes()

    applies.silent = set()
    (gateways / "away").rename(gateways / "gate.cellar")
    assert run(["vpn", "up", str(deployed)]) == 0

    output = capsys.readouterr().out
    assert all(line in output for line in ("addresses: recorded", "authority: exists", "host keys: recorded"))
    assert (gateways / "gate.cellar" / "server.crt").exists()
    assert folder_of(deployed).journal.read_bytes() == journal


def test_a_region_without_the_new_plan_is_an_error(
    deployed: Path, gateways: Path, applies: FakeApply, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replaced gateway would not know the addresses; all other steps are done, and the command continues."""

    def push(_operator: Operator, _pythons: Sequence[str]) -> int:
        raise PartialError("no bucket", fix="deploy it")

    monkeypatch.setattr("bedplate.operate.vpn_setup.push", push)

    assert run(["vpn", "up", str(deployed)]) == 6

    assert all((gateways / host / "server.crt").exists() for host in HOSTS.values())


def test_without_a_gateway_that_was_configured_nothing_is_sent(
    deployed: Path, gateways: Path, applies: FakeApply
) -> None:
    """The gateways have no agent yet: status 6."""
    applies.silent = set(HOSTS.values())

    assert run(["vpn", "up", str(deployed)]) == 6

    assert not any((gateways / host / "server.crt").exists() for host in HOSTS.values())


def test_a_fleet_without_gateways_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 2."""
    assert run(["vpn", "up", str(EXAMPLES / "minimal.yaml")]) == 2

    assert "no gateway for laptops" in capsys.readouterr().err
