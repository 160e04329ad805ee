"""What the command line says about itself."""

import pytest

from bedplate import __version__
from bedplate.cli import run
from bedplate.cli.app import EXAMPLES, NOUNS

COMMANDS = [(command.__name__.replace("_", "-"), example) for command, example in EXAMPLES]
VERBS = [
    (f"{noun} {verb.__name__.replace('_', '-')}", example)
    for noun, (_, verbs) in NOUNS.items()
    for verb, example in verbs
]


@pytest.mark.parametrize(("command", "example"), COMMANDS + VERBS)
def test_every_command_shows_an_example(command: str, example: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The quickest way to learn a command is a line that runs."""
    assert run([*command.split(), "--help"]) == 0

    assert f"Example: {example}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each with one whole sentence: a cut one helps nobody."""
    assert run(arguments) == 0

    told = capsys.readouterr().out
    assert all(f"  {command} " in told for command in (*(name for name, _ in COMMANDS), *NOUNS))
    assert "..." not in told.partition("Commands:")[2]


@pytest.mark.parametrize("noun", NOUNS)
def test_a_noun_without_a_verb_is_told(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is done for half a command."""
    assert run([noun]) == 2

    assert "Missing command" in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A report of a defect begins with it."""
    assert run(["--version"]) == 0

    assert capsys.readouterr().out == f"bedplate {__version__}\n"
