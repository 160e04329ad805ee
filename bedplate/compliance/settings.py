"""Shared by compliance rules: conditions on the nodes that they apply to, and parsers of settings on a machine.

The report counts the nodes to which a rule does not apply. Parsers read exports, accounts, audit rules, units, sudo,
sysctl and sshd.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from testinfra.host import Host
from testinfra.modules.file import File

from bedplate.plan.nodes import NodePlan, NodeRole
from roles.base import ManagedFile
from roles.system import Settable, differing_sysctls

MARKER = "applies_if"
installed = pytest.mark.installed
"""Marks a rule that the install stage alone keeps: a bake checks it before it makes an image."""


def applies_if(condition: Callable[[NodePlan], bool]) -> pytest.MarkDecorator:
    """Limit a rule to nodes whose plan meets a condition; as `pytestmark`, limit all rules of a file."""
    return pytest.MarkDecorator(pytest.Mark(MARKER, (condition,), {}, _ispytest=True), _ispytest=True)


def applies_to(*roles: NodeRole) -> pytest.MarkDecorator:
    """Limit a rule to nodes that have one of these roles."""
    return applies_if(lambda node: not node.roles.isdisjoint(roles))


def listening_addresses(host: Host, port: int) -> list[str]:
    """Return the addresses on which a TCP port is open."""
    output = host.check_output("ss --listening --tcp --numeric --no-header 'sport = :%s'", str(port))
    addresses = [line.split()[3].rpartition(":")[0] for line in output.splitlines()]
    # ss prints a star for all addresses of both families.
    return [address.strip("[]").replace("*", "::") for address in addresses]


def is_container(host: Host) -> bool:
    """Return whether the node is a container, which shares the kernel, clock and swap of its host."""
    return bool(host.run("systemd-detect-virt --quiet --container").succeeded)


def differing_files(host: Host, files: Iterable[ManagedFile]) -> list[str]:
    """Return the files that are missing, or have another text, mode or owner."""
    pairs = ((host.file(file.path), file) for file in files)
    return [file.path for actual, file in pairs if not actual.is_file or not _is_equal(actual, file)]


def _is_equal(actual: File, file: ManagedFile) -> bool:
    return (actual.mode, actual.user, actual.content_string) == (int(file.mode, 8), "root", file.text)


# What the kernel's NFS server exports now, from files or by command. Source: exportfs(8).
ETAB = "/var/lib/nfs/etab"
# Export options that give a client root access, or the access of another user.
_UNSAFE_EXPORT = re.compile(r"no_root_squash|insecure|anon[ug]id=(?!65534$)\S+")


def unplanned_exports(text: str, planned: str) -> list[str]:
    """Return the exports of a text in exports(5) format that the plan lacks, or has with safer options."""
    planned_exports = set(_exports(planned))
    return [
        f"{path} to {client} {unsafe}".rstrip()
        for path, client, unsafe in _exports(text)
        if (path, client, unsafe) not in planned_exports
    ]


def _exports(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, client and unsafe options of each export; a path without a client is exported to everyone."""
    for line in text.replace("\\\n", " ").splitlines():
        path, *clients = line.partition("#")[0].split() or [""]
        for entry in (clients or ["*"]) if path else ():
            client, _, options = entry.partition("(")
            yield path, client or "*", " ".join(filter(_UNSAFE_EXPORT.fullmatch, options.rstrip(")").split(",")))


_NO_SHELLS = frozenset(("/usr/sbin/nologin", "/sbin/nologin", "/bin/false", "/usr/bin/false", "/bin/sync"))
_UID_MIN = 1000  # login.defs(5), both distributions
_UID_NOBODY = 65534


def account_entries(host: Host, file: str) -> Iterator[list[str]]:
    """Yield the fields of each entry of an account file such as /etc/passwd; skip the `stray_lines`."""
    yield from (line.split(":") for line in _lines(host, file) if _is_entry(line))


def stray_lines(host: Host, file: str) -> list[str]:
    """Return the lines of an account file that are not entries: blank lines, and inclusions of other lists."""
    return [line for line in _lines(host, file) if not _is_entry(line)]


def unknown_accounts(rows: Iterable[Sequence[str]], known_names: Container[str]) -> list[str]:
    """Return the accounts that are neither known nor daemons: they have a shell, a person's ID, or root's."""
    return [
        name
        for name, _, uid, *_, shell in rows
        if name not in known_names and (shell not in _NO_SHELLS or not _is_daemon(int(uid)))
    ]


def _is_daemon(uid: int) -> bool:
    return 0 < uid < _UID_MIN or uid == _UID_NOBODY


def _lines(host: Host, file: str) -> list[str]:
    text: str = host.file(file).content_string
    return text.splitlines()


def _is_entry(line: str) -> bool:
    """Return whether a line starts with a name; NSS's "compat" mode reads + and - lines. Source: nsswitch.conf(5)."""
    return line[:1] not in {"", "+", "-", "#", ":"} and ":" in line


# Audit rules that only add records, and settings that do not reduce them.
_HARMLESS = re.compile(
    r"#|$|-w\s|-[aA]\s*(always,(exit|user|task|filesystem)|(exit|user|task|filesystem),always)\s"
    r"|-e\s*[12]$|-[bf]\s|-[ci]$|--(backlog_wait_time|loginuid-immutable|reset-lost|reset_backlog_wait_time_actual)\b"
)


def weakens_audit(line: str) -> bool:
    """Return whether a line of an audit rules file may stop the audit, delete rules, or exclude events.

    augenrules moves a plain `-D` before all rules, but only if the line contains nothing else.
    """
    return line != "-D" and not _HARMLESS.match(line.strip())


def unit_overrides(host: Host, *units: str) -> list[str]:
    """Return what makes units differ from their files: drop-ins, and files that systemd has not reloaded."""
    names = " ".join("%s" for _ in units)
    shown = host.check_output(f"systemctl show --property=Id,DropInPaths,NeedDaemonReload {names}", *units)
    unchanged = {"DropInPaths=", "NeedDaemonReload=no", ""}
    return [line for line in shown.splitlines() if line not in unchanged and not line.startswith("Id=")]


SUDO_DEFAULTS: Mapping[str, str | bool] = {
    "use_pty": True,
    "logfile": "/var/log/sudo.log",
    "syslog": "authpriv",
    "syslog_goodpri": "notice",
    "syslog_badpri": "alert",
    "log_allowed": True,
    "log_denied": True,
}


def sudo_deviations(document: Mapping[str, Any]) -> list[str]:
    """Return the settings that differ from SUDO_DEFAULTS in the JSON of cvtsudoers.

    Of the settings for all, the last counts. One for a user, host or command overrides it anywhere. Source: sudoers(5).
    """
    settings = list(_sudo_settings(document))
    general = {name: value for scope, name, value in settings if scope is None}
    scoped = [
        f"{name} is {value} for {scope}" for scope, name, value in settings if scope and value != SUDO_DEFAULTS[name]
    ]
    deviating = [name for name, value in SUDO_DEFAULTS.items() if general.get(name) != value]
    return [f"{name} is {general.get(name)}" for name in deviating] + scoped


def _sudo_settings(document: Mapping[str, Any]) -> Iterator[tuple[str | None, str, str | bool]]:
    """Yield scope, name and value of each setting in SUDO_DEFAULTS, in the order of the files."""
    for defaults in document.get("Defaults", ()):
        scope = ", ".join(str(value) for binding in defaults.get("Binding", ()) for value in binding.values()) or None
        for option in defaults["Options"]:
            yield from ((scope, name, value) for name, value in option.items() if name in SUDO_DEFAULTS)


_BOOT_HINT = "at the next boot; `systemd-analyze cat-config sysctl.d` shows the file"
_SWAPPED = str.maketrans("./", "/.")


def boot_deviations(host: Host, expected: Mapping[str, str]) -> list[str]:
    """Return the sysctls that the next boot does not set, or sets to other values than expected."""
    values = parse_sysctl_files(host.check_output("systemd-analyze cat-config sysctl.d").splitlines())
    missing = [f"{key} is not set at boot" for key in expected if key not in values]
    return [*missing, *(f"{key} = {value} {_BOOT_HINT}" for key, value in differing_sysctls(values, expected).items())]


def parse_sysctl_files(lines: Iterable[str]) -> dict[str, str]:
    """Return the value of each key in sysctl.d files; the last line of a key counts. Source: sysctl.d(5)."""
    parts = (line.strip().partition("=") for line in lines if not line.lstrip().startswith(("#", ";")))
    return {_dotted(key.strip().removeprefix("-")): " ".join(value.split()) for key, sign, value in parts if sign}


def _dotted(key: str) -> str:
    """Return a key with dots as separators; if its first separator is a slash, slashes and dots swap."""
    first = next((sign for sign in key if sign in "./"), ".")
    return key if first == "." else key.translate(_SWAPPED)


def sysctl_deviations(host: Host, expected: Mapping[str, str]) -> list[str]:
    """Return the sysctls that differ now, if the node can set them, or after a reboot; as text for the report."""
    settable = Settable()
    values = settable.process(host.check_output(str(settable.command(tuple(expected)))).splitlines())
    now = [f"{key} = {value}" for key, value in differing_sysctls(values, expected).items()]
    return [*now, *boot_deviations(host, expected)]


def parse_keywords(text: str) -> dict[str, str]:
    """Return the value of each keyword in the output of `sshd -T`; values of repeated keywords are joined by spaces."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        keyword, _, value = line.strip().partition(" ")
        earlier = values.get(keyword.lower())
        values[keyword.lower()] = value if earlier is None else f"{earlier} {value}"
    return values
