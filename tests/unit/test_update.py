"""The edits between two fleet files, their effects, and the policy of every key."""

import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
from pydantic import BaseModel

from bedplate.spec import Fleet
from bedplate.spec.base import OnEdit
from bedplate.update import POLICIES, Edit, Effect, Event, consequences, edits
from docs.generator.fleet_file import reference_page, updates_page
from tests.testlab.fleets.sketch import group, sketch

WEST, EAST = {"region": "us-west-2"}, {"region": "us-east-1"}
SPOT = {**WEST, "market": "spot"}
DOCS = Path(__file__).parents[2] / "docs"


def keyed_events(before: Fleet, after: Fleet) -> list[tuple[str, Event]]:
    """Return key and event of each edit."""
    return [(edit.key, edit.event) for edit in edits(before, after)]


def effects(before: Fleet, after: Fleet) -> list[Effect]:
    """Return the effect of each edit."""
    return [consequence.effect for consequence in consequences(before, after)]


def fleet_with(**keys: Any) -> Fleet:  # noqa: ANN401  raw values
    """Return a fleet with one group that has these keys."""
    return sketch(groups={"gpu": group(WEST, **keys)})


def test_a_default_that_is_written_out_is_no_edit() -> None:
    """Two files that mean the same do not differ."""
    assert edits(fleet_with(disk=100), fleet_with()) == ()


def test_an_edit_has_key_pattern_and_both_values() -> None:
    """The pattern is the key of the policy."""
    (edit,) = edits(fleet_with(disk=100), fleet_with(disk=200))

    assert edit == Edit("groups.gpu.disk", "groups.*.disk", Event.CHANGED, 100, 200)


def test_entries_of_a_table_are_matched_by_name() -> None:
    """A renamed entry is removed and added."""
    before, after = sketch(groups={"a": group(WEST)}), sketch(groups={"b": group(WEST)})

    assert keyed_events(before, after) == [("groups.a", Event.REMOVED), ("groups.b", Event.ADDED)]


def test_items_of_a_list_are_added_and_removed_together() -> None:
    """There is one edit for all added items and one for all removed items."""
    (removal, addition) = edits(fleet_with(types=["g6.xlarge"]), fleet_with(types=["g5.xlarge", "g4dn.xlarge"]))

    assert (removal.event, removal.old) == (Event.REMOVED, ("g6.xlarge",))
    assert (addition.event, addition.new) == (Event.ADDED, ("g5.xlarge", "g4dn.xlarge"))


def test_rungs_are_matched_by_their_source_of_capacity() -> None:
    """A rung that moved in the list or has another price is the same pool."""
    before = sketch(groups={"gpu": group(SPOT, EAST)})
    after = sketch(groups={"gpu": group(EAST, {**SPOT, "max_price": 1.5})})

    assert keyed_events(before, after) == [
        ("groups.gpu.ladder.1.max_price", Event.ADDED),
        ("groups.gpu.ladder", Event.CHANGED),
    ]


def test_a_rung_in_another_market_is_another_pool() -> None:
    """The old rung is removed and a new one is added."""
    before, after = (sketch(groups={"gpu": group(rung)}) for rung in (WEST, SPOT))

    assert keyed_events(before, after) == [
        ("groups.gpu.ladder.0", Event.REMOVED),
        ("groups.gpu.ladder.0", Event.ADDED),
    ]


def test_a_supernet_may_grow_but_not_shrink() -> None:
    """A larger supernet contains all recorded blocks."""
    before, after = (sketch(network={"supernet": block}) for block in ("10.64.0.0/10", "10.0.0.0/8"))

    assert effects(before, after) == [Effect.FREE]
    assert effects(after, before) == [Effect.REFUSED]


def test_a_smaller_maximum_removes_machines() -> None:
    """AWS terminates machines above the maximum; a larger maximum is free."""
    before, after = fleet_with(), fleet_with(nodes={"min": 1, "max": 9})

    assert effects(before, after) == [Effect.FREE]
    assert effects(after, before) == [Effect.REMOVES]


def test_the_hardest_effect_comes_first() -> None:
    """The first line shows the edit that costs most."""
    before = sketch(groups={"a": group(WEST), "b": group(WEST)})
    after = sketch(groups={"a": group(WEST, nodes={"min": 1, "max": 9})})

    assert effects(before, after) == [Effect.REMOVES, Effect.FREE]


def type_parts(annotation: object) -> Iterator[object]:
    """Yield a type and the types of its parameters."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from type_parts(part)


def possible_edits(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Event]]:
    """Yield every key of a model with every event that can happen to it."""
    for name, field in model.model_fields.items():
        key = f"{prefix}.{field.alias or name}".lstrip(".")
        parts = tuple(type_parts(field.annotation))
        models = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
        is_table = any(typing.get_origin(part) is Mapping for part in parts)
        is_list = any(typing.get_origin(part) is tuple for part in parts)
        entry = f"{key}.*" if models and (is_table or is_list) else key
        if is_list or NoneType in parts or (is_table and models):
            yield from ((entry, event) for event in (Event.ADDED, Event.REMOVED))
        if not models or is_list:
            yield key, Event.CHANGED
        for inner in models:
            yield from possible_edits(inner, entry)


POSSIBLE_EDITS = frozenset(possible_edits(Fleet))


def test_every_possible_edit_has_a_policy() -> None:
    """A new field of the models needs `json_schema_extra=on_edit(...)` for each of its events."""
    assert sorted(POSSIBLE_EDITS - POLICIES.keys()) == []


def test_every_policy_is_for_a_possible_edit() -> None:
    """A required value, for example, is never removed."""
    assert sorted(POLICIES.keys() - POSSIBLE_EDITS) == []


def test_keys_that_two_kinds_of_store_share_have_the_same_policy() -> None:
    """The policy table has one row for `storage.*.mount`, which EFS and NFS stores have."""
    stores = [part for part in type_parts(Fleet.model_fields["storage"].annotation) if isinstance(part, type)]
    policies: dict[str, object] = {}
    for store in (part for part in stores if issubclass(part, BaseModel)):
        for name, field in store.model_fields.items():
            assert isinstance(field.json_schema_extra, OnEdit)
            assert policies.setdefault(name, field.json_schema_extra) == field.json_schema_extra


@pytest.mark.parametrize("edit", sorted(POLICIES), ids=lambda edit: f"{edit[0]} {edit[1].value}")
def test_a_refused_edit_says_what_to_do_instead(edit: tuple[str, Event]) -> None:
    """Only a refused edit needs another way."""
    policy = POLICIES[edit]

    assert bool(policy.way) == (policy.effect is Effect.REFUSED)


@pytest.mark.parametrize(("page", "text"), [("updates.md", updates_page), ("fleet-reference.md", reference_page)])
def test_generated_pages_are_current(page: str, text: typing.Callable[[], str]) -> None:
    """`make docs` writes them."""
    assert (DOCS / page).read_text(encoding="utf-8") == text()
