"""`bedplate up`, `preview` and `destroy` with Pulumi's real engine and the rehearsal's resource models.

Skipped without `pulumi` and `pulumi-language-python` on PATH.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.testlab.engine.command import simulated_aws
from tests.testlab.engine.lab import init_fleet


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the fleet file of a new folder; the engine has an empty backend and an empty AWS account."""
    with simulated_aws(tmp_path):
        init_fleet(tmp_path / "mylab", "minimal", monkeypatch)
        yield Path("fleet.yaml").read_text()


def test_a_fleet_is_deployed_changed_and_destroyed(fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From nothing, in the order of the stacks; the second run changes nothing, and protected data is kept."""
    assert bedplate(capsys, "up", "--yes")[-2:] == ["mylab.shared up done 26", "mylab.us-west-2 up done 82"]
    assert bedplate(capsys, "up") == ["no change"]

    Path("fleet.yaml").write_text(fleet.replace("head@uni.edu", "other@uni.edu"))
    first, *lines = bedplate(capsys, "preview")
    assert first == "edits since the last deployment:"
    assert any(line.startswith("owner head@uni.edu -> other@uni.edu") for line in lines)
    assert "mylab.us-west-2 2 update" in lines
    assert bedplate(capsys, "up", "--yes")[-1] == "mylab.us-west-2 up done 2"

    assert bedplate(capsys, "destroy", "--yes")[-5:] == [
        "mylab.us-west-2 destroy done 60",
        "mylab.shared destroy done 21",
        "mylab.shared kept 5 resources: 1 key",
        "mylab.us-west-2 kept 22 resources: 2 keys, 1 bucket, 1 file system",
        "kept resources cost 3.00 USD/month, and their data 0.023 per GiB in buckets, 0.30 per GiB in file systems",
    ]


@pytest.mark.usefixtures("fleet")
def test_plain_pulumi_needs_the_settings_of_a_stack(capsys: pytest.CaptureFixture[str]) -> None:
    """Without their file it would run with an empty configuration; restored settings are as good as the first."""
    settings = Path("Pulumi.mylab.shared.yaml")
    bedplate(capsys, "plan", "--write")
    bedplate(capsys, "backend", "init")
    settings.unlink()

    status, output = preview("mylab.shared")
    assert (status != 0, "`bedplate:fleet` is missing" in output) == (True, True), output
    assert "Traceback" not in output

    settings.unlink()
    assert bedplate(capsys, "backend", "init")[0] == f"restored {settings}"
    status, output = preview("mylab.shared")
    assert status == 0, output


def preview(stack: str) -> tuple[int, str]:
    """Return exit status and output of a preview by plain `pulumi`."""
    command = ["pulumi", "preview", "--non-interactive", "--stack", stack]
    result = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.returncode, result.stdout


def bedplate(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Return the lines of a command on stdout, without times; warnings are at most one line."""
    capsys.readouterr()
    status = run(arguments)
    output, errors = capsys.readouterr()
    assert (status, errors.count("warning") <= 1) == (0, True), errors
    return [re.sub(r" [0-9.]+ s$", "", " ".join(line.split())) for line in output.splitlines()]
