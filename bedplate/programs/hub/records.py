"""What the hub knows of people, tokens and limits: files, of which some have lines that other programs may add."""

import errno
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock


class Lines:
    """A file of lines of a word and its value, which is read again when it has changed. Methods raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._known: tuple[tuple[int, ...], Mapping[str, str]] = ((), {})

    def read(self) -> Mapping[str, str]:
        """Return the value of each word, from its first line; a missing file has none."""
        try:
            facts = self.path.stat()
        except FileNotFoundError:
            return {}
        # Before the text: the next call sees a change of this moment.
        stamp = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        if stamp != self._known[0]:
            text = self.path.read_text(encoding="utf-8", errors="replace")
            # A last line without its end was cut off while it was written. Of a word, dict() takes the last.
            pairs = [line.partition(" ")[::2] for line in text.split("\n")[-2::-1]]
            self._known = (stamp, dict(pairs))
        return self._known[1]

    def claim(self, word: str, value: str = "") -> str:
        """Return the value of a word; add a line if there is none, which is on the disk then."""
        with self._lock:
            known = self.read().get(word)
            if known is None:
                self._append(f"{word} {value}".rstrip())
            return value if known is None else known

    def _append(self, line: str) -> None:
        """Add a line; on a full disk the file stays as it was."""
        with self.path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # A command of root adds lines, too.
            owner = self.path.parent.stat()
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fchmod(file.fileno(), 0o600)
            size = file.seek(0, os.SEEK_END)
            is_cut = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
            data = f"{chr(10) * is_cut}{line}\n".encode()
            written = 0
            try:
                written = file.write(data)
                os.fsync(file.fileno())
            finally:
                if written != len(data):
                    file.truncate(size)
            if written != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))


def replace_text(path: Path, text: str) -> None:
    """Replace a file, which is on the disk then. Raises OSError."""
    new = path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_SYNC, 0o600), "w") as file:
        file.write(text)
    new.replace(path)
