"""The role `workbench`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.files import Sha256File
from pyinfra.facts.server import Arch, LinuxName
from pyinfra.operations import files, server
from pyinfra.operations.util import any_changed

from bedplate.plan.fleet import Account
from bedplate.plan.nodes import Hardware
from roles.base import Changes, DiskSpace, Role
from roles.files import Edit, Shipped, edited, ship, text_of
from roles.system import install
from roles.system import taken as system_taken
from roles.workbench.scratch import Scratch

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


CUDA = "/usr/local/cuda/bin"
# pam_env reads it for every session, sshd's too, with a shell that logs in or one that does not; a login shell of
# Debian's sets its path anew, and reads profile.d.
ENVIRONMENT = "/etc/environment"
# Where nothing is said: what Ubuntu says there, for it holds for root too.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games:/usr/local/games"
_SAID = re.compile(r"^(?:export\s+)?PATH=([\"']?)(.*?)\1\s*$", re.MULTILINE)


def path_of(text: str) -> str:
    """Return the path that a text like /etc/environment gives, of several the last; empty where it gives none."""
    said = _SAID.findall(text)
    return str(said[-1][1]) if said else ""


def with_program_folder(text: str, folder: str) -> str:
    """Return a text like /etc/environment whose path ends with a folder, beside what it says already."""
    path = path_of(text)
    if folder in path.split(":"):
        return text
    said = f'PATH="{path or _PATH}:{folder}"'
    kept = [line for line in text.splitlines() if not _SAID.match(line)]
    return "\n".join((*kept, said)) + "\n"


EDIT = Edit(ENVIRONMENT, partial(with_program_folder, folder=CUDA))


FOLDER = "/opt/uv"
_WANTED = text_of("workbench/uv.txt")
_LIST = "/opt/uv.txt"


class UvVersion(FactBase[str]):
    """The version of uv in its folder, nothing where there is none."""

    default = str

    def command(self) -> str:
        """Ask uv itself."""
        return f"{FOLDER}/bin/uv --version 2>/dev/null || true"

    def process(self, output: Iterable[str]) -> str:
        """Take the second word of `uv 1.2.3 (...)`."""
        words = " ".join(output).split()
        return words[1] if len(words) > 1 else ""


def version() -> str:
    """Return the version that is wanted."""
    return _WANTED.split()[0].removeprefix("uv==")


def install_uv() -> None:
    """Declare uv and uvx for everybody."""
    ship(Shipped("uv's version and sums", _LIST, _WANTED))
    if host.get_fact(UvVersion) != version():
        server.shell(name=f"uv {version()}", commands=system_taken(FOLDER, _LIST))
    for tool in ("uv", "uvx"):
        files.link(name=f"{tool} for everybody", path=f"/usr/local/bin/{tool}", target=f"{FOLDER}/bin/{tool}")


_SESSIONS = ("tmux", "screen", "htop")
_FILES = ("curl", "jq", "less", "nano", "quota", "rsync", "tree", "unzip", "vim", "zip")
_BUILDING = ("build-essential", "cmake", "git", "git-lfs", "ninja-build", "pkg-config", "python3-dev", "python3-venv")
TOOLS = tuple(sorted((*_SESSIONS, *_FILES, *_BUILDING)))

_SHELL = Shipped("Login shells", "/etc/profile.d/bedplate.sh", text_of("workbench/shell.sh"))
_CUDA = Shipped("CUDA's libraries", "/etc/ld.so.conf.d/60-bedplate-cuda.conf", text_of("workbench/cuda.conf"))


@dataclass(frozen=True, slots=True)
class Workbench(Role):
    """A machine that people log in to and work on; `disks` are those that the plan gives to scratch."""

    people: tuple[Account, ...]
    gpus: Hardware | None
    disks: tuple[str, ...] = ()
    name: ClassVar[str] = "workbench"
    space: ClassVar[DiskSpace] = DiskSpace(programs=860, state=180, temporary=24)

    def install(self) -> None:
        """Install tools: the distribution's, and the two that it lacks or has too old."""
        # Debian has nvtop in `contrib` only, which its images do not enable.
        has_nvtop = self.gpus and host.get_fact(LinuxName) == "Ubuntu"
        install("Tools", (*TOOLS, "nvtop") if has_nvtop else TOOLS)
        install_uv()
        install_micromamba()
        self._scratch.install()

    def configure(self) -> Changes:
        """Write what shells know, and what makes and shares local disks."""
        changes = ship(_SHELL, _CUDA, *self._scratch.shipped)
        edited(EDIT)
        return changes

    def activate(self, changes: Changes) -> None:
        """Let the linker know CUDA's folder, and share local disks; shells read theirs at the next login."""
        server.shell(name="Linker reads its folders", commands=["ldconfig"], _if=any_changed(*changes[1:2]))
        self._scratch.share()

    @property
    def _scratch(self) -> Scratch:
        return Scratch(self.people, self.disks)
