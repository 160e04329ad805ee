"""What an operator of the lab's file sees of laptops' certificates; never what a gateway has of them."""

import json
from pathlib import Path

import pytest

from bedplate.cli import run

HOSTS = {"us-west-2": "laptops.us-west-2", "cellar": "gate.cellar"}


def listed(lab: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return the note of each certificate."""
    capsys.readouterr()
    run(["vpn", "list", str(lab), "--json"])
    return {each["name"]: each["note"] for each in json.loads(capsys.readouterr().out)["certificates"]}
