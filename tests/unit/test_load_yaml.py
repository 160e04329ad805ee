"""Words of a fleet file mean what YAML 1.2 says, and are told where a YAML 1.1 reader would mean something else."""

import json
import math
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedplate.catalog import load_catalog
from bedplate.checks.diagnostics import Fault, Level
from bedplate.errors import InputError
from bedplate.load import FleetFaults, examine, load_fleet
from bedplate.load.source import EPOCH, today
from bedplate.load.yaml import Composer, Node, Place, Scalar, meaning_in_yaml_1_1, resolve


def composed(text: str) -> Node:
    """Return the tree of a text without faults."""
    composer = Composer(text)
    tree = composer.compose()
    assert composer.faults == []
    return tree


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        *(("true", True), ("False", False), ("null", None), ("~", None), ("", None)),
        *(("0", 0), ("-12", -12), ("+7", 7), ("0o17", 15), ("0xfF", 255)),
        *(("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("-.inf", -math.inf), ("5.", 5.0)),
        *(("no", "no"), ("010", "010"), ("10:20", "10:20"), ("1_000", "1_000"), ("tRue", "tRue")),
        *(("2026-01-01", "2026-01-01"), ("10.64.0.0/10", "10.64.0.0/10"), ("+", "+"), (".", ".")),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_an_unquoted_word_has_its_meaning_of_yaml_1_2(word: str, meaning: Scalar) -> None:
    """The core schema decides; what it does not know is text."""
    assert resolve(word) == meaning
    assert type(resolve(word)) is type(meaning)


@pytest.mark.parametrize(
    "word",
    ["no", "YES", "on", "Off", "y", "N", "010", "08", "0b11", "1_000", "10:20", "10:20.5", "2026-01-01", "=", "0_7"],
)
def test_a_word_that_yaml_1_1_reads_differently_is_told(word: str) -> None:
    """Quoting settles it for every reader."""
    composer = Composer(f"a: {word}\nb: '{word}'\n")

    composer.compose()

    assert [(told.code, told.key, told.line) for told in composer.faults] == [("E110", "a", 1)]
    assert f"quote it: '{word}'" in composer.faults[0].fix


@pytest.mark.parametrize("word", ["note", "yes-man", "10.64.0.0/10", "192.168.40.1", "us-west-2", "8.20.30.40", "-"])
def test_a_word_that_all_readers_agree_on_is_not_told(word: str) -> None:
    """Addresses and names stay unquoted."""
    assert meaning_in_yaml_1_1(word) is None


def test_every_value_knows_where_it_stands() -> None:
    """Lines and columns count from 1, columns in characters; an item's key stands where the item does."""
    tree = composed("# one\n\u00f6re: {a: [1, two]}\n\nb:\n  - c: |\n      x\n      y\n")
    nodes = {node.key: node for node in tree.walk()}

    assert nodes["'\\xf6re'.a"].key_place == Place(2, 7)
    assert nodes["'\\xf6re'.a"].place == Place(2, 10)
    assert nodes["'\\xf6re'.a.1"].report_place == Place(2, 14)
    assert nodes["b.0.c"].key_place == Place(5, 5)
    assert nodes["b.0.c"].value == "x\ny\n"


def test_an_alias_stands_for_the_value_at_its_own_key() -> None:
    """The repeated value is told where the alias stands; what lies in it, where it was written."""
    tree = composed("a: &x {b: 1}\nc: *x\n")
    nodes = {node.key: node for node in tree.walk()}

    assert tree.plain() == {"a": {"b": 1}, "c": {"b": 1}}
    assert nodes["c"].place == Place(2, 4)
    assert nodes["c.b"].place == Place(1, 11)


def test_of_a_key_that_comes_twice_the_first_counts() -> None:
    """The fault names both lines, and the rest of the file is read on."""
    composer = Composer("a: 1\nb: 2\na: 3\n")

    tree = composer.compose()

    assert tree.plain() == {"a": 1, "b": 2}
    assert [(told.code, told.line) for told in composer.faults] == [("E018", 3)]
    assert "lines 1 and 3" in composer.faults[0].message


ROOT = Path(__file__).parents[2]
LARGEST = 1024 * 1024
# Time is the child's own, of its processor. A start alone takes a quarter of a second on a core at full speed; where
# the machine is slower, or busy, it tells by how much.
_CHILD = """
import json, resource, sys, time
from pathlib import Path
from bedplate.catalog import load_catalog
from bedplate.load import examine
limit = max(1.0, 4 * time.process_time())
codes = [told.code for told in examine(Path(sys.argv[1]), load_catalog())]
used = resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss: that begins with the memory of the process that started this one.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
seconds, megabytes = used.ru_utime + used.ru_stime, int(peak.split()[1]) / 1024
print(json.dumps({"codes": codes, "seconds": seconds, "limit": limit, "megabytes": megabytes}))
"""


def _repeat(head: str, part: str, tail: str = "", size: int = LARGEST) -> str:
    """Return as many parts as make up the size."""
    return head + part * ((size - len(head) - len(tail)) // len(part)) + tail


def _bomb() -> str:
    names = "abcdefghi"
    rows = (f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in pairwise(names))
    return "a: &a [lol]\n" + "".join(rows)


# By name: the last code of the answer, and the file.
HOSTILE: dict[str, tuple[str, str]] = {
    "alias bomb": ("E014", _bomb()),
    "aliases of a long list": (
        "E012",
        _repeat("a: &a [", "x,", "]\n", 2000) + "".join(f"k{n}: *a\n" for n in range(90)),
    ),
    "101 aliases": ("E013", "a: &a [x]\n" + "".join(f"k{n}: *a\n" for n in range(101))),
    "5,000 levels": ("E011", "[" * 5000 + "]" * 5000),
    "1,400 levels of blocks": ("E011", "".join(" " * n + "a:\n" for n in range(1400))),
    "a list of 1 MiB": ("E012", _repeat("a:\n", "- b\n")),
    "a flow sequence of 1 MiB": ("E012", _repeat("a: [", "b,", "]")),
    "1 MiB of brackets": ("E011", "[" * LARGEST),
    "1 MiB of comments": ("E008", _repeat("", "# nothing\n")),
    "a word of 1 MiB": ("E102", _repeat("a: ", "x")),
    "a key of 1 MiB": ("E101", _repeat("? ", "x", "\n: 1\n")),
    "a number of 1 MiB": ("E601", _repeat("version: ", "9")),
    "keys that are all unknown": ("E020", "".join(f"k{n}: 1\n" for n in range(14_000))),
    "types that are all unknown": (
        "E107",
        "groups:\n  g: {use: ssh, nodes: {min: 0, max: 1}, ladder: [{region: us-west-2}], types: ["
        + ",".join(f"p{n}.large" for n in range(29_000))
        + "]}\n",
    ),
    "regions that are all wrong": (
        "E020",
        "regions:\n" + "".join(f"  us-east-{n}: {{zones: [3, 4]}}\n" for n in range(4_900)),
    ),
    "secrets in every line": ("E020", _repeat("a:\n", "- AKIAIOSFODNN7EXAMPLE\n", size=600_000)),
    "words that YAML 1.1 reads differently": ("E020", _repeat("a: [", "no,", "]", 80_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_costs_little(name: str, tmp_path: Path) -> None:
    """Under 1 s of a core at full speed, and 200 MB, the start of Python included, with an answer that says why."""
    code, text = HOSTILE[name]
    path = tmp_path / "fleet.yaml"
    path.write_text(text, encoding="utf-8")

    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)], capture_output=True, check=True, cwd=ROOT, timeout=60
    )

    answer = json.loads(child.stdout)
    assert code in answer["codes"]
    assert answer["seconds"] < answer["limit"]
    assert answer["megabytes"] < 200


BASE = (Path(__file__).parents[1] / "data" / "fleets" / "base.yaml").read_bytes()
_PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
        [b"*a", b"&a ", b"<<: ", b"[", b"}", b"? ", b"!x ", b"- ", b"\n", b"null", b"'", b'"', b"0", b"1e9", b": "]
    ),
)
_CUTS = st.lists(st.tuples(st.integers(0, len(BASE)), st.integers(0, 40), _PIECES), min_size=1, max_size=4)


def answer(data: bytes) -> tuple[Fault, ...]:
    """Return the faults of a file of these bytes; none means that it is a fleet."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.yaml"
        path.write_bytes(data)
        return examine(path, load_catalog())


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_answered(data: bytes) -> None:
    """No traceback and no hang, whatever the file is."""
    assert any(told.level is Level.ERROR for told in answer(data))


@settings(deadline=None, max_examples=300)
@given(_CUTS)
def test_a_damaged_fleet_is_answered(cuts: list[tuple[int, int, bytes]]) -> None:
    """A few bytes cut out and others put in make a fleet, or faults each of a place."""
    data = BASE
    for start, length, piece in cuts:
        data = data[:start] + piece + data[start + length :]

    assert all(told.line >= 1 and told.column >= 1 for told in answer(data))


NOBODY = 65534

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


def test_the_day_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds that must come out the same say as of when; a day starts at midnight in UTC."""
    monkeypatch.setenv(EPOCH, "1795219199")
    before = today()
    monkeypatch.setenv(EPOCH, "1795219200")

    assert (before, today()) == (date(2026, 11, 20), date(2026, 11, 21))


def test_without_a_word_it_is_the_day_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read once between two readings of the same clock."""
    monkeypatch.delenv(EPOCH)
    now = datetime.now(UTC)

    assert now.date() <= today() <= (now + timedelta(minutes=1)).date()


@pytest.mark.parametrize("told", ["", "yesterday", "9" * 30])
def test_what_is_no_moment_is_refused(monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    """An operator's slip is no traceback."""
    monkeypatch.setenv(EPOCH, told)

    with pytest.raises(InputError, match=EPOCH):
        today()
