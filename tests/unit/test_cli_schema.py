"""`bedplate schema`."""

import json

import pytest

from bedplate.cli import run


def test_the_schema_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """An editor is given the output as it is."""
    assert run(["schema"]) == 0

    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert {"regions", "groups", "storage"} <= schema["properties"].keys()
