"""Whole files that roles put on nodes."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from roles.base import Changes, Role
from roles.packages import install
from roles.shipped import Marks, Shipped, ship
from roles.template import rendered
from tests.support.disk import Disk, Entry
from tests.support.recorded import recorded
from tests.support.recorder import Recorder

DEBIAN = recorded("debian-12")
ONE = Shipped("One", "/etc/sample/one", "1\n")
TWO = Shipped("Two", "/etc/sample/two", "2\n", mode="600")


@dataclass(frozen=True)
class Sample(Role):
    """A role of two files and two packages."""

    packages: tuple[str, ...] = ("bash",)
    name: ClassVar[str] = "sample"

    def install(self) -> None:
        """Install packages."""
        install("Packages", self.packages)

    def configure(self) -> Changes:
        """Put the files in place."""
        return ship(ONE, TWO)

    def activate(self, changes: Changes) -> None:
        """Start nothing."""


def test_files_are_placed_with_text_mode_and_owner() -> None:
    """What a role ships is on the node as it is in the role."""
    played = Recorder(DEBIAN).play(Sample())

    assert played.changes == ["One", "Two"]
    assert played.disk.entries["/etc/sample/one"] == Entry(content="1\n", mode=644)
    assert played.disk.entries["/etc/sample/two"] == Entry(content="2\n", mode=600)
    assert not [path for path in played.disk.entries if path.endswith(".new")]


@pytest.mark.parametrize(
    "wrong",
    [Entry(content="3\n", mode=600), Entry(content="2\n", mode=644), Entry(content="2\n", mode=600, user="ada")],
    ids=["text", "mode", "owner"],
)
def test_only_what_differs_is_placed_anew(wrong: Entry) -> None:
    """A file that is right stays untouched, and what waits for it is not woken."""
    disk = Disk.of({"/etc/sample/one": "1\n", "/etc/sample/two": wrong})

    played = Recorder(DEBIAN, disk).play(Sample())

    assert played.changes == ["Two"]
    assert disk.entries["/etc/sample/two"] == Entry(content="2\n", mode=600)


def test_a_link_is_replaced_and_its_target_left() -> None:
    """Somebody's link never leads a file of root's elsewhere."""
    disk = Disk.of({"/etc/sample/one": Entry("link", "/home/ada/one", mode=777), "/home/ada/one": "1\n"})

    Recorder(DEBIAN, disk).play(Sample())

    assert disk.entries["/etc/sample/one"].kind == "file"
    assert disk.read("/home/ada/one") == "1\n"


def test_marks_are_what_a_real_shell_says(tmp_path: Path) -> None:
    """The question is understood by sh, for names with spaces, links and what is not there."""
    odd = tmp_path / "it's one"
    odd.write_text("1\n")
    odd.chmod(0o640)
    (tmp_path / "link").symlink_to(odd)
    fact = Marks()
    asked = fact.command([str(odd), str(tmp_path / "link"), str(tmp_path), str(tmp_path / "none")])

    told = subprocess.run(["sh", "-c", asked.get_raw_value()], check=True, capture_output=True, text=True).stdout

    owner = f"{odd.owner()}:{odd.group()}"
    mark = Shipped("", "", "1\n", mode="640").mark.replace("root:root", owner)
    assert fact.process(told.splitlines()) == {str(odd): mark}


def test_lists_are_fetched_only_for_what_is_missing() -> None:
    """A node that has every package is not sent to the mirror, so a second run changes nothing."""
    present = Recorder(DEBIAN).play(Sample(), stages=["install"])
    missing = Recorder(DEBIAN).play(Sample(("bash", "sample")), stages=["install"])

    assert present.changes == []
    assert missing.commands[0] == "apt-get update"
    assert missing.commands[-1].endswith("install --no-install-recommends sample")


def test_a_template_that_lacks_a_value_is_refused(tmp_path: Path) -> None:
    """No file is ever shipped with a hole in it."""
    with pytest.raises(Exception, match="is undefined"):
        rendered("baseline/motd.j2")
