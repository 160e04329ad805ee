"""Operations and facts that several roles share: packages, apt repositories, systemd units, sysctls, environments.

An additional repository has its signing key and a list of pinned packages, for roles whose packages the distribution
lacks, such as `nvidia`. apt installs only the pinned packages from it, even if it has newer versions of others.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from shlex import quote
from urllib.parse import urlsplit

from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import OperationMeta, operation
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.operations import apt, server

from roles.base import Changes, ManagedFile, changed, put_files


class BoolFact(FactBase[bool]):
    """Whether a command prints a line that is not blank."""

    default = bool

    def process(self, output: Iterable[str]) -> bool:
        """Treat any such line as a yes."""
        return any(map(str.strip, output))


class TextFact(FactBase[str]):
    """The line that a command prints; empty for none."""

    default = str

    def process(self, output: Iterable[str]) -> str:
        """Return the line without blanks around it."""
        return "".join(output).strip()


class LinesFact(FactBase[tuple[str, ...]]):
    """The lines that a command prints, without blank ones."""

    default = tuple

    def process(self, output: Iterable[str]) -> tuple[str, ...]:
        """Return the lines."""
        return tuple(filter(str.strip, output))


_NEVER, _PREFERRED = -1, 990


@dataclass(frozen=True, slots=True)
class Pin:
    """Packages (apt patterns) and the version to install: `1.33.*`."""

    packages: tuple[str, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Repository:
    """An apt repository; `key` is its ASCII-armoured public key, `key_sum` the SHA-256 of that text.

    Raises ValueError if the key has another checksum.
    """

    name: str
    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    key: str
    key_sum: str
    pins: tuple[Pin, ...]

    def __post_init__(self) -> None:
        digest = sha256(self.key.encode()).hexdigest()
        if digest != self.key_sum:
            raise ValueError(f"{self.name}: the key has the SHA-256 {digest}, not {self.key_sum}")

    @property
    def files(self) -> tuple[ManagedFile, ManagedFile, ManagedFile]:
        """The key, the source and the pins."""
        keyring = f"/etc/apt/keyrings/{self.name}.asc"
        return (
            ManagedFile(f"Write the key of repository {self.name}", keyring, self.key),
            ManagedFile(
                f"Write the source of repository {self.name}",
                f"/etc/apt/sources.list.d/{self.name}.sources",
                self._source(keyring),
            ),
            ManagedFile(
                f"Write the pins of repository {self.name}", f"/etc/apt/preferences.d/{self.name}", self._preferences()
            ),
        )

    def _source(self, keyring: str) -> str:
        fields = {"Types": "deb", "URIs": self.uri, "Suites": " ".join(self.suites)}
        fields |= {"Components": " ".join(self.components)} if self.components else {}
        return "".join(f"{name}: {value}\n" for name, value in (*fields.items(), ("Signed-By", keyring)))

    def _preferences(self) -> str:
        """Return the pins: apt installs only the named versions from this repository."""
        # A pin by name precedes one by `*`; its priority applies to every origin of that version.
        pins = "".join(_stanza(" ".join(pin.packages), f"version {pin.version}", _PREFERRED) for pin in self.pins)
        return pins + _stanza("*", f'origin "{urlsplit(self.uri).hostname or ""}"', _NEVER)


def add(repositories: Sequence[Repository]) -> Changes:
    """Declare repositories; apt lists are updated after a change."""
    changes = put_files(*(file for repository in repositories for file in repository.files))
    apt.update(name="Update the apt lists of other repositories", _if=changed(changes))
    return changes


def _stanza(packages: str, pin: str, priority: int) -> str:
    return f"Package: {packages}\nPin: {pin}\nPin-Priority: {priority}\n\n"


_LISTS_SECONDS = 3600
SYSTEMD_SYSCTL = "/usr/lib/systemd/systemd-sysctl"


def create_daemon_account(name: str, user: str, uid: int | None = None) -> None:
    """Declare the account of a daemon, without a home and a shell; with an id if the packet filter names it."""
    nowhere, shell = "/nonexistent", "/usr/sbin/nologin"
    server.user(name=name, user=user, uid=uid, system=True, home=nowhere, ensure_home=False, shell=shell)


def install_packages(name: str, packages: Sequence[str], *, ends_apply: bool = True) -> OperationMeta:
    """Declare that packages are installed, without recommended ones; apt lists are updated only if one is missing.

    With `ends_apply=False` an error is reported at the end of the apply, for packages that no other operation needs.
    """
    missing = set(packages) - set(host.get_fact(DebPackages))
    return apt.packages(
        name=name,
        packages=list(packages),
        update=bool(missing),
        cache_time=_LISTS_SECONDS,
        no_recommends=True,
        _ignore_errors=not ends_apply,
    )


class HeldPackages(LinesFact):
    """The packages that `apt-mark hold` keeps."""

    def command(self) -> str:
        """Ask apt."""
        return "apt-mark showhold"


def hold_packages(name: str, packages: Sequence[str]) -> None:
    """Declare that apt keeps packages at their version."""
    if not {*packages} <= {*host.get_fact(HeldPackages)}:
        server.shell(name=name, commands=[f"apt-mark hold {' '.join(packages)}"])


class Joined(BoolFact):
    """Whether the machine is a node of a cluster: kubelet has its credentials."""

    def command(self) -> str:
        """Look for the file."""
        return "test ! -e /etc/kubernetes/kubelet.conf || echo joined"


def move_packages(packages: Sequence[str], version: str) -> None:
    """Declare that held packages have a version, a pattern of apt: an image may have another one.

    On a node of a cluster they stay: `bedplate kube upgrade` moves them, one machine after the other.
    """
    installed = host.get_fact(DebPackages)
    others = [
        name for name in packages if not any(fnmatchcase(text, version) for text in installed.get(name, (version,)))
    ]
    if not others:
        return
    if host.get_fact(Joined):
        host.log(f"{', '.join(others)}: not {version} until `bedplate kube upgrade`")
    else:
        words = " ".join(f"'{name}={version}'" for name in others)
        options = "--yes --no-install-recommends --allow-change-held-packages --allow-downgrades"
        command = f"apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq {options} install {words}"
        server.shell(name=f"Replace the version of {', '.join(others)}", commands=[command])


def purge_packages(name: str, packages: Sequence[str]) -> OperationMeta:
    """Declare that packages and their configuration files are removed."""
    return apt.packages(name=name, packages=list(packages), present=False, purge=True)


_ACTIVE, _ENABLED = "active", "enabled"
_LINKS = "/etc/systemd/system"


class UnitStates(FactBase[Mapping[str, frozenset[str]]]):
    """The states of each unit (`active`, `enabled`), by unit."""

    default = dict

    def command(self, units: Sequence[str]) -> StringCommand:
        """Ask systemd which units are active; read from disk which are enabled, for systemd may have stale data."""
        self._units = tuple(units)
        quoted = [QuoteString(unit) for unit in units]
        links = [StringCommand("*.wants/", unit, _separator="") for unit in quoted]
        return StringCommand("systemctl is-active", *quoted, f"; cd {_LINKS} && ls -d", *links, "2>/dev/null || true")

    def process(self, output: Iterable[str]) -> Mapping[str, frozenset[str]]:
        """Parse one state a unit, in order, then the links of enabled units."""
        lines = list(output)
        count = len(self._units)
        links = {line.rpartition("/")[2] for line in lines[count:]}
        states = zip(self._units, lines[:count], strict=True)
        return {unit: frozenset((state, _ENABLED) if unit in links else (state,)) for unit, state in states}


def start_units(units: Mapping[str, str], *, ends_apply: bool = True, runs: bool = True) -> None:
    """Declare that units are enabled and, unless `runs` is false, running; `units` has them by operation name.

    With `ends_apply=False` an error is reported at the end of the apply, for units that no other operation needs.
    """
    for name, unit in units.items():
        _start_unit(name=name, unit=unit, units=tuple(units.values()), runs=runs, _ignore_errors=not ends_apply)


@operation()
def _start_unit(unit: str, units: Sequence[str], *, runs: bool) -> Generator[PyinfraCommand, None, None]:
    states = host.get_fact(UnitStates, units=units).get(unit, frozenset())
    if _ENABLED not in states:
        # No daemon-reload: `start` does not need the links, and the next boot reads them. With `--no-reload` instead of
        # `--root` systemd 253 and later would report NeedDaemonReload for all units.
        yield StringCommand("systemctl --root=/ --quiet enable", QuoteString(unit))
    if runs and _ACTIVE not in states:
        yield StringCommand("systemctl start", QuoteString(unit))
    if {_ENABLED, _ACTIVE if runs else _ENABLED} <= states:
        host.noop(f"{unit} is enabled, and runs if it must")


# Source: systemd.unit(5), the load path. /usr/lib belongs to packages, and no package has drop-ins for our units.
_FOLDERS = ("/etc/systemd/system.control", "/run/systemd/system.control", "/etc/systemd/system", "/run/systemd/system")
_DAEMON_RELOAD = "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi"


class DropIns(LinesFact):
    """The existing drop-in folders of these units."""

    def command(self, units: Sequence[str]) -> StringCommand:
        """List the folders that systemd reads; missing ones are skipped."""
        paths = (f"{folder}/{unit}.d" for unit in units for folder in _FOLDERS)
        return StringCommand("ls -d", *(QuoteString(path) for path in paths), "2>/dev/null || :")


def remove_drop_ins(name: str, units: Sequence[str]) -> None:
    """Declare that these units have no drop-ins, which would override the unit files."""
    if units and (folders := host.get_fact(DropIns, units=tuple(units))):
        remove = " ".join(("rm -rf", *map(quote, folders)))
        server.shell(name=name, commands=[remove, _DAEMON_RELOAD])


class Settable(FactBase[Mapping[str, str]]):
    """The values of the writable sysctls, by key."""

    default = dict

    def command(self, keys: Sequence[str]) -> StringCommand:
        """Read all writable sysctls with one awk."""
        paths = (f"/proc/sys/{key.replace('.', '/')}" for key in keys)
        quoted = [path if "*" in path else QuoteString(path) for path in paths]
        select = 'do [ ! -w "$p" ] || set -- "$@" "$p"; done'
        show = 'FNR == 1 { n = substr(FILENAME, 11); gsub("/", ".", n); print n "=" $0 }'
        return StringCommand("set --; for p in", *quoted, f"; {select}; [ $# = 0 ] || awk '{show}' \"$@\"")

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Split keys from values, in which the kernel separates numbers by tabs."""
        pairs = (line.partition("=") for line in output)
        return {key: " ".join(value.split()) for key, _, value in pairs}


def differing_sysctls(actual: Mapping[str, str], desired: Mapping[str, str]) -> Mapping[str, str]:
    """Return the sysctls whose actual value differs from the desired one; an exact key precedes a `*` pattern."""
    return {key: value for key, value in actual.items() if _desired_value(key, desired) not in (None, value)}


def apply_sysctls(name: str, file: str, desired: Mapping[str, str]) -> None:
    """Declare that the running kernel has the values that a sysctl.d file sets at boot."""
    if differing_sysctls(host.get_fact(Settable, keys=tuple(desired)), desired):
        server.shell(name=name, commands=[f"{SYSTEMD_SYSCTL} {file}"])


def _desired_value(key: str, desired: Mapping[str, str]) -> str | None:
    return desired.get(key) or next((value for name, value in desired.items() if fnmatchcase(key, name)), None)


class Container(BoolFact):
    """Whether the node is a container."""

    def command(self) -> str:
        """Ask systemd, which prints `none` on a real or virtual machine."""
        return "systemd-detect-virt --container | grep -vx none || true"


PACKAGES = ("ca-certificates", "python3-venv")
# The wheel of python3-venv. ensurepip would copy and compile it into each environment, which takes 5 s; pip also runs
# from the wheel. Source: /usr/lib/python3.11/ensurepip of Debian 12, 3.12 of Ubuntu 24.04.
_PIP = "/usr/share/python-wheels/pip-*.whl"
# The node's own CA certificates: a company's mirror or proxy may have a private CA.
_TRUST = "PIP_CERT=/etc/ssl/certs/ca-certificates.crt"


def venv_commands(folder: str, requirements: str) -> list[str]:
    """Return the commands that recreate a virtual environment from a requirements file with hashes."""
    pip = f"set -- {_PIP} && PYTHONPATH=$1 {_TRUST} {folder}/bin/python -m pip --quiet --no-cache-dir"
    options = "--disable-pip-version-check --require-hashes --only-binary :all: --no-deps"
    return [
        f"python3 -m venv --clear --without-pip {folder}",
        f"{pip} install {options} --requirement {requirements}",
    ]
