"""micromamba, for environments of conda: one static program, taken by its sum from its makers' releases.

A node that cannot reach them, and has none, is left without: the audit says so, and the next apply tries again.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.files import Sha256File
from pyinfra.facts.server import Arch
from pyinfra.operations import server

PATH = "/usr/local/bin/micromamba"
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


class Reachable(FactBase[bool]):
    """Whether the node gets an answer from an address of the web within ten seconds."""

    default = bool

    def command(self, url: str) -> StringCommand:
        """Ask for the head alone."""
        return StringCommand("curl -fsIL --max-time 10 -o /dev/null", QuoteString(url), "&& echo yes || true")

    def process(self, output: Iterable[str]) -> bool:
        """Take any word for an answer."""
        return bool("".join(output).strip())


def install_micromamba() -> None:
    """Declare micromamba for everybody, where it is there already or can be had."""
    build = BUILDS[host.get_fact(Arch)]
    if host.get_fact(Sha256File, path=PATH) == build.digest:
        return
    if host.get_fact(Reachable, url=build.url):
        server.shell(name=f"micromamba {VERSION}", commands=[taken(build)])
    else:
        host.log(f"micromamba is left out: {build.url} is not reached")


def taken(build: Build) -> str:
    """Return the command that fetches the program; only what has the right sum comes under its name."""
    new = f"{PATH}.new"
    fetched = f"curl -fsSL --max-time 300 -o {new} {build.url}"
    checked = f"echo '{build.digest}  {new}' | sha256sum --check --quiet"
    return f"{{ {fetched} && {checked} && chmod 755 {new} && mv -fT {new} {PATH}; }} || {{ rm -f {new}; exit 1; }}"
