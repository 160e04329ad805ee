"""uv, of the one version that this project uses itself; the index's wheel is taken by its sum, whatever index it is."""

from collections.abc import Iterable

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import files, server

from roles.shipped import Shipped, ship
from roles.template import text_of
from roles.venv import taken

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
        server.shell(name=f"uv {version()}", commands=taken(FOLDER, _LIST))
    for tool in ("uv", "uvx"):
        files.link(name=f"{tool} for everybody", path=f"/usr/local/bin/{tool}", target=f"{FOLDER}/bin/{tool}")
