"""What a run gives to the hub as files: output of its ranks, event files while it goes on, and what it leaves."""

import os
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from ..connection import Connection, HubError
from .sources import LIST
from .spool import Spool

# What event files of TensorBoard have in their names, seconds between two looks for them, and bytes that travel then.
_EVENT_FILE, _EVENTS, _EVENTS_AT_ONCE = "tfevents", 60.0, 32 << 20
# Seconds until the next look for each byte that has travelled: 100 runs are 25 MiB a second.
_PACE = 4 / (1 << 20)


class Uploads:
    """The files of a run, which is in a folder, and their place on the hub. `spools` have the output by its name."""

    def __init__(self, hub: Connection, folder: Path, place: str) -> None:
        self._hub, self._folder, self._place = hub, folder, place
        self.spools = dict[str, Spool]()
        # The bytes that the hub has of each event file, and when it was last sent.
        self._events, self._due = defaultdict[str, "tuple[int, float]"](lambda: (0, 0.0)), 0.0

    def put_logs(self, patience: float, until: float = float("inf")) -> None:
        """Give the hub what it lacks of the output. What it refuses now, such as on a full disk, it gets later."""
        for folder in self._folder.glob("logs/*/*"):
            name = str(folder.relative_to(self._folder / "logs"))
            with suppress(HubError):
                for part, data in self.spools.setdefault(name, Spool(folder)).missing():
                    if time.monotonic() > until:
                        return
                    self._hub.put(f"{self._place}/logs/{name}/{part}", data, patience)

    def put_output(self, patience: float) -> str:
        """Give the hub the files that the program has left for it; return why one is not there."""
        return self._put_each(lambda name, path: self._hub.send(name, path, patience))

    def put_events(self, until: float) -> None:
        """Give the hub event files of TensorBoard that have grown: boards elsewhere read them before the end."""
        if not self._due <= time.monotonic() < until:
            return
        files, room = dict[str, Path](), _EVENTS_AT_ONCE
        self._put_each(files.__setitem__)
        names = [name for name, path in files.items() if _EVENT_FILE in path.name]
        for name in sorted(names, key=lambda name: self._events[name][1]):
            # A file travels whole, and a few of them must not hold up the reports.
            with suppress(HubError, OSError):
                size, former = files[name].stat().st_size, self._events[name][0]
                if former < size <= room and time.monotonic() < until:
                    room -= size
                    self._events[name] = former, time.monotonic()
                    self._hub.put(name, files[name].read_bytes(), 0)
                    self._events[name] = size, time.monotonic()
        self._due = time.monotonic() + max(_EVENTS, _PACE * (_EVENTS_AT_ONCE - room))

    def _put_each(self, put: Callable[[str, Path], object]) -> str:
        """Put each file to its place on the hub; return why one is not there."""
        left, refused = [self._folder / "output", self._folder / LIST], ""
        # Folders may be deeper than the calls of Python.
        while left:
            path = left.pop()
            name = quote(os.fsencode(path.relative_to(self._folder)))
            try:
                if path.is_dir() and not path.is_symlink():
                    left += sorted(path.iterdir(), reverse=True)
                elif path.is_file() and not path.is_symlink():
                    put(f"{self._place}/{name}", path)
            except (HubError, OSError) as error:
                refused = f"not all files are kept, such as {name}: {error}"
        return refused
