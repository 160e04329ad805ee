"""The units by which systemd runs a sync each day on the machine that signs: lists and certificates never run out.

Pure. Gateways cannot renew anything: they hold no key that could.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from vpn.laptops.text import filled

# systemd.service(5), "COMMAND LINES", and systemd.unit(5), "SPECIFIERS": what is more than itself in a quoted word.
_MEANT = (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$"))


def renewal_units(fleet: str, command: Sequence[str], folder: PurePath) -> Mapping[str, str]:
    """Return the text of both units by their names; `command` runs a sync, in that folder."""
    words = " ".join(map(_word, command))
    name = f"bedplate-vpn-{fleet}"
    return {
        f"{name}.service": filled("renewal.service.j2", fleet=fleet, command=words, folder=_plain(folder)),
        f"{name}.timer": filled("renewal.timer.j2", fleet=fleet),
    }


def _word(text: str) -> str:
    for character, written in _MEANT:
        text = text.replace(character, written)
    return f'"{text}"'


def _plain(folder: PurePath) -> str:
    """Return a path as a setting takes it, to the end of its line."""
    return str(folder).replace("%", "%%")
