"""`bedplate rehearse --weather`: what may be asked, and what is told and returned when something is missing."""

import json

import pytest

from bedplate.cli import run
from bedplate.cli.weather import weather_of
from bedplate.errors import InputError
from bedplate.rehearsal.weather import FAIR, Fault, Trouble
from tests.support.declared import EXAMPLES, plan_of

LAB = plan_of(EXAMPLES / "lab.yaml")
PROGRAM = "tests/data/cli/program.py"


@pytest.mark.parametrize(
    ("asked", "faults"),
    [
        ("throttled", [Fault(Trouble.THROTTLED)]),
        ("lost-replies:ec2.create_vpc", [Fault(Trouble.LOST_REPLIES, "ec2.create_vpc")]),
        ("silent:us-east-1", [Fault(Trouble.SILENT, "us-east-1")]),
        ("no-addresses:us-west-2a", [Fault(Trouble.NO_ADDRESSES, "us-west-2a")]),
        ("no-capacity:workbench-cpu", [Fault(Trouble.NO_CAPACITY, "lab-workbench-cpu-us-west-2")]),
        ("spot-limit:sim", [Fault(Trouble.SPOT_LIMIT, f"lab-sim-{one}-spot") for one in ("us-west-2", "us-east-1")]),
    ],
)
def test_words_become_faults(asked: str, faults: list[Fault]) -> None:
    """A group stands for those of its Auto Scaling groups whose machines are bought in that way."""
    assert list(weather_of(LAB, [asked]).faults) == faults


def test_no_words_are_fair_weather() -> None:
    """Without the option a rehearsal is what it was."""
    assert weather_of(LAB, ()) is FAIR


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("rain", "rain is no weather"),
        ("silent", "silent needs a place"),
        ("silent:us-moon-1", "has no us-moon-1"),
        ("no-addresses:us-east-1f", "has no us-east-1f"),
        ("no-capacity:trian", "has no group trian"),
        ("spot-limit:workbench-cpu", "no rung of workbench-cpu is bought as spot"),
        ("throttled:vpc", "vpc is no call"),
    ],
)
def test_what_there_is_not_is_refused(asked: str, says: str) -> None:
    """By its name, with what to say instead."""
    with pytest.raises(InputError, match=says) as told:
        weather_of(LAB, [asked])

    assert told.value.fix


def test_what_is_missing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """By stack and name, with status 6, and how it was made whole."""
    assert run(["rehearse", "--program", PROGRAM, "--weather", "silent:us-east-1"]) == 6

    told = capsys.readouterr().out
    assert "no endpoint of sts in us-east-1 answers (25 attempts)" in told
    assert "program: all 2 resources" in told
    assert "a second run made the 2 resources that were missing\n  a third run changed nothing" in told


def test_a_program_reads_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """As URNs by stack, beside how often each fault was met."""
    assert run(["rehearse", "--program", PROGRAM, "--weather", "silent:us-east-1", "--json"]) == 6

    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert [urn.rpartition("::")[2] for urn in document["missing"]["program"]] == ["results", "bucket-name"]
    assert document["weather"][0]["fault"] == "silent:us-east-1"
    assert document["shortages"] == []


def test_what_passes_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """Throttles and errors that a client rides out are told and leave the status at 0."""
    arguments = ["rehearse", "--program", PROGRAM, "--weather", "throttled", "--weather", "errors:s3.create_bucket"]

    assert run(arguments) == 0

    told = capsys.readouterr().out
    assert "weather errors:s3.create_bucket: met" in told
    assert "when it was over, nothing was missing\n  a third run changed nothing" in told


def test_a_wrong_program_is_wrong_in_any_weather(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    """What AWS refuses when the weather has passed is told as a refusal, with status 2."""
    file = f"{tmp_path}/main.py"
    with open(file, "w", encoding="utf-8") as program:  # noqa: PTH123
        program.write("from pulumi_aws.ec2 import Vpc; Vpc('lab', cidr_block='10.0.0.0/8')")

    assert run(["rehearse", "--program", file, "--weather", "throttled"]) == 2

    assert "not all could be made either" in capsys.readouterr().out
