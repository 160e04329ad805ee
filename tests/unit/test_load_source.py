"""A fleet file is opened only where that cannot hang, and decoded only where every reader would read the same."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bedplate.catalog import load_catalog
from bedplate.load import FleetFaults, examine, load_fleet

NOBODY = 65534
LARGEST = 1024 * 1024
MINIMAL = Path(__file__).parents[2] / "examples" / "minimal.yaml"


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link_out(path: Path) -> None:
    path.symlink_to(MINIMAL)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 100 * LARGEST)


def _bytes(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


REFUSED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "nothing there": ("E001", lambda _: None),
    "a folder": ("E002", Path.mkdir),
    "a FIFO": ("E002", _fifo),
    "a device": ("E002", _device),
    "a link out of its folder": ("E003", _link_out),
    "a sparse file of 100 MiB": ("E004", _sparse),
    "a byte too much": ("E004", _bytes(b"#" * (LARGEST + 1))),
    "UTF-16": ("E006", _bytes("version: 1\n".encode("utf-16"))),
    "a byte order mark": ("E006", _bytes(b"\xef\xbb\xbfversion: 1\n")),
    "Latin-1": ("E006", _bytes("owner: Schr\u00f6der\n".encode("latin-1"))),
    "NUL": ("E007", _bytes(b"name: a\0b\n")),
    "an escape sequence": ("E007", _bytes(b"name: \x1b[2J\n")),
    "a line end of YAML 1.1": ("E007", _bytes("name: a\u2028b\n".encode())),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_safely_is_refused(name: str, tmp_path: Path) -> None:
    """Each kind of file that may hang, flood or mislead its reader has its own fault."""
    code, make = REFUSED[name]
    path = tmp_path / "fleet.yaml"
    make(path)

    found = examine(path, load_catalog())

    assert [told.code for told in found] == [code]
    assert found[0].file == str(path)


def test_a_path_that_no_file_has_is_refused() -> None:
    """A NUL or a name too long in the path is a fault of the input, not of the program."""
    codes = [examine(Path(name), load_catalog())[0].code for name in ("a\0b", "x" * 5000)]

    assert codes == ["E005", "E005"]


@contextmanager
def without_privilege() -> Iterator[None]:
    """Do without root's right to read every file, where the tests run as root."""
    before = os.geteuid()
    os.seteuid(before or NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_file_without_the_right_to_read_is_refused() -> None:
    """The system's own reason is told."""
    catalog = load_catalog()
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "fleet.yaml")
        path.touch(mode=stat.S_IWUSR)

        with without_privilege():
            found = examine(path, catalog)

    assert [told.code for told in found] == ["E005"]
    assert "ermission denied" in str(found[0])


def test_a_link_within_its_folder_is_read(tmp_path: Path) -> None:
    """What is committed beside the link is what is read."""
    (tmp_path / "lab.yaml").write_bytes(MINIMAL.read_bytes())
    (tmp_path / "fleet.yaml").symlink_to("lab.yaml")

    loaded = load_fleet(tmp_path / "fleet.yaml", load_catalog())

    assert loaded.fleet.name == "solo"


def test_a_byte_that_is_not_utf8_is_told_where_it_is(tmp_path: Path) -> None:
    """Line and column count characters, as an editor does."""
    path = tmp_path / "fleet.yaml"
    path.write_bytes("# gr\u00fc\u00dfe\nowner: \u00f6".encode() + b"\xff\n")

    told = examine(path, load_catalog())[0]

    assert (told.line, told.column) == (2, 9)


def test_a_refused_file_raises_all_of_its_faults(tmp_path: Path) -> None:
    """The error names the first fault and where it is; its `faults` are all of them."""
    path = tmp_path / "fleet.yaml"
    path.write_text("version: 3\n", encoding="utf-8")

    with pytest.raises(FleetFaults) as raised:
        load_fleet(path, load_catalog())

    assert raised.value.exit_code == 2
    assert raised.value.faults == examine(path, load_catalog())
    assert f"{path}:1:1" in raised.value.where
