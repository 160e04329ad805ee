"""Files over a line to an agent: written whole, read as they are."""

from pathlib import Path

import pytest

from roles.engine.line import Line
from tests.support.engine_line import line_here, opening


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """Give a line that has the lock."""
    return line_here(tmp_path)


def test_a_file_is_written_whole_and_keeps_owner_and_mode(line: Line, tmp_path: Path) -> None:
    """A file that only its owner may read stays so."""
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o600)

    refused = line.put(str(path), b"new")

    assert refused == ""
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    line.close()


def test_folders_may_be_read_by_all_whatever_the_login_s_umask(tmp_path: Path) -> None:
    """People read what an apply puts on a node, also when an administrator's own files are closed to them."""
    line = Line("here", ("sh", "-c", 'umask 077; exec sh -c "$1"', "sh"), opening(tmp_path))

    line.run(f"mkdir -p {tmp_path}/above/below")

    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "above", tmp_path / "above/below")} == {0o755}
    line.close()


def test_a_new_file_may_be_read_by_all_and_a_link_is_followed(line: Line, tmp_path: Path) -> None:
    """As `cp` has it."""
    (tmp_path / "link").symlink_to(tmp_path / "file")

    line.put(str(tmp_path / "link"), b"text")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
    line.close()


def test_what_cannot_be_written_is_told_and_leaves_nothing(line: Line, tmp_path: Path) -> None:
    """The node's own words come back; no temporary file stays."""
    (tmp_path / "folder").mkdir()

    refused = line.put(str(tmp_path / "folder"), b"text")

    assert "folder" in refused
    assert not list(tmp_path.glob(".bedplate-*"))
    line.close()


def test_a_file_is_read_and_a_missing_one_is_an_error(line: Line, tmp_path: Path) -> None:
    """Bytes come as they are."""
    (tmp_path / "file").write_bytes(b"\x00\xff")

    assert line.get(str(tmp_path / "file")) == b"\x00\xff"
    with pytest.raises(OSError, match="No such file"):
        line.get(str(tmp_path / "none"))
    line.close()
