"""`bedplate reach` between sites that have a tunnel of their own: no resource of AWS's, and walked all the same."""

import json
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.support.direct_fleet import JOINS, TEXT


@pytest.fixture
def empty(tmp_path: Path) -> str:
    """Return a graph in which nothing of AWS's joins anything."""
    file = tmp_path / "graph.json"
    file.write_text(json.dumps([]), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(("joins", "status"), [(JOINS, 0), ("", 3)])
def test_sites_reach_each_other_by_their_own_tunnel(
    joins: str, status: int, empty: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both ways, without anything in AWS; the same sites apart do not."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(TEXT.replace(JOINS, joins), encoding="utf-8")

    asked = ["reach", "attic", "cellar"]
    assert run([*asked, str(fleet), "--graph", empty]) == status

    told = capsys.readouterr().out
    assert ("attic to cellar" in told) is (status == 0)
    assert ("by the tunnel between the two gateways" in told) is (status == 0)
