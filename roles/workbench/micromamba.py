"""micromamba, for environments of conda: one static program, taken by its sum from its makers' releases.

A node that cannot reach them is left without: it notes so, the audit says so, and an apply a day later tries again.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.files import Sha256File
from pyinfra.facts.server import Arch
from pyinfra.operations import server

PATH = "/usr/local/bin/micromamba"
NOTE = "/var/lib/bedplate/micromamba.unreached"
VERSION = "2.9.0-0"
_RELEASES = "https://github.com/mamba-org/micromamba-releases/releases/download"


@dataclass(frozen=True, slots=True)
class Build:
    """The program for one architecture."""

    asset: str
    digest: str

    @property
    def url(self) -> str:
        """Where its makers keep it."""
        return f"{_RELEASES}/{VERSION}/{self.asset}"


# By what `uname -m` says. Read on 2026-11-21 in two projects that pin the same sums; the releases themselves were not
# reached from where this was written.
BUILDS = {
    "x86_64": Build("micromamba-linux-64", "366cd9cd8be14df1ab8ed50352a82111082a36686b2d389fdb79a92c3fafb3e3"),
    "aarch64": Build("micromamba-linux-aarch64", "9f93b974adcb4d166996af969b6cd371287d1a3e52733704727884d9b74cb7a7"),
}


class Unreached(FactBase[str]):
    """The address that the node did not reach within the last day, nothing where it tried none."""

    default = str

    def command(self) -> str:
        """Read the note, unless it is a day old."""
        return f"find {NOTE} -mmin -1440 -exec cat {{}} + 2>/dev/null || true"

    def process(self, output: Iterable[str]) -> str:
        """Take the one line."""
        return "".join(output).strip()


def install_micromamba() -> None:
    """Declare micromamba for everybody; nothing outside the node is asked before the work."""
    build = BUILDS[host.get_fact(Arch)]
    if host.get_fact(Sha256File, path=PATH) == build.digest:
        return
    if host.get_fact(Unreached) == build.url:
        host.log(f"micromamba is left out: {build.url} was not reached, and is tried again a day later")
    else:
        server.shell(name=f"micromamba {VERSION}", commands=[taken(build)])


def taken(build: Build) -> str:
    """Return the command that fetches the program; only what has the right sum comes under its name.

    Where the releases are not reached it notes so and ends well; another sum is an error.
    """
    new = f"{PATH}.new"
    fetched = f"curl -fsSL --connect-timeout 10 --max-time 300 -o {new} {build.url}"
    checked = f"echo '{build.digest}  {new}' | sha256sum --check --quiet"
    placed = f"{{ {checked} && chmod 755 {new} && mv -fT {new} {PATH} && rm -f {NOTE}; }} || {{ rm -f {new}; exit 1; }}"
    noted = f"rm -f {new}; install -D -m 644 /dev/null {NOTE} && echo {build.url} > {NOTE}"
    return f"if {fetched}; then {placed}; else {noted}; fi"
