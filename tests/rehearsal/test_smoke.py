"""The smoke test runs whole in the simulated AWS, and leaves nothing there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.operate import smoke
from tests.conftest import Expect
from tests.testlab.fakes.reports import Recorder
from tests.testlab.rehearsal.smoke import ROLE, SmokeLab, smoke_lab

# What differs in each run.
_VARIES = {r"smoke-[0-9a-f]{4}": "smoke-0000", r'"\d+ s"': '"0 s"', r"i-[0-9a-f]{17}": "i-0", r'"20[-0-9T:]+Z"': '""'}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmokeLab]:
    """Yield an empty account."""
    monkeypatch.chdir(tmp_path)
    with smoke_lab(tmp_path / "smoke", monkeypatch) as opened:
        yield opened


@pytest.mark.nightly
def test_all_stages_pass_and_nothing_is_left(lab: SmokeLab, expect: Expect) -> None:
    """Each stage runs its real workflow on moto, and the account is empty afterwards, also of data.

    Its report is stored beside those of real accounts, marked as a simulation and without times.
    """
    numbers = [stage.number for stage in smoke.STAGES]
    result = smoke.smoke(Recorder(lab.folder / "fleet.yaml", yes=True), numbers, ROLE, 240, keep=False)

    assert [line for line in result.lines if "leaves out" not in line] == [
        f"{stage.number:>2}   {stage.title:<20}   passed" for stage in smoke.STAGES
    ]
    assert result.status == 0
    text = (lab.folder / "smoke.json").read_text().replace('"source": "aws"', '"source": "simulation"')
    for pattern, same in _VARIES.items():
        text = re.sub(pattern, same, text)
    expect("live/simulation.json", text)


@pytest.mark.nightly
def test_a_failed_deployment_leaves_nothing(lab: SmokeLab) -> None:
    """Machines and data of the regions exist when `links` fails."""
    lab.failing = {"preview": "error: links\n"}

    result = smoke.smoke(Recorder(lab.folder / "fleet.yaml", yes=True), [3], None, 240, keep=False)

    assert result.status == 3
    assert not [line for line in result.lines if line.startswith("left in the account")]
