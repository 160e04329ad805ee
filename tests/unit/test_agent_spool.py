"""The output of a rank on its way: parts, carriage returns, a hub that is away, a full disk, and followers."""

import os
import resource
import threading
import time
from pathlib import Path

import pytest

from bedplate.programs.agent import spool as module
from bedplate.programs.agent.spool import PART, Spool, follow, follow_attempts


def stored(folder: Path) -> bytes:
    """Return the output in a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    """Return a spool that stores no state of a line within the time of a test."""
    monkeypatch.setattr(module, "_STATE", 3600)
    return Spool(tmp_path / "0")


def test_output_is_stored_in_parts(spool: Spool, tmp_path: Path) -> None:
    """Each but the last has the same size; a line without an end is stored with the rest of it, or at the end."""
    data = b"".join(b"line %d\n" % number for number in range(100_000)) + b"no end"
    for start in range(0, len(data), 65_536):
        spool.write(data[start : start + 65_536])
    assert stored(tmp_path / "0") == data[:-6]
    spool.flush()

    assert stored(tmp_path / "0") == data
    assert [path.stat().st_size for path in sorted((tmp_path / "0").iterdir())][:-1] == [PART] * (len(data) // PART)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (b"\r 10%\r 20%\r100%\nnext\n", b"\r100%\nnext\n"),
        (b"a\r\nb\r\n", b"a\r\nb\r\n"),
        (b" 10%\r 20%\r100%\r\n", b"\r100%\r\n"),
        (b"\x1b[31mred\x1b[0m\n", b"\x1b[31mred\x1b[0m\n"),
        (b"\xff\x00\n", b"\xff\x00\n"),
    ],
)
def test_a_progress_bar_is_stored_as_it_ends(written: bytes, kept: bytes, tmp_path: Path, spool: Spool) -> None:
    """A line keeps what a terminal shows in the end, however its bytes come; colours and line ends stay."""
    spool.write(written)
    other = Spool(tmp_path / "1")
    other.write(b"x")  # the first state is stored
    for byte in written:
        other.write(bytes([byte]))

    assert stored(tmp_path / "0") == kept
    assert stored(tmp_path / "1").removeprefix(b"x").replace(b"\r", b"") == kept.replace(b"\r", b"")


def test_a_bar_is_stored_once_a_second_while_it_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run shows its progress before the line ends."""
    monkeypatch.setattr(module, "_STATE", 0.05)
    spool = Spool(tmp_path / "0")
    for number in range(40):
        spool.write(b"\r%3d" % number)
        time.sleep(0.01)
    spool.write(b"")

    states = stored(tmp_path / "0").split(b"\r")

    assert 4 <= len(states) <= 20
    assert states[-1].strip().isdigit()


def test_a_line_without_an_end_needs_little_memory_and_time(tmp_path: Path, spool: Spool) -> None:
    """64 MiB in one line; a night's test has one of 1 GiB."""
    block, start = b"x" * 65_536, time.monotonic()
    for number in range(1024):
        spool.write(block)
        if number % 64 == 63:
            for _ in spool.missing():
                pass

    assert time.monotonic() - start < 20
    assert len(list((tmp_path / "0").iterdir())) <= 70


def test_the_hub_gets_each_part_once_and_the_last_as_it_grows(spool: Spool, tmp_path: Path) -> None:
    """After a failure it gets what it lacks; parts that it has are removed, but for those that a reader may lack."""
    hub: dict[str, bytes] = {}
    spool.write(b"one\n")
    hub.update(spool.missing())
    spool.write(b"two\n")
    assert dict(spool.missing()) == {"000000": b"one\ntwo\n"}
    assert not dict(spool.missing())

    spool.write(bytes(80 * PART - 8) + b"\n")
    parts = spool.missing()
    assert [next(parts)[0] for _ in range(3)] == ["000000", "000001", "000002"]
    del parts
    names = [name for name, _ in spool.missing()]

    assert names == [f"{number:06}" for number in range(2, 81)]
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == [f"{number:06}" for number in range(17, 81)]


def test_other_files_beside_the_parts_are_no_output(spool: Spool, tmp_path: Path) -> None:
    """The program can write there: what is no number is neither sent nor read, and what follows still is."""
    (tmp_path / "0/junk").write_bytes(b"junk")
    (tmp_path / "0/9999999").write_bytes(b"junk")
    spool.write(b"one\n")
    spool.flush()

    assert dict(spool.missing()) == {"000000": b"one\n"}
    assert b"".join(follow(tmp_path / "0", 0, lambda: True)) == b"one\n"


def test_the_middle_is_left_out_while_the_hub_is_away(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start and the end stay, and a part says how much is missing."""
    monkeypatch.setattr(module, "_MOST", 16)
    for number in range(40):
        spool.write(b"%d\n" % number + bytes(PART - 3 - len(str(number))) + b"\n")

    parts = {int(path.name): path.read_bytes() for path in (tmp_path / "0").iterdir()}

    assert [*range(8), *range(32, 40)] == [number for number in sorted(parts) if number != 8]
    note = parts[8].decode()
    assert note == f"\n[bedplate: {23 * PART >> 10} KiB of output are left out: the hub was away]\n"


def test_a_full_disk_loses_output_and_says_so(spool: Spool, tmp_path: Path) -> None:
    """The program goes on. A limit of the size of files stands in for the disk."""
    spool.write(b"before\n")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (7, limits[1]))
    try:
        spool.write(b"lost\n")
        spool.write(b"lost, too\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    spool.write(b"after\n")

    assert stored(tmp_path / "0") == b"before\nafter\n\n[bedplate: 15 bytes of output are lost: the disk was full]\n"


def test_a_follower_reads_everything_once(spool: Spool, tmp_path: Path) -> None:
    """From any byte on, while the output grows, until it is over."""
    data, over = os.urandom(3 * PART).replace(b"\r", b"-") + b"\n", threading.Event()

    def write() -> None:
        for start in range(0, len(data), 50_000):
            spool.write(data[start : start + 50_000])
        spool.flush()
        over.set()

    thread = threading.Thread(target=write)
    thread.start()
    followed = b"".join(follow(tmp_path / "0", 0, over.is_set, 0.001))
    thread.join()

    assert followed == data
    for start in (5, PART, PART + 5, len(data)):
        assert b"".join(follow(tmp_path / "0", start, over.is_set)) == data[start:]
    assert not list(follow(tmp_path / "none", 0, over.is_set))


@pytest.mark.parametrize("start", [0, 3, 6, 8, 12])
def test_a_follower_goes_on_with_the_next_attempt(start: int, tmp_path: Path) -> None:
    """From any byte of all of them; an attempt that has not started has no output."""
    for attempt, text in ((0, b"first\n"), (2, b"second\n"), (10, b"third\n")):
        spool = Spool(tmp_path / str(attempt) / "0")
        spool.write(text)
        spool.flush()

    followed = b"".join(follow_attempts(tmp_path, "0", start, lambda: True))

    assert followed == b"first\nsecond\nthird\n"[start:]


def test_a_follower_waits_for_the_first_attempt(tmp_path: Path) -> None:
    """And for what comes later in it."""
    ended = threading.Event()

    def write() -> None:
        time.sleep(0.2)
        spool = Spool(tmp_path / "0/1")
        spool.write(b"one\n")
        time.sleep(0.2)
        spool.write(b"two\n")
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()

    assert b"".join(follow_attempts(tmp_path, "1", 0, ended.is_set)) == b"one\ntwo\n"
    writer.join()
