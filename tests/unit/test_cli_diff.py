"""`bedplate diff`, driven as an operator drives it."""

import json
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.conftest import Expect
from tests.support.declared import EXAMPLES

LAB = EXAMPLES / "lab.yaml"
EDIT = {
    "max: 8}": "max: 9}",
    "types: [m7i.4xlarge]": "types: [m7i.8xlarge]",
    "types: [c7i.24xlarge, m7i.24xlarge, c6i.24xlarge]": "types: [c7i.24xlarge]",
    "pool: /22": "pool: /21",
    "public: 8.20.30.40": "public: 8.20.30.41",
}


@pytest.fixture
def later(tmp_path: Path) -> str:
    """Give the path of a later lab.yaml."""
    text = LAB.read_text(encoding="utf-8")
    for old, new in EDIT.items():
        assert old in text
        text = text.replace(old, new, 1)
    file = tmp_path / "later.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_an_edit_of_the_lab(later: str, expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """Each edit under what it does, the hardest first, and what to do instead of what is refused."""
    assert run(["diff", later, str(LAB)]) == 3

    expect("cli/diff-lab.txt", capsys.readouterr().out)


def test_two_files_that_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and nothing found."""
    assert run(["diff", str(LAB), str(LAB)]) == 0
    assert capsys.readouterr().out == "the two files say the same\n"


def test_a_free_edit_is_no_violation() -> None:
    """Growing touches nothing that lives."""
    assert run(["diff", str(EXAMPLES / "lab-grown.yaml"), str(LAB)]) == 0


def test_a_program_reads_the_edits_as_one_document(later: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With both values, the effect, and the way out."""
    run(["diff", later, str(LAB), "--json"])

    (pool,) = (one for one in json.loads(capsys.readouterr().out)["edits"] if one["key"] == "vpn.laptops.pool")
    assert (pool["old"], pool["new"], pool["effect"]) == (22, 21, "refused")
    assert "--release" in pool["instead"]
