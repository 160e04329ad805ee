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
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from .hub import HELD, WRONG, BpError

_FILE_LIMIT, _TREE_LIMIT, _COUNT_LIMIT = 50_000_000, 500_000_000, 100_000
# The second pack of a run may have so many bytes, or this part of the first.
_CHANGES_LIMIT, _CHANGES_PART = 4_000_000, 4
_OLDEST_GIT, _LOCK_TIMEOUT, _SHOWN = (2, 30), 600, 5
_SECRET = re.compile(
    r"(.*/)?(\.env(\..+)?|\.netrc|\.pgpass|id_(rsa|dsa|ecdsa|ed25519)|.*\.(pem|key|p12|pfx|kdbx|ovpn|kubeconfig)"
    r"|kubeconfig.*|credentials(\.json|\.csv)?|service[-_]account.*\.json|rclone\.conf|\.(aws|ssh|kube)/.*)",
    re.IGNORECASE | re.DOTALL,
)
_NO_SECRET = re.compile(r"(.*/)?(\.env\.(example|sample|template)|.*\.pub\.pem)", re.IGNORECASE | re.DOTALL)
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


class _Repository(NamedTuple):
    """A repository of the person: its folder, its git folder, and that of all its worktrees."""

    top: Path
    own: Path
    common: Path


class _GitError(Exception):
    """A git process has failed."""


@contextmanager
def open_shadow(cache: Path, folder: Path) -> Iterator["Shadow"]:
    """Yield the private repository of a folder once no other run of the folder uses it. Raises BpError."""
    path = cache / "trees" / sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = path.with_suffix(".lock").open("w")
    except OSError as error:
        raise BpError(f"cannot write to the cache: {error}", "free disk space, or set XDG_CACHE_HOME") from None
    end, is_held = time.monotonic() + _LOCK_TIMEOUT, False
    with lock:
        while not is_held:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_held = True
            if time.monotonic() > end:
                raise BpError(f"another bp sends {folder}", "wait for it, or end it", HELD)
            time.sleep(0 if is_held else 0.05)
        yield Shadow(path, folder.resolve())


class Shadow:
    """The private repository of a folder. Methods raise BpError."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self._folder = path, folder
        self._objects = self.path / "objects"
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
        reason = ""
        for _ in range(2):
            self._left_out, self._warnings = set(), []
            try:
                self._make()
                return self._take(include)
            except (_GitError, OSError) as error:
                reason = str(error)
                self.forget()
        raise BpError(f"cannot make a snapshot: {reason}", "free disk space, or try again")

    def packs(self, tree: str) -> Sequence[Path]:
        """Return the packs with all objects of a tree: all of a former time, and what has changed; or one of all."""
        try:
            for full in self._objects.glob("pack/pack-*-0.pack"):
                base = pack_name(full)[: len(tree)]
                # A cleaned cache lacks objects of the base.
                with suppress(_GitError):
                    packs = [full] if tree == base else [full, self._pack(tree, base)]
                    limit = max(_CHANGES_LIMIT, full.stat().st_size // _CHANGES_PART)
                    if sum(pack.stat().st_size for pack in packs[1:]) <= limit:
                        return self._keep(packs)
            return self._keep([self._pack(tree)])
        except (_GitError, OSError) as error:
            raise BpError(f"cannot make a pack: {error}", "free disk space, or try again") from None

    def forget(self) -> None:
        """Make everything anew at the next snapshot, for example if the hub has lost a pack."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _make(self) -> None:
        if (self.path / "HEAD").exists():
            return
        found = re.search(r"(\d+)\.(\d+)", self._git("version"))
        if not found or (int(found[1]), int(found[2])) < _OLDEST_GIT:
            raise BpError("git is older than 2.30", "install a newer git")
        self._git("init", "--quiet", "--template=", "--object-format=sha1")
        (self.path / "info").mkdir(exist_ok=True)
        (self.path / "info/attributes").write_text(_ATTRIBUTES)

    def _take(self, include: Sequence[str]) -> Snapshot:
        with suppress(_GitError):
            asked = ("config", "--global", "--get", "--type=path", "core.excludesFile")
            self._ignores = self._git(*asked, **self._home).strip()
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
            changed = {name for name, facts in now.items() if _stamp(facts) != _stamp(present[name])}
            present.update(now)
        self._warnings += [f"{name} changes while it is read" for name in sorted(changed)]
        tree, size = self._git("write-tree").strip(), sum(facts.st_size for facts in present.values())
        return Snapshot(tree, len(present), size, sorted(self._left_out), self._warnings, *self._origin())

    def _scan(self, folder: Path, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files of a folder, those of nested repositories included; note what is left out."""
        wanted, ignored = self._list(folder)
        self._left_out.update(prefix + name for name in ignored if not name.endswith(_NEVER))
        ignored = {name.rstrip("/") for name in ignored}
        folders, skipped = _ancestors(wanted), ignored | _ancestors(ignored)
        inner = [""]
        while inner:
            above = inner.pop()
            for entry in os.scandir(folder / above):
                name, is_folder = above + entry.name, entry.is_dir(follow_symlinks=False)
                if not is_folder and not entry.is_symlink() and not entry.is_file(follow_symlinks=False):
                    self._left_out.add(f"{prefix}{name} (no file)")
                elif not is_folder and name in wanted:
                    yield prefix + name, entry.stat(follow_symlinks=False)
                elif is_folder and name in folders:
                    inner.append(f"{name}/")
                elif is_folder and name in wanted and (folder / name / ".git").exists():
                    yield from self._scan(folder / name, f"{prefix}{name}/")
                elif is_folder and name not in skipped and entry.name != ".git":
                    _check_readable(folder, [name])
                    what = "submodule that is not checked out" if name in wanted else "no files in it"
                    self._left_out.add(f"{prefix}{name}/ ({what})")

    def _list(self, folder: Path) -> tuple[set[str], set[str]]:
        """Return the names of what a folder has, tracked or not ignored, and of what is ignored, such as `data/`."""
        for own in (*_repositories(folder), None):
            words = ["ls-files", "--others", "--exclude-standard", *(f"--exclude={name}" for name in _NEVER)]
            places = {"GIT_WORK_TREE": str(own.top if own else folder), "GIT_INDEX_FILE": str(self.path / "none")}
            if own:
                places["GIT_INDEX_FILE"] = str(own.own / "index")
                words += [f"--exclude-from={file}" for file in (own.common / "info/exclude",) if file.exists()]
            try:
                names = {name.rstrip("/") for name in self._lines(*words, "--cached", folder=str(folder), **places)}
                ignored = self._lines(*words, "--ignored", "--directory", folder=str(folder), **places)
            except _GitError as error:
                if not own:
                    raise
                self._warnings.append(f"the index of {own.top} is not readable, so ignored files are left out: {error}")
                continue
            # A repository that ignores this folder, such as one of a home, has nothing to do with it.
            if names or not own or own.top == folder:
                break
        return names, {*ignored} - names

    def _included(self, include: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
        for word in include:
            path = self._folder / word
            path = path.parent.resolve() / path.name
            name = os.path.relpath(path, self._folder)
            if not os.path.lexists(path) or {"..", ".git"} & {*name.split("/")}:
                raise BpError(f"--include {word}: this folder has no such file", "write a path in this folder", WRONG)
            is_folder = path.is_dir() and not path.is_symlink()
            self._left_out -= {name, f"{name}/"}
            for file in path.rglob("*") if is_folder else [path]:
                if ".git" not in file.parts and (file.is_symlink() or file.is_file()):
                    yield os.path.relpath(file, self._folder), file.lstat()

    def _check(self, present: Mapping[str, os.stat_result], include: Sequence[str]) -> None:
        """Refuse what does not belong into a snapshot, and note what may surprise."""
        large = [
            f"{name} ({facts.st_size // 10**6} MB)" for name, facts in present.items() if facts.st_size > _FILE_LIMIT
        ]
        _refuse(large, "larger than 50 MB", _DATA)
        allowed = {os.path.normpath(word) for word in include}
        secrets = [name for name in present if _SECRET.fullmatch(name) and not _NO_SECRET.fullmatch(name)]
        fix = "name it in .gitignore and give values by --env, or allow it by `--include NAME`"
        _refuse([name for name in secrets if name not in allowed], "named as a secret", fix)
        made = [found[1] or "." for found in map(_MADE.fullmatch, present) if found]
        _refuse(made, "an environment of Python", "name it in .gitignore")
        sizes, counts = Counter[str](), Counter(name.partition("/")[0] for name in present)
        for name, facts in present.items():
            sizes[name.partition("/")[0]] += facts.st_size
        for weights, limit, unit in ((sizes, _TREE_LIMIT, "bytes"), (counts, _COUNT_LIMIT, "files")):
            if sum(weights.values()) > limit:
                (part, count), *_ = weights.most_common(1)
                what = f"{sum(weights.values())} {unit}, at most {limit}; {part} has {count}"
                raise BpError(what, _DATA, WRONG)
        for name, facts in present.items():
            if stat.S_ISLNK(facts.st_mode):
                target = os.path.normpath(Path(name).parent / (self._folder / name).readlink())
                if target.startswith(("/", "..")):
                    self._warnings.append(f"{name} is a link out of this folder, to {target}")
            elif facts.st_size in _POINTER_SIZES and (self._folder / name).read_bytes().startswith(_POINTER):
                self._warnings.append(f"{name} is a pointer of LFS without content: `git lfs pull` gets it")

    def _update(self, option: str, names: Collection[str]) -> None:
        if not names:
            return
        words = ("update-index", "-z", option, "--remove", "--replace", "--stdin")
        try:
            self._git(*words, text="".join(f"{name}\0" for name in names))
        except _GitError:
            _check_readable(self._folder, names)
            raise

    def _origin(self) -> tuple[str, str]:
        """Return commit and address of the person's repository, the address without user and query."""
        values = ["", ""]
        for repository in _repositories(self._folder):
            config = str(repository.common / "config")
            head = ("rev-parse", "--quiet", "--verify", "HEAD")
            remote = ("config", "--file", config, "--get", "remote.origin.url")
            for number, words in enumerate((head, remote)):
                with suppress(_GitError):
                    values[number] = self._git(*words, GIT_DIR=str(repository.own)).strip()
        return values[0], re.sub(r"^(\w+://)?[^/@]*@|[?#].*", r"\1", values[1])

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

    def _git(self, *words: str, text: str = "", folder: str = "", **environment: str) -> str:
        settings = (word for setting in (*_SETTINGS, f"core.excludesFile={self._ignores}") for word in ("-c", setting))
        try:
            done = subprocess.run(  # noqa: S603
                ("git", *settings, *words),  # noqa: S607  that of the laptop
                input=os.fsencode(text),
                cwd=folder or self._folder,
                env={**self._environment, **environment},
                capture_output=True,
                check=False,
            )
        except FileNotFoundError:
            raise BpError("git does not start", "install git 2.30 or newer") from None
        if done.returncode:
            errors = done.stderr.decode(errors="replace").strip().splitlines() or ["no error output"]
            raise _GitError(f"git {words[0]}: {errors[-1]}")
        return os.fsdecode(done.stdout)


def pack_name(pack: Path) -> str:
    """Return the name of a pack on the hub."""
    return pack.name[len("pack-") :]


def _repositories(folder: Path) -> Sequence[_Repository]:
    """Return the repository that a folder is in, if there is one."""
    for top in (folder, *folder.parents):
        own = top / ".git"
        with suppress(OSError, ValueError):
            if own.is_file():
                own = top / own.read_text().replace("gitdir:", "", 1).strip()
            if os.path.lexists(own / "HEAD"):
                shared = own / "commondir"
                return [_Repository(top, own, own / shared.read_text().strip() if shared.exists() else own)]
    return []


def _ancestors(names: Iterable[str]) -> set[str]:
    """Return all folders above names."""
    folders: set[str] = set()
    for name in names:
        above = name.rpartition("/")[0]
        while above and above not in folders:
            folders.add(above)
            above = above.rpartition("/")[0]
    return folders


def _stamp(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_size, facts.st_mtime_ns


def _refuse(names: Sequence[str], what: str, fix: str) -> None:
    if names:
        more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise BpError(f"{what}: {', '.join(names[:_SHOWN])}{more}", fix, WRONG)


def _check_readable(folder: Path, names: Iterable[str]) -> None:
    paths = ((name, folder / name) for name in names)
    closed = [name for name, path in paths if path.exists() and not path.is_symlink() and not os.access(path, os.R_OK)]
    _refuse(closed, "not readable", "name it in .gitignore, or change its mode")
