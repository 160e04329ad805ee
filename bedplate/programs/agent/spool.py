"""The output of a rank on its way to the hub: parts in a folder, which are kept until the hub has them."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

PART = 256 << 10
"""Bytes of a part; the last one grows."""
# The program may write other files beside the parts.
_NAMES = "[0-9]" * 6
# Parts that are kept, of which the first half is never left out; parts that readers may lack after the hub has them.
_MOST, _BEHIND = 1024, 64
# Seconds between two stored states of a line that is not complete; its bytes at which it is stored in any case.
_STATE, _LONGEST_LINE, _TAIL, _PAUSE = 1.0, 1 << 16, 1 << 12, 0.05


class Spool:
    """The parts of one rank's output, in a folder; a copy goes to the log of its container, if there is one."""

    def __init__(self, folder: Path, *, is_copied: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._number, self._sent = folder, 0, (0, 0)
        self._is_copied = is_copied
        self._line, self._stored, self._left_out, self._lost = b"", 0.0, 0, 0
        self.tail = b""
        """The last bytes, which say why a program has failed."""

    def write(self, data: bytes) -> None:
        """Store lines. Of what a carriage return overwrites in a line, one state a second is stored."""
        self.tail = (self.tail + data)[-_TAIL:]
        *lines, line = (self._line + data).split(b"\n")
        text, self._line = b"".join(_shown(line) + b"\n" for line in lines), _shown(line)
        if len(self._line) > _LONGEST_LINE or time.monotonic() - self._stored > _STATE:
            self.flush(text)
        elif text:
            self._store(text)

    def flush(self, text: bytes = b"") -> None:
        """Store a text, and the line that is not complete."""
        self._store(text + self._line)
        self._line, self._stored = b"", time.monotonic()

    def _store(self, text: bytes) -> None:
        """Append to the last part. A full disk ends no program: what is lost is counted."""
        if self._is_copied:
            with suppress(OSError):
                sys.stdout.buffer.write(text)
                sys.stdout.flush()
        try:
            while text:
                path = self._folder / f"{self._number:06}"
                with path.open("ab", buffering=0) as file:
                    text = text[file.write(text[: PART - file.tell()]) :]
                    is_full = file.tell() == PART
                if is_full:
                    self._number += 1
                    self._leave_out()
            if self._lost:
                lost, self._lost = self._lost, 0
                self._store(f"\n[bedplate: {lost} bytes of output are lost: the disk was full]\n".encode())
        except OSError:
            self._lost += len(text)

    def _leave_out(self) -> None:
        """Remove parts from the middle while the hub is away for too long; a part says so in their place."""
        while len(parts := sorted(self._folder.glob(_NAMES))) > _MOST:
            parts[_MOST // 2 + 1].unlink()
            self._left_out += PART
            note = f"\n[bedplate: {self._left_out >> 10} KiB of output are left out: the hub was away]\n"
            parts[_MOST // 2].write_text(note, encoding="ascii")

    def missing(self) -> Iterator[tuple[str, bytes]]:
        """Yield each part that the hub lacks. Whoever asks for the next has put it there."""
        parts = sorted(self._folder.glob(_NAMES))
        for path in parts:
            if int(path.name) < self._sent[0]:
                continue
            with suppress(FileNotFoundError):
                data = path.read_bytes()
                if (int(path.name), len(data)) > self._sent:
                    yield path.name, data
                    self._sent = int(path.name), len(data)
        for path in parts[:-_BEHIND]:
            path.unlink(missing_ok=True)


def _shown(line: bytes) -> bytes:
    """Return what a terminal shows of a line in the end, with the carriage return before it."""
    return line[max(line.rstrip(b"\r").rfind(b"\r"), 0) :]


def follow(folder: Path, start: int, is_over: Callable[[], bool], pause: float = _PAUSE) -> Iterator[bytes]:
    """Yield the output in a folder from a byte on as it comes, until it is over."""
    (number, at), was_over = divmod(start, PART), False
    while not was_over:
        # Before the last look, not after it.
        was_over = is_over()
        for path in sorted(folder.glob(_NAMES)):
            if int(path.name) < number:
                continue
            at = at if int(path.name) == number else 0
            number = int(path.name)
            with suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(at)
                yield (data := file.read())
                at += len(data)
        if not was_over:
            time.sleep(pause)


def follow_attempts(logs: Path, rank: str, start: int, is_over: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the output of a rank over all attempts, from a byte of it on, until it is over."""
    attempt = -1

    def later() -> Sequence[int]:
        numbers = (path.parent.name for path in logs.glob(f"*/{rank}"))
        return sorted(int(number) for number in numbers if number.isdecimal() and int(number) > attempt)

    while True:
        while not (left := later()):
            if is_over() and not later():
                return
            time.sleep(_PAUSE)
        attempt = left[0]
        folder = logs / str(attempt) / rank
        last = max(folder.glob(_NAMES), default=None)
        size = int(last.name) * PART + last.stat().st_size if last else 0
        if start and start >= size and left[1:]:
            start -= size
            continue
        yield from follow(folder, start, lambda: bool(later()) or is_over())
        start = 0
