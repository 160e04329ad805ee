"""What goes wrong in an order, and what the operator reads of it: real agents, in folders of a test."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from bedplate.nodes.event import Kind, Step
from roles.base import DiskSpace
from roles.engine import connector
from tests.support.engine_work import Notebook, carried_out, order_of

BUSY = pytest.mark.parametrize(
    "said",
    [
        "E: Could not get lock /var/lib/dpkg/lock",
        "dpkg: error: dpkg frontend lock was locked by another process with pid 7",
        "debconf: DbDriver config: /var/cache/debconf/config.dat is locked by another process: Resource unavailable",
    ],
    ids=["apt", "dpkg", "debconf"],
)


@BUSY
def test_a_package_manager_that_is_busy_is_waited_for(said: str, tmp_path: Path) -> None:
    """Whoever installs packages beside us ends some time."""
    refused = f"echo '{said}' >&2; exit 100"
    busy = f"test -e {tmp_path}/free || {{ touch {tmp_path}/free; {refused}; }}"

    events = carried_out(order_of(tmp_path), Notebook(tmp_path / "node", failing=busy))

    assert any(event.step is Step.NOTE and "waits" in event.words for event in events)
    assert events[-1].step is Step.DONE


@BUSY
def test_a_package_manager_that_stays_busy_is_waited_for_no_longer_than_told(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After that time the operator is told to look who it is."""
    monkeypatch.setattr(connector, "PACKAGES_SECONDS", 1.5)
    busy = f"echo >> {tmp_path}/tries; echo '{said}' >&2; exit 100"

    events = carried_out(order_of(tmp_path), Notebook(tmp_path / "node", failing=busy))

    assert "did not end in time" in events[-1].words
    assert "look who" in events[-1].fix
    assert len((tmp_path / "tries").read_text()) > 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("dpkg: error: No space left on device", "its disk is full"),
        ("E: Failed to fetch http://deb/x  Temporary failure resolving 'deb'", "cannot reach a package archive"),
        ("E: Unable to locate package nvtop", "do not have what is wanted"),
        ("E: Sub-process /usr/bin/dpkg exited unexpectedly", "ended in the middle of its work"),
        ("ERROR: No matching distribution found for uv==0.9.0", "cannot reach an index of Python's packages"),
        ("no such luck", "no such luck"),
    ],
    ids=["disk", "mirror", "package", "killed", "index", "unknown"],
)
def test_a_failure_says_what_to_do(said: str, told: str, tmp_path: Path) -> None:
    """The operation is named, with what its command's words mean, or the words themselves, and how long it took."""
    node = Notebook(tmp_path / "node", failing=f'echo "{said}" >&2; exit 1')

    events = carried_out(order_of(tmp_path), node)

    assert events[-1].words.startswith("A step between: ")
    assert told in events[-1].words
    assert events[-1].fix
    assert events[-1].seconds > 0


@dataclass(frozen=True, slots=True)
class Large(Notebook):
    """A role whose packages fit on no disk."""

    space: ClassVar[DiskSpace] = DiskSpace(programs=10**9)


def test_a_node_without_disk_space_is_refused_before_an_operation_begins(tmp_path: Path) -> None:
    """Nothing of the order is done, and nothing is remembered as begun; `--check` reports the changes all the same."""
    foretold = carried_out(order_of(tmp_path, check=True), Large(tmp_path / "node"))
    events = carried_out(order_of(tmp_path), Large(tmp_path / "node"))

    assert foretold[-1].step is Step.DONE
    assert [(event.step, event.kind) for event in events] == [(Step.TROUBLE, Kind.REFUSED)]
    assert "MiB required" in events[-1].words
    assert not (tmp_path / "node").exists()
    assert not (tmp_path / "memory").exists()


def test_only_a_role_with_something_to_install_needs_its_space(tmp_path: Path) -> None:
    """Packages take space once: a new setting of a node that has them needs next to none."""
    carried_out(order_of(tmp_path), Notebook(tmp_path / "node"))

    events = carried_out(order_of(tmp_path), Large(tmp_path / "node", "two\n"))

    assert events[-1].step is Step.DONE
    assert (tmp_path / "node" / "settings").read_text() == "two\n"


def test_a_defect_of_a_role_is_told_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The operator reads a sentence, and the other nodes go on."""

    @dataclass(frozen=True, slots=True)
    class Broken(Notebook):
        def install(self) -> None:
            raise KeyError("nobody")

    events = carried_out(order_of(tmp_path), Broken(tmp_path / "node"))

    assert (events[-1].kind, events[-1].words) == (Kind.DEFECT, "KeyError: 'nobody'")
    assert capsys.readouterr().err == ""
