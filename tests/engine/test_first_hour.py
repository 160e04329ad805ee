"""The first hour with Pulumi's real engine. Skipped without `pulumi` and `pulumi-language-python` on PATH.

tests/unit/test_first_hour.py replays the events of such a run.
"""

from pathlib import Path

import pytest

from tests.testlab.engine.first_hour import MACHINE, first_hour, simulate_machines
from tests.testlab.engine.lab import empty_account, init_fleet
from tests.testlab.machines.sshd import running_server


@pytest.mark.nightly
def test_from_nothing_to_a_shell_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`init`, `up`, `ssh`, `person invite` and `destroy`, with state, stacks and machines in one simulated AWS."""
    with empty_account(tmp_path, monkeypatch) as aws, running_server(tmp_path) as server:
        init_fleet(tmp_path / "box", "gpu-box", monkeypatch)
        applies = simulate_machines(tmp_path / "bin", server, aws.call, monkeypatch)
        first_hour(server, capfd)
        assert applies.machines == [MACHINE]
