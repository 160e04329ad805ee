"""The node in memory on which roles are unit tested."""

from dataclasses import dataclass
from io import StringIO
from typing import ClassVar

import pytest
from pyinfra.context import host
from pyinfra.facts.server import LinuxDistribution, LinuxName, Which
from pyinfra.operations import apt, files, server
from pyinfra.operations.util import any_changed

from roles.base import Changes, Role
from tests.testlab.fakes.node import Disk, Entry, Recorded, Recorder, UnexpectedFactError, recorded

DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")


@dataclass(frozen=True)
class Sample(Role):
    """A role that does one thing of each sort."""

    text: str = "one\n"
    name: ClassVar[str] = "sample"

    def install(self) -> None:
        """Install a package that no distribution has by itself."""
        apt.packages(name="Sample package", packages=["sample", "bash"])

    def configure(self) -> Changes:
        """Write a file and a link to it."""
        return [
            files.put(name="Sample file", src=StringIO(self.text), dest="/etc/sample/a.conf", mode="640", group="adm"),
            files.link(name="Sample link", path="/etc/sample/b.conf", target="/etc/sample/a.conf"),
        ]

    def activate(self, changes: Changes) -> None:
        """Reload when a file changed."""
        server.shell(name="Reload sample", commands=["systemctl reload sample"], _if=any_changed(*changes))


@dataclass(frozen=True)
class Asking(Sample):
    """A role that asks what no table holds."""

    def install(self) -> None:
        """Ask."""
        host.get_fact(Which, command="frobnicate")


@pytest.mark.parametrize(("table", "name"), [(DEBIAN, "Debian"), (UBUNTU, "Ubuntu")], ids=["debian", "ubuntu"])
def test_recorded_facts_are_read_by_pyinfra_s_own_readers(table: Recorded, name: str) -> None:
    """A role sees the distribution that was recorded."""
    told = []

    @dataclass(frozen=True)
    class Telling(Sample):
        def install(self) -> None:
            told.extend([host.get_fact(LinuxName), host.get_fact(LinuxDistribution)["name"]])

    Recorder(table).play(Telling(), stages=["install"])

    assert told == [name, name]


def test_an_unexpected_question_is_refused() -> None:
    """A role that asks what nobody recorded fails its test, and the question is named."""
    with pytest.raises(UnexpectedFactError, match=r"server\.Which\(command=frobnicate\)"):
        Recorder(DEBIAN).play(Asking(), stages=["install"])


def test_stages_run_in_their_order_and_tell_what_they_did() -> None:
    """Each operation is told with its kind, its name, its commands and what it wrote."""
    played = Recorder(DEBIAN).play(Sample())

    assert played.kinds == ["apt.packages", "files.put", "files.link", "server.shell"]
    assert played.names == played.changes == ["Sample package", "Sample file", "Sample link", "Reload sample"]
    assert played.step("Sample package").commands[0].endswith("install sample")
    assert played.step("Sample file").commands[0] == "mkdir -p /etc/sample"
    assert played.written("/etc/sample/a.conf") == "one\n"
    assert played.disk.entries["/etc/sample/a.conf"] == Entry(content="one\n", mode=640, group="adm")


def test_files_that_are_right_are_not_written_again() -> None:
    """A second run on the same disk changes no file, and what waits for a change does not run."""
    recorder = Recorder(DEBIAN)
    recorder.play(Sample())

    again = recorder.play(Sample(), stages=["configure", "activate"])

    assert again.changes == []


@pytest.mark.parametrize(
    "wrong", [Entry(content="two\n", mode=640, group="adm"), Entry(content="one\n", mode=644, group="adm")]
)
def test_files_that_are_wrong_are_put_right(wrong: Entry) -> None:
    """Text and mode both count, and what reads the file is told."""
    right = Entry(content="one\n", mode=640, group="adm")
    recorder = Recorder(DEBIAN, Disk.of({"/etc/sample/a.conf": wrong}))

    played = recorder.play(Sample(), stages=["configure", "activate"])

    assert played.changes == ["Sample file", "Sample link", "Reload sample"]
    assert played.disk.entries["/etc/sample/a.conf"] == right
