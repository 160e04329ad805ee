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

    def folder(self, charon: str) -> PurePosixPath:
        """Return the folder of one charon's files."""
        return self.etc / charon

    def table(self, charon: str) -> PurePosixPath:
        """Return the file in which the scripts find one charon's tunnels."""
        return self.folder(charon) / "table"

    def socket(self, charon: str) -> str:
        """Return where one charon takes its orders, as swanctl calls it."""
        return f"unix://{self.run / charon}.vici"


STANDARD = Places(
    etc=PurePosixPath("/etc/bedplate/ipsec"),
    run=PurePosixPath("/run/bedplate-ipsec"),
    lib=PurePosixPath("/usr/local/lib/bedplate"),
)
