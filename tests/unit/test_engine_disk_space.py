"""Whether a node has the disk space for an apply, from the output of `df`."""

import pytest

from bedplate.nodes.event import Kind
from roles.base import DiskSpace
from roles.engine.disk_space import lack_of_space

NEEDS = (DiskSpace(1000, 200, 20), DiskSpace(392, 142, 4))
HEAD = "Filesystem 1048576-blocks Used Available Capacity Mounted on\n"
ROOMY = (("/", 90_000), ("/", 90_000))
TMP = "/tmp"  # noqa: S108  as df prints it
IN_MEMORY = ((TMP, 500), ("/run", 100))


def df(*rows: tuple[str, int]) -> str:
    """Return the output of df: for each folder its mount and what is free there."""
    every = (*rows, *IN_MEMORY[len(rows) - 2 :])
    return HEAD + "".join(f"/dev/vda1 20000 1000 {free} 5% {mount}\n" for mount, free in every)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ((("/", 1749), ("/", 1749)), "/ has 1,749 MiB free, 1,750 MiB required"),
        ((("/", 9000), ("/var", 0)), "/var has 0 MiB free, 350 MiB required"),
        (
            (("/usr", 10), ("/var", 20)),
            "/usr has 10 MiB free, 1,400 MiB required; /var has 20 MiB free, 350 MiB required",
        ),
        ((*ROOMY, (TMP, 31)), f"{TMP} has 31 MiB free, 32 MiB required"),
        ((*ROOMY, ("/", 90_000), ("/run", 0)), "/run has 0 MiB free, 16 MiB required"),
        ((("/", 1797),) * 4, "/ has 1,797 MiB free, 1,798 MiB required"),
    ],
    ids=["one", "var", "both", "tmp", "run", "one for all"],
)
def test_a_full_file_system_is_reported_with_the_space_required(rows: tuple[tuple[str, int], ...], words: str) -> None:
    """The needs of all roles are summed for each file system, with a little for files that are replaced."""
    trouble = lack_of_space(df(*rows), NEEDS)

    assert trouble
    assert (trouble.kind, trouble.what.partition(": ")[2]) == (Kind.REFUSED, words)
    assert "nothing was changed" in trouble.what
    assert "free disk space" in trouble.fix


@pytest.mark.parametrize("text", [df(*ROOMY), df(("/", 1400), ("/var", 350)), "", HEAD, "sh: df: not found\n"])
def test_enough_space_and_an_unreadable_answer_refuse_nothing(text: str) -> None:
    """A node with an unusual df is configured all the same."""
    assert lack_of_space(text, NEEDS) is None


def test_a_setting_needs_next_to_no_space() -> None:
    """A node that has its packages can be configured while its disk is nearly full."""
    assert lack_of_space(df(("/usr", 8), ("/var", 8)), ()) is None
    assert lack_of_space(df(("/usr", 8), ("/var", 7)), ())
