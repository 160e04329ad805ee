"""The node in memory on which roles are unit tested."""

from dataclasses import dataclass
from io import StringIO
from typing import ClassVar

import pytest
from pyinfra.context import host
from pyinfra.facts.server import LinuxDistribution, LinuxName, Which
from pyinfra.operations import apt, files, server

from roles.base import Changes, Role, changed
from tests.testlab.fakes.node import Disk, Entry, Recorded, Recorder, UnexpectedFactError, recorded

DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")


@dataclass(frozen=True)
class Sample(Role):
    """A role with one operation of each kind."""

    text: str = "one\n"
    name: ClassVar[str] = "sample"

    def install(self) -> None:
        """Install a package that is not installed yet."""
        apt.packages(name="Install package", packages=["sample", "bash"])

    def configure(self) -> Changes:
        """Write a file and a link to it."""
        path, link = "/etc/sample/a.conf", "/etc/sample/b.conf"
        return {
            path: files.put(name="Write file", src=StringIO(self.text), dest=path, mode="640", group="adm"),
            link: files.link(name="Create link", path=link, target=path),
        }

    def activate(self, changes: Changes) -> None:
        """Reload when a file changed."""
        server.shell(name="Reload sample", commands=["systemctl reload sample"], _if=changed(changes))


@dataclass(frozen=True)
class Asking(Sample):
    """A role that reads a fact without a recorded value."""

    def install(self) -> None:
        """Read the fact."""
        host.get_fact(Which, command="frobnicate")


@pytest.mark.parametrize(("table", "name"), [(DEBIAN, "Debian"), (UBUNTU, "Ubuntu")], ids=["debian", "ubuntu"])
def test_recorded_facts_are_processed_by_pyinfra(table: Recorded, name: str) -> None:
    """A role sees the recorded distribution."""
    names = []

    @dataclass(frozen=True)
    class Telling(Sample):
        def install(self) -> None:
            names.extend([host.get_fact(LinuxName), host.get_fact(LinuxDistribution)["name"]])

    Recorder(table).play(Telling(), stages=["install"])

    assert names == [name, name]


def test_an_unexpected_fact_is_an_error() -> None:
    """A fact without a recorded value fails the test, and the error names the fact."""
    with pytest.raises(UnexpectedFactError, match=r"server\.Which\(command=frobnicate\)"):
        Recorder(DEBIAN).play(Asking(), stages=["install"])


def test_stages_run_in_order() -> None:
    """Each operation has its kind, name and commands, and files are on the disk."""
    played = Recorder(DEBIAN).play(Sample())

    assert played.kinds == ["apt.packages", "files.put", "files.link", "server.shell"]
    assert played.names == played.changes == ["Install package", "Write file", "Create link", "Reload sample"]
    assert played.step("Install package").commands[0].endswith("install sample")
    assert played.step("Write file").commands[0] == "mkdir -p /etc/sample"
    assert played.written("/etc/sample/a.conf") == "one\n"
    assert played.disk.entries["/etc/sample/a.conf"] == Entry(content="one\n", mode=640, group="adm")


def test_correct_files_are_not_written() -> None:
    """A second run on the same disk changes nothing, and runs no conditional operation."""
    recorder = Recorder(DEBIAN)
    recorder.play(Sample())

    again = recorder.play(Sample(), stages=["configure", "activate"])

    assert again.changes == []


@pytest.mark.parametrize(
    "wrong", [Entry(content="two\n", mode=640, group="adm"), Entry(content="one\n", mode=644, group="adm")]
)
def test_wrong_files_are_corrected(wrong: Entry) -> None:
    """A different text or mode is corrected, and the reload runs."""
    right = Entry(content="one\n", mode=640, group="adm")
    recorder = Recorder(DEBIAN, Disk.of({"/etc/sample/a.conf": wrong}))

    played = recorder.play(Sample(), stages=["configure", "activate"])

    assert played.changes == ["Write file", "Create link", "Reload sample"]
    assert played.disk.entries["/etc/sample/a.conf"] == right
