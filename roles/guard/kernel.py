"""Whether a gateway's kernel can encrypt tunnels: by ESP, through XFRM interfaces."""

from collections.abc import Iterable

from pyinfra.api.exceptions import DeployError
from pyinfra.api.facts import FactBase

_MODULES = ("esp4", "xfrm_interface")


class KernelLacks(FactBase[tuple[str, ...]]):
    """The release of the node's kernel, then the modules for IPsec that it does not have."""

    default = tuple

    def command(self) -> str:
        """Ask what could be loaded; what is built in counts."""
        asked = f"for each in {' '.join(_MODULES)}; do modprobe --dry-run --quiet $each || echo $each; done"
        return f"uname -r; {asked}"

    def process(self, output: Iterable[str]) -> tuple[str, ...]:
        """Return the lines."""
        return tuple(line.strip() for line in output)


def check_kernel(lacks: tuple[str, ...]) -> None:
    """Raise DeployError where a module is missing."""
    if lacks[1:]:
        raise DeployError(
            f"the kernel has no module {' and '.join(lacks[1:])}, which tunnels need:"
            f" install linux-modules-extra-{lacks[0]} (Ubuntu) or another kernel"
        )
