"""What the command line says about itself."""

import pytest

from bedplate import __version__
from bedplate.cli import run
from bedplate.cli.app import EXAMPLES

COMMANDS = [(command.__name__.replace("_", "-"), example) for command, example in EXAMPLES]


@pytest.mark.parametrize(("command", "example"), COMMANDS)
def test_every_command_shows_an_example(command: str, example: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The quickest way to learn a command is a line that runs."""
    assert run([command, "--help"]) == 0

    assert f"Example: {example}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each with one whole sentence: a cut one helps nobody."""
    assert run(arguments) == 0

    told = capsys.readouterr().out
    assert all(f"  {command} " in told for command, _ in COMMANDS)
    assert "..." not in told.partition("Commands:")[2]


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A report of a defect begins with it."""
    assert run(["--version"]) == 0

    assert capsys.readouterr().out == f"bedplate {__version__}\n"
