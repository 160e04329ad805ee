"""The role `frameworks`: PyTorch from the Python index, pinned with hashes, in an environment that all users read.

Each lock has a folder of its own, so that running programs keep the files of theirs; `current` links to the newest.
The programs in /usr/local/bin precede the distribution's in every shell, in SSH commands and in cron.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

from pyinfra.context import host
from pyinfra.operations import server

from bedplate.catalog.catalog import load_chips
from bedplate.plan.nodes import NodePlan, NodeRole
from roles.base import Changes, DiskSpace, ManagedFile, Role, file_text, put_files
from roles.system import TextFact
from roles.workbench.role import UV_FOLDER

FOLDER = "/opt/bedplate-frameworks"
CURRENT = f"{FOLDER}/current"
PROGRAMS = ("/usr/local/bin/python", "/usr/local/bin/torchrun")
_CACHE = "/var/cache/bedplate-frameworks"
_LOCK = file_text("frameworks/torch.txt")
_LOCK_FILE = f"{FOLDER}.txt"
DIGEST = sha256(_LOCK.encode()).hexdigest()[:12]


def has_frameworks(node: NodePlan) -> bool:
    """Return whether a machine has PyTorch: a workbench, as the file says, or else with GPUs that PyTorch supports."""
    if NodeRole.WORKBENCH not in node.roles or node.frameworks is not None:
        return NodeRole.WORKBENCH in node.roles and bool(node.frameworks)
    chip = load_chips().get(node.gpus.model) if node.gpus else None
    # PyTorch for CUDA 13 has code for Turing and newer, like the open kernel modules.
    return chip is not None and chip.open


def torch_version() -> str:
    """Return the pinned version of PyTorch."""
    return next(line.split()[0] for line in _LOCK.splitlines() if line.startswith("torch==")).removeprefix("torch==")


class InstalledLock(TextFact):
    """The digest of the lock whose environment is complete and in use; empty for none."""

    def command(self) -> str:
        """Read the file that the installation writes last."""
        return f"cat {CURRENT}/complete 2>/dev/null || true"


@dataclass(frozen=True, slots=True)
class Frameworks(Role):
    """A workbench with PyTorch."""

    name: ClassVar[str] = "frameworks"
    space: ClassVar[DiskSpace] = DiskSpace(programs=8000)

    def install(self) -> None:
        """Install PyTorch with uv of the role `workbench`; an error is reported at the end of the apply."""
        put_files(ManagedFile("Write the requirements of PyTorch", _LOCK_FILE, _LOCK))
        if host.get_fact(InstalledLock) != DIGEST:
            server.shell(
                name=f"Install PyTorch {torch_version()}", commands=[" && ".join(_commands())], _ignore_errors=True
            )

    def configure(self) -> Changes:
        """Write the programs that start the environment's Python."""
        script = file_text("frameworks/python.sh")
        return put_files(*(ManagedFile(f"Write {path}", path, script, "755") for path in PROGRAMS))

    def activate(self, changes: Changes) -> None:
        """Nothing: the next command of a user runs the new environment."""


def _commands() -> Iterable[str]:
    """Yield the commands that make the environment of the lock, and remove those that no process uses.

    uv links files from its cache on the same file system, so environments share unchanged packages.
    """
    target, uv = f"{FOLDER}/{DIGEST}", f"{UV_FOLDER}/bin/uv"
    yield f"umask 022 && export UV_CACHE_DIR={_CACHE} SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"
    yield f"{uv} venv --quiet --clear --no-python-downloads --python /usr/bin/python3 {target}"
    options = "--quiet --require-hashes --only-binary :all: --compile-bytecode"
    yield f"{uv} pip sync {options} --python {target}/bin/python {_LOCK_FILE}"
    yield f"{target}/bin/python -c 'import torch'"
    yield f"echo {DIGEST} > {target}/complete && ln -sfnT {DIGEST} {CURRENT}"
    yield (
        f"for old in {FOLDER}/*/; do case $old in */{DIGEST}/|*/current/) ;; "
        '*) grep -qs "$old" /proc/[0-9]*/maps || rm -rf "$old" ;; esac; done'
    )
