"""Who may mount what of a file server, by the text of exports(5) or of the kernel's own table; asks no machine."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from testinfra.host import Host

from roles.system import Settable, otherwise

# What the kernel's server exports now, however it was told. Source: exportfs(8).
IN_FORCE = "/var/lib/nfs/etab"
# Root of a client, or any program on it, would be whom it likes.
_LOOSE = re.compile(r"no_root_squash|insecure|anon[ug]id=(?!65534$)\S+")


def beside(told: str, ours: str) -> list[str]:
    """Return in words what a text exports and ours does not, or not so loosely."""
    known = set(_exports(ours))
    return [
        f"{path} to {client} {loose}".rstrip()
        for path, client, loose in _exports(told)
        if (path, client, loose) not in known
    ]


def _exports(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield each path with one client, and what is loose about it; a path without a client is everybody's."""
    for line in text.replace("\\\n", " ").splitlines():
        path, *clients = line.partition("#")[0].split() or [""]
        for each in (clients or ["*"]) if path else ():
            client, _, options = each.partition("(")
            yield path, client or "*", " ".join(filter(_LOOSE.fullmatch, options.rstrip(")").split(",")))


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


# Rules that only add to what is written down, and settings that change nothing about what is.
_HARMLESS = re.compile(
    r"#|$|-w\s|-[aA]\s*(always,(exit|user|task|filesystem)|(exit|user|task|filesystem),always)\s"
    r"|-e\s*[12]$|-[bf]\s|-[ci]$|--(backlog_wait_time|loginuid-immutable|reset-lost|reset_backlog_wait_time_actual)\b"
)


def takes_back(line: str) -> bool:
    """Tell whether a line of a file may stop the audit, delete rules, or leave out what others would tell.

    augenrules puts a plain `-D` before all rules, but only one that stands alone from the first letter of its line.
    """
    return line != "-D" and not _HARMLESS.match(line.strip())


def altered(host: Host, *units: str) -> list[str]:
    """Return what makes these units do other than their files say: drop-ins, and files that systemd has not read."""
    named = " ".join("%s" for _ in units)
    told = host.check_output(f"systemctl show --property=Id,DropInPaths,NeedDaemonReload {named}", *units)
    good = {"DropInPaths=", "NeedDaemonReload=no", ""}
    return [line for line in told.splitlines() if line not in good and not line.startswith("Id=")]


WANTED: Mapping[str, str | bool] = {
    "use_pty": True,
    "logfile": "/var/log/sudo.log",
    "syslog": "authpriv",
    "syslog_goodpri": "notice",
    "syslog_badpri": "alert",
    "log_allowed": True,
    "log_denied": True,
}


def hidden(document: Mapping[str, Any]) -> list[str]:
    """Return what is otherwise: for all, by what is said last, and for anybody or anything by whatever is said of them.

    What is bound to a person, a host or a command goes before what is for all, wherever it stands. Source: sudoers(5).
    """
    told = list(_told(document))
    general = {name: value for whom, name, value in told if whom is None}
    bound = [f"{name} is {value} for {whom}" for whom, name, value in told if whom and value != WANTED[name]]
    return [f"{name} is {general.get(name)}" for name in WANTED if general.get(name) != WANTED[name]] + bound


def _told(document: Mapping[str, Any]) -> Iterator[tuple[str | None, str, str | bool]]:
    """Yield each setting that matters here, in the order of the files: for whom, its name, its value."""
    for each in document.get("Defaults", ()):
        whom = ", ".join(str(value) for one in each.get("Binding", ()) for value in one.values()) or None
        for option in each["Options"]:
            yield from ((whom, name, value) for name, value in option.items() if name in WANTED)


_WHEN = "at the next boot, by a file that `systemd-analyze cat-config sysctl.d` shows"
_SWAPPED = str.maketrans("./", "/.")


def at_the_next_boot(host: Host, wanted: Mapping[str, str]) -> list[str]:
    """Return the settings that the next boot makes otherwise, or not at all, of those that are wanted."""
    told = told_by_files(host.check_output("systemd-analyze cat-config sysctl.d").splitlines())
    missing = [f"{key} is not set at boot" for key in wanted if key not in told]
    return [*missing, *(f"{key} = {value} {_WHEN}" for key, value in otherwise(told, wanted).items())]


def told_by_files(lines: Iterable[str]) -> dict[str, str]:
    """Return what files say of each setting: of one that stands there twice the last word. Source: sysctl.d(5)."""
    parts = (line.strip().partition("=") for line in lines if not line.lstrip().startswith(("#", ";")))
    return {_dotted(key.strip().removeprefix("-")): " ".join(value.split()) for key, sign, value in parts if sign}


def _dotted(key: str) -> str:
    """Return a key with dots between its parts; where a slash comes first, slashes part it."""
    first = next((sign for sign in key if sign in "./"), ".")
    return key if first == "." else key.translate(_SWAPPED)


def amiss(host: Host, wanted: Mapping[str, str]) -> list[str]:
    """Return in words what is otherwise; a container leaves most to its host, as the role does."""
    asked = Settable()
    found = asked.process(host.check_output(str(asked.command(tuple(wanted)))).splitlines())
    now = [f"{key} = {value}" for key, value in otherwise(found, wanted).items()]
    return [*now, *at_the_next_boot(host, wanted)]


def keywords(text: str) -> dict[str, str]:
    """Return the values of keywords, one a line; of a keyword on several lines all values, with spaces."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        keyword, _, value = line.strip().partition(" ")
        known = found.get(keyword.lower())
        found[keyword.lower()] = value if known is None else f"{known} {value}"
    return found
