"""Reading of a fleet file: YAML 1.2, positions, hostile and damaged files, files that cannot be read, and the date."""

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
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bedplate.catalog import load_catalog
from bedplate.errors import InputError
from bedplate.load import FleetFaults, examine, load_fleet
from bedplate.load.source import EPOCH, today
from bedplate.load.yaml import Composer, Node, Place, Scalar, meaning_in_yaml_1_1, resolve
from bedplate.rules import Fault, Level


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
    """Words that the core schema does not define are strings."""
    assert resolve(word) == meaning
    assert type(resolve(word)) is type(meaning)


@pytest.mark.parametrize(
    "word",
    ["no", "YES", "on", "Off", "y", "N", "010", "08", "0b11", "1_000", "10:20", "10:20.5", "2026-01-01", "=", "0_7"],
)
def test_a_word_with_another_meaning_in_yaml_1_1_is_reported(word: str) -> None:
    """Quoted, it is a string in both versions."""
    composer = Composer(f"a: {word}\nb: '{word}'\n")

    composer.compose()

    assert [(fault.code, fault.key, fault.line) for fault in composer.faults] == [("E110", "a", 1)]
    assert f"quote it: '{word}'" in composer.faults[0].fix


@pytest.mark.parametrize("word", ["note", "yes-man", "10.64.0.0/10", "192.168.40.1", "us-west-2", "8.20.30.40", "-"])
def test_a_word_with_the_same_meaning_in_yaml_1_1_is_not_reported(word: str) -> None:
    """Addresses and names need no quotes."""
    assert meaning_in_yaml_1_1(word) is None


def test_every_value_has_its_position() -> None:
    """Lines and columns start at 1, columns count characters; the key of a list item has the item's position."""
    tree = composed("# one\n\u00f6re: {a: [1, two]}\n\nb:\n  - c: |\n      x\n      y\n")
    nodes = {node.key: node for node in tree.walk()}

    assert nodes["'\\xf6re'.a"].key_place == Place(2, 7)
    assert nodes["'\\xf6re'.a"].place == Place(2, 10)
    assert nodes["'\\xf6re'.a.1"].report_place == Place(2, 14)
    assert nodes["b.0.c"].key_place == Place(5, 5)
    assert nodes["b.0.c"].value == "x\ny\n"


def test_an_alias_has_the_value_of_its_anchor() -> None:
    """The value has the position of the alias; its children have the position in the anchored value."""
    tree = composed("a: &x {b: 1}\nc: *x\n")
    nodes = {node.key: node for node in tree.walk()}

    assert tree.plain() == {"a": {"b": 1}, "c": {"b": 1}}
    assert nodes["c"].place == Place(2, 4)
    assert nodes["c.b"].place == Place(1, 11)


def test_the_first_value_of_a_duplicate_key_is_used() -> None:
    """The fault names both lines, and reading continues."""
    composer = Composer("a: 1\nb: 2\na: 3\n")

    tree = composer.compose()

    assert tree.plain() == {"a": 1, "b": 2}
    assert [(fault.code, fault.line) for fault in composer.faults] == [("E018", 3)]
    assert "lines 1 and 3" in composer.faults[0].message


ROOT = Path(__file__).parents[2]
LARGEST = 1024 * 1024
# CPU time of the child process. Its start takes a quarter of a second on a fast core, and the limit scales with it on a
# slower or busy machine.
_CHILD = """
import json, resource, sys, time
from pathlib import Path
from bedplate.catalog import load_catalog
from bedplate.load import examine
limit = max(1.0, 4 * time.process_time())
codes = [fault.code for fault in examine(Path(sys.argv[1]), load_catalog())]
used = resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss: it starts with the memory of the parent process.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
seconds, megabytes = used.ru_utime + used.ru_stime, int(peak.split()[1]) / 1024
print(json.dumps({"codes": codes, "seconds": seconds, "limit": limit, "megabytes": megabytes}))
"""


def _repeat(head: str, part: str, tail: str = "", size: int = LARGEST) -> str:
    """Return a text of this size, made of repeated parts."""
    return head + part * ((size - len(head) - len(tail)) // len(part)) + tail


def _bomb() -> str:
    names = "abcdefghi"
    rows = (f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in pairwise(names))
    return "a: &a [lol]\n" + "".join(rows)


# By case: the code of a fault, and the file.
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
    "words that YAML 1.1 reads differently": ("E020", _repeat("regions: {a: {zones: [", "no,", "]}}", 80_000)),
}


# The others take some seconds each.
_QUICK = ("alias bomb", "5,000 levels", "a number of 1 MiB")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in _QUICK else pytest.mark.nightly) for name in HOSTILE]
)
def test_a_hostile_file_costs_little(name: str, tmp_path: Path) -> None:
    """Python and the check take less than 1 s of a fast core and 200 MB, and report the reason."""
    code, text = HOSTILE[name]
    path = tmp_path / "fleet.yaml"
    path.write_text(text, encoding="utf-8")

    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)], capture_output=True, check=True, cwd=ROOT, timeout=60
    )

    result = json.loads(child.stdout)
    assert code in result["codes"]
    assert result["seconds"] < result["limit"]
    assert result["megabytes"] < 200


BASE = (Path(__file__).parents[1] / "data" / "fleets" / "base.yaml").read_bytes()
_PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
        [b"*a", b"&a ", b"<<: ", b"[", b"}", b"? ", b"!x ", b"- ", b"\n", b"null", b"'", b'"', b"0", b"1e9", b": "]
    ),
)
_CUTS = st.lists(st.tuples(st.integers(0, len(BASE)), st.integers(0, 40), _PIECES), min_size=1, max_size=4)


def faults_of(data: bytes) -> tuple[Fault, ...]:
    """Return the faults of a file with these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.yaml"
        path.write_bytes(data)
        return examine(path, load_catalog())


@pytest.mark.nightly
@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
@example(b"[")
@example(b"a:\n- [")
def test_random_bytes_have_an_error(data: bytes) -> None:
    """Reading never raises another exception, and never hangs."""
    assert any(fault.level is Level.ERROR for fault in faults_of(data))


@settings(deadline=None, max_examples=300)
@given(_CUTS)
def test_faults_of_a_damaged_file_have_positions(cuts: list[tuple[int, int, bytes]]) -> None:
    """A few bytes of a valid file are replaced at random."""
    data = BASE
    for start, length, piece in cuts:
        data = data[:start] + piece + data[start + length :]

    assert all(fault.line >= 1 and fault.column >= 1 for fault in faults_of(data))


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


UNSAFE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no file": ("E001", lambda _: None),
    "a folder": ("E002", Path.mkdir),
    "a FIFO": ("E002", _fifo),
    "a device": ("E002", _device),
    "a link out of its folder": ("E003", _link_out),
    "a sparse file of 100 MiB": ("E004", _sparse),
    "one byte more than allowed": ("E004", _bytes(b"#" * (LARGEST + 1))),
    "UTF-16": ("E006", _bytes("version: 1\n".encode("utf-16"))),
    "a byte order mark": ("E006", _bytes(b"\xef\xbb\xbfversion: 1\n")),
    "Latin-1": ("E006", _bytes("owner: Schr\u00f6der\n".encode("latin-1"))),
    "NUL": ("E007", _bytes(b"name: a\0b\n")),
    "an escape sequence": ("E007", _bytes(b"name: \x1b[2J\n")),
    "a line end of YAML 1.1": ("E007", _bytes("name: a\u2028b\n".encode())),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_file_is_not_read(name: str, tmp_path: Path) -> None:
    """Each kind of file that could block or mislead a reader, or is too large, has its own rule."""
    code, make = UNSAFE[name]
    path = tmp_path / "fleet.yaml"
    make(path)

    faults = examine(path, load_catalog())

    assert [fault.code for fault in faults] == [code]
    assert faults[0].file == str(path)


def test_a_missing_file_has_the_nearest_name_as_fix(tmp_path: Path) -> None:
    """Of the YAML files in its folder."""
    (tmp_path / "fleet.yaml").write_text("")

    (fault,) = examine(tmp_path / "fleet.yml", load_catalog())

    assert (fault.code, fault.fix) == ("E001", f"write {tmp_path}/fleet.yaml")


def test_a_lock_is_not_a_fleet_file(tmp_path: Path) -> None:
    """One error, not one for each key: a shell completes `fleet` to both names."""
    path = tmp_path / "fleet.lock"
    path.write_text('{"version": 1}')

    assert [fault.code for fault in examine(path, load_catalog())] == ["E002"]


def test_an_invalid_path_is_reported() -> None:
    """A path may contain NUL or a name that is too long."""
    codes = [examine(Path(name), load_catalog())[0].code for name in ("a\0b", "x" * 5000)]

    assert codes == ["E005", "E005"]


@contextmanager
def without_privilege() -> Iterator[None]:
    """Run as an unprivileged user, if the tests run as root."""
    before = os.geteuid()
    os.seteuid(before or NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_file_without_read_permission_is_reported() -> None:
    """The message contains the reason of the operating system."""
    catalog = load_catalog()
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "fleet.yaml")
        path.touch(mode=stat.S_IWUSR)

        with without_privilege():
            faults = examine(path, catalog)

    assert [fault.code for fault in faults] == ["E005"]
    assert "ermission denied" in str(faults[0])


def test_a_link_within_its_folder_is_read(tmp_path: Path) -> None:
    """The target is committed together with the link."""
    (tmp_path / "lab.yaml").write_bytes(MINIMAL.read_bytes())
    (tmp_path / "fleet.yaml").symlink_to("lab.yaml")

    loaded = load_fleet(tmp_path / "fleet.yaml", load_catalog())

    assert loaded.fleet.name == "solo"


def test_a_byte_that_is_not_utf8_has_a_position(tmp_path: Path) -> None:
    """The column counts characters, like an editor."""
    path = tmp_path / "fleet.yaml"
    path.write_bytes("# gr\u00fc\u00dfe\nowner: \u00f6".encode() + b"\xff\n")

    fault = examine(path, load_catalog())[0]

    assert (fault.line, fault.column) == (2, 9)


def test_the_error_of_an_invalid_file_has_all_faults(tmp_path: Path) -> None:
    """Its text is the first fault with the position; its `faults` are all of them."""
    path = tmp_path / "fleet.yaml"
    path.write_text("version: 3\n", encoding="utf-8")

    with pytest.raises(FleetFaults) as raised:
        load_fleet(path, load_catalog())

    assert raised.value.exit_code == 2
    assert raised.value.faults == examine(path, load_catalog())
    assert f"{path}:1:1" in raised.value.where


def test_source_date_epoch_sets_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reproducible builds set it; a day starts at midnight in UTC."""
    monkeypatch.setenv(EPOCH, "1795219199")
    before = today()
    monkeypatch.setenv(EPOCH, "1795219200")

    assert (before, today()) == (date(2026, 11, 20), date(2026, 11, 21))


def test_the_default_is_the_current_date_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is between two readings of the clock."""
    monkeypatch.delenv(EPOCH)
    now = datetime.now(UTC)

    assert now.date() <= today() <= (now + timedelta(minutes=1)).date()


@pytest.mark.parametrize("value", ["", "yesterday", "9" * 30])
def test_an_invalid_source_date_epoch_is_an_input_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Empty, not a number, or out of range."""
    monkeypatch.setenv(EPOCH, value)

    with pytest.raises(InputError, match=EPOCH):
        today()
