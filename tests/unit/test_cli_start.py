"""How quickly a command starts: what it must not import."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLOW = ("boto3", "hypothesis", "moto", "pulumi", "pulumi_aws", "rich")

PROBE = """
import sys
from bedplate.cli import run
status = run(sys.argv[1:])
print(status, *sorted(sys.modules.keys() & set({slow!r})), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["check", "examples/lab.yaml"],
        ["plan", "examples/lab.yaml"],
        ["schema"],
        ["check", "--explain", "E301"],
    ],
)
def test_no_slow_library_is_imported(arguments: list[str]) -> None:
    """An SDK takes seconds to import, and what only reads the fleet file needs none."""
    ended = subprocess.run(
        [sys.executable, "-c", PROBE.format(slow=SLOW), *arguments],
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT,
    )

    assert ended.stderr.splitlines()[-1] == "0"


def test_a_certificate_is_issued_without_the_models_of_a_fleet(tmp_path: Path) -> None:
    """They take a quarter of a second, and `vpn add` is to answer in a third: it asks the file for people alone."""
    fleet = str(shutil.copy(ROOT / "examples/lab.yaml", tmp_path / "fleet.yaml"))
    models = (*SLOW, "bedplate.spec.fleet", "bedplate.plan.fleet", "jinja2")
    probe = [sys.executable, "-c", PROBE.format(slow=models), "vpn"]

    ended = [
        subprocess.run([*probe, *verb, fleet], capture_output=True, check=True, text=True, cwd=ROOT)
        for verb in (["init"], ["add", "ada"])
    ]

    assert [each.stderr.splitlines()[-1] for each in ended] == ["0 bedplate.plan.fleet bedplate.spec.fleet", "0"]


def test_a_rehearsal_starts_whatever_the_aws_profile() -> None:
    """An import of moto opens a session, before any simulation runs; a profile unknown here must not end it."""
    ended = subprocess.run(
        [sys.executable, "-c", "import bedplate.rehearsal.simulation"],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
        env={"AWS_PROFILE": "somebody", "AWS_CONFIG_FILE": str(ROOT / "README.md")},
    )

    assert (ended.returncode, ended.stderr) == (0, "")
