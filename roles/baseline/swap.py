"""No swap: a node that runs out of memory fails the job that took it, at once, and kubelet does not start with swap."""

from collections.abc import Iterable

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.facts.files import FindInFile
from pyinfra.operations import files, server

from roles.base import Changes
from roles.container import Container

_FSTAB = "/etc/fstab"
_SWAP = r"^\([^#[:space:]]\+[[:space:]]\+[^[:space:]]\+[[:space:]]\+swap[[:space:]].*\)$"


class Swaps(FactBase[tuple[str, ...]]):
    """What the kernel swaps to now."""

    default = tuple

    def command(self) -> str:
        """Read the kernel's table, without its heading."""
        return "tail -n +2 /proc/swaps"

    def process(self, output: Iterable[str]) -> tuple[str, ...]:
        """Keep the names."""
        return tuple(line.split()[0] for line in output if line.strip())


def without_swap_at_boot() -> Changes:
    """Declare that no boot turns swap on."""
    masked = files.link(name="No swap at boot", path="/etc/systemd/system/swap.target", target="/dev/null")
    if not host.get_fact(FindInFile, path=_FSTAB, pattern=_SWAP):
        return [masked]
    return [masked, files.replace(name="No swap in fstab", path=_FSTAB, text=_SWAP, replace=r"# \1")]


def swap_off() -> None:
    """Declare that nothing is swapped to now; a container's host keeps its own."""
    if host.get_fact(Swaps) and not host.get_fact(Container):
        server.shell(name="No swap", commands=["swapoff --all"])
