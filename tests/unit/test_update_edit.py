"""What differs between two fleet files, and what it does to a fleet that lives."""

from typing import Any

import pytest

from bedplate.spec import Fleet
from bedplate.update.consequence import consequences
from bedplate.update.edit import Edit, edits
from bedplate.update.effect import Effect, Event
from tests.support.sketch import group, sketch

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
