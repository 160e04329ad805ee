"""Tests of the promised effect of each fleet file key, against previews on a fleet in the simulated AWS."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from functools import reduce
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from bedplate.catalog import load_catalog
from bedplate.load import FleetFaults, load_fleet
from bedplate.update import POLICIES, Consequence, Effect, consequences
from tests.testlab.rehearsal.live import (
    Edit,
    LiveFleet,
    UnmetPromise,
    edited,
    edits_of,
    effect_of,
    live_fleet,
    unmet_promises,
)

# One worker runs all tests of this file, so that each fleet is created once.
pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("promises")]
TABLES = {
    "groups": edits_of("groups.yaml"),
    "stores": edits_of("stores.yaml"),
    "places": edits_of("places.yaml"),
    "bare places": edits_of("places.yaml", "bare_edits"),
    "connected": edits_of("joined.yaml"),
    "bare connected": edits_of("joined.yaml", "bare_edits"),
}
EDITS = [(name, edit) for name, table in TABLES.items() for edit in table]
UNMET = unmet_promises()


class FleetHolder:
    """Holds one fleet at a time; tests run table by table, so each fleet is created once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._context = ExitStack()

    def fleet(self, name: str) -> LiveFleet:
        """Return the fleet from which the edits of a table start, created in the simulated AWS."""
        if name != self._name:
            self._context.close()
            (start, *_) = TABLES[name]
            (folder := self._folder / name).mkdir()
            self._fleet = self._context.enter_context(live_fleet(start.before, folder / "fleet.yaml"))
            self._name = name
        return self._fleet

    def close(self) -> None:
        """End the simulation of the present fleet."""
        self._context.close()


@pytest.fixture(scope="module")
def holder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetHolder]:
    """Return the holder of the fleets."""
    with closing(FleetHolder(tmp_path_factory.mktemp("live"))) as holder:
        yield holder


def promised(edit: Edit, folder: Path) -> tuple[Consequence, ...]:
    """Return the promised consequences of an edit."""
    before, after = folder / "before.yaml", folder / "after.yaml"
    before.write_text(edit.before, encoding="utf-8")
    after.write_text(edit.after, encoding="utf-8")
    return consequences(*(load_fleet(file, load_catalog()).fleet for file in (before, after)))


def met(results: tuple[Consequence, ...]) -> set[str]:
    """Return the promises that these consequences meet."""
    return {f"{item.edit.pattern} {item.edit.event.value}" for item in results}


def is_free(edit: Edit) -> bool:
    """Return whether the key of an edit promises no effect on existing resources."""
    return any(
        f"{key} {event}" == edit.promise and policy.effect is Effect.FREE for (key, event), policy in POLICIES.items()
    )


def grouped(free: Iterable[Edit]) -> list[list[Edit]]:
    """Return edits in as few groups as possible, such that the edits of a group fit into one file."""
    files: list[list[Edit]] = []
    for edit in free:
        file = next((file for file in files if fits(edit, file)), None)
        if file is None:
            files.append([edit])
        else:
            file.append(edit)
    return files


def fits(edit: Edit, file: list[Edit]) -> bool:
    """Return whether an edit can be made in the same file as others."""
    text = all_edits(file)
    return edit.before == file[0].before and all(text.count(old) == 1 for old in edit.change)


def all_edits(file: list[Edit]) -> str:
    """Return the text after all of the edits."""
    return reduce(lambda text, edit: edited(text, edit.change), file, file[0].before)


def cases() -> Iterator[ParameterSet]:
    """Yield the edits of each table: those without an effect together, each other one separately."""
    for name, table in TABLES.items():
        yield pytest.param(name, tuple(edit for edit in table if is_free(edit)), id=f"no effect in {name}")
        yield from (pytest.param(name, (edit,), id=edit.promise) for edit in table if not is_free(edit))


def have_no_effect(live: LiveFleet, file: list[Edit]) -> bool:
    """Return whether the edits of one file have no effect."""
    return effect_of(live, file[0].before, all_edits(file)) is Effect.FREE


def effects(live: LiveFleet, edits: tuple[Edit, ...]) -> dict[str, Effect]:
    """Return the effect of each edit; several are previewed at once, and separately only if one has an effect."""
    if len(edits) > 1 and all(have_no_effect(live, file) for file in grouped(edits)):
        return dict.fromkeys((edit.promise for edit in edits), Effect.FREE)
    return {edit.promise: effect_of(live, edit.before, edit.after) for edit in edits}


def test_every_promise_has_an_edit() -> None:
    """Each promise has an edit that meets it, or one that shows why none can."""
    tried = sorted([edit.promise for _, edit in EDITS] + [unmet.edit.promise for unmet in UNMET])

    assert tried == sorted(f"{key} {event}" for key, event in POLICIES)


@pytest.mark.parametrize("edit", [pytest.param(edit, id=edit.promise) for _, edit in EDITS])
def test_an_edit_meets_one_promise(edit: Edit, tmp_path: Path) -> None:
    """The effect of an edit is then the effect of this promise."""
    assert met(promised(edit, tmp_path)) == {edit.promise}


@pytest.mark.parametrize("unmet", [pytest.param(unmet, id=unmet.edit.promise) for unmet in UNMET])
def test_an_unmet_promise_is_another_edit_or_an_error(unmet: UnmetPromise, tmp_path: Path) -> None:
    """The edit removes an entry and adds another, or the key has only one valid value."""
    if unmet.error_code is None:
        assert met(promised(unmet.edit, tmp_path)) == unmet.met
        return
    with pytest.raises(FleetFaults) as error:
        promised(unmet.edit, tmp_path)
    assert [fault.code for fault in error.value.faults if fault.code.startswith("E")] == [unmet.error_code]


def test_previews_change_nothing(holder: FleetHolder) -> None:
    """A preview of an edit does not change the existing fleet."""
    live = holder.fleet("groups")
    edit = next(edit for edit in TABLES["groups"] if edit.promise == "groups.*.fabric added")
    before = {name: dict(snapshot.entries) for name, snapshot in live.world.snapshots.items()}

    first, again = (effect_of(live, edit.before, edit.after) for _ in range(2))

    assert first is again is Effect.REPLACES
    assert {name: dict(snapshot.entries) for name, snapshot in live.world.snapshots.items()} == before


@pytest.mark.parametrize(("name", "edits"), list(cases()))
def test_the_effect_is_the_promised_one(
    name: str, edits: tuple[Edit, ...], holder: FleetHolder, tmp_path: Path
) -> None:
    """The effect on existing resources is neither stronger nor weaker than promised."""
    expected = {edit.promise: promised(edit, tmp_path)[0].effect for edit in edits}

    assert effects(holder.fleet(name), edits) == expected
