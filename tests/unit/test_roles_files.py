"""Files, packages, sysctls and apt repositories that roles declare, and the inventory for plain pyinfra."""

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
from roles.base import (
    NO_CHANGES,
    Changes,
    Edit,
    FileSignatures,
    FileTexts,
    ManagedFile,
    Role,
    file_text,
    put_files,
    render,
    set_line,
    set_values,
    write_command,
)
from roles.system import Pin, Repository, Settable, add, differing_sysctls, install_packages
from tests.testlab.fakes.node import Disk, Entry, Recorded, Recorder, recorded
from tests.testlab.run import need_root

DEBIAN = recorded("debian-12")
ONE = ManagedFile("Write one", "/etc/sample/one", "1\n")
TWO = ManagedFile("Write two", "/etc/sample/two", "2\n", mode="600")


@dataclass(frozen=True)
class Sample(Role):
    """A role of two files and two packages."""

    packages: tuple[str, ...] = ("bash",)
    first: ManagedFile = ONE
    name: ClassVar[str] = "sample"

    def install(self) -> None:
        """Install packages."""
        install_packages("Install packages", self.packages)

    def configure(self) -> Changes:
        """Write the files."""
        return put_files(self.first, TWO)

    def activate(self, changes: Changes) -> None:
        """Start nothing."""


def test_files_are_written_with_text_mode_and_owner() -> None:
    """put_files writes text and mode, and leaves no temporary file."""
    played = Recorder(DEBIAN).play(Sample())

    assert played.changes == ["Write one", "Write two"]
    assert played.disk.entries["/etc/sample/one"] == Entry(content="1\n", mode=644)
    assert played.disk.entries["/etc/sample/two"] == Entry(content="2\n", mode=600)
    assert not [path for path in played.disk.entries if path.endswith(".new")]


@pytest.mark.parametrize(
    "wrong",
    [Entry(content="3\n", mode=600), Entry(content="2\n", mode=644), Entry(content="2\n", mode=600, user="ada")],
    ids=["text", "mode", "owner"],
)
def test_only_a_different_file_is_written(wrong: Entry) -> None:
    """A file with the right text, mode and owner is not written."""
    disk = Disk.of({"/etc/sample/one": "1\n", "/etc/sample/two": wrong})

    played = Recorder(DEBIAN, disk).play(Sample())

    assert played.changes == ["Write two"]
    assert disk.entries["/etc/sample/two"] == Entry(content="2\n", mode=600)


LINKED: Mapping[str, str | Entry] = {
    "/etc/sample/one": Entry("link", "/home/ada/one", mode=777),
    "/home/ada/one": "1\n",
}


def test_a_symlink_is_refused() -> None:
    """A symlink, such as /etc/default/locale on Ubuntu, is reported and not replaced."""
    disk = Disk.of(LINKED)

    with pytest.raises(InputError, match="/etc/sample/one is a symlink"):
        Recorder(DEBIAN, disk).play(Sample())

    assert disk.entries["/etc/sample/one"].kind == "link"


def test_a_symlink_is_replaced_on_request() -> None:
    """With `replaces_symlink` the link is replaced, and its target is not changed."""
    disk = Disk.of(LINKED)

    Recorder(DEBIAN, disk).play(Sample(first=replace(ONE, replaces_symlink=True)))

    assert disk.entries["/etc/sample/one"].kind == "file"
    assert disk.read("/home/ada/one") == "1\n"


def test_signatures_are_read_by_a_real_shell(tmp_path: Path) -> None:
    """The command works in sh for names with spaces, links and missing files."""
    file = tmp_path / "it's one"
    file.write_text("1\n")
    file.chmod(0o640)
    (tmp_path / "link").symlink_to(file)
    fact = FileSignatures()
    command = fact.command([str(file), str(tmp_path / "link"), str(tmp_path), str(tmp_path / "none")])

    output = subprocess.run(["sh", "-c", command.get_raw_value()], check=True, capture_output=True, text=True).stdout

    owner = f"{file.owner()}:{file.group()}"
    signature = ManagedFile("", "", "1\n", mode="640").signature.replace("root:root", owner)
    assert fact.process(output.splitlines()) == {str(file): signature, str(tmp_path / "link"): "symlink"}


def test_a_path_with_a_backslash_is_read_back(tmp_path: Path) -> None:
    """Unit names such as that of /mnt/lab-data contain a backslash; sha256sum must not escape it."""
    path = tmp_path / r"mnt-lab\x2ddata.mount"
    path.write_text("1\n")
    command = FileSignatures().command([str(path)]).get_raw_value()

    output = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout

    assert list(FileSignatures().process(output.splitlines())) == [str(path)]
    assert sha256(b"1\n").hexdigest() in output


@pytest.mark.parametrize("text", ["", "one\n", "first\nno end", "ünï\n"], ids=["empty", "line", "no-end", "bytes"])
def test_a_file_has_exactly_its_text(tmp_path: Path, text: str) -> None:
    """A missing newline at the end is kept, and missing folders are created."""
    need_root()
    file = ManagedFile("", str(tmp_path / "new folder" / "file"), text, "640")

    status = _write_as_pyinfra(file)

    path = Path(file.path)
    assert (status, path.read_bytes(), path.stat().st_mode & 0o777) == (0, text.encode(), 0o640)
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    """With a folder at the path, the operation fails and changes nothing."""
    need_root()
    (tmp_path / "file").mkdir()

    status = _write_as_pyinfra(ManagedFile("", str(tmp_path / "file"), "text\n"))

    assert status != 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def _write_as_pyinfra(file: ManagedFile) -> int:
    """Write a file; like pyinfra, end its stdin with a newline."""
    command = write_command(file)
    stdin = file.text if file.text.endswith("\n") else f"{file.text}\n"
    return subprocess.run(["sh", "-c", command.get_raw_value()], input=stdin.encode(), check=False).returncode


def test_writable_sysctls_are_read() -> None:
    """The values of writable sysctls are read in one command."""
    files = {key: Path("/proc/sys", *key.split(".")) for key in ("kernel.ostype", "net.ipv4.ip_forward", "vm.none")}
    fact = Settable()

    command = fact.command(tuple(files)).get_raw_value()
    output = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout

    values = {key: file.read_text().strip() for key, file in files.items() if os.access(file, os.W_OK)}
    assert fact.process(output.splitlines()) == values


def test_a_star_matches_all_interfaces() -> None:
    """A star matches each interface, also one with a dot; an exact key has precedence."""
    desired = {"net.ipv4.conf.*.rp_filter": "1", "net.ipv4.conf.default.rp_filter": "2"}
    fact, names = Settable(), {folder.name for folder in Path("/proc/sys/net/ipv4/conf").iterdir()}

    command = fact.command(tuple(desired)).get_raw_value()
    output = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout

    writable = os.access("/proc/sys/net/ipv4/conf/lo/rp_filter", os.W_OK)
    assert set(fact.process(output.splitlines())) == {f"net.ipv4.conf.{name}.rp_filter" for name in names if writable}
    actual = {f"net.ipv4.conf.{name}.rp_filter": "2" for name in ("eth0.100", "default")}
    assert differing_sysctls(actual, desired) == {"net.ipv4.conf.eth0.100.rp_filter": "2"}


def test_apt_lists_are_updated_only_for_missing_packages() -> None:
    """A node with all packages does not contact the mirror, so a second run changes nothing."""
    present = Recorder(DEBIAN).play(Sample(), stages=["install"])
    missing = Recorder(DEBIAN).play(Sample(("bash", "sample")), stages=["install"])

    assert present.changes == []
    assert missing.commands[0] == "apt-get update"
    assert missing.commands[-1].endswith("install --no-install-recommends sample")


def test_a_template_without_a_value_is_an_error(tmp_path: Path) -> None:
    """An undefined variable is an error, not an empty string."""
    with pytest.raises(Exception, match="is undefined"):
        render("baseline/motd.j2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A 1\nB 2\n", "A\t9\nB 2\n"),
        ("#A 1\nB 2\n", "A\t9\nB 2\n"),
        ("B 2\nA 1\nA 3\n", "B 2\nA\t9\n"),
        ("B 2\n", "B 2\nA\t9\n"),
        ("AA 1\n", "AA 1\nA\t9\n"),
        ("", "A\t9\n"),
    ],
    ids=["set", "commented", "twice", "missing", "longer-name", "empty"],
)
def test_a_key_has_one_value(text: str, expected: str) -> None:
    """A key that is set, commented out, set twice or missing is set once; other keys are unchanged."""
    assert set_values(text, {"A": "9"}) == expected
    assert set_values(expected, {"A": "9"}) == expected


def test_a_line_replaces_all_matches() -> None:
    """The first matching line is replaced, further matches are removed."""
    assert set_line("x\numask 022\numask 077\n", r"umask\s", "umask 027") == "x\numask 027\n"


def test_texts_are_read_unchanged() -> None:
    """Empty lines and empty files are preserved."""
    output = ["==bedplate== /a", "one", "", "two", "==bedplate== /b"]

    assert FileTexts().process(output) == {"/a": "one\n\ntwo\n", "/b": ""}


def test_equal_edits_compare_equal() -> None:
    """Two edits of one file by one function are equal."""
    assert Edit("/a", str.upper) == Edit("/a", str.upper)


KEY = (Path(__file__).parents[1] / "data" / "keys" / "one.asc").read_text()
SAMPLE = Repository(
    name="kubernetes",
    uri="https://packages.lab.example/core",
    suites=("/",),
    components=(),
    key=KEY,
    key_sum=sha256(KEY.encode()).hexdigest(),
    pins=(Pin(("kubelet", "kubectl"), "1.33.*"),),
)


@dataclass(frozen=True)
class Adding(Role):
    """A role that adds a repository."""

    name: ClassVar[str] = "adding"

    def install(self) -> None:
        """Add the repository."""
        add((SAMPLE,))

    def configure(self) -> Changes:
        """Write nothing."""
        return NO_CHANGES

    def activate(self, changes: Changes) -> None:
        """Start nothing."""


def test_a_repository_with_a_changed_key_is_refused() -> None:
    """A signing key with another checksum is an error."""
    with pytest.raises(ValueError, match="kubernetes: the key has the SHA-256"):
        replace(SAMPLE, key=KEY + KEY)


def test_a_source_names_its_own_key() -> None:
    """The key is accepted only for its repository."""
    key, source, _ = SAMPLE.files

    assert key.path == "/etc/apt/keyrings/kubernetes.asc"
    assert source.text == (
        "Types: deb\nURIs: https://packages.lab.example/core\nSuites: /\nSigned-By: /etc/apt/keyrings/kubernetes.asc\n"
    )


def test_only_pinned_packages_are_installed_from_a_repository() -> None:
    """Apt installs the named versions, and no other package of the repository."""
    _, _, pins = SAMPLE.files

    assert pins.text.split("\n\n") == [
        "Package: kubelet kubectl\nPin: version 1.33.*\nPin-Priority: 990",
        'Package: *\nPin: origin "packages.lab.example"\nPin-Priority: -1',
        "",
    ]


def test_apt_lists_are_updated_for_a_new_repository(system: Recorded) -> None:
    """A new repository updates the apt lists once."""
    recorder = Recorder(system)

    first = recorder.play(Adding())
    second = recorder.play(Adding())

    assert first.names[-1] == "Update the apt lists of other repositories"
    assert first.commands[-1] == "apt-get update"
    assert second.changes == []


INVENTORY = str(Path(__file__).parents[2] / "roles" / "inventory.py")


def test_the_inventory_lists_permanent_machines(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inventory has the names of the recorded plan."""
    monkeypatch.setenv("BEDPLATE_FLEET", str(lab))
    run(["plan", str(lab), "--write"])

    names = [name for name, _ in runpy.run_path(INVENTORY)["nodes"]]

    assert "titan-01.cellar" in names


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\nowner:", "\nowned:", "E101 unknown-key"),
        ("\nowner:", "\nowner:", "error: not recorded in fleet.lock: region/us-west-2"),
    ],
    ids=["wrong", "not recorded"],
)
def test_an_invalid_fleet_file_is_reported_without_a_traceback(  # noqa: PLR0913, PLR0917  three are fixtures
    old: str,
    new: str,
    message: str,
    lab: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The inventory prints bedplate's error message and exits with code 2."""
    monkeypatch.setenv("BEDPLATE_FLEET", str(lab))
    lab.write_text(lab.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")

    with pytest.raises(SystemExit) as exit_info:
        runpy.run_path(INVENTORY)

    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "path",
    [
        "gate/bedplate-gate.service",
        "monitoring/exporter.service.j2",
        "monitoring/bedplate-metrics.service.j2",
        "storage/tunnel.service.j2",
    ],
)
def test_units_beside_mounts_do_not_open_home(path: str) -> None:
    """ProtectHome, a strict ProtectSystem and DynamicUser open /home: the unit fails while its file server is down."""
    settings = file_text(path).splitlines()

    assert not {"ProtectSystem=strict", "ProtectHome=yes", "DynamicUser=yes"} & set(settings)
