"""The node's own tables of accounts, as it has them; never what another machine knows."""

from collections.abc import Container, Iterable, Iterator, Sequence

from testinfra.host import Host

_NO_SHELLS = frozenset(("/usr/sbin/nologin", "/sbin/nologin", "/bin/false", "/usr/bin/false", "/bin/sync"))
_PEOPLE_FROM = 1000  # login.defs(5), UID_MIN of both distributions
_NOBODY = 65534


def entries(host: Host, table: str) -> Iterator[list[str]]:
    """Yield the entries of a table, `/etc/passwd`, each as its fields; lines that are none are `strays`."""
    yield from (line.split(":") for line in _lines(host, table) if _is_entry(line))


def strays(host: Host, table: str) -> list[str]:
    """Return the lines of a table that are nobody's: blank ones, and those that ask another list."""
    return [line for line in _lines(host, table) if not _is_entry(line)]


def strangers(rows: Iterable[Sequence[str]], known: Container[str]) -> list[str]:
    """Return who is neither known nor a daemon of the system's: has a shell, a person's number, or root's."""
    return [
        name
        for name, _, uid, *_, shell in rows
        if name not in known and (shell not in _NO_SHELLS or not _is_a_daemons(int(uid)))
    ]


def _is_a_daemons(uid: int) -> bool:
    return 0 < uid < _PEOPLE_FROM or uid == _NOBODY


def _lines(host: Host, table: str) -> list[str]:
    text: str = host.file(table).content_string
    return text.splitlines()


def _is_entry(line: str) -> bool:
    """Tell whether a line is an entry, by its name: NSS's "compat" reads others. Source: nsswitch.conf(5)."""
    return line[:1] not in {"", "+", "-", "#", ":"} and ":" in line
