"""The page docs/dev-sec.md: every control is answered once, by a check that there is, or refused with a reason."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "dev-sec.md"
CHECKS = ROOT / "tests" / "compliance"
# The controls as the baselines number them, read from their sources on 21 November 2026.
_SSH = [*(f"ssh-{n:02}" for n in range(1, 23)), *(f"sshd-{n:02}" for n in range(1, 51) if n != 26)]
_OS = ["01", "02", "03", "03b", "04", "05", "05b", "06", "07", "09", *(str(n) for n in range(10, 17))]
_PACKAGES = ["01", "02", "03", "05", "06", "08", "09"]
_SYSCTL = [*(f"{n:02}" for n in range(1, 31) if n != 18), "31a", "31b", "32", "33", "34", "35"]
_LINUX = [*(f"os-{n}" for n in _OS), *(f"package-{n}" for n in _PACKAGES), *(f"sysctl-{n}" for n in _SYSCTL)]


def rows(page: str) -> list[list[str]]:
    """Return the cells of each control."""
    lines = [line for line in page.splitlines() if re.match(r"\| (ssh|os|package|sysctl)", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def faults(page: str) -> list[str]:
    """Return what is wrong with the answers of a page."""
    known = {f"{path.name}::{name}" for path in CHECKS.glob("test_hardened_*.py") for name in _tests(path)}
    found = []
    for control, about, answer, reason in rows(page):
        if not about:
            found.append(f"{control} says not what it is about")
        if answer == "refused" and len(reason) < 20:
            found.append(f"{control} is refused without a reason")
        if answer != "refused" and answer.strip("`") not in known:
            found.append(f"{control} names a check that is not there")
    return found


def _tests(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    return [each.name for each in tree.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")]


def test_every_control_stands_there_once() -> None:
    """The 71 of SSH and the 59 of Linux, in their order, none left out and none twice."""
    assert (len(_SSH), len(_LINUX)) == (71, 59)
    assert [control for control, *_ in rows(PAGE.read_text())] == [*_SSH, *_LINUX]


def test_every_answer_holds() -> None:
    """A check that is named exists, and a refusal has its reason."""
    assert faults(PAGE.read_text()) == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("| ssh-01 | modes | `test_hardened_ssh.py::test_nothing` | |", "ssh-01 names a check that is not there"),
        ("| ssh-01 | modes | refused | no |", "ssh-01 is refused without a reason"),
        ("| ssh-01 | | refused | nobody on the fleet needs it |", "ssh-01 says not what it is about"),
    ],
    ids=["no-such-check", "no-reason", "no-subject"],
)
def test_a_wrong_answer_is_found(row: str, fault: str) -> None:
    """The reader of the page sees what is wrong."""
    assert faults(row) == [fault]
