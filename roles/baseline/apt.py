"""apt on every node: signed sources, unattended security upgrades, pinned packages, restarts after upgrades.

Parses both formats of source files, see sources.list(5) and deb822(5). A line of blanks separates two stanzas here; apt
reads them as one stanza, in which the last value of a field counts, until the role writes the file with an empty line.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.server import OsRelease

from bedplate.errors import InputError
from roles.base import ManagedFile, file_text, put_files, render

_LINE = re.compile(r"\s*(?P<kind>deb(?:-src)?)\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<rest>[^\s#]+\s+[^\s#].*)")
_FIELD = re.compile(r"(?P<name>[A-Za-z-]+)\s*:")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A source in one-line format; `rest` is the text after the options."""

    kind: str
    options: tuple[str, ...]
    rest: str

    @property
    def address(self) -> tuple[str, str]:
        """The URI, and the suite or an exact path that ends in a slash."""
        uri, suite, *_ = self.rest.partition("#")[0].split()
        return uri, suite


@dataclass(frozen=True, slots=True)
class Stanza:
    """A source in deb822 format: its lines, each with its field name in lower case (empty for a comment)."""

    rows: tuple[tuple[str, str], ...]

    def words(self, field: str) -> tuple[str, ...]:
        """Return the words of a field, which may span lines; of two fields with the same name the last counts."""
        words: tuple[str, ...] = ()
        for line in (line for name, line in self.rows if name == field):
            start = _FIELD.match(line)
            words = tuple(line[start.end() :].split()) if start else (*words, *line.split())
        return words


def read_line(text: str) -> SourceLine | None:
    """Return the source of a line, or None."""
    match = _LINE.fullmatch(text)
    return SourceLine(match["kind"], tuple((match["options"] or "").split()), match["rest"]) if match else None


def read_stanzas(text: str) -> tuple[Stanza, ...]:
    """Return the stanzas of a file, comments included."""
    return tuple(Stanza(tuple(_rows(part.strip("\n")))) for part in re.split(r"\n\s*\n", text))


def _rows(text: str) -> Iterator[tuple[str, str]]:
    name = ""
    for line in text.splitlines():
        if match := _FIELD.match(line):
            name = match["name"].lower()
        yield "" if line.startswith("#") else name, line


_FOLDER = "/etc/apt/sources.list.d"
# Options that accept a source without a valid signature: sources.list(5).
_INSECURE = ("trusted", "allow-insecure", "allow-weak", "allow-downgrade-to-insecure")


# The address of a distribution's archive or of a mirror. Other vendors have such suites too, below longer paths.
_ARCHIVE = re.compile(r"(https?://[^/\s]+/(ubuntu|ubuntu-ports|debian|debian-security)/?|mirror\+file:\S+)")
# The tested releases: id and version.
_SUPPORTED = {("debian", "12"), ("debian", "13"), ("ubuntu", "24.04")}


@dataclass(frozen=True, slots=True)
class Archive:
    """A distribution's archive: its codename and its keyring."""

    codename: str
    keyring: str

    def holds(self, uris: Iterable[str], suites: Iterable[str]) -> bool:
        """Return whether a source is this release: suites such as `noble-security`, at the archive or a mirror."""
        release = re.compile(rf"{re.escape(self.codename)}(-[a-z-]+)?(/\S*)?")
        return all(map(_ARCHIVE.fullmatch, uris)) and all(map(release.fullmatch, suites))


class SourceFiles(FactBase[Mapping[str, str]]):
    """The text of each source file, by path."""

    default = dict

    def command(self) -> str:
        """Print each line with the name of its file."""
        return f"grep -sH '' /etc/apt/sources.list {_FOLDER}/*.list {_FOLDER}/*.sources || true"

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Join the lines of each file."""
        texts: dict[str, str] = {}
        for line in output:
            path, _, text = line.partition(":")
            texts[path] = f"{texts.get(path, '')}{text}\n"
        return texts


def sign_sources() -> None:
    """Declare that each source of the distribution names its keyring, and that none is accepted unsigned."""
    archive = read_archive()
    texts = {path: (text, add_keyrings(text, path, archive)) for path, text in host.get_fact(SourceFiles).items()}
    put_files(
        *(ManagedFile(f"Require signatures in {path}", path, new) for path, (old, new) in texts.items() if new != old)
    )


def read_archive() -> Archive:
    """Return the archive of the node's release. Raises InputError if bedplate does not support it."""
    release = host.get_fact(OsRelease) or {}
    if (release.get("id"), release.get("version_id")) not in _SUPPORTED:
        name = release.get("pretty_name", "the node's distribution")
        raise InputError(f"{name} is not supported", fix="install Ubuntu 24.04, or Debian 12 or 13")
    return Archive(release["version_codename"], f"/usr/share/keyrings/{release['id']}-archive-keyring.gpg")


def add_keyrings(text: str, path: str, archive: Archive) -> str:
    """Return the text of a source file with a keyring for each source of the archive, without insecure options."""
    if path.endswith(".sources"):
        return "\n\n".join(_secure_stanza(stanza, archive) for stanza in read_stanzas(text)) + "\n"
    return "".join(f"{_secure_line(line, archive)}\n" for line in text.splitlines())


def _secure_line(text: str, archive: Archive) -> str:
    line = read_line(text)
    if not line:
        return text
    options = [option for option in line.options if _name(option) not in _INSECURE]
    uri, suite = line.address
    if archive.holds((uri,), (suite,)) and "signed-by" not in map(_name, options):
        options.append(f"signed-by={archive.keyring}")
    written = f"[{' '.join(options)}] " if options else ""
    return f"{line.kind} {written}{line.rest}"


def _name(option: str) -> str:
    return option.partition("=")[0].lower().rstrip("+-")


def _secure_stanza(stanza: Stanza, archive: Archive) -> str:
    lines = [line for name, line in stanza.rows if name not in _INSECURE]
    suites = stanza.words("suites")
    if suites and archive.holds(stanza.words("uris"), suites) and not stanza.words("signed-by"):
        lines.append(f"Signed-By: {archive.keyring}")
    return "\n".join(lines)


SETTINGS = "/etc/apt/apt.conf.d/zz-bedplate"
"""The last file of its folder: the last value of an option counts."""
PINS = "/etc/apt/preferences.d/00-bedplate"
"""The first file of its folder: of two pins for a package the first counts. Source: apt_preferences(5)."""

# Regular expressions, matched at the start of a package name: README of unattended-upgrades.
DRIVERS = (
    "nvidia-",
    "libnvidia-",
    "linux-modules-nvidia-",
    "linux-objects-nvidia-",
    "linux-signatures-nvidia-",
    "cuda-",
    "libcudnn",
    "libnccl",
    "libnvsdm",
    "nvlsm$",
    "gdrcopy",
    "gdrdrv",
    "libgdrapi",
    "datacenter-gpu-manager",
)
KERNELS = (
    "linux-image-",
    "linux-headers-",
    "linux-modules-",
    "linux-aws",
    "linux-azure",
    "linux-gcp",
    "linux-generic",
    "linux-nvidia",
    "linux-oem",
    "linux-virtual",
    "linux-cloud-",
    "linux-tools-",
)
CONTAINERS = (
    "containerd",
    "buildah",
    "docker",
    "etcd",
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
    "aws-ofi-nccl",
    "rdma-core$",
    "ibacm$",
    "ibverbs-",
    "infiniband-diags$",
    "libibmad",
    "libibnetdisc",
    "libibumad",
    "libibverbs",
    "librdmacm",
    "python3-pyverbs$",
    "openmpi",
    "libopenmpi",
    "lustre-client-",
    "slurm",
    "munge$",
    "libmunge",
)
HELD = (*DRIVERS, *KERNELS, *CONTAINERS, *FABRICS)


# Source: README.batch.md of needrestart.
_STALE = "NEEDRESTART-SVC: "
_RUNS = frozenset({"bedplate-node.service", "bedplate-upgrade.service"})


def stale_services(output: str) -> tuple[str, ...]:
    """Return the services that run a replaced program or library, from the output of `needrestart -b -l`.

    Configuration runs do not count: they end by themselves.
    """
    services = (line.removeprefix(_STALE) for line in output.splitlines() if line.startswith(_STALE))
    return tuple(service for service in services if service not in _RUNS)


def upgrade_files() -> tuple[ManagedFile, ...]:
    """Return the configuration of apt, its pins, and needrestart."""
    return (
        ManagedFile("Configure unattended security upgrades", SETTINGS, render("baseline/apt.conf.j2", held=HELD)),
        ManagedFile("Write apt pins", PINS, file_text("baseline/preferences")),
        ManagedFile(
            "Configure restarts after upgrades",
            "/etc/needrestart/conf.d/bedplate.conf",
            file_text("baseline/needrestart.conf"),
        ),
    )
