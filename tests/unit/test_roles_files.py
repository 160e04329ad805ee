"""Whole files that roles put on nodes."""

import os
import runpy
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

import pytest

from bedplate.cli import run
from bedplate.errors import InputError
from roles.base import NO_CHANGES, Changes, Role
from roles.files import Edit, FileSignatures, Shipped, FileTexts, render, put_files, set_line, set_values, written
from roles.repository import Pin, Repository, add
from roles.system import Settable, install, otherwise
from tests.testlab.fakes.node import Disk, Entry, Recorded, Recorder, recorded
from tests.testlab.run import need_root

DEBIAN = recorded("debian-12")
ONE = Shipped("One", "/etc/sample/one", "1\n")
TWO = Shipped("Two", "/etc/sample/two", "2\n", mode="600")


@dataclass(frozen=True)
class Sample(Role):
    """A role of two files and two packages."""

    packages: tuple[str, ...] = ("bash",)
    first: Shipped = ONE
    name: ClassVar[str] = "sample"

    def install(self) -> None:
        """Install packages."""
        install("Packages", self.packages)

    def configure(self) -> Changes:
        """Put the files in place."""
        return put_files(self.first, TWO)

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


LINKED: Mapping[str, str | Entry] = {
    "/etc/sample/one": Entry("link", "/home/ada/one", mode=777),
    "/home/ada/one": "1\n",
}


def test_a_symlink_is_refused() -> None:
    """A distribution's own symlink, as /etc/default/locale on Ubuntu, is not replaced by a file."""
    disk = Disk.of(LINKED)

    with pytest.raises(InputError, match="/etc/sample/one is a symlink"):
        Recorder(DEBIAN, disk).play(Sample())

    assert disk.entries["/etc/sample/one"].kind == "link"


def test_a_symlink_is_replaced_where_the_role_asks_for_it() -> None:
    """Its target stays as it was: a symlink cannot redirect a file of root's."""
    disk = Disk.of(LINKED)

    Recorder(DEBIAN, disk).play(Sample(first=replace(ONE, replaces_symlink=True)))

    assert disk.entries["/etc/sample/one"].kind == "file"
    assert disk.read("/home/ada/one") == "1\n"


def test_marks_are_what_a_real_shell_says(tmp_path: Path) -> None:
    """The question is understood by sh, for names with spaces, links and what is not there."""
    odd = tmp_path / "it's one"
    odd.write_text("1\n")
    odd.chmod(0o640)
    (tmp_path / "link").symlink_to(odd)
    fact = FileSignatures()
    asked = fact.command([str(odd), str(tmp_path / "link"), str(tmp_path), str(tmp_path / "none")])

    told = subprocess.run(["sh", "-c", asked.get_raw_value()], check=True, capture_output=True, text=True).stdout

    owner = f"{odd.owner()}:{odd.group()}"
    mark = Shipped("", "", "1\n", mode="640").mark.replace("root:root", owner)
    assert fact.process(told.splitlines()) == {str(odd): mark, str(tmp_path / "link"): "symlink"}


def test_a_path_with_a_backslash_is_known_again(tmp_path: Path) -> None:
    """As in systemd's name for the unit of /mnt/lab-data: such a file is as it should be after one apply."""
    path = tmp_path / r"mnt-lab\x2ddata.mount"
    path.write_text("1\n")
    asked = FileSignatures().command([str(path)]).get_raw_value()

    told = subprocess.run(["sh", "-c", asked], check=True, capture_output=True, text=True).stdout

    assert list(FileSignatures().process(told.splitlines())) == [str(path)]
    assert sha256(b"1\n").hexdigest() in told


@pytest.mark.parametrize("text", ["", "one\n", "first\nno end", "ünï\n"], ids=["empty", "line", "no-end", "bytes"])
def test_a_file_has_its_text_to_the_byte(tmp_path: Path, text: str) -> None:
    """Also where pyinfra ends a last line that has no end of its own; folders are made, and nothing else stays."""
    need_root()
    file = Shipped("", str(tmp_path / "new folder" / "file"), text, "640")

    status = _run_as_pyinfra_does(file)

    path = Path(file.path)
    assert (status, path.read_bytes(), path.stat().st_mode & 0o777) == (0, text.encode(), 0o640)
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_file_that_cannot_be_placed_leaves_no_draft(tmp_path: Path) -> None:
    """Where a folder is in its place, the operation fails and leaves things as they were."""
    need_root()
    (tmp_path / "file").mkdir()

    status = _run_as_pyinfra_does(Shipped("", str(tmp_path / "file"), "text\n"))

    assert status != 0
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def _run_as_pyinfra_does(file: Shipped) -> int:
    """Run what writes a file; what it reads ends with the end of a line."""
    command = written(file)
    given = file.text if file.text.endswith("\n") else f"{file.text}\n"
    return subprocess.run(["sh", "-c", command.get_raw_value()], input=given.encode(), check=False).returncode


def test_settings_are_what_the_kernel_shows() -> None:
    """Those that may be written are told by one program, with their own names."""
    files = {key: Path("/proc/sys", *key.split(".")) for key in ("kernel.ostype", "net.ipv4.ip_forward", "vm.none")}
    fact = Settable()

    asked = fact.command(tuple(files)).get_raw_value()
    told = subprocess.run(["sh", "-c", asked], check=True, capture_output=True, text=True).stdout

    wanted = {key: file.read_text().strip() for key, file in files.items() if os.access(file, os.W_OK)}
    assert fact.process(told.splitlines()) == wanted


def test_a_setting_of_each_interface_is_asked_of_all_that_there_are() -> None:
    """A star stands for any name that the kernel has, one with a dot too; a key by its name goes before it."""
    wanted = {"net.ipv4.conf.*.rp_filter": "1", "net.ipv4.conf.default.rp_filter": "2"}
    fact, names = Settable(), {each.name for each in Path("/proc/sys/net/ipv4/conf").iterdir()}

    asked = fact.command(tuple(wanted)).get_raw_value()
    told = subprocess.run(["sh", "-c", asked], check=True, capture_output=True, text=True).stdout

    may = os.access("/proc/sys/net/ipv4/conf/lo/rp_filter", os.W_OK)
    assert set(fact.process(told.splitlines())) == {f"net.ipv4.conf.{name}.rp_filter" for name in names if may}
    found = {f"net.ipv4.conf.{name}.rp_filter": "2" for name in ("eth0.100", "default")}
    assert otherwise(found, wanted) == {"net.ipv4.conf.eth0.100.rp_filter": "2"}


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
        render("baseline/motd.j2")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A 1\nB 2\n", "A\t9\nB 2\n"),
        ("#A 1\nB 2\n", "A\t9\nB 2\n"),
        ("B 2\nA 1\nA 3\n", "B 2\nA\t9\n"),
        ("B 2\n", "B 2\nA\t9\n"),
        ("AA 1\n", "AA 1\nA\t9\n"),
        ("", "A\t9\n"),
    ],
    ids=["said", "commented", "twice", "missing", "longer-name", "empty"],
)
def test_a_key_has_one_value(text: str, wanted: str) -> None:
    """A key that is said, commented out, said twice or not said is said once; other keys stay as they are."""
    assert set_values(text, {"A": "9"}) == wanted
    assert set_values(wanted, {"A": "9"}) == wanted


def test_a_line_stands_for_what_it_replaces() -> None:
    """The first line of its kind becomes ours, others of its kind go."""
    assert set_line("x\numask 022\numask 077\n", r"umask\s", "umask 027") == "x\numask 027\n"


def test_texts_are_read_back_as_they_lie_there() -> None:
    """Empty lines and files without lines survive the one question about all."""
    told = ["==bedplate== /a", "one", "", "two", "==bedplate== /b"]

    assert FileTexts().process(told) == {"/a": "one\n\ntwo\n", "/b": ""}


def test_an_edit_is_a_value() -> None:
    """Two edits of one file by one function are the same."""
    assert Edit("/a", str.upper) == Edit("/a", str.upper)


ROLES_REPOSITORY_ONE = (Path(__file__).parents[1] / "data" / "keys" / "one.asc").read_text()
SAMPLE = Repository(
    name="kubernetes",
    uri="https://packages.lab.example/core",
    suites=("/",),
    components=(),
    key=ROLES_REPOSITORY_ONE,
    key_sum=sha256(ROLES_REPOSITORY_ONE.encode()).hexdigest(),
    pins=(Pin(("kubelet", "kubectl"), "1.33.*"),),
)


@dataclass(frozen=True)
class Adding(Role):
    """A role that needs another archive."""

    name: ClassVar[str] = "adding"

    def install(self) -> None:
        """Add it."""
        add((SAMPLE,))

    def configure(self) -> Changes:
        """Write nothing."""
        return NO_CHANGES

    def activate(self, changes: Changes) -> None:
        """Start nothing."""


def test_a_repository_with_another_key_is_refused() -> None:
    """A key file that was changed, or to which a key was added, never reaches a node."""
    with pytest.raises(ValueError, match="kubernetes: the key has the SHA-256"):
        replace(SAMPLE, key=ROLES_REPOSITORY_ONE + ROLES_REPOSITORY_ONE)


def test_the_source_names_its_own_key() -> None:
    """The key is good for this archive alone."""
    key, source, _ = SAMPLE.files

    assert key.path == "/etc/apt/keyrings/kubernetes.asc"
    assert source.text == (
        "Types: deb\nURIs: https://packages.lab.example/core\nSuites: /\nSigned-By: /etc/apt/keyrings/kubernetes.asc\n"
    )


def test_only_what_is_pinned_comes_from_it() -> None:
    """Named packages in the named version; all else of that archive never."""
    _, _, pins = SAMPLE.files

    assert pins.text.split("\n\n") == [
        "Package: kubelet kubectl\nPin: version 1.33.*\nPin-Priority: 990",
        'Package: *\nPin: origin "packages.lab.example"\nPin-Priority: -1',
        "",
    ]


def test_lists_are_fetched_when_a_repository_is_new(system: Recorded) -> None:
    """What is to be installed from it next is known, and a second run fetches nothing."""
    recorder = Recorder(system)

    first = recorder.play(Adding())
    second = recorder.play(Adding())

    assert first.names[-1] == "Update the apt lists of other repositories"
    assert first.commands[-1] == "apt-get update"
    assert second.changes == []


INVENTORY = str(Path(__file__).parents[2] / "roles" / "inventory.py")


def test_standing_machines_go_by_their_names(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the plan is recorded."""
    monkeypatch.setenv("BEDPLATE_FLEET", str(lab))
    run(["plan", str(lab), "--write"])

    names = [name for name, _ in runpy.run_path(INVENTORY)["nodes"]]

    assert "titan-01.cellar" in names


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("\nowner:", "\nowned:", "E101 unknown-key"),
        ("\nowner:", "\nowner:", "error: not recorded in fleet.lock: region/us-west-2"),
    ],
    ids=["wrong", "not recorded"],
)
def test_a_file_that_cannot_be_used_is_told_without_a_traceback(  # noqa: PLR0913, PLR0917  two are fixtures of pytest's
    old: str,
    new: str,
    told: str,
    lab: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the command line's own lines, with its exit status."""
    monkeypatch.setenv("BEDPLATE_FLEET", str(lab))
    lab.write_text(lab.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")

    with pytest.raises(SystemExit) as ended:
        runpy.run_path(INVENTORY)

    assert ended.value.code == 2
    assert told in capsys.readouterr().err
