"""Packages of a role, in one call of apt: lists are fetched only when something is missing, and nothing else goes."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.operation import OperationMeta, operation
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.operations import apt, server

LISTS_SECONDS = 3600


def install(name: str, packages: Sequence[str], *, ends_apply: bool = True) -> OperationMeta:
    """Declare that packages are installed, without those that they merely recommend.

    A failure ends the apply, or is told at its end where nothing else waits for it.
    """
    missing = set(packages) - set(host.get_fact(DebPackages))
    return apt.packages(
        name=name,
        packages=list(packages),
        update=bool(missing),
        cache_time=LISTS_SECONDS,
        no_recommends=True,
        _ignore_errors=not ends_apply,
    )


def purge(name: str, packages: Sequence[str]) -> OperationMeta:
    """Declare that packages are not installed, with their settings gone."""
    return apt.packages(name=name, packages=list(packages), present=False, purge=True)


_ACTIVE, _ENABLED = "active", "enabled"
_LINKS = "/etc/systemd/system"


class States(FactBase[Mapping[str, frozenset[str]]]):
    """What each unit is, of active and enabled, by the name that it was asked by."""

    default = dict

    def command(self, units: Sequence[str]) -> StringCommand:
        """Ask systemd what is active, and the disk what is enabled, of which systemd may remember what it was."""
        self._units = tuple(units)
        quoted = [QuoteString(unit) for unit in units]
        links = [StringCommand("*.wants/", unit, _separator="") for unit in quoted]
        return StringCommand("systemctl is-active", *quoted, f"; cd {_LINKS} && ls -d", *links, "2>/dev/null || true")

    def process(self, output: Iterable[str]) -> Mapping[str, frozenset[str]]:
        """Read a word for each unit, in their order, then the links that start units at boot."""
        lines = list(output)
        count = len(self._units)
        links = {line.rpartition("/")[2] for line in lines[count:]}
        words = zip(self._units, lines[:count], strict=True)
        return {unit: frozenset((word, _ENABLED) if unit in links else (word,)) for unit, word in words}


def keep_running(wanted: Mapping[str, str], *, ends_apply: bool = True) -> list[OperationMeta]:
    """Declare that units run, now and after a boot; by the name of the operation.

    One that does not start ends the apply, or is told at its end where nothing else waits for it.
    """
    among = tuple(wanted.values())
    return [_run(name=name, unit=unit, among=among, _ignore_errors=not ends_apply) for name, unit in wanted.items()]


@operation()
def _run(unit: str, among: Sequence[str]) -> Generator[PyinfraCommand, None, None]:
    states = host.get_fact(States, units=among).get(unit, frozenset())
    if _ENABLED not in states:
        # What is started now is started by hand; who wants it at boot is read at boot.
        yield StringCommand("systemctl --no-reload --quiet enable", QuoteString(unit))
    if _ACTIVE not in states:
        yield StringCommand("systemctl start", QuoteString(unit))
    if {_ENABLED, _ACTIVE} <= states:
        host.noop(f"{unit} runs, and starts at boot")


class Settable(FactBase[Mapping[str, str]]):
    """The values of those settings that may be set here."""

    default = dict

    def command(self, keys: Sequence[str]) -> StringCommand:
        """Read each setting that can be written, all in one program."""
        paths = (f"/proc/sys/{key.replace('.', '/')}" for key in keys)
        quoted = [path if "*" in path else QuoteString(path) for path in paths]
        own = 'do [ ! -w "$p" ] || set -- "$@" "$p"; done'
        told = 'FNR == 1 { n = substr(FILENAME, 11); gsub("/", ".", n); print n "=" $0 }'
        return StringCommand("set --; for p in", *quoted, f"; {own}; [ $# = 0 ] || awk '{told}' \"$@\"")

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Part names from values, which the kernel sets apart by tabs."""
        pairs = (line.partition("=") for line in output)
        return {key: " ".join(value.split()) for key, _, value in pairs}


def otherwise(found: Mapping[str, str], wanted: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings whose value is not the wanted one; a key by its name goes before one by `*`."""
    return {key: value for key, value in found.items() if _wanted(key, wanted) not in (None, value)}


def hold(name: str, file: str, wanted: Mapping[str, str]) -> None:
    """Declare that the running kernel has these values, which a file of sysctl.d gives it at boot."""
    if otherwise(host.get_fact(Settable, keys=tuple(wanted)), wanted):
        server.shell(name=name, commands=[f"/usr/lib/systemd/systemd-sysctl {file}"])


def _wanted(key: str, wanted: Mapping[str, str]) -> str | None:
    return wanted.get(key) or next((value for each, value in wanted.items() if fnmatchcase(key, each)), None)


class Container(FactBase[bool]):
    """Whether systemd sees a container around itself."""

    default = bool

    def command(self) -> str:
        """Ask systemd, which says `none` on a machine of its own."""
        return "systemd-detect-virt --container || true"

    def process(self, output: Iterable[str]) -> bool:
        """Take every other word for a container."""
        return "".join(output).strip() not in {"", "none"}


PACKAGES = ("ca-certificates", "python3-venv")
# What python3-venv brings for ensurepip, which copies it into each new folder and compiles it: five seconds for a
# program that is used once. It runs as it is. Source: /usr/lib/python3.11/ensurepip of Debian 12, 3.12 of Ubuntu 24.04.
_PIP = "/usr/share/python-wheels/pip-*.whl"
# The machine's own authorities: a company's mirror or proxy signs with its own.
_TRUST = "PIP_CERT=/etc/ssl/certs/ca-certificates.crt"


def taken(folder: str, wanted: str) -> list[str]:
    """Return the commands that make a folder anew with what a file lists by its sums."""
    pip = f"set -- {_PIP} && PYTHONPATH=$1 {_TRUST} {folder}/bin/python -m pip --quiet --no-cache-dir"
    how = "--disable-pip-version-check --require-hashes --only-binary :all: --no-deps"
    return [
        f"python3 -m venv --clear --without-pip {folder}",
        f"{pip} install {how} --requirement {wanted}",
    ]
