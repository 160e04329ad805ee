"""Every key of the fleet file says what changing it does to a fleet that lives."""

import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType

import pytest
from pydantic import BaseModel

from bedplate.report.updates import updates_page
from bedplate.spec import Fleet
from bedplate.update.effect import Effect, Event
from bedplate.update.policies import POLICIES

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
