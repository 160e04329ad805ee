"""The complete output of `bedplate check` for the mistakes that operators make, and no internal words in it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.conftest import Expect

MISTAKES = Path(__file__).parents[1] / "data" / "mistakes"
BASE = (MISTAKES / "fleet.yaml").read_text(encoding="utf-8")
TITLE = "## "
# The number of rules grows with every rule.
FACTS = re.compile(r" \([0-9a-z, ]+; [0-9]+ of [0-9]+ rules apply\)")


def sections(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the title of each mistake and the lines of its edit: `-` before the old text, `+` before the new one."""
    for section in text.split(f"\n{TITLE}"):
        title, *lines = section.removeprefix(TITLE).split("\n\n")[0].splitlines()
        yield title, tuple(lines)


def edited(edit: tuple[str, ...]) -> str:
    """Return the fleet after an edit; new text without old text is added at the end."""
    text = BASE
    for old, new in replacements(edit):
        assert old in text
        text = text.replace(old, new, 1) if old else f"{text}{new}\n"
    return text


def replacements(edit: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield old and new text of each replacement of an edit."""
    signs = "".join(line[0] for line in edit)
    for match in re.finditer(r"-*\+*", signs):
        lines = edit[match.start() : match.end()]
        if lines:
            old, new = ("\n".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
            yield old, new


@pytest.mark.parametrize("path", sorted(MISTAKES.glob("*.txt")), ids=lambda path: path.stem)
def test_a_mistake_is_reported_once_with_its_correction(
    path: Path, expect: Expect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every message names what is wrong, at its line, and the correct value for this fleet."""
    monkeypatch.chdir(tmp_path)
    # As in an account whose facts were refreshed.
    monkeypatch.setattr("bedplate.checks.examples._required_checksums", lambda *_: ())
    reports = []
    for title, edit in sections(path.read_text(encoding="utf-8")):
        Path("fleet.yaml").write_text(edited(edit), encoding="utf-8")
        run(["check", "fleet.yaml"])
        output = FACTS.sub("", capsys.readouterr().out)
        reports.append("\n".join((TITLE + title, *edit, "", output)))

    expect(f"mistakes/{path.name}", "\n".join(reports))
