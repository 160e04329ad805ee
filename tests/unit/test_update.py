"""What differs between two fleet files, and what it does to a fleet that lives."""

import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
from pydantic import BaseModel

from bedplate.report.updates import updates_page
from bedplate.spec import Fleet
from bedplate.update.edit import Edit, consequences, edits
from bedplate.update.policies import POLICIES, Effect, Event
from tests.testlab.fleets.sketch import group, sketch

WEST, EAST = {"region": "us-west-2"}, {"region": "us-east-1"}
SPOT = {**WEST, "market": "spot"}


def told(before: Fleet, after: Fleet) -> list[tuple[str, Event]]:
    """Return key and event of each edit."""
    return [(edit.key, edit.event) for edit in edits(before, after)]


def of(**parts: Any) -> Fleet:  # noqa: ANN401  raw values
    """Return a fleet with one group, which has these parts."""
    return sketch(groups={"gpu": group(WEST, **parts)})


def test_a_file_and_itself_do_not_differ() -> None:
    """What is written otherwise and says the same is no edit."""
    assert edits(of(disk=100), of()) == ()


def test_a_value_is_told_with_what_it_was_and_what_it_is() -> None:
    """At its own key, and at the pattern under which the policies have it."""
    (edit,) = edits(of(disk=100), of(disk=200))

    assert edit == Edit("groups.gpu.disk", "groups.*.disk", Event.CHANGED, 100, 200)


def test_entries_of_tables_come_and_go() -> None:
    """By their names, whatever else the table holds."""
    before, after = sketch(groups={"a": group(WEST)}), sketch(groups={"b": group(WEST)})

    assert told(before, after) == [("groups.a", Event.REMOVED), ("groups.b", Event.ADDED)]


def test_words_of_a_list_come_and_go_together() -> None:
    """One edit for those that came, one for those that went."""
    (gone, come) = edits(of(types=["g6.xlarge"]), of(types=["g5.xlarge", "g4dn.xlarge"]))

    assert (gone.event, gone.old) == (Event.REMOVED, ("g6.xlarge",))
    assert (come.event, come.new) == (Event.ADDED, ("g5.xlarge", "g4dn.xlarge"))


def test_a_rung_is_known_by_where_its_capacity_comes_from() -> None:
    """A rung that moved in the list is the same pool, and so is one that pays another price."""
    before = sketch(groups={"gpu": group(SPOT, EAST)})
    after = sketch(groups={"gpu": group(EAST, {**SPOT, "max_price": "1.5"})})

    assert told(before, after) == [
        ("groups.gpu.ladder.1.max_price", Event.ADDED),
        ("groups.gpu.ladder", Event.CHANGED),
    ]


def test_a_rung_in_another_market_is_another_rung() -> None:
    """Its pool goes, with its machines, and another comes."""
    before, after = (sketch(groups={"gpu": group(rung)}) for rung in (WEST, SPOT))

    assert told(before, after) == [("groups.gpu.ladder.0", Event.REMOVED), ("groups.gpu.ladder.0", Event.ADDED)]


@pytest.mark.parametrize(
    ("parts", "effect"),
    [
        ({"use": "kubernetes"}, Effect.ROLLING),
        ({"use": "ssh"}, Effect.NEW_NODES),
        ({"use": "kubernetes", "fabric": "efa"}, Effect.NEW_NODES),
    ],
    ids=["kubernetes", "ssh", "fabric"],
)
def test_people_and_long_jobs_keep_their_machines(parts: dict[str, str], effect: Effect) -> None:
    """What a group starts with rolls over workers, never over machines that somebody uses for days."""
    (one,) = consequences(of(**parts, disk=100), of(**parts, disk=200))

    assert one.effect is effect


def test_a_wider_supernet_is_free() -> None:
    """Whatever lay in the old one lies in the new one."""
    before, after = (sketch(network={"supernet": block}) for block in ("10.64.0.0/10", "10.0.0.0/8"))

    assert [one.effect for one in consequences(before, after)] == [Effect.FREE]
    assert [one.effect for one in consequences(after, before)] == [Effect.REFUSED]


def test_a_larger_maximum_is_free() -> None:
    """And a smaller one ends machines: AWS keeps none above it."""
    before, after = of(), of(nodes={"min": 1, "max": 9})

    assert [one.effect for one in consequences(before, after)] == [Effect.FREE]
    assert [one.effect for one in consequences(after, before)] == [Effect.REMOVES]


def test_the_hardest_is_told_first() -> None:
    """Whoever reads one line reads what costs most."""
    before = sketch(groups={"a": group(WEST), "b": group(WEST)})
    after = sketch(groups={"a": group(WEST, nodes={"min": 1, "max": 9})})

    assert [one.effect for one in consequences(before, after)] == [Effect.REMOVES, Effect.FREE]


PAGE = Path(__file__).parents[2] / "docs" / "updates.md"
Promise = tuple[str, Event]


def parts(annotation: object) -> Iterator[object]:
    """Yield a type and all that it is made of."""
    yield annotation
    for each in typing.get_args(annotation):
        yield from parts(each)


def promised(model: type[BaseModel], key: str = "") -> Iterator[Promise]:
    """Yield every key of a model with every event that an edit may be at it."""
    for name, field in model.model_fields.items():
        yield from at(f"{key}.{name}".lstrip("."), field.annotation)


def at(key: str, annotation: object) -> Iterator[Promise]:
    """Yield the events of one field, and those of the models in it."""
    made_of = tuple(parts(annotation))
    models = [each for each in made_of if isinstance(each, type) and issubclass(each, BaseModel)]
    is_table = any(typing.get_origin(each) is typing.get_origin(Mapping[str, int]) for each in made_of)
    is_list = any(typing.get_origin(each) is tuple for each in made_of)
    come_and_go = (Event.ADDED, Event.REMOVED) if is_list or NoneType in made_of or (is_table and models) else ()
    place = f"{key}.*" if models and (is_table or is_list) else key
    yield from ((place, event) for event in come_and_go)
    if not models or is_list:
        yield key, Event.CHANGED
    for inner in models:
        yield from promised(inner, place)


EVERY = frozenset(promised(Fleet))


def test_no_key_is_without_a_promise() -> None:
    """Whoever adds a key says what it does to what lives."""
    assert sorted(EVERY - POLICIES.keys()) == []


def test_no_promise_is_without_a_key() -> None:
    """A row that no edit ever meets says nothing."""
    assert sorted(POLICIES.keys() - EVERY) == []


@pytest.mark.parametrize("promise", sorted(POLICIES), ids=lambda promise: f"{promise[0]} {promise[1].value}")
def test_what_is_refused_says_what_to_do_instead(promise: Promise) -> None:
    """A refusal without a way out leaves an operator alone; what is not refused needs none."""
    policy = POLICIES[promise]

    assert bool(policy.way) == (policy.effect is Effect.REFUSED)


def test_the_page_is_current() -> None:
    """`make docs` writes what the policies say."""
    assert PAGE.read_text(encoding="utf-8") == updates_page()
