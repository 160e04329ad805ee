"""The node's own tables of accounts, as it has them; never what another machine knows."""

from collections.abc import Container, Iterable, Iterator, Sequence

from testinfra.host import Host

_NO_SHELLS = frozenset(("/usr/sbin/nologin", "/sbin/nologin", "/bin/false", "/usr/bin/false", "/bin/sync"))
_PEOPLE_FROM = 1000  # login.defs(5), UID_MIN of both distributions
_NOBODY = 65534


def entries(host: Host, table: str) -> Iterator[list[str]]:
    """Yield the entries of a table, `/etc/passwd`, each as its fields."""
    yield from (line.split(":") for line in host.check_output("cat %s", table).splitlines())


def strangers(rows: Iterable[Sequence[str]], known: Container[str]) -> list[str]:
    """Return who is neither known nor a daemon of the system's: has a shell, a person's number, or root's."""
    return [
        name
        for name, _, uid, *_, shell in rows
        if name not in known and (shell not in _NO_SHELLS or not _is_a_daemons(int(uid)))
    ]


def _is_a_daemons(uid: int) -> bool:
    return 0 < uid < _PEOPLE_FROM or uid == _NOBODY
