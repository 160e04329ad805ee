"""Debian's archive `contrib`, from which nvtop comes: free itself, and of use beside a driver that is not.

It is asked of the mirrors that the machine asks for Debian's main archive, by a file of its own. What the machine's own
sources say of `contrib` already is left to them; no other file of sources is touched.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from pyinfra.context import host
from pyinfra.operations import apt
from pyinfra.operations.util import any_changed

from roles.baseline.source_text import Stanza, read_line, read_stanzas
from roles.baseline.sources import Archive, SourceFiles, archive_here
from roles.shipped import Shipped, ship

PATH = "/etc/apt/sources.list.d/bedplate-contrib.list"


@dataclass(frozen=True, slots=True)
class Suite:
    """A release of an archive at a mirror, and the parts of it that apt asks for."""

    uri: str
    name: str
    components: frozenset[str]


def add_contrib() -> None:
    """Declare that packages of `contrib` can be had; lists are fetched when that is new."""
    texts = host.get_fact(SourceFiles)
    lines = contrib_lines({path: text for path, text in texts.items() if path != PATH}, archive_here())
    if lines or PATH in texts:
        changes = ship(Shipped("Source of nvtop", PATH, "".join(("# Written by bedplate.\n", *lines))))
        apt.update(name="Lists of nvtop's source", _if=any_changed(*changes))


def contrib_lines(texts: Mapping[str, str], archive: Archive) -> tuple[str, ...]:
    """Return a line of sources.list for each suite that files of sources ask for its main part and not for contrib."""
    asked = [suite for path, text in texts.items() for suite in _suites(text, path) if archive.holds(suite.name)]
    has_it = {suite.name for suite in asked if "contrib" in suite.components}
    wanted = [suite for suite in asked if "main" in suite.components and suite.name not in has_it]
    return tuple(
        dict.fromkeys(f"deb [signed-by={archive.keyring}] {suite.uri} {suite.name} contrib\n" for suite in wanted)
    )


def _suites(text: str, path: str) -> Iterator[Suite]:
    if path.endswith(".sources"):
        for stanza in read_stanzas(text):
            yield from _of_stanza(stanza)
    else:
        for line in filter(None, map(read_line, text.splitlines())):
            if line.kind == "deb":
                yield Suite(line.uri, line.suite, line.components)


def _of_stanza(stanza: Stanza) -> Iterator[Suite]:
    if stanza.is_on and "deb" in stanza.words("types"):
        for uri, name in product(stanza.words("uris"), stanza.words("suites")):
            yield Suite(uri, name, frozenset(stanza.words("components")))
