"""Whether a node is a container: then its host keeps the clock and the kernel."""

from collections.abc import Iterable

from pyinfra.api.facts import FactBase


class Container(FactBase[bool]):
    """Whether systemd sees a container around itself."""

    default = bool

    def command(self) -> str:
        """Ask systemd, which says `none` on a machine of its own."""
        return "systemd-detect-virt --container || true"

    def process(self, output: Iterable[str]) -> bool:
        """Take every other word for a container."""
        return "".join(output).strip() not in {"", "none"}
