"""What keeps sudo from telling of somebody, as sudo's own parser (cvtsudoers) reads all its files; asks no machine."""

from collections.abc import Iterator, Mapping
from typing import Any

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
