"""A file as it is to lie on a gateway. Never writes one."""

from dataclasses import dataclass, field
from pathlib import PurePosixPath

# Only root reads it.
PRIVATE = 0o600
PUBLIC = 0o644
PROGRAM = 0o755


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """A file: where, what and for whom. Its text is not shown when it is printed."""

    path: PurePosixPath
    text: str = field(repr=False)
    mode: int = PUBLIC


@dataclass(frozen=True, slots=True)
class Places:
    """Where a gateway's files lie; `log` is a file that charon writes beside the journal's lines."""

    etc: PurePosixPath
    run: PurePosixPath
    lib: PurePosixPath
    log: PurePosixPath | None = None

    @property
    def folder(self) -> PurePosixPath:
        """The folder of charon's files."""
        return self.etc / "tunnels"

    @property
    def table(self) -> PurePosixPath:
        """The file in which the scripts find the tunnels."""
        return self.folder / "table"

    @property
    def socket(self) -> str:
        """The control socket of charon, as swanctl names it."""
        return f"unix://{self.run}/tunnels.vici"


STANDARD = Places(
    etc=PurePosixPath("/etc/bedplate/ipsec"),
    run=PurePosixPath("/run/bedplate-ipsec"),
    lib=PurePosixPath("/usr/local/lib/bedplate"),
)
