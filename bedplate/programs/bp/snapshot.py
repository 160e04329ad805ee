"""A folder as a git tree in a private repository, and the packs that the hub lacks.

Of the person's own repository index, names of ignored files, HEAD and address are read, and nothing is written.
Filters, hooks and `fsmonitor` are programs that may come from anywhere: git does not get their configuration.
"""

import fcntl
import os
import re
import shutil
import stat
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path

from ..agent.changes import is_secret
from .hub import WRONG, BpError, say

_FILE_LIMIT, _TREE_LIMIT, _COUNT_LIMIT = 50_000_000, 500_000_000, 100_000
# The second pack of a run may have so many bytes, or this part of the first.
_CHANGES_LIMIT, _CHANGES_PART = 4_000_000, 4
_SHOWN = 5
# Files that only a folder made by programs has.
_MADE = re.compile(r"(?:(.*)/)?(pyvenv\.cfg|conda-meta/history)", re.DOTALL)
_POINTER, _POINTER_SIZES = b"version https://git-lfs.github.com/spec/v1\n", range(100, 300)
_DATA = "name it in .gitignore; data belongs in /data, /scratch or a bucket"
# What Python and desktops leave everywhere is not listed as left out.
_NEVER = ("__pycache__/", ".DS_Store")
_SETTINGS = (
    *("core.autocrlf=false", "core.hooksPath=/dev/null", "core.looseCompression=0", "core.fsmonitor=false"),
    *("pack.compression=1", "pack.threads=2", "index.version=4"),
    # Names are those of the disk, on macOS too.
    *("core.ignoreCase=false", "core.precomposeUnicode=false"),
)
# They are above every .gitattributes of the folder.
_ATTRIBUTES = "* -filter -text -ident -working-tree-encoding\n"


@dataclass(frozen=True)
class Snapshot:
    """A folder at a moment; `head` and `remote` are those of its repository, or empty."""

    tree: str
    files: int
    size: int
    left_out: Sequence[str]
    warnings: Sequence[str]
    head: str
    remote: str


class _GitError(OSError):
    """A git process has failed."""


@contextmanager
def open_shadow(cache: Path, folder: Path) -> Iterator["Shadow"]:
    """Yield the private repository of a folder once no other run of the folder uses it. Raises BpError."""
    path = cache / "trees" / sha256(os.fsencode(folder)).hexdigest()[:16]
    try:
        for private in (cache, path.parent):
            private.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waits until another `bp run` of this folder has sent its files, or is answered")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield Shadow(path, folder)
    except OSError as error:
        fix = f"bp needs git 2.30 or newer, readable files, and free space in {cache}"
        raise BpError(f"no snapshot of this folder: {error}", fix) from None


@contextmanager
def empty_shadow(folder: Path) -> Iterator["Shadow"]:
    """Yield a repository in an empty folder, for code that comes from the hub. Raises BpError."""
    shadow = Shadow(folder, folder)
    try:
        shadow.pack_folder.mkdir(parents=True)
        yield shadow
    except OSError as error:
        raise BpError(f"git cannot compare the code: {error}", "bp needs git 2.30 or newer, and free space") from None


class Shadow:
    """The private repository of a folder. Methods raise BpError for what is in the folder, else OSError."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self._folder = path, folder
        self._objects = self.path / "objects"
        self.pack_folder = self._objects / "pack"
        home = os.environ.get("HOME", "/")
        self._home = {"HOME": home, "XDG_CONFIG_HOME": os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"}
        self._ignores = f"{self._home['XDG_CONFIG_HOME']}/git/ignore"
        # Their home has no configuration of git.
        own = dict.fromkeys((*self._home, "GIT_DIR"), str(self.path))
        own |= {"GIT_WORK_TREE": str(self._folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0"}
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        self._environment |= {**own, "LC_ALL": "C"}
        self._left_out: set[str] = set()
        self._warnings: list[str] = []

    def take(self, include: Sequence[str] = ()) -> Snapshot:
        """Return the folder as it is now, also with these files that are ignored, or named as secrets are."""
        try:
            return self._take(include)
        except _GitError:
            # The cache may be damaged.
            self.forget()
            return self._take(include)

    def packs(self, tree: str) -> Sequence[Path]:
        """Return the packs with all objects of a tree: all of a former time, and what has changed; or one of all."""
        for full in self._objects.glob("pack/pack-*-0.pack"):
            base = pack_name(full)[: len(tree)]
            # A cleaned cache lacks objects of the base.
            with suppress(_GitError):
                packs = [full] if tree == base else [full, self._pack(tree, base)]
                limit = max(_CHANGES_LIMIT, full.stat().st_size // _CHANGES_PART)
                if sum(pack.stat().st_size for pack in packs[1:]) <= limit:
                    return self._keep(packs)
        return self._keep([self._pack(tree)])

    def difference(self, packs: Sequence[Path], former: str, tree: str) -> Sequence[str]:
        """Return what differs between two trees in packs of this repository; nothing in them is executed."""
        self._make()
        for pack in {*packs}:
            self._git("index-pack", str(pack))
        # Line ends are part of code.
        return self._git("diff", "--no-ext-diff", "--no-textconv", former, tree).removesuffix("\n").split("\n")

    def forget(self) -> None:
        """Make everything anew at the next snapshot, for example if the hub has lost a pack."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _take(self, include: Sequence[str]) -> Snapshot:
        self._left_out, self._warnings = set(), []
        self._make()
        asked = ("config", "--global", "--get", "--type=path", "core.excludesFile")
        self._ignores = self._ask(*asked, **self._home) or self._ignores
        present = {**dict(self._scan(self._folder, "")), **dict(self._included(include))}
        self._check(present, include)
        tagged = self._lines("ls-files", "-t", "--cached", "--modified")
        known, modified = {line[2:] for line in tagged}, {line[2:] for line in tagged if line.startswith("C")}
        self._update("--force-remove", known - present.keys())
        changed = (present.keys() - known) | (modified & present.keys())
        for _ in range(2):
            self._update("--add", changed)
            # A file may change while git reads it.
            now = {name: os.lstat(self._folder / name) for name in changed if os.path.lexists(self._folder / name)}
            changed = {name for name, facts in now.items() if facts.st_mtime_ns != present[name].st_mtime_ns}
            present.update(now)
        self._warnings += [f"{name} changes while it is read" for name in sorted(changed)]
        tree, size = self._git("write-tree").strip(), sum(facts.st_size for facts in present.values())
        return Snapshot(tree, len(present), size, sorted(self._left_out), self._warnings, *self._origin())

    def _make(self) -> None:
        if not (self.path / "HEAD").exists():
            self._git("init", "--quiet", "--template=", "--object-format=sha1")
            (self.path / "info").mkdir(exist_ok=True)
            (self.path / "info/attributes").write_text(_ATTRIBUTES)

    def _scan(self, folder: Path, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files of a folder, those of nested repositories included; note what is left out."""
        wanted, ignored = self._list(folder)
        self._left_out.update(prefix + name for name in ignored if not name.endswith(_NEVER))
        inner = [""]
        while inner:
            above = inner.pop()
            entries = list(os.scandir(folder / above))
            if above and not entries:
                self._left_out.add(f"{prefix}{above} (empty)")
            for entry in entries:
                name = above + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if name in wanted and (folder / name / ".git").exists():
                        yield from self._scan(folder / name, f"{prefix}{name}/")
                    elif f"{name}/" not in ignored and entry.name != ".git":
                        inner.append(f"{name}/")
                elif not entry.is_symlink() and not entry.is_file():
                    self._left_out.add(f"{prefix}{name} (no file)")
                elif name in wanted:
                    yield prefix + name, entry.stat(follow_symlinks=False)

    def _list(self, folder: Path) -> tuple[set[str], set[str]]:
        """Return the names of what a folder has, tracked or not ignored, and of what is ignored, such as `data/`."""
        for top, own, common in (*_repositories(folder), (folder, self.path / "none", self.path)):
            places = {"GIT_WORK_TREE": str(top), "GIT_INDEX_FILE": str(own / "index")}
            words = ["ls-files", "--others", "--exclude-standard", *(f"--exclude={name}" for name in _NEVER)]
            words += [f"--exclude-from={file}" for file in (common / "info/exclude",) if file.exists()]
            names = {name.rstrip("/") for name in self._lines(*words, "--cached", folder=str(folder), **places)}
            ignored = self._lines(*words, "--ignored", "--directory", folder=str(folder), **places)
            # A repository that ignores this folder, such as one of a home, has nothing to do with it.
            if names or top == folder:
                break
        return names, {*ignored} - names

    def _included(self, include: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
        for word in include:
            path = self._folder / word
            name = os.path.relpath(path.parent.resolve() / path.name, self._folder)
            if not path.is_file() or {"..", ".git"} & {*name.split("/")}:
                raise BpError(f"--include {word}: this folder has no such file", "write a path in this folder", WRONG)
            self._left_out.discard(name)
            yield name, path.lstat()

    def _check(self, present: Mapping[str, os.stat_result], include: Sequence[str]) -> None:
        """Refuse what does not belong into a snapshot, and note what may surprise."""
        # These have certificates and large files of packages.
        made = [found[1] or "." for found in map(_MADE.fullmatch, present) if found]
        _refuse(made, "an environment of Python", "name it in .gitignore")
        large = [name for name, facts in present.items() if facts.st_size > _FILE_LIMIT]
        _refuse(large, "larger than 50 MB", _DATA)
        allowed = {os.path.normpath(word) for word in include}
        secrets = [name for name in present if is_secret(name)]
        fix = "name it in .gitignore, with its values by `bp secret set`, or allow it by `--include NAME`"
        _refuse([name for name in secrets if name not in allowed], "named as a secret", fix)
        sizes, counts = Counter[str](), Counter[str]()
        for name, facts in present.items():
            part = name.partition("/")[0]
            sizes[part], counts[part] = sizes[part] + facts.st_size, counts[part] + 1
        for weights, limit, unit in ((sizes, _TREE_LIMIT, "bytes"), (counts, _COUNT_LIMIT, "files")):
            if (total := sum(weights.values())) > limit:
                (part, count), *_ = weights.most_common(1)
                raise BpError(f"{total} {unit}, at most {limit}; {part} has {count}", _DATA, WRONG)
        for name, facts in present.items():
            if stat.S_ISLNK(facts.st_mode):
                target = os.path.normpath(Path(name).parent / (self._folder / name).readlink())
                if target.startswith(("/", "..")):
                    self._warnings.append(f"{name} is a link out of this folder, to {target}")
            elif facts.st_size in _POINTER_SIZES and (self._folder / name).read_bytes().startswith(_POINTER):
                self._warnings.append(f"{name} is a pointer of LFS without content: `git lfs pull` gets it")

    def _update(self, option: str, names: Collection[str]) -> None:
        if names:
            words = ("update-index", "-z", option, "--remove", "--replace", "--stdin")
            self._git(*words, text="".join(f"{name}\0" for name in names))

    def _origin(self) -> tuple[str, str]:
        """Return commit and address of the person's repository, the address without user and query."""
        for _, own, _ in _repositories(self._folder):
            head = self._ask("rev-parse", "--quiet", "--verify", "HEAD", GIT_DIR=str(own))
            remote = self._ask("config", "--get", "remote.origin.url", GIT_DIR=str(own))
            return head, re.sub(r"^(\w+://)?[^/@]*@|[?#].*", r"\1", remote)
        return "", ""

    def _pack(self, tree: str, base: str = "") -> Path:
        """Return a pack with the objects of a tree that a base lacks. Its name counts once it is complete."""
        pack = self._objects / f"pack/pack-{tree}-{base or 0}.pack"
        if not pack.exists() or not pack.with_suffix(".idx").exists():
            wanted = f"{tree}\n^{base}\n" if base else f"{tree}\n"
            made = str(self._objects / "pack/made")
            options = ("--revs", "--quiet", "--window=0", "--no-reuse-delta")
            made += f"-{self._git('pack-objects', *options, made, text=wanted).strip()}"
            for suffix in (".pack", ".idx"):
                Path(made + suffix).replace(pack.with_suffix(suffix))
        return pack

    def _keep(self, packs: Sequence[Path]) -> Sequence[Path]:
        """Remove all objects that are in none of these packs, which have all of the newest tree."""
        stems = {pack.stem for pack in packs}
        for path in chain(self._objects.glob("[0-9a-f][0-9a-f]/*"), self._objects.glob("pack/*")):
            if path.stem not in stems:
                path.unlink()
        return packs

    def _lines(self, *words: str, folder: str = "", **environment: str) -> Sequence[str]:
        return [name for name in self._git(*words, "-z", folder=folder, **environment).split("\0") if name]

    def _ask(self, *words: str, **environment: str) -> str:
        """Return the answer of git, or nothing if it has none."""
        with suppress(_GitError):
            return self._git(*words, **environment).strip()
        return ""

    def _git(self, *words: str, text: str = "", folder: str = "", **environment: str) -> str:
        settings = (word for setting in (*_SETTINGS, f"core.excludesFile={self._ignores}") for word in ("-c", setting))
        done = subprocess.run(  # noqa: S603
            ("git", *settings, *words),  # noqa: S607  that of the laptop
            input=os.fsencode(text),
            cwd=folder or self._folder,
            env={**self._environment, **environment},
            capture_output=True,
            check=False,
        )
        if done.returncode:
            errors = done.stderr.decode(errors="replace").strip().splitlines() or ["no error output"]
            # A file that nobody reads says nothing of the cache.
            raise (OSError if "Permission denied" in errors[0] else _GitError)(f"git {words[0]}: {errors[0]}")
        return os.fsdecode(done.stdout)


def pack_name(pack: Path) -> str:
    """Return the name of a pack on the hub, which starts with its tree."""
    return pack.name[len("pack-") :]


def listed(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _repositories(folder: Path) -> Sequence[tuple[Path, Path, Path]]:
    """Return the repository that a folder is in, if there is one: its folder, git's, and git's of all its worktrees."""
    for top in (folder, *folder.parents):
        own = top / ".git"
        with suppress(OSError, ValueError):
            if own.is_file():
                own = top / own.read_text().replace("gitdir:", "", 1).strip()
            if os.path.lexists(own / "HEAD"):
                shared = own / "commondir"
                return [(top, own, own / shared.read_text().strip() if shared.exists() else own)]
    return []


def _refuse(names: Sequence[str], what: str, fix: str) -> None:
    if names:
        raise BpError(f"{what}: {listed(names)}", fix, WRONG)
