"""Files of sources as text: lines of the older form, stanzas of the newer one. Reads alone; judges and changes nothing.

Sources: sources.list(5) and deb822(5). A line of blanks parts two stanzas here, as it does to whoever wrote it; apt
itself takes them for one, of whose fields the last counts, until the role writes the file with an empty line.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.server import OsRelease

from roles.base import Changes
from roles.files import Shipped, rendered, ship, text_of

_LINE = re.compile(r"\s*(?P<kind>deb(?:-src)?)\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<rest>[^\s#]+\s+[^\s#].*)")
_FIELD = re.compile(r"(?P<name>[A-Za-z-]+)\s*:")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A source of the older form; `rest` is all behind the options, as it stands."""

    kind: str
    options: tuple[str, ...]
    rest: str

    @property
    def suite(self) -> str:
        """The release, or a folder that ends in a slash."""
        return self.rest.partition("#")[0].split()[1]


@dataclass(frozen=True, slots=True)
class Stanza:
    """A source of the newer form: its lines, each behind the name of its field in small letters, none for a remark."""

    rows: tuple[tuple[str, str], ...]

    def words(self, field: str) -> tuple[str, ...]:
        """Return the words of a field, which may go on over lines; of two fields of a name the last counts."""
        words: tuple[str, ...] = ()
        for line in (line for name, line in self.rows if name == field):
            start = _FIELD.match(line)
            words = tuple(line[start.end() :].split()) if start else (*words, *line.split())
        return words


def read_line(text: str) -> SourceLine | None:
    """Return the source of a line, nothing where it has none."""
    found = _LINE.fullmatch(text)
    return SourceLine(found["kind"], tuple((found["options"] or "").split()), found["rest"]) if found else None


def read_stanzas(text: str) -> tuple[Stanza, ...]:
    """Return all that stands between empty lines, remarks too."""
    return tuple(Stanza(tuple(_rows(each.strip("\n")))) for each in re.split(r"\n\s*\n", text))


def _rows(text: str) -> Iterator[tuple[str, str]]:
    name = ""
    for line in text.splitlines():
        if found := _FIELD.match(line):
            name = found["name"].lower()
        yield "" if line.startswith("#") else name, line


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


SETTINGS = "/etc/apt/apt.conf.d/zz-bedplate"
"""The last of its folder, for the last word counts."""
PINS = "/etc/apt/preferences.d/00-bedplate"
"""The first of its folder: of two pins that name a package the first counts. Source: apt_preferences(5)."""

# Regular expressions that a package's name is matched with from its start: unattended-upgrades' README.
DRIVERS = (
    "nvidia-",
    "libnvidia-",
    "linux-modules-nvidia-",
    "linux-objects-nvidia-",
    "cuda-",
    "libcudnn",
    "libnccl",
    "datacenter-gpu-manager",
)
KERNELS = (
    "linux-image-",
    "linux-headers-",
    "linux-modules-",
    "linux-aws",
    "linux-generic",
    "linux-virtual",
    "linux-cloud-",
    "linux-tools-",
)
CONTAINERS = (
    "containerd",
    "docker",
    "runc$",
    "kubelet$",
    "kubeadm$",
    "kubectl$",
    "kubernetes-cni$",
    "cri-tools$",
    "podman",
    "crun$",
    "conmon",
    "cri-o",
)
FABRICS = (
    "efa",
    "libfabric",
    "rdma-core$",
    "ibverbs-",
    "libibverbs",
    "libibumad",
    "librdmacm",
    "openmpi",
    "libopenmpi",
    "lustre-client-",
    "slurm",
    "munge$",
    "libmunge",
)
HELD = (*DRIVERS, *KERNELS, *CONTAINERS, *FABRICS)


def upgrades() -> tuple[Shipped, ...]:
    """Return apt's settings and those of what restarts services after an upgrade."""
    return (
        Shipped("Security upgrades", SETTINGS, rendered("baseline/apt.conf.j2", held=HELD)),
        Shipped("Pins", PINS, text_of("baseline/preferences")),
        Shipped(
            "Restarts after upgrades", "/etc/needrestart/conf.d/bedplate.conf", text_of("baseline/needrestart.conf")
        ),
    )
