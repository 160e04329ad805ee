"""A line to the real agent, which this machine's own shell runs in folders of a test."""

from pathlib import Path

from roles.engine.line import Line, Opening

_HERE = ("sh", "-c")


def line_here(folder: Path, lock: str = "alone", *, patience: float = 0.0) -> Line:
    """Return a line to this machine."""
    return Line("here", _HERE, opening(folder, lock, patience=patience))


def opening(folder: Path, lock: str = "alone", *, patience: float = 0.0) -> Opening:
    """Return what the agent is told first: who asks, for which lock, and where it keeps what it knows."""
    return Opening(lock, "ada on her desk", patience, str(folder / "run"), str(folder / "memory"))
