"""Every key's promise, held against what the rehearsal does to a fleet that lives."""

from collections.abc import Iterable, Iterator
from functools import reduce
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.load import FleetFaults, load_fleet
from bedplate.update.consequence import Consequence, consequences
from bedplate.update.effect import Effect
from bedplate.update.policies import POLICIES
from tests.support.lived import Apart, Lived, Row, apart, edited, living, rows
from tests.support.observed import observed

# Its fleets are made once, by the one worker that has all of them.
pytestmark = pytest.mark.xdist_group("promises")
TABLES = {
    "groups": rows("groups.yaml"),
    "stores": rows("stores.yaml"),
    "places": rows("places.yaml"),
    "bare places": rows("places.yaml", "bare_edits"),
}
ROWS = [(name, row) for name, table in TABLES.items() for row in table]
APART = apart()


@pytest.fixture(scope="module")
def lived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    """Give the fleet that a table's edits begin with, made in the simulated AWS."""
    (start, *_) = TABLES[request.param]
    with living(start.before, tmp_path_factory.mktemp("lived") / "fleet.yaml") as fleet:
        yield fleet


def promised(row: Row, folder: Path) -> tuple[Consequence, ...]:
    """Return what an edit is promised to do."""
    before, after = folder / "before.yaml", folder / "after.yaml"
    before.write_text(row.before, encoding="utf-8")
    after.write_text(row.after, encoding="utf-8")
    return consequences(*(load_fleet(file, load_catalog()).fleet for file in (before, after)))


def met(told: tuple[Consequence, ...]) -> set[str]:
    """Return the promises that an edit meets."""
    return {f"{one.edit.pattern} {one.edit.event.value}" for one in told}


def is_free(row: Row) -> bool:
    """Tell whether an edit's key promises to touch nothing."""
    return any(f"{key} {event}" == row.promise and one.effect is Effect.FREE for (key, event), one in POLICIES.items())


def together(free: Iterable[Row]) -> list[list[Row]]:
    """Return edits in as few files as they can be made to side by side."""
    files: list[list[Row]] = []
    for row in free:
        home = next((file for file in files if fits(row, file)), None)
        if home is None:
            files.append([row])
        else:
            home.append(row)
    return files


def fits(row: Row, file: list[Row]) -> bool:
    """Tell whether an edit can be made beside others."""
    text = whole(file)
    return row.before == file[0].before and all(text.count(old) == 1 for old in row.change)


def whole(file: list[Row]) -> str:
    """Return a text with all of the edits made."""
    return reduce(lambda text, row: edited(text, row.change), file, file[0].before)


def test_every_promise_is_tried() -> None:
    """By an edit that meets it, or by one that shows what it is instead."""
    tried = sorted([row.promise for _, row in ROWS] + [one.row.promise for one in APART])

    assert tried == sorted(f"{key} {event}" for key, event in POLICIES)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.promise) for _, row in ROWS])
def test_an_edit_meets_one_promise(row: Row, tmp_path: Path) -> None:
    """What is seen of an edit is then the promise's own doing."""
    assert met(promised(row, tmp_path)) == {row.promise}


@pytest.mark.parametrize("one", [pytest.param(one, id=one.row.promise) for one in APART])
def test_a_promise_that_no_edit_meets(one: Apart, tmp_path: Path) -> None:
    """An entry goes and another comes, or there is no other word."""
    if one.refused is None:
        assert met(promised(one.row, tmp_path)) == one.seen
        return
    with pytest.raises(FleetFaults) as refused:
        promised(one.row, tmp_path)
    assert [fault.code for fault in refused.value.faults if fault.code.startswith("E")] == [one.refused]


@pytest.mark.parametrize("lived", [pytest.param(name, id=name) for name in TABLES], indirect=True)
def test_what_is_free_touches_nothing(lived: Lived, request: pytest.FixtureRequest) -> None:
    """All such edits of a table are seen at once; where they touch anything, each alone, to name those that do."""
    name = request.node.callspec.id
    files = together(row for row in TABLES[name] if is_free(row))

    hard = [row for file in files if observed(lived, file[0].before, whole(file)) is not Effect.FREE for row in file]

    assert [row.promise for row in hard if observed(lived, row.before, row.after) is not Effect.FREE] == []
    assert not hard


@pytest.mark.parametrize(
    ("lived", "row"),
    [pytest.param(name, row, id=row.promise) for name, row in ROWS if not is_free(row)],
    indirect=["lived"],
)
def test_what_is_promised_is_what_happens(lived: Lived, row: Row, tmp_path: Path) -> None:
    """No harder on what lives, and no easier."""
    (one, *others) = promised(row, tmp_path)

    assert observed(lived, row.before, row.after) is one.effect
    assert {other.effect for other in others} <= {one.effect}


@pytest.mark.parametrize("lived", ["groups"], indirect=True)
def test_looking_leaves_no_trace(lived: Lived) -> None:
    """What a fleet would become is seen without a change to what it is."""
    row = next(row for row in TABLES["groups"] if row.promise == "groups.*.fabric added")
    before = {name: dict(snapshot.entries) for name, snapshot in lived.world.snapshots.items()}

    first, again = (observed(lived, row.before, row.after) for _ in range(2))

    assert first is again is Effect.REPLACES
    assert {name: dict(snapshot.entries) for name, snapshot in lived.world.snapshots.items()} == before
