"""A machine that was applied once, and machines that are made of it: each with its own name, address and way in.

Another first apply of each would take a peer the best part of an hour. Never touches the original, which is shut down.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.stand.command import call
from tests.support.stand.node import Node
from tests.support.stand.stand import Stand


@dataclass(frozen=True, slots=True)
class Original:
    """What lies over the layers of such a machine, and what of it is its own, in the order of `_own`."""

    upper: Path
    own: tuple[str, str, str]
    files: tuple[Path, ...]
    """Those in which any of it stands, by their place below the root."""

    def turned_into(self, name: str, address: str) -> Callable[[Path, str], str]:
        """Return what makes a machine of this name and address of a root with all that, as Stand.boot wants it."""

        def turn(root: Path, admin_key: str) -> str:
            swaps = list(zip(self.own, _own(name, address, admin_key), strict=True))
            for file in self.files:
                _swap(root / file, swaps)
            return (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text(encoding="utf-8").strip()

        return turn


def original_of(node: Node, stand: Stand, place: Path) -> Original:
    """Shut a machine down, and keep what was written to it in a folder."""
    own = _own(node.name, str(node.address), stand.key.with_name("operator.pub").read_text(encoding="utf-8"))
    node.stop()
    call("cp", "--archive", str(node.root.with_name("upper")), str(place), seconds=600)
    either = "|".join(_pattern(each) for each in own)
    found = call("grep", "-rlIP", "--null", either, str(place), seconds=600)
    return Original(place, own, tuple(Path(file).relative_to(place) for file in found.split("\0") if file))


def _own(name: str, address: str, admin_key: str) -> tuple[str, str, str]:
    return name.partition(".")[0], address, admin_key.split()[1]


def _pattern(own: str) -> str:
    return rf"(?<![\w.-]){re.escape(own)}(?![\w-])"


def _swap(file: Path, swaps: list[tuple[str, str]]) -> None:
    text = file.read_text(encoding="utf-8")
    for old, new in swaps:
        text = re.sub(_pattern(old), new, text)
    file.write_text(text, encoding="utf-8")
