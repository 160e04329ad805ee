"""Names and texts of systemd's units for paths; every unit of ours says so in its first line."""

import re
from dataclasses import dataclass

from roles.shipped import Shipped

FOLDER = "/etc/systemd/system"
MARK = "# Written by bedplate, role storage."
_PLAIN = re.compile(r"[A-Za-z0-9:_.]")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit; `what` is how an operator is told of it."""

    what: str
    name: str
    text: str

    @property
    def shipped(self) -> Shipped:
        """The file that it is."""
        return Shipped(self.what, f"{FOLDER}/{self.name}", f"{MARK}\n{self.text}")


def unit_name(path: str, suffix: str) -> str:
    r"""Return how systemd calls the unit of a path: `/mnt/lab-data` is `mnt-lab\x2ddata.mount` (systemd-escape(1))."""
    parts = path.strip("/").split("/")
    return "-".join(_escaped(part) for part in parts) + f".{suffix}"


def _escaped(part: str) -> str:
    text = "".join(each if _PLAIN.fullmatch(each) else f"\\x{ord(each):02x}" for each in part)
    return f"\\x2e{text[1:]}" if text.startswith(".") else text
