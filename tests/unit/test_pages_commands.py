"""Commands of ours that pages tell are ones that the command line takes, to the last option."""

import re
import shlex
from collections.abc import Iterator

import pytest

from bedplate.cli import run
from tests.support.page import ROOT, block_commands, prose_commands

PAGES = ("README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")))


def told(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of ours; what a shell makes of its output is left out."""
    for line in (*block_commands(text), *prose_commands(text)):
        # A word in capitals stands for any command.
        if re.match(r"bedplate [^A-Z]", line):
            yield shlex.split(re.split(r" [<>|&#]", line)[0], comments=True)[1:]


def faults(text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what the command line says of a page's commands; help, asked for, is shown after options are read."""
    found = [(words, run([*words, "--help"]), capsys.readouterr().err.partition("\n")[0]) for words in told(text)]
    return [f"{shlex.join(words)}: {error}" for words, status, error in found if status]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_taken(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that was renamed leaves no page behind that tells of the former."""
    assert faults((ROOT / page).read_text(encoding="utf-8"), capsys) == []


def test_an_option_that_there_is_not_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """In prose and in a block, and a command likewise."""
    text = "Now `bedplate node list --lief`.\n\n```\nbedplate node aply x > y  # z\n```\n"

    assert [fault.partition(":")[0] for fault in faults(text, capsys)] == ["node aply x", "node list --lief"]
