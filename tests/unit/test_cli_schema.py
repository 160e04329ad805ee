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


def test_every_key_tells_what_an_edit_of_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    """By what happens to it; only what holds other keys, and has no value of its own, tells nothing."""
    run(["schema"])

    schema = json.loads(capsys.readouterr().out)
    models = {"Fleet": schema, **schema["$defs"]}
    keys = {
        f"{model}.{name}": key for model, part in models.items() for name, key in part.get("properties", {}).items()
    }
    told = {name for name, key in keys.items() if "x-update" in key}
    assert keys["Group.disk"]["x-update"]["changed"].startswith("rolling replace: ")
    assert set(keys["Fleet.groups"]["x-update"]) == {"added", "removed"}
    assert {name for name in keys.keys() - told if "$ref" not in keys[name]} == set()
