"""What an apply began on a node and has not ended: outlives the line, and the next boot."""

import os
from collections.abc import Collection
from pathlib import Path

from roles.engine.agent.whole_file import write_whole


class Journal:
    """The names of operations that were begun, in their order."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def unfinished(self) -> list[str]:
        """Return the names of operations that an apply began before it was cut off."""
        try:
            return self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def note(self, name: str) -> None:
        """Remember an operation before it changes anything: what answers its change may never come to run."""
        if name in self.unfinished():
            return
        # Not before: whoever only looks, or finds no room, leaves nothing behind.
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write(name + "\n")
            lines.flush()
            os.fsync(lines.fileno())

    def forget(self, done: Collection[str]) -> None:
        """Forget these operations, which are done by now."""
        left = [name for name in self.unfinished() if name not in done]
        if left:
            write_whole(self._path, "".join(f"{name}\n" for name in left).encode())
        else:
            self.forget_all()

    def forget_all(self) -> None:
        """Forget every operation that was ever begun."""
        self._path.unlink(missing_ok=True)
