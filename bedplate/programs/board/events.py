"""TensorBoard over the event files of runs: where the run wrote them, or else copies of what the hub has."""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

from tensorboard.backend.application import TensorBoardWSGIApp
from tensorboard.backend.event_processing.data_ingester import LocalDataIngester
from tensorboard.program import TensorBoard

from ..bp.records import OUTPUT, find_run, has_run_ended, output_files
from ..connection import AWAY, Connection

_MARK, _ID = "tfevents", re.compile("[a-z_][a-z0-9_-]{0,199}")
# Bytes that a board copies at most.
_MOST = 2 << 30


class RunsPage:
    """TensorBoard, with a folder of event files for each run; `app` serves it, and `look` brings it up to date."""

    def __init__(self, facts: Mapping[str, Any], token: str, output: Path, say: Callable[[str], object]) -> None:
        self._hub = Connection(facts["hub"], facts["certificate"], lambda _: token, facts["address"])
        self._folder, self._say = output.with_name("events"), say
        self._left, self._said, self._copied = dict(facts["runs"]), dict[str, str](), 0
        self._folder.mkdir(exist_ok=True)
        board = TensorBoard()
        # Its faster reader listens on a port, for everybody on the machine.
        reading = {"reload_multifile": True, "reload_multifile_inactive_secs": -1}
        board.configure(("",), logdir=str(self._folder), load_fast="false", **reading)
        source = LocalDataIngester(board.flags)
        self._runs = source.deprecated_multiplexer
        more = source.data_provider, board.assets_zip_provider, self._runs
        self.app = TensorBoardWSGIApp(board.flags, board.plugin_loaders, *more)

    @property
    def pause(self) -> float:
        """Seconds between two looks, each of which asks the hub for all runs that go on."""
        return max(15.0, len(self._left))

    def look(self) -> None:
        """Look for event files of all runs, and read what is new in them."""
        try:
            self._find()
        finally:
            self._read()

    def _find(self) -> None:
        """Link or copy event files; those of a run once more after its end."""
        links = {name: self._link(name) for name in self._left}
        for name, word in [*self._left.items()]:
            try:
                run = find_run(self._hub, word)
                if not links[name] and not self._copy(name, run):
                    self._note(name, f"{name} has no event files yet: programs write them to $BEDPLATE_OUTPUT")
            except Exception as error:
                if getattr(error, "reason", "") == AWAY:
                    raise
                self._note(name, f"{name}: {error}")
            else:
                if has_run_ended(run):
                    del self._left[name]

    def _read(self) -> None:
        """Read what is new in the files. In TensorBoard's own loop, one file with wrong records ends that for all."""
        self._runs.AddRunsFromDirectory(str(self._folder))
        for name in self._runs.Runs():
            try:
                self._runs.GetAccumulator(name).Reload()
            except Exception as error:  # noqa: BLE001  such as MemoryError, for a number that somebody has written
                self._note(name, f"{name}: an event file is damaged: {error}")

    def _link(self, name: str) -> bool:
        """Link what a run has written on this machine, or beside its checkpoints; return whether that is anything."""
        found = [*_live_files(name)]
        for path, file in found:
            link = self._folder / name / path
            if not os.path.lexists(link):
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)
        return bool(found)

    def _copy(self, name: str, run: Mapping[str, Any]) -> bool:
        """Copy what the hub has of a run; return whether that is anything."""
        files = {path: size for path, size in output_files(self._hub, run).items() if _MARK in PurePath(path).name}
        for path, size in files.items():
            file = self._folder / name / path
            # What was linked is not there any more.
            if file.is_symlink():
                file.unlink()
            has = file.stat().st_size if file.exists() else 0
            if size > has and self._copied + size - has > _MOST:
                self._note(f"{name}/{path}", f"{name}: {path} is left out: a board copies at most {_MOST >> 30} GiB")
            elif size > has:
                file.parent.mkdir(parents=True, exist_ok=True)
                part = self._folder.with_name("part")
                self._hub.fetch(quote(f"{run['experiment']}/{run['run']}/artifacts/{OUTPUT}/{path}"), part)
                # TensorBoard goes on reading the file that it has opened.
                with part.open("rb") as new, file.open("ab") as old:
                    new.seek(has)
                    shutil.copyfileobj(new, old)
                part.unlink()
                self._copied += size - has
        return bool(files)

    def _note(self, key: str, text: str) -> None:
        if self._said.get(key) != text:
            self._said[key] = text
            self._say(text)


def _live_files(name: str) -> Iterator[tuple[str, Path]]:
    """Yield the event files of a run that this person may read here, each with its path in a folder of the run."""
    output, checkpoints = (Path(os.environ[f"BEDPLATE_{folder}"]) for folder in ("OUTPUT", "CHECKPOINTS"))
    own = output.parent.parent / name
    for folder in (own / OUTPUT, own / "work", own / "elements", checkpoints.parent / name):
        # Links are not followed: they may lead to anything, also to themselves.
        for place, _, names in os.walk(folder) if _ID.fullmatch(name) else ():
            for file in (Path(place, text) for text in names if _MARK in text):
                if not file.is_symlink() and file.is_file() and os.access(file, os.R_OK):
                    yield str(file.relative_to(folder)), file
