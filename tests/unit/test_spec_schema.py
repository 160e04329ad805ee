"""The schema tells an editor what every key means."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bedplate.spec.schema import fleet_schema, keys_at

EXAMPLES = Path(__file__).parents[2] / "examples"


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every key of every model with its schema, references followed."""
    models = {"Fleet": schema, **schema["$defs"]}
    for model, part in models.items():
        for name, key in part.get("properties", {}).items():
            named = schema["$defs"][key["$ref"].rpartition("/")[2]] if "$ref" in key else {}
            yield f"{model}.{name}", named | key


KEYS = dict(properties(fleet_schema()))


@pytest.mark.parametrize("name", KEYS)
def test_every_key_has_a_title_and_a_description(name: str) -> None:
    """An editor shows both beside the key; a description says more than the title."""
    key = KEYS[name]

    assert key["title"]
    assert len(key["description"]) > len(key["title"])


def test_every_mapping_is_closed_to_unknown_keys() -> None:
    """An editor underlines a misspelt key."""
    models = [part for part in [fleet_schema(), *fleet_schema()["$defs"].values()] if "properties" in part]

    assert all(part["additionalProperties"] is False for part in models)


def test_no_key_may_be_null() -> None:
    """A key without a value is a fault, so the schema offers none."""
    assert "null" not in repr(fleet_schema())


@pytest.mark.parametrize("example", sorted(file.name for file in EXAMPLES.glob("*.yaml")))
def test_the_keys_of_the_examples_are_in_the_schema(example: str) -> None:
    """Every mapping of an example has only keys that the schema names at its place."""

    def check(value: object, path: tuple[str | int, ...]) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                check(item, (*path, index))
        if isinstance(value, dict):
            known = keys_at(path, value.get("kind"))
            assert set(value) <= set(known) or not known
            for name, item in value.items():
                check(item, (*path, name))

    check(YAML(typ="safe").load(EXAMPLES / example), ())
