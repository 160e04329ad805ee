"""The files of a node in memory: answers pyinfra's questions about them, and takes what operations do to them.

It knows no permissions of its own and runs no program: commands that it does not know leave it as it is.
"""

import hashlib
import posixpath
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pyinfra.facts import files

from roles.shipped import Marks

_RECORDED = datetime(2026, 11, 21, tzinfo=UTC).replace(tzinfo=None)
_FACT_OF = {files.File: "file", files.Directory: "directory", files.Link: "link", files.Socket: "socket"}
_DIGEST_OF = {files.Sha1File: hashlib.sha1, files.Md5File: hashlib.md5, files.Sha256File: hashlib.sha256}


@dataclass(frozen=True, slots=True)
class Entry:
    """What lies at a path: `content` is a file's text, or where a link points."""

    kind: str = "file"
    content: str = ""
    mode: int = 644
    user: str = "root"
    group: str = "root"


FOLDER = Entry("directory", mode=755)
SYSTEM = (
    "/",
    "/etc",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/tmp",  # noqa: S108  # every system has it
    "/usr",
    "/usr/bin",
    "/usr/local/bin",
    "/usr/sbin",
    "/var",
)


@dataclass(slots=True)
class Disk:
    """A tree of files."""

    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Mapping[str, str | Entry]) -> "Disk":
        """Return a disk with the folders of any system and these files, by path."""
        disk = cls(dict.fromkeys(SYSTEM, FOLDER))
        for path, given in texts.items():
            disk.write(path, given if isinstance(given, Entry) else Entry(content=given))
        return disk

    def write(self, path: str, entry: Entry) -> None:
        """Put something at a path, and make the folders above it."""
        self._folders(posixpath.dirname(path))
        self.entries[path] = entry

    def read(self, path: str) -> str:
        """Return the text of a file."""
        return self.entries[path].content

    def answers(self, fact: type) -> bool:
        """Say whether a fact is about files."""
        return fact in _FACT_OF or fact in _DIGEST_OF or fact in {files.FileContents, files.FindInFile, Marks}

    def answer(self, fact: type, arguments: Mapping[str, Any]) -> object:
        """Return what a node with this disk would answer, in the form of the processed fact."""
        if fact is Marks:
            return {each: _mark(self.entries[each]) for each in arguments["paths"] if self._has_mark(each)}
        entry = self.entries.get(arguments["path"].rstrip("/") or "/")
        if fact in _FACT_OF:
            return _described(entry, _FACT_OF[fact])
        text = entry.content if entry and entry.kind == "file" else None
        if text is None:
            return None
        if fact in _DIGEST_OF:
            return _DIGEST_OF[fact](text.encode(), usedforsecurity=False).hexdigest()
        return _found(text, arguments["pattern"]) if fact is files.FindInFile else text.splitlines()

    def take(self, command: str, given: str = "") -> None:
        """Do what an operation's command does to files, where it is one of those that this disk knows.

        It goes well: what follows `||` is left. `given` is what the command reads.
        """
        parts = command.partition(" || ")[0].split(" && ")
        if all(part.split(" ", 1)[0] in _COMMANDS for part in parts):
            for verb, *words in map(shlex.split, parts):
                plain = [word for word in words if not word.startswith("-")]
                _COMMANDS[verb](self, [*plain, given] if verb == "head" else plain)

    def _has_mark(self, path: str) -> bool:
        return path in self.entries and self.entries[path].kind in {"file", "link"}

    def _folders(self, path: str) -> None:
        while path not in self.entries:
            self.entries[path] = FOLDER
            path = posixpath.dirname(path)

    def _mkdir(self, paths: list[str]) -> None:
        for path in paths:
            self._folders(path.rstrip("/"))

    def _chmod(self, words: list[str]) -> None:
        mode, *paths = words
        for path in paths:
            self.entries[path] = replace(self.entries[path], mode=int(mode))

    def _chown(self, words: list[str]) -> None:
        user, _, group = words[0].partition(":")
        for path in words[1:]:
            old = self.entries[path]
            self.entries[path] = replace(old, user=user or old.user, group=group or old.group)

    def _chgrp(self, words: list[str]) -> None:
        self._chown([f":{words[0]}", *words[1:]])

    def _rm(self, paths: list[str]) -> None:
        for path in paths:
            for each in [known for known in self.entries if known == path or known.startswith(f"{path}/")]:
                del self.entries[each]

    def _ln(self, words: list[str]) -> None:
        target, path = words
        self.write(path, Entry("link", target, mode=777))

    def _mv(self, words: list[str]) -> None:
        source, target = words
        self.write(target, self.entries.pop(source))

    def _install(self, words: list[str]) -> None:
        *_, mode, _, path = words
        self.write(path, Entry(mode=int(mode)))

    def _head(self, words: list[str]) -> None:
        count, _, path, given = words
        text = given.encode()[: int(count)].decode()
        self.entries[path] = replace(self.entries[path], content=text)

    def _sync(self, paths: list[str]) -> None:
        assert all(path in self.entries for path in paths)

    def _touch(self, paths: list[str]) -> None:
        for path in paths:
            self.write(path, self.entries.get(path, Entry()))


_COMMANDS: Mapping[str, Callable[[Disk, list[str]], None]] = {
    "mkdir": Disk._mkdir,  # noqa: SLF001  # this table is part of the class
    "chmod": Disk._chmod,  # noqa: SLF001
    "chown": Disk._chown,  # noqa: SLF001
    "chgrp": Disk._chgrp,  # noqa: SLF001
    "rm": Disk._rm,  # noqa: SLF001
    "mv": Disk._mv,  # noqa: SLF001
    "install": Disk._install,  # noqa: SLF001
    "head": Disk._head,  # noqa: SLF001
    "sync": Disk._sync,  # noqa: SLF001
    "ln": Disk._ln,  # noqa: SLF001
    "touch": Disk._touch,  # noqa: SLF001
}


def _described(entry: Entry | None, kind: str) -> dict[str, object] | bool | None:
    if entry is None:
        return None
    if entry.kind != kind:
        return False
    times = dict.fromkeys(("atime", "mtime", "ctime"), _RECORDED)
    link = {"link_target": entry.content} if kind == "link" else {}
    return {"user": entry.user, "group": entry.group, "mode": entry.mode, "size": len(entry.content), **times, **link}


def _mark(entry: Entry) -> str:
    if entry.kind == "link":
        return "symlink"
    return f"{entry.mode} {entry.user}:{entry.group} {hashlib.sha256(entry.content.encode()).hexdigest()}"


def _found(text: str, pattern: str) -> list[str]:
    """Return the matching lines, as the node's own grep finds them."""
    asked = subprocess.run(["grep", "-e", pattern], input=text, capture_output=True, text=True, check=False)
    return asked.stdout.splitlines()
