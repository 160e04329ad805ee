"""Where packages come from: every source names the key that signs it, and none is trusted without a signature.

Which mirror a machine asks is its own matter: addresses stay as they are.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.server import OsRelease

from roles.base import Changes
from roles.baseline.source_text import Stanza, read_line, read_stanzas
from roles.shipped import Shipped, ship

_FOLDER = "/etc/apt/sources.list.d"
# Options of a source that take it without a good signature: sources.list(5).
_BLIND = ("trusted", "allow-insecure", "allow-weak", "allow-downgrade-to-insecure")


@dataclass(frozen=True, slots=True)
class Archive:
    """A distribution's own archive: the name of its release, and the keyring that signs it."""

    codename: str
    keyring: str

    def holds(self, suite: str) -> bool:
        """Say whether a suite is of this release: `noble`, `noble-security`."""
        return re.fullmatch(rf"{re.escape(self.codename)}(-[a-z-]+)?(/\S*)?", suite) is not None


class SourceFiles(FactBase[Mapping[str, str]]):
    """The text of each file that names sources, by its path."""

    default = dict

    def command(self) -> str:
        """Put the file's name before each of its lines."""
        return f"grep -sH '' /etc/apt/sources.list {_FOLDER}/*.list {_FOLDER}/*.sources || true"

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Gather the lines of each file."""
        found: dict[str, str] = {}
        for line in output:
            path, _, text = line.partition(":")
            found[path] = f"{found.get(path, '')}{text}\n"
        return found


def sign_sources() -> Changes:
    """Declare that every source of the distribution names its keyring, and that none is trusted blindly."""
    archive = archive_here()
    texts = {path: (text, signed(text, path, archive)) for path, text in host.get_fact(SourceFiles).items()}
    return ship(*(Shipped(f"Signed sources in {path}", path, new) for path, (old, new) in texts.items() if new != old))


def archive_here() -> Archive:
    """Return the archive of the node's own release."""
    release = host.get_fact(OsRelease)
    return Archive(release["version_codename"], f"/usr/share/keyrings/{release['id']}-archive-keyring.gpg")


def signed(text: str, path: str, archive: Archive) -> str:
    """Return a file of sources with a key for each source of the archive, and without blind trust."""
    if path.endswith(".sources"):
        return "\n\n".join(_stanza(each, archive) for each in read_stanzas(text)) + "\n"
    return "".join(f"{_one_line(line, archive)}\n" for line in text.splitlines())


def _one_line(text: str, archive: Archive) -> str:
    line = read_line(text)
    if not line:
        return text
    options = [each for each in line.options if _name(each) not in _BLIND]
    if archive.holds(line.suite) and "signed-by" not in map(_name, options):
        options.append(f"signed-by={archive.keyring}")
    told = f"[{' '.join(options)}] " if options else ""
    return f"{line.kind} {told}{line.rest}"


def _name(option: str) -> str:
    return option.partition("=")[0].lower().rstrip("+-")


def _stanza(stanza: Stanza, archive: Archive) -> str:
    lines = [line for name, line in stanza.rows if name not in _BLIND]
    suites = stanza.words("suites")
    if suites and all(map(archive.holds, suites)) and not stanza.words("signed-by"):
        lines.append(f"Signed-By: {archive.keyring}")
    return "\n".join(lines)
