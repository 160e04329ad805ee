"""Where nvtop comes from: on Debian from `contrib`, of the machine's own mirrors."""

import pytest

from bedplate.plan.node import Hardware
from roles.baseline.sources import Archive
from roles.workbench.contrib import PATH, contrib_lines
from roles.workbench.role import Workbench
from tests.support.recorded import Recorded, recorded
from tests.support.recorder import Recorder

DEBIAN = recorded("debian-12")
UBUNTU = recorded("ubuntu-24.04")
SOURCES = "roles.baseline.sources.SourceFiles"
WITH_GPUS = Workbench((), Hardware("titan-x", 4))
ARCHIVE = Archive("bookworm", "/k.gpg")
LISTS = "Lists of nvtop's source"


def test_contrib_is_asked_of_the_mirrors_of_main_before_the_package() -> None:
    """Each suite of Debian's own, security's too, by Debian's key; lists are fetched at once."""
    played = Recorder(DEBIAN).play(WITH_GPUS)

    key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    assert played.written(PATH).splitlines()[1:] == [
        f"deb {key} http://deb.debian.org/debian bookworm contrib",
        f"deb {key} http://deb.debian.org/debian bookworm-updates contrib",
        f"deb {key} http://deb.debian.org/debian-security bookworm-security contrib",
    ]
    assert played.changes.index(LISTS) < played.changes.index("Tools")


def test_a_second_apply_changes_nothing() -> None:
    """What the file says already is not counted as the machine's own."""
    recorder = Recorder(DEBIAN)
    text = recorder.play(WITH_GPUS).written(PATH)
    lines = (*(DEBIAN.answers[SOURCES] or ()), *(f"{PATH}:{line}" for line in text.splitlines()))

    played = Recorder(DEBIAN.but({SOURCES: lines}), recorder.disk).play(WITH_GPUS)

    assert {"Source of nvtop", LISTS}.isdisjoint(played.changes)


@pytest.mark.parametrize(
    ("table", "bench"), [(UBUNTU, WITH_GPUS), (DEBIAN, Workbench((), None))], ids=["ubuntu", "no gpus"]
)
def test_no_other_machine_asks_it(table: Recorded, bench: Workbench) -> None:
    """Ubuntu has nvtop among its own, and a machine without GPUs needs none."""
    assert "Source of nvtop" not in Recorder(table).play(bench).names


@pytest.mark.parametrize(
    ("text", "suites"),
    [
        ("deb http://m/debian bookworm main # ours\n", ["bookworm"]),
        ("  deb http://m/debian bookworm main\n\tdeb http://m/debian bookworm-updates contrib#ours\n", ["bookworm"]),
        ("deb [arch=amd64 signed-by=/d.gpg] http://m/debian bookworm main\n", ["bookworm"]),
        ("deb http://m/debian bookworm main contrib non-free\n", []),
        ("deb http://m/debian bookworm main\ndeb http://o/debian bookworm contrib\n", []),
        ("deb-src http://m/debian bookworm main\n# deb http://m/debian bookworm main\n", []),
        ("deb http://m/other stable main\n", []),
    ],
    ids=["plain", "indented", "options", "has it", "has it elsewhere", "no packages", "another's"],
)
def test_a_line_is_asked_for_what_it_lacks(text: str, suites: list[str]) -> None:
    """Only suites of Debian's own whose packages are asked for, and that nobody has asked for contrib."""
    found = contrib_lines({"/etc/apt/sources.list": text}, ARCHIVE)

    assert list(found) == [f"deb [signed-by=/k.gpg] http://m/debian {suite} contrib\n" for suite in suites]


@pytest.mark.parametrize(
    ("more", "suites"),
    [("", ["bookworm", "bookworm-updates"]), ("Enabled: no\n", []), ("Enabled : Off\n", [])],
    ids=["on", "no", "off"],
)
def test_a_stanza_is_asked_for_what_it_lacks(more: str, suites: list[str]) -> None:
    """The newer form names several suites at once; one that has contrib already is not asked again."""
    ours = f"Types: deb deb-src\nURIs: http://m/debian\nSuites: bookworm bookworm-updates\nComponents: main\n{more}"
    has = "Types: deb\nURIs: http://s\nSuites: bookworm-security\nComponents: main contrib\n"

    found = contrib_lines({"/etc/apt/sources.list.d/debian.sources": f"{ours}\n{has}"}, ARCHIVE)

    assert list(found) == [f"deb [signed-by=/k.gpg] http://m/debian {suite} contrib\n" for suite in suites]


@pytest.mark.parametrize(
    "text",
    [
        "Types: deb\nURIs: http://o\nSuites: stable\nComponents: main\n \t\n{ours}",
        "Types: deb\nURIs: http://o\n{ours}",
    ],
    ids=["apart by blanks", "named twice"],
)
@pytest.mark.parametrize(
    "ours",
    [
        "Types : deb\nURIs : http://m/debian\nSuites : bookworm\nComponents : main\n",
        "Types: deb\nURIs: http://m/debian\nSuites:\n# ours\n bookworm\nComponents:\n main\n",
    ],
    ids=["spaces", "over lines"],
)
def test_a_stanza_is_seen_however_it_is_written(text: str, ours: str) -> None:
    """Blanks part stanzas and stand before colons, a field goes on over lines, and the last of a name counts."""
    found = contrib_lines({"/etc/apt/sources.list.d/debian.sources": text.format(ours=ours)}, ARCHIVE)

    assert list(found) == ["deb [signed-by=/k.gpg] http://m/debian bookworm contrib\n"]
