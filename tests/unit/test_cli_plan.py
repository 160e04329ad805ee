"""`bedplate plan`."""

import json
import re
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.conftest import Expect

ROOT = Path(__file__).parents[2]
LAB = (ROOT / "examples/lab.yaml").read_text(encoding="utf-8")
REGION = "  eu-north-1:\n    zones: [eu-north-1a, eu-north-1b, eu-north-1c]\n"
WITHOUT = re.sub(r" *- \{region: eu-north-1.*\n|, eu-north-1\b", "", LAB.replace(REGION, ""))


def test_a_first_plan(here: Path, expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """Every address, store and pool is printed as new; nothing is written."""
    assert run(["plan"]) == 0

    expect("cli/plan-lab.txt", capsys.readouterr().out)
    assert [path.name for path in here.parent.iterdir()] == ["fleet.yaml"]


@pytest.mark.usefixtures("here")
def test_a_recorded_plan_is_not_new(capsys: pytest.CaptureFixture[str]) -> None:
    """After `--write` the plan of the same file has no marks."""
    assert run(["plan", "--write"]) == 0
    capsys.readouterr()

    assert run(["plan"]) == 0

    *lines, last = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if line.startswith(("+", "-"))]
    assert last == "fleet.lock is up to date"


@pytest.mark.usefixtures("here")
def test_writing_says_what_it_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    """The first time; the second time the lock is up to date."""
    run(["plan", "--write"])
    first = capsys.readouterr().out.splitlines()[-1]
    run(["plan", "--write"])
    second = capsys.readouterr().out.splitlines()[-1]

    assert first.startswith("recorded in fleet.lock: 14 blocks (region/us-west-2, 13 more)")
    assert second == "fleet.lock is up to date"


def test_writing_names_zones_chosen_from_offers_of_another_account(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The control plane's zones stay recorded. Uniform regions such as eu-north-1 are not listed."""
    here.write_text(LAB.replace("111122223333", "210987654321"), encoding="utf-8")

    assert run(["plan", "--write"]) == 0

    _, _, text = capsys.readouterr().out.partition("zones chosen from the offers of another account:\n")
    assert re.search(r"^  control-1\.us-west-2 +us-west-2a$", text, re.MULTILINE)
    assert "  laptop gateway of us-west-2 " in text
    assert "  train-us-east-1a " in text
    assert "eu-north-1" not in text


def test_a_region_that_left_is_held(here: Path, expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """Its block stays recorded until it is freed, and the output names the command."""
    run(["plan", "--write"])
    here.write_text(WITHOUT, encoding="utf-8")
    capsys.readouterr()

    assert run(["plan"]) == 0

    out = capsys.readouterr().out
    expect("cli/plan-left.txt", out[out.index("recorded but no longer") :])


def test_a_block_is_freed_by_its_path(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The path that the plan prints is the one that --release takes."""
    run(["plan", "--write"])
    here.write_text(WITHOUT, encoding="utf-8")

    assert run(["plan", "--write", "--release", "region/eu-north-1"]) == 0

    recorded = json.loads((here.parent / "fleet.lock").read_text())["blocks"]
    assert not [path for path in recorded if "eu-north-1" in path]
    assert capsys.readouterr().out.endswith(
        "freed: region/eu-north-1, tunnel/cellar/eu-north-1/1, tunnel/cellar/eu-north-1/2\n"
    )


@pytest.mark.usefixtures("here")
def test_a_block_in_use_is_not_freed(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong path must not free the addresses of a live region."""
    run(["plan", "--write"])

    assert run(["plan", "--write", "--release", "region/us-west-2"]) == 2

    assert "region/us-west-2" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_releasing_needs_writing(capsys: pytest.CaptureFixture[str]) -> None:
    """--release without --write is refused."""
    assert run(["plan", "--release", "pods"]) == 2

    assert "requires --write" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_program_reads_blocks_addresses_and_pools(capsys: pytest.CaptureFixture[str]) -> None:
    """One document on stdout; the differences from the lock go to stderr."""
    assert run(["plan", "--json"]) == 0

    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["blocks"]["region/us-west-2"] == "10.64.0.0/16"
    assert document["addresses"]["titan-01.cellar"] == "192.168.40.21"
    assert document["pools"][0]["stack"] == "lab.us-west-2"
    assert document["people"] == {"ada": 20000, "grace": 20001}
    assert document["groups"] == {}
    assert err.splitlines()[-2].startswith("not recorded yet: ")


def test_a_wrong_file_has_no_plan(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Faults go to stderr, nothing to stdout, and nothing is written."""
    here.write_text(LAB.replace("p5.48xlarge", "p5.49xlarge"), encoding="utf-8")

    assert run(["plan", "--write", "--json"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "E301" in err
    assert [path.name for path in here.parent.iterdir()] == ["fleet.yaml"]


@pytest.mark.usefixtures("here")
def test_every_line_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines have at most 100 columns."""
    run(["plan"])

    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 100


def test_a_picture_is_drawn_into_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan is printed as well, and no other file is written."""
    assert run(["plan", "--svg", "lab.svg"]) == 0

    out, err = capsys.readouterr()
    assert out.startswith("lab ")
    assert err.splitlines()[-1] == "wrote lab.svg"
    assert (here.parent / "lab.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert sorted(path.name for path in here.parent.iterdir()) == ["fleet.yaml", "lab.svg"]


def test_a_picture_is_never_drawn_over_the_fleet_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Swapped arguments do not destroy the fleet file."""
    assert run(["plan", "--svg", str(here)]) == 2

    assert "--svg would overwrite the fleet file" in capsys.readouterr().err
    assert here.read_text(encoding="utf-8") == LAB


@pytest.mark.usefixtures("here")
def test_a_picture_that_cannot_be_written_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing folder is status 4, with a fix."""
    assert run(["plan", "--svg", "nowhere/lab.svg"]) == 4

    assert "create the folder first" in capsys.readouterr().err
