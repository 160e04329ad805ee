"""Whether a node has room for an apply, from what `df` and dpkg say of it."""

import pytest

from bedplate.nodes.event import Kind
from roles.engine.room import LEAST, OTHERS, WORKBENCH, Need, lack

BENCH = frozenset({"workbench", "hardened"})
HEAD = "Filesystem 1048576-blocks Used Available Capacity Mounted on\n"
BARE = "not-installed cmake\n"
SETTLED = "installed auditd\ninstalled cmake\n"
ROOMY = (("/", 90_000), ("/", 90_000))
TMP = "/tmp"  # noqa: S108  as df tells it
IN_MEMORY = ((TMP, 500), ("/run", 100))


def told(*rows: tuple[str, int], packages: str = BARE) -> str:
    """Return what a node tells: of each folder where its file system is mounted and what is free, and its packages."""
    every = (*rows, *IN_MEMORY[len(rows) - 2 :])
    return HEAD + "".join(f"/dev/vda1 20000 1000 {free} 5% {place}\n" for place, free in every) + packages


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((("/", 1749), ("/", 1749)), "/ has 1,749 MB free, and 1,750 are needed"),
        ((("/", 9000), ("/var", 0)), "/var has 0 MB free, and 350 are needed"),
        (
            (("/usr", 10), ("/var", 20)),
            "/usr has 10 MB free, and 1,400 are needed; /var has 20 MB free, and 350 are needed",
        ),
        ((*ROOMY, (TMP, 31)), f"{TMP} has 31 MB free, and 32 are needed"),
        ((*ROOMY, ("/", 90_000), ("/run", 0)), "/run has 0 MB free, and 16 are needed"),
        ((("/", 1797),) * 4, "/ has 1,797 MB free, and 1,798 are needed"),
    ],
    ids=["one", "var", "both", "tmp", "run", "one for all"],
)
def test_what_is_full_is_told_with_what_is_needed(rows: tuple[tuple[str, int], ...], words: str) -> None:
    """Each file system by itself, what several folders take of one together; nothing was done; what to do is said."""
    trouble = lack(told(*rows), BENCH)

    assert trouble
    assert (trouble.kind, trouble.what.partition(": ")[2]) == (Kind.REFUSED, words)
    assert "nothing was changed" in trouble.what
    assert "make room" in trouble.fix


@pytest.mark.parametrize(
    "text", [told(*ROOMY), told(("/", 1400), ("/var", 350)), "", HEAD, "sh: df: not found\n", HEAD + SETTLED]
)
def test_room_enough_and_no_answer_hinder_nobody(text: str) -> None:
    """A node whose df is odd is found out by what it cannot write."""
    assert lack(text, BENCH) is None


@pytest.mark.parametrize(
    ("roles", "packages", "need"),
    [
        (BENCH, BARE, WORKBENCH),
        (BENCH, "installed auditd\n", WORKBENCH),
        ({"hardened"}, BARE, OTHERS),
        (BENCH, SETTLED, LEAST),
        ({"hardened"}, "installed auditd\n", LEAST),
    ],
    ids=["workbench", "a workbench that was none", "another", "settled workbench", "settled other"],
)
def test_what_is_needed_is_what_is_not_there_yet(roles: frozenset[str], packages: str, need: Need) -> None:
    """Packages take room once; a setting of a node that has them, from an apply or its image, next to none."""
    enough = (("/usr", need.programs), ("/var", need.state))
    short = (("/usr", need.programs), ("/var", need.state - 1))

    assert lack(told(*enough, packages=packages), roles) is None
    assert lack(told(*short, packages=packages), roles)
