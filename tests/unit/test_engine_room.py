"""Whether a node has room for an apply, from what `df` says of it."""

import pytest

from bedplate.nodes.event import Kind
from roles.engine.room import LEAST, Need, lack, needed

NEED = Need(1400, 350)
HEAD = "Filesystem 1048576-blocks Used Available Capacity Mounted on\n"


def told(*rows: tuple[str, int]) -> str:
    """Return what df tells of the file systems of both folders: where they are mounted, and what is free there."""
    return HEAD + "".join(f"/dev/vda1 20000 1000 {free} 5% {place}\n" for place, free in rows)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((("/", 1749), ("/", 1749)), "/ has 1,749 MB free, and 1,750 are needed"),
        ((("/", 9000), ("/var", 0)), "/var has 0 MB free, and 350 are needed"),
        (
            (("/usr", 10), ("/var", 20)),
            "/usr has 10 MB free, and 1,400 are needed; /var has 20 MB free, and 350 are needed",
        ),
    ],
    ids=["one", "var", "both"],
)
def test_what_is_full_is_told_with_what_is_needed(rows: tuple[tuple[str, int], ...], words: str) -> None:
    """Each file system by itself, what both folders take of one together; nothing was done, and what to do is said."""
    trouble = lack(told(*rows), NEED)

    assert trouble
    assert (trouble.kind, trouble.what.partition(": ")[2]) == (Kind.REFUSED, words)
    assert "nothing was changed" in trouble.what
    assert "make room" in trouble.fix


@pytest.mark.parametrize("text", [told(("/", 1750), ("/", 1750)), told(("/", 1400), ("/var", 350)), "", HEAD])
def test_room_enough_and_no_answer_hinder_nobody(text: str) -> None:
    """A node whose df is odd is found out by what it cannot write."""
    assert lack(text, NEED) is None


@pytest.mark.parametrize(
    ("roles", "due", "need"),
    [({"workbench", "hardened"}, 51, "more"), ({"hardened"}, 51, "some"), ({"workbench"}, 50, "least")],
    ids=["workbench", "another", "a settled one"],
)
def test_the_first_apply_needs_room_for_packages(roles: set[str], due: int, need: str) -> None:
    """Where most is due, packages are among it; one setting of a settled node needs next to nothing."""
    found = needed(roles, due, 100)

    order = {"least": LEAST, "some": needed({"monitoring"}, 2, 2), "more": needed({"workbench"}, 2, 2)}
    assert found == order[need]
    assert order["least"].state < order["some"].state < order["more"].state
