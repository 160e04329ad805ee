"""What the checks ask a machine: programs with a time limit, and files below a root."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


class MissingProgramError(Exception):
    """A program that a check needs is not installed."""


class FailedProgramError(Exception):
    """A program failed or did not end in time; the text says which."""


@dataclass(frozen=True)
class Machine:
    """The machine that runs the gate; tests use another root."""

    root: Path = Path("/")
    patience: float = 30.0
    """Seconds until a program counts as hanging."""

    def output(self, *command: str) -> str:
        """Return what a program prints. Raises MissingProgramError or FailedProgramError."""
        try:
            done = subprocess.run(  # noqa: S603  constant programs
                command, capture_output=True, text=True, errors="replace", timeout=self.patience, check=True
            )
        except FileNotFoundError:
            raise MissingProgramError(f"{command[0]} is not installed") from None
        except subprocess.TimeoutExpired:
            raise FailedProgramError(f"{command[0]} did not end within {self.patience:.0f} s") from None
        except subprocess.CalledProcessError as error:
            text = " ".join((error.stderr or error.stdout or "").split())[:200]
            raise FailedProgramError(f"{command[0]} failed: {text or error.returncode}") from None
        return done.stdout

    def read(self, path: str) -> str:
        """Return the text of a file without surrounding space, empty if there is none."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def names(self, folder: str) -> Iterable[str]:
        """Return the names in a folder, none if there is no such folder."""
        path = self.root / folder.lstrip("/")
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else ()
