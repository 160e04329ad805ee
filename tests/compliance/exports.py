"""Who may mount what of a file server, by the text of exports(5) or of the kernel's own table; asks no machine."""

import re
from collections.abc import Iterator

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
