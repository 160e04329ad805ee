"""The role `workbench`."""

from dataclasses import dataclass
from typing import ClassVar

from pyinfra.context import host
from pyinfra.facts.server import LinuxName
from pyinfra.operations import server
from pyinfra.operations.util import any_changed

from bedplate.plan.accounts import Account
from bedplate.plan.node import Hardware
from roles.base import Changes, DiskSpace, Role
from roles.packages import install
from roles.shipped import Shipped, ship
from roles.template import text_of
from roles.texts import edited
from roles.workbench import paths
from roles.workbench.micromamba import install_micromamba
from roles.workbench.scratch import Scratch
from roles.workbench.uv import install_uv

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
        edited(paths.EDIT)
        return changes

    def activate(self, changes: Changes) -> None:
        """Let the linker know CUDA's folder, and share local disks; shells read theirs at the next login."""
        server.shell(name="Linker reads its folders", commands=["ldconfig"], _if=any_changed(*changes[1:2]))
        self._scratch.share()

    @property
    def _scratch(self) -> Scratch:
        return Scratch(self.people, self.disks)
