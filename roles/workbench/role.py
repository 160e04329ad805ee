"""The role `workbench`: tools for users, uv, micromamba, the environment of shells, /scratch, and reports of use.

/scratch is temporary space on local disks, with a private folder and half of the disk as quota for each person. The
program bedplate-scratch creates it at each boot, on the disks of the plan or else on EC2's instance store disks. A file
system that is already mounted at /scratch is used. A file system without quotas gets none, which the audit reports.
Errors are reported at the end of an apply, because no other operation needs /scratch.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.files import Sha256File
from pyinfra.facts.server import Arch, LinuxName, Mounts, MountsDict
from pyinfra.operations import files, server

from bedplate.plan.fleet import Account
from bedplate.plan.nodes import Hardware
from roles.base import (
    Changes,
    DiskSpace,
    Edit,
    ManagedFile,
    Role,
    changed,
    command_file,
    edit_files,
    file_text,
    minute_units,
    put_files,
    unit_files,
)
from roles.system import BoolFact, TextFact, install_packages, start_units, venv_commands

# The model of EC2's instance store disks. Source: EC2 user guide, "NVMe instance store volumes".
_LOCAL = "Amazon EC2 NVMe Instance Storage"
# The kernel module for ext4 quotas.
_QUOTA_MODULE = "quota_v2"
# repquota's columns: user, two marks, blocks used, soft limit, hard limit.
_HARD = 5


class LocalDisks(BoolFact):
    """Whether an EC2 machine has instance store disks."""

    def command(self) -> str:
        """Read the model of each disk; a container sees the disks of its host, but has no device files."""
        is_local = f'[ -b "/dev/${{at##*/}}" ] && grep -qsF "{_LOCAL}" "$at/device/model"'
        return f'for at in /sys/block/nvme*; do ! {{ {is_local}; }} || echo "$at"; done'


class KernelWithoutQuotas(TextFact):
    """The release of an Ubuntu kernel without quota support; empty for any other kernel."""

    def command(self) -> str:
        """Check whether the module can be loaded."""
        return (
            f"grep -qsx ID=ubuntu /etc/os-release && ! modprobe --dry-run --quiet {_QUOTA_MODULE} && uname -r || true"
        )


class Folders(FactBase[Mapping[str, str]]):
    """Owner, group and mode of each folder in a folder, by name."""

    default = dict

    def command(self, path: str) -> StringCommand:
        """List the folders."""
        return StringCommand(
            "find", QuoteString(path), "-mindepth 1 -maxdepth 1 -type d -printf '%f %u:%g %m\\n' 2>/dev/null || true"
        )

    def process(self, output: Iterable[str]) -> Mapping[str, str]:
        """Split names from owners and modes."""
        return {name: state for name, _, state in (line.partition(" ") for line in output)}


class Quotas(FactBase[Mapping[str, int]]):
    """The hard limit of each user id in KiB; the size of the file system under the empty name."""

    default = dict

    def command(self, path: str) -> StringCommand:
        """Print the size, then each user's hard limit."""
        size = StringCommand("echo ,,,,,$(df --output=size -k", QuoteString(path), "| tail -n 1)")
        return StringCommand(
            size, "; repquota --user --output=csv --no-names", QuoteString(path), "| tail -n +2 || true"
        )

    def process(self, output: Iterable[str]) -> Mapping[str, int]:
        """Return the columns of the id and of the hard limit."""
        rows = (line.split(",") for line in output if line.count(",") >= _HARD)
        return {row[0].lstrip("#"): int(row[_HARD]) for row in rows}


SCRATCH = "/scratch"
TABLE = "/etc/bedplate/scratch"
SCRIPT = "/usr/local/sbin/bedplate-scratch"
LABEL = "scratch"
"""The label of a file system that the node created for /scratch."""
UNIT = "bedplate-scratch.service"
# Mount options of ext4 and xfs for user quotas. Source: mount(8), xfs(5).
_QUOTA_OPTIONS = {"usrquota", "uquota", "quota", "usrjquota"}


@dataclass(frozen=True, slots=True)
class Scratch:
    """The people with a folder in /scratch, and the disks of the plan."""

    people: Sequence[Account]
    disks: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[ManagedFile, ...]:
        """The table of disks and people, the program and its unit."""
        rows = (
            *(f"disk {disk}\n" for disk in self.disks),
            *(f"person {person.name} {person.uid}\n" for person in self.people),
        )
        return (
            ManagedFile("Write the table of /scratch", TABLE, "".join(rows)),
            command_file(SCRIPT, "workbench/bedplate-scratch"),
            *unit_files("workbench", UNIT),
        )

    def share(self) -> None:
        """Create what is missing, now and at each boot."""
        has_disks = bool(self.disks or host.get_fact(LocalDisks))
        # Ubuntu's cloud kernels have rarely used modules in a separate package. Not in `install`, which runs on another
        # machine's kernel if it builds an image.
        if has_disks and (kernel := host.get_fact(KernelWithoutQuotas)):
            install_packages(
                f"Install quota modules of kernel {kernel}", (f"linux-modules-extra-{kernel}",), ends_apply=False
            )
        mounts = host.get_fact(Mounts)
        if SCRATCH not in mounts and has_disks:
            server.shell(name=f"Mount {SCRATCH}", commands=[SCRIPT], _ignore_errors=True)
        elif names := self._incomplete(mounts):
            server.shell(name=f"Create {SCRATCH} folders of {', '.join(names)}", commands=[SCRIPT], _ignore_errors=True)
        start_units({f"Start {UNIT}": UNIT}, ends_apply=False)

    def _incomplete(self, mounts: dict[str, MountsDict]) -> Collection[str]:
        """Return the names of people whose folder or quota is missing or wrong."""
        folders = host.get_fact(Folders, path=SCRATCH)
        names = [
            person.name for person in self.people if folders.get(person.name) != f"{person.name}:{person.name} 700"
        ]
        if keeps_quotas(mounts):
            limits = host.get_fact(Quotas, path=SCRATCH)
            half = limits.get("", 0) // 2
            names += [person.name for person in self.people if limits.get(str(person.uid)) != half]
        else:
            host.log(f"{SCRATCH} has no quotas: its file system does not support them")
        return list(dict.fromkeys(names))


def keeps_quotas(mounts: dict[str, MountsDict]) -> bool:
    """Return whether the file system at /scratch has user quotas."""
    options = mounts[SCRATCH]["options"] if SCRATCH in mounts else []
    return not _QUOTA_OPTIONS.isdisjoint(option.partition("=")[0] for option in options)


MICROMAMBA = "/usr/local/bin/micromamba"
MICROMAMBA_NOTE = "/var/lib/bedplate/micromamba.unreached"
MICROMAMBA_VERSION = "2.9.0-0"
_RELEASES = "https://github.com/mamba-org/micromamba-releases/releases/download"


@dataclass(frozen=True, slots=True)
class Build:
    """The micromamba program for one architecture."""

    asset: str
    digest: str

    @property
    def url(self) -> str:
        """The download URL."""
        return f"{_RELEASES}/{MICROMAMBA_VERSION}/{self.asset}"


# By `uname -m`. The checksums were not compared with the releases, which could not be downloaded.
BUILDS = {
    "x86_64": Build("micromamba-linux-64", "366cd9cd8be14df1ab8ed50352a82111082a36686b2d389fdb79a92c3fafb3e3"),
    "aarch64": Build("micromamba-linux-aarch64", "9f93b974adcb4d166996af969b6cd371287d1a3e52733704727884d9b74cb7a7"),
}


class Unreached(TextFact):
    """The URL that could not be reached within the last day, empty if there is none."""

    def command(self) -> str:
        """Read the note if it is less than a day old."""
        return f"find {MICROMAMBA_NOTE} -mmin -1440 -exec cat {{}} + 2>/dev/null || true"


def install_micromamba() -> None:
    """Declare micromamba for all users. The download takes place during the apply."""
    build = BUILDS[host.get_fact(Arch)]
    if host.get_fact(Sha256File, path=MICROMAMBA) == build.digest:
        return
    if host.get_fact(Unreached) == build.url:
        host.log(f"micromamba skipped: cannot reach {build.url}, retried after a day")
    else:
        server.shell(name=f"Install micromamba {MICROMAMBA_VERSION}", commands=[download_command(build)])


def download_command(build: Build) -> str:
    """Return the command that downloads micromamba and checks its checksum.

    An unreachable server is noted and is no error; a wrong checksum is an error.
    """
    new = f"{MICROMAMBA}.new"
    download = f"curl -fsSL --connect-timeout 10 --max-time 300 -o {new} {build.url}"
    check = f"echo '{build.digest}  {new}' | sha256sum --check --quiet"
    place = f"chmod 755 {new} && mv -fT {new} {MICROMAMBA} && rm -f {MICROMAMBA_NOTE}"
    install = f"{{ {check} && {place}; }} || {{ rm -f {new}; exit 1; }}"
    note = f"rm -f {new}; install -D -m 644 /dev/null {MICROMAMBA_NOTE} && echo {build.url} > {MICROMAMBA_NOTE}"
    return f"if {download}; then {install}; else {note}; fi"


CUDA = "/usr/local/cuda/bin"
# pam_env reads it for every session; Debian's login shells overwrite PATH and read profile.d.
ENVIRONMENT = "/etc/environment"
# If the file sets no PATH: Ubuntu's value, which also applies to root.
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games:/usr/local/games"
_PATH_LINE = re.compile(r"^(?:export\s+)?PATH=([\"']?)(.*?)\1\s*$", re.MULTILINE)


def path_of(text: str) -> str:
    """Return the last PATH in a text like /etc/environment, or an empty string."""
    paths = _PATH_LINE.findall(text)
    return str(paths[-1][1]) if paths else ""


def with_program_folder(text: str, folder: str) -> str:
    """Return a text like /etc/environment with a folder appended to its PATH."""
    path = path_of(text)
    if folder in path.split(":"):
        return text
    new_line = f'PATH="{path or _DEFAULT_PATH}:{folder}"'
    kept = [line for line in text.splitlines() if not _PATH_LINE.match(line)]
    return "\n".join((*kept, new_line)) + "\n"


EDIT = Edit(ENVIRONMENT, partial(with_program_folder, folder=CUDA))


UV_FOLDER = "/opt/uv"
_REQUIREMENTS = file_text("workbench/uv.txt")
_UV_REQUIREMENTS_FILE = "/opt/uv.txt"


class UvVersion(TextFact):
    """The installed version of uv, empty if it is not installed."""

    def command(self) -> str:
        """Print the second word of `uv 1.2.3 (...)`."""
        return f"{UV_FOLDER}/bin/uv --version 2>/dev/null | cut -d' ' -f2"


def uv_version() -> str:
    """Return the pinned version of uv."""
    return _REQUIREMENTS.split()[0].removeprefix("uv==")


def install_uv() -> None:
    """Declare uv and uvx for all users."""
    put_files(ManagedFile("Write the requirements of uv", _UV_REQUIREMENTS_FILE, _REQUIREMENTS))
    if host.get_fact(UvVersion) != uv_version():
        server.shell(name=f"Install uv {uv_version()}", commands=venv_commands(UV_FOLDER, _UV_REQUIREMENTS_FILE))
    for tool in ("uv", "uvx"):
        files.link(
            name=f"Link {tool} to /usr/local/bin", path=f"/usr/local/bin/{tool}", target=f"{UV_FOLDER}/bin/{tool}"
        )


_SESSIONS = ("tmux", "screen", "htop")
_FILES = ("curl", "jq", "less", "mdadm", "nano", "quota", "rsync", "tree", "unzip", "vim", "zip")
_BUILDING = ("build-essential", "cmake", "git", "git-lfs", "ninja-build", "pkg-config", "python3-dev", "python3-venv")
TOOLS = tuple(sorted((*_SESSIONS, *_FILES, *_BUILDING)))

_SHELL = ManagedFile(
    "Set the environment of login shells", "/etc/profile.d/bedplate.sh", file_text("workbench/shell.sh")
)
_CUDA = ManagedFile(
    "Write the linker path of CUDA", "/etc/ld.so.conf.d/60-bedplate-cuda.conf", file_text("workbench/cuda.conf")
)

IDLE_TIMER = "bedplate-idle.timer"
IDLE_UNITS = minute_units(
    "bedplate-idle", "bedplate.machine.idle", "see whether somebody uses this machine, and end it as planned"
)


@dataclass(frozen=True, slots=True)
class Workbench(Role):
    """A machine on which people work; `disks` are the disks of the plan for /scratch.

    A machine of a group `reports_use`: it writes to its bucket whether somebody uses it.
    """

    people: tuple[Account, ...]
    gpus: Hardware | None
    disks: tuple[str, ...] = ()
    reports_use: bool = False
    name: ClassVar[str] = "workbench"
    space: ClassVar[DiskSpace] = DiskSpace(programs=860, state=180, temporary=24)

    def install(self) -> None:
        """Install tools: packages of the distribution, uv and micromamba."""
        # On Debian, nvtop is in `contrib`, which its images do not enable.
        has_nvtop = self.gpus and host.get_fact(LinuxName) == "Ubuntu"
        install_packages("Install tools", (*TOOLS, "nvtop") if has_nvtop else TOOLS)
        install_uv()
        install_micromamba()

    def configure(self) -> Changes:
        """Write the environment of shells, the files of /scratch, and the units that report the use of the machine."""
        changes = put_files(_SHELL, _CUDA, *self._scratch.files, *(IDLE_UNITS if self.reports_use else ()))
        edit_files(EDIT)
        return changes

    def activate(self, changes: Changes) -> None:
        """Update the linker cache, create /scratch, start the timer. Shells read the environment at login."""
        server.shell(name="Update the linker cache", commands=["ldconfig"], _if=changed(changes, _CUDA.path))
        self._scratch.share()
        if self.reports_use:
            start_units({"Start the timer of the reports of use": IDLE_TIMER})

    @property
    def _scratch(self) -> Scratch:
        return Scratch(self.people, self.disks)
