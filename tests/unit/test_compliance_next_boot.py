"""What the audit reads of the kernel's settings at the next boot, from the files as systemd shows them."""

import pytest

from tests.compliance.next_boot import at_the_next_boot, told_by_files


class Files:
    """A machine of which nothing is asked but its files."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines

    def check_output(self, _command: str) -> str:
        """Show them."""
        return "\n".join(self._lines)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["# a.b = 1", "; a.b = 1", "", " a.b=1 "], {"a.b": "1"}),
        (["a.b = 1", "# /etc/sysctl.d/z.conf", "a.b = 2"], {"a.b": "2"}),
        (["-a.b = 4096  131072\t6"], {"a.b": "4096 131072 6"}),
        (["net/ipv4/conf/eth0.7/forwarding = 1"], {"net.ipv4.conf.eth0/7.forwarding": "1"}),
        (["net.ipv4.conf.eth0/7.forwarding = 1"], {"net.ipv4.conf.eth0/7.forwarding": "1"}),
        (["-net.ipv4.conf.eth0.forwarding"], {}),
    ],
    ids=["remarks", "last", "failing", "slashes", "dots", "left out"],
)
def test_files_are_read_as_systemd_reads_them(lines: list[str], told: dict[str, str]) -> None:
    """The last word counts; a minus says that it may fail; a slash that comes first parts a key."""
    assert told_by_files(lines) == told


@pytest.mark.parametrize(
    ("lines", "amiss"),
    [
        (["a.*.c = 0", "a.b.d = 1"], []),
        (["a.*.c = 0"], ["a.b.d is not set at boot"]),
        (["a.*.c = 0", "a.b.d = 2"], ["a.b.d = 2 at the next boot"]),
        (["a.*.c = 0", "a.b.d = 1", "a/eth0/c = 1"], ["a.eth0.c = 1 at the next boot"]),
    ],
    ids=["as wanted", "missing", "another", "of one interface"],
)
def test_what_a_boot_makes_otherwise_is_told(lines: list[str], amiss: list[str]) -> None:
    """Also what a file says of one interface, where all are wanted to be alike."""
    found = at_the_next_boot(Files(*lines), {"a.*.c": "0", "a.b.d": "1"})

    assert [each.partition(", by a file")[0] for each in found] == amiss
