"""Fleets that live in the simulated AWS, and the edits of their files that a table lists."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from bedplate.catalog import load_catalog
from bedplate.cli.opening import planned
from bedplate.cli.waves import waves
from bedplate.load import load_fleet
from bedplate.lock import lock_path, record_plan
from bedplate.plan import FleetPlan
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import Run, Stack, World, run
from bedplate.rehearsal.unknown import holds_unknown

TABLES = Path(__file__).parents[1] / "data" / "updates"


Change = Mapping[str, str]
# Stands for what AWS gives: the stacks that read it ask for addresses.
_TOLD = "10.64.0.9"


@dataclass(frozen=True)
class Row:
    """One edit of a table: the promise that it meets, as `key event`, the file before it, and old text by new."""

    promise: str
    before: str
    change: Change

    @property
    def after(self) -> str:
        """The file after the edit."""
        return edited(self.before, self.change)


def rows(table: str, part: str = "edits") -> tuple[Row, ...]:
    """Return the edits of a part of a table; those that add something begin with a fleet that is `bare` of it."""
    told = _read(table)
    start = edited(told["fleet"], told["bare"] if part == "bare_edits" else {})
    return tuple(_row(promise, start, change) for promise, change in told[part].items())


@dataclass(frozen=True)
class Apart:
    """An edit that tries what a promise is about, and the edits that it is instead, or the code of its refusal."""

    row: Row
    seen: frozenset[str]
    refused: str | None


def apart() -> tuple[Apart, ...]:
    """Return the promises that no edit meets."""
    return tuple(_apart(promise, told) for promise, told in _read("apart.yaml").items())


def _apart(promise: str, told: Mapping[str, Any]) -> Apart:
    row = _row(promise, _read(told["table"])["fleet"], told["edit"])
    return Apart(row, frozenset(told.get("seen", ())), told.get("refused"))


def _read(table: str) -> dict[str, Any]:
    told: dict[str, Any] = YAML(typ="safe").load(TABLES / table)
    return told


def _row(promise: str, start: str, change: Change | list[Change]) -> Row:
    """Return an edit; of two, the first makes the file that the edit begins with."""
    first, last = change if isinstance(change, list) else ({}, change)
    return Row(promise, edited(start, first), last)


def edited(text: str, change: Change) -> str:
    """Return a text after an edit, each old part of which stands in it once."""
    for old, new in change.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@dataclass(frozen=True)
class Lived:
    """A fleet whose stacks exist in the simulated AWS; `file` is where its text is written."""

    plan: FleetPlan
    world: World
    file: Path

    def replanned(self, before: str, after: str) -> FleetPlan:
        """Return the plan of a later text, the earlier one recorded; raises what refuses the edit."""
        lock_path(self.file).unlink(missing_ok=True)
        _record(self.file, before)
        self.file.write_text(after, encoding="utf-8")
        return _planned(self.file)

    def previews(self, plan: FleetPlan) -> dict[str, Run]:
        """Return what a later plan would do to each stack; what it would make is exported, too."""
        world = replace(self.world, exports=dict(self.world.exports))
        return {stack.name: _preview(stack, world) for wave in waves(plan) for stack in wave}


def _preview(stack: Stack, world: World) -> Run:
    done = run(stack, world, preview=True)
    told = world.exports.get(stack.full_name)
    world.exports[stack.full_name] = (
        done.snapshot.exports if told is None else _both(_known(done.snapshot.exports), told)
    )
    return done


def _known(value: Any) -> Any:  # noqa: ANN401  any JSON value
    """Return what is exported, with an address in place of what only AWS will tell: one unknown would hide all."""
    if isinstance(value, Mapping):
        return {key: _known(each) for key, each in value.items()}
    return _TOLD if holds_unknown(value) else value


def _both(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a stack exports already, and what it would export besides."""
    inner = {
        key: _both(new[key], value)
        for key, value in old.items()
        if isinstance(value, Mapping) and isinstance(new.get(key), Mapping)
    }
    return {**new, **old, **inner}


def _record(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    record_plan(lock_path(file), load_fleet(file, load_catalog()).fleet, load_catalog())


def _planned(file: Path) -> FleetPlan:
    return planned(load_fleet(file, load_catalog()))


@contextmanager
def living(text: str, file: Path) -> Iterator[Lived]:
    """Make the fleet of a text, recorded as an operator records it."""
    _record(file, text)
    plan = _planned(file)
    with running(plan.account) as simulation:
        world = World(simulation)
        failures = [failure for wave in waves(plan) for stack in wave for failure in run(stack, world).failures]
        assert not failures, failures
        yield Lived(plan, world, file)
