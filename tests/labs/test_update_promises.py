"""Every key's promise, held against what the rehearsal does to a fleet that lives."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from functools import reduce
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from bedplate.catalog import load_catalog
from bedplate.load import FleetFaults, load_fleet
from bedplate.update.edit import Consequence, consequences
from bedplate.update.policies import POLICIES, Effect
from tests.testlab.rehearsal.live import Apart, Lived, Row, apart, edited, living, observed, rows

# Its fleets are made once, by the one worker that has all of them.
pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("promises")]
TABLES = {
    "groups": rows("groups.yaml"),
    "stores": rows("stores.yaml"),
    "places": rows("places.yaml"),
    "bare places": rows("places.yaml", "bare_edits"),
    "joined": rows("joined.yaml"),
    "bare joined": rows("joined.yaml", "bare_edits"),
}
ROWS = [(name, row) for name, table in TABLES.items() for row in table]
APART = apart()


class Stage:
    """Holds one fleet at a time, as there is one simulated AWS; tests come table by table, so each is made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._held = ExitStack()

    def fleet(self, name: str) -> Lived:
        """Return the fleet that a table's edits begin with, made in the simulated AWS."""
        if name != self._name:
            self._held.close()
            (start, *_) = TABLES[name]
            (folder := self._folder / name).mkdir()
            self._lived = self._held.enter_context(living(start.before, folder / "fleet.yaml"))
            self._name = name
        return self._lived

    def close(self) -> None:
        """Let go of the fleet."""
        self._held.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Give what holds the fleets of the tables."""
    with closing(Stage(tmp_path_factory.mktemp("lived"))) as held:
        yield held


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


def cases() -> Iterator[ParameterSet]:
    """Yield the edits of each table: those that are free together, each other one alone."""
    for name, table in TABLES.items():
        yield pytest.param(name, tuple(row for row in table if is_free(row)), id=f"what is free in {name}")
        yield from (pytest.param(name, (row,), id=row.promise) for row in table if not is_free(row))


def is_seen_free(lived: Lived, file: list[Row]) -> bool:
    """Tell whether edits in one file touch nothing."""
    return observed(lived, file[0].before, whole(file)) is Effect.FREE


def effects(lived: Lived, edits: tuple[Row, ...]) -> dict[str, Effect]:
    """Return what edits do; several are seen at once, and each alone where together they touch anything."""
    if len(edits) > 1 and all(is_seen_free(lived, file) for file in together(edits)):
        return dict.fromkeys((row.promise for row in edits), Effect.FREE)
    return {row.promise: observed(lived, row.before, row.after) for row in edits}


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


def test_looking_leaves_no_trace(stage: Stage) -> None:
    """What a fleet would become is seen without a change to what it is."""
    lived = stage.fleet("groups")
    row = next(row for row in TABLES["groups"] if row.promise == "groups.*.fabric added")
    before = {name: dict(snapshot.entries) for name, snapshot in lived.world.snapshots.items()}

    first, again = (observed(lived, row.before, row.after) for _ in range(2))

    assert first is again is Effect.REPLACES
    assert {name: dict(snapshot.entries) for name, snapshot in lived.world.snapshots.items()} == before


@pytest.mark.parametrize(("name", "edits"), list(cases()))
def test_what_is_promised_is_what_happens(name: str, edits: tuple[Row, ...], stage: Stage, tmp_path: Path) -> None:
    """No harder on what lives, and no easier."""
    expected = {row.promise: promised(row, tmp_path)[0].effect for row in edits}

    assert effects(stage.fleet(name), edits) == expected
