"""The Python environment of a run, by the files of its code: uv builds it once, in a cache of the person."""

import csv
import fcntl
import json
import os
import platform
import re
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from html import escape
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote, unquote

from ..connection import FILES as PLACE
from ..connection import Connection, HubError
from ..program import ProgramError, run, write_text
from .sources import FILES, LIST, LOCK, OWN, REQUIREMENTS, BuildError, read_sources

WHEELS, UV = "wheels", "0.13.8"
"""The folder of wheels on the hub, and the version of uv for images without one."""
# Those of the wheels for Linux, of both architectures, with glibc and with musl.
_UV_HASHES = (
    "0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d",
    "29451c60f5e8b07403e0a175d5229efc36b0289b34143ff4aaa499a5dd52553a",
    "5337c30bb893b4f9ce0ceb921ba2da0d13f649da644f40ad3bef84083bef0203",
    "e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984",
)
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:")
_HASHED = re.compile(r"^([\w.-]+==[^\s;\\]+)[^\n]*?((?:\s+\\?\s*--hash=\S+)+)", re.MULTILINE)
# Lines without a cause, and what is before a cause: words, or signs of former versions.
_NOTE = re.compile(r"\s*(?:Using |warning: |hint: |Resolved |Prepared )")
_CAUSE = re.compile(r":?\s*(?:\b(?:error|cause|caused by): |[\u00d7\u2570]\W*)", re.IGNORECASE)
_AWAY = re.compile("Request failed after|[Ff]ailed to fetch|dns error|[Cc]onnection refused|timed out|unreachable")
# Variables of uv with these words say how it fetches, or are secret; the others decide what it installs.
_FETCHES = re.compile("PASSWORD|USERNAME|TOKEN|HTTP|CACHE")
# Seconds: from which an unused environment is removed, and between signs of its use; for lists of the hub, which are
# waited for as code is; for a wheel, for which uv asks again; and for uv.
_OLD, _DAY, _PATIENCE, _PATIENCE_OF_UV, _LONGEST = 30 * 86_400, 86_400.0, 600.0, 30.0, 7_200.0
_SHOWN, _PORTS = 700, 10_000
# What helps where the packages of bp itself are missing: nobody has them in a folder.
_FIX_OF_OWN = "ask your operator to put their wheels on the hub (docs/hub.md, Wheels), or name an index by UV_INDEX"
# An older hub refuses a folder that it does not know.
_NO_WHEELS = {HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN}


def key_of(texts: Mapping[str, str], variables: Mapping[str, str], code: Path) -> str:
    """Return what no other environment has: its sources, settings of uv, and Python and C library of this machine."""
    python = os.path.realpath(sys.executable), platform.python_version(), platform.machine(), *platform.libc_ver()
    settings = sorted(item for item in variables.items() if item[0].startswith("UV_") and not _FETCHES.search(item[0]))
    # UV_CONSTRAINT and others name files, whose content may differ in each run.
    files = {code / word for _, value in settings for word in value.split() if os.path.isfile(code / word)}  # noqa: PTH113  a long word is no error
    digests = sorted(sha256(file.read_bytes()).hexdigest() for file in files)
    return sha256(json.dumps([sorted(texts.items()), settings, digests, python]).encode()).hexdigest()[:32]


def with_hashes(frozen: str, known: str) -> str:
    """Return a list of exact versions with the hashes that another one has for them."""
    hashes = {line.lower(): re.findall(r"--hash=\S+", text) for line, text in _HASHED.findall(known)}
    lines = (" \\\n    ".join([line, *hashes.get(line.lower(), ())]) for line in frozen.splitlines())
    return "".join(f"{line}\n" for line in lines)


def reason_of(errors: str) -> str:
    """Return what uv or pip says of a failure, in one line."""
    lines = (line.strip() for line in errors.splitlines() if not _NOTE.match(line))
    return _CAUSE.sub(": ", " ".join(filter(None, lines))).lstrip(": ")[:_SHOWN]


def fault_of(folder: Path) -> str:
    """Return what an environment lacks: each file of its packages is there with its size; empty if it is whole."""
    names, sizes = set[str](), defaultdict[Path, set[str]](set)
    try:
        listed = re.findall(r"^([\w.-]+)(?:==| @ )", (folder / LIST).read_text(encoding="utf-8"), re.MULTILINE)
        for record in folder.glob("lib/python*/site-packages/*.dist-info/RECORD"):
            names.add(_plain(record.parent.name.partition("-")[0]))
            with record.open(newline="", encoding="utf-8") as rows:
                for file, _, size in csv.reader(rows):
                    if not file.endswith(".pyc"):
                        # Two packages may have the same file.
                        sizes[record.parent.parent / file].add(size)
        wrong = (str(path) for path, known in sizes.items() if not {"", str(path.stat().st_size)} & known)
        missing = (name for name in listed if _plain(name) not in names)
        (folder / "bin/python").stat()
        return next(wrong, "") or next(missing, "")
    except (OSError, ValueError) as error:
        return str(getattr(error, "filename", None) or error)


def _plain(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


class _Wheel(SimpleHTTPRequestHandler):
    """Serves a folder with the names of the hub's wheels in its page; a wheel is fetched when it is asked for."""

    def __init__(self, hub: Connection, names: Sequence[str], *arguments: Any, directory: str) -> None:  # noqa: ANN401  as the base
        self._hub, self._names = hub, names
        super().__init__(*arguments, directory=directory)

    def send_head(self) -> Any:  # noqa: ANN401  as the base
        """Send the head of an answer; return its body."""
        name = unquote(self.path[1:])
        try:
            if name in self._names and not (file := Path(self.directory, name)).exists():
                self._hub.fetch(f"{WHEELS}/{quote(name)}", file, _PATIENCE_OF_UV)
        except HubError as error:
            self.send_error(HTTPStatus.BAD_GATEWAY, str(error))
            return None
        return super().send_head()

    def copyfile(self, source: Any, outputfile: Any) -> None:  # noqa: ANN401  as the base
        """Send a wheel; uv ends early on a full disk."""
        with suppress(ConnectionError):
            super().copyfile(source, outputfile)

    def log_message(self, *_: object) -> None:
        """Write nothing: what fails is in the words of uv."""


@contextmanager
def _places(hub: Connection, folder: Path) -> Iterator[Sequence[Sequence[str]]]:
    """Yield the options for each place of packages: the wheels of the hub alone if it has some, then the index, too.

    uv gets neither the hub's token nor its certificate: this process serves the wheels. A port that stays the same lets
    uv keep what it has fetched. Raises BuildError if the list of wheels cannot be read: an index has other versions.
    """
    names: Sequence[str] = ()
    try:
        names = [str(file["name"]) for file in hub.call(f"{PLACE}/{WHEELS}", patience=_PATIENCE)]
    except HubError as error:
        if error.status not in _NO_WHEELS:
            raise BuildError(f"the list of the hub's wheels cannot be read: {error}") from None
    except (LookupError, TypeError):
        pass
    if not names:
        yield [()]
        return
    shutil.rmtree(folder, ignore_errors=True)
    write_text(folder / "index.html", "".join(f'<a href="{quote(name)}">{escape(name)}</a>\n' for name in names))
    handler = partial(_Wheel, hub, names, directory=str(folder))
    try:
        server = ThreadingHTTPServer(("127.0.0.1", _PORTS + os.getuid() % _PORTS), handler)
    except OSError:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            links = ("--find-links", f"http://127.0.0.1:{server.server_port}/")
            yield [("--no-index", *links), links]
        finally:
            server.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


class Environments:
    """The environments of a person on this machine, in a cache. The hub has wheels; `say` tells what takes time.

    `own` is the program of bp that needs the packages, if its requirements do not say so.
    """

    def __init__(self, cache: Path, hub: Connection, say: Callable[[str], object], own: str = "") -> None:
        self._cache, self._hub, self._say, self._own, self._lock = cache, hub, say, own, -1

    def provide(self, source: str, code: Path, variables: Mapping[str, str]) -> Path:
        """Return the environment of a file of the code, or of a list on the hub, and hold it until this process ends.

        Raises BuildError or OSError.
        """
        try:
            texts = read_sources(code, source) if source in FILES else {LIST: self._hub.get(source, _PATIENCE).decode()}
        except HubError as error:
            raise BuildError(f"the list of packages cannot be read: {error}") from None
        key = key_of(texts, variables, code)
        self._cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Of a locked folder systemd-tmpfiles removes nothing. File servers have no locks of folders.
        with suppress(OSError):
            fcntl.flock(os.open(self._cache, os.O_RDONLY), fcntl.LOCK_SH)
        # Many pods may share a cache: they look at what is there at the same time, and only builds wait for each other.
        found = self._hold(key)
        if not found:
            with os.fdopen(self._open(key)) as building:
                # uv has the lock, too: it may outlive a killed agent.
                self._lock = building.fileno()
                fcntl.flock(building, fcntl.LOCK_EX)
                # Who has waited here finds what the other one has built.
                found = self._hold(key) or next(
                    filter(None, (self._make(f"{key}.{number}", texts, code, variables) for number in count()))
                )
        _touch(found)
        return found

    def _hold(self, key: str) -> "Path | None":
        """Return an environment that is whole, and hold it; None without one."""
        for folder in sorted(self._cache.glob(f"{key}.*[0-9]")):
            used = self._open(folder.name)
            fcntl.flock(used, fcntl.LOCK_SH)
            if not fault_of(folder):
                return folder
            os.close(used)
        return None

    def _make(self, name: str, texts: Mapping[str, str], code: Path, variables: Mapping[str, str]) -> "Path | None":
        """Build an environment, and hold it; None if a damaged one of this name is in use, and so stays."""
        folder, used = self._cache / name, self._open(name)
        try:
            fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(used)
            return None
        source, text = next(iter(texts.items()))
        own = self._own or (text.splitlines()[0][len(OWN) :] if text.startswith(OWN) else "")
        try:
            self._say(f"builds the environment of {own or source}: minutes, if packages are large")
            self._remove_old()
            self._build(folder, texts, code, variables)
            fcntl.flock(used, fcntl.LOCK_SH)
        except BaseException as error:
            # What is not complete needs no room on a full disk.
            shutil.rmtree(folder, ignore_errors=True)
            os.close(used)
            if own and isinstance(error, BuildError):
                raise BuildError(f"the packages of {own} are missing: {error}; {_FIX_OF_OWN}") from None
            raise
        return folder

    def _open(self, name: str) -> int:
        return os.open(self._cache / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)

    def _remove_old(self) -> None:
        """Remove what nobody has used for a month: homes have no cleaner."""
        for folder in self._cache.glob("*.*"):
            with suppress(OSError):
                marker = folder / LIST if (folder / LIST).exists() else folder
                if not folder.is_dir() or time.time() - marker.stat().st_mtime < _OLD:
                    continue
                with os.fdopen(self._open(folder.name)) as used:
                    fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    (folder / LIST).unlink(missing_ok=True)
                    shutil.rmtree(folder)

    def _build(self, folder: Path, texts: Mapping[str, str], code: Path, variables: Mapping[str, str]) -> None:
        """Build an environment anew. One that lacks its list is not complete."""
        variables = {name: value for name, value in variables.items() if not name.startswith("BEDPLATE_")}
        own = {"NO_COLOR": "1", "UV_CACHE_DIR": f"{self._cache}/uv", "UV_PYTHON_DOWNLOADS": "never"}
        own.update({name: f"{variables.get(name, '')},127.0.0.1".lstrip(",") for name in ("NO_PROXY", "no_proxy")})
        own["UV_PROJECT_ENVIRONMENT"] = str(folder)
        with _places(self._hub, folder.with_suffix(".wheels")) as places:
            uv = _Uv({"UV_HTTP_TIMEOUT": "600", **variables, **own}, str(code), places, self._lock)
            uv.find(self._cache / f"uv-{UV}", folder.with_suffix(".uv"))
            for is_last in (False, True):
                shutil.rmtree(folder, ignore_errors=True)
                uv.fill(folder, texts)
                fault = fault_of(folder)
                if not fault:
                    return
                if is_last:
                    raise BuildError(f"a package is not whole: {fault}")
                # What uv keeps is damaged, such as by a power loss or a cleaner.
                uv.run("cache", "clean")


class _Uv:
    """uv in the folder of the code, and the options for each place of packages. Methods raise BuildError."""

    def __init__(self, variables: Mapping[str, str], code: str, places: Sequence[Sequence[str]], lock: int) -> None:
        self._variables, self._code, self._places, self._lock = variables, code, places, lock
        self._program = shutil.which("uv", path=variables.get("PATH")) or ""

    def find(self, tool: Path, new: Path) -> None:
        """Install uv by pip, with its hash, where the image has none."""
        if self._program:
            return
        self._program = str(tool / "bin/uv")
        if not Path(self._program).exists():
            shutil.rmtree(new, ignore_errors=True)
            write_text(new / "uv.txt", " ".join([f"uv=={UV}", *(f"--hash=sha256:{digest}" for digest in _UV_HASHES)]))
            words = (sys.executable, *_PIP, "--target", str(new), "--requirement", f"{new}/uv.txt")
            self._try([(*words, *options) for options in self._places])
            shutil.rmtree(tool, ignore_errors=True)
            new.rename(tool)

    def fill(self, folder: Path, texts: Mapping[str, str]) -> None:
        """Make an environment, install what its sources say, and write its list."""
        name, python = next(iter(texts)), f"{folder}/bin/python"
        self.run("venv", "--no-project", "--python", sys.executable, str(folder))
        source, text = Path(self._code, name), texts[name]
        if name == LOCK:
            words = ("--no-emit-project", "--no-header", "--no-annotate", "--python", sys.executable)
            text = self.run("export", "--frozen", *words)
        if name in {LOCK, LIST}:
            source = folder / REQUIREMENTS
            write_text(source, text)
        install = (self._program, "pip", "install", "--python", python, "--requirement", str(source))
        commands = [(*install, *options) for options in self._places]
        if name == LOCK:
            # From the index that the lock names for each package.
            commands[-1] = (self._program, "sync", "--frozen", "--no-install-project", "--python", sys.executable)
        self._try(commands)
        frozen = self.run("pip", "freeze", "--python", python)
        write_text(folder / LIST, with_hashes(frozen, "\n".join([text, *texts.values()])))

    def run(self, *words: str) -> str:
        """Return the output of a command of uv."""
        return self._try([(self._program, *words)])

    def _try(self, commands: Sequence[Sequence[str]]) -> str:
        """Return the output of the first command that succeeds."""
        errors: list[str] = []
        for command in commands:
            try:
                options: Any = {"seconds": _LONGEST, "environment": self._variables, "handles": [self._lock]}
                result = run(*command, folder=self._code, **options)
            except ProgramError as error:
                raise BuildError(str(error)) from None
            if not result.error:
                return result.text
            errors.append(result.limit or reason_of(result.err.decode(errors="replace")))
        if _AWAY.search(errors[-1]):
            errors[-1] = f"the index of packages does not answer: {errors[-1]}"
            errors[:-1] = [f"the wheels of the hub: {error}" for error in errors[:-1]]
        raise BuildError("; ".join(errors if _AWAY.search(errors[-1]) else errors[-1:]))


def _touch(folder: Path) -> None:
    """Let all files of an environment look used, once a day: systemd-tmpfiles would remove those that nobody reads."""
    if time.time() - (folder / LIST).stat().st_mtime > _DAY:
        for path in folder.rglob("*"):
            with suppress(FileNotFoundError):
                os.utime(path, ns=(time.time_ns(), path.lstat().st_mtime_ns), follow_symlinks=False)
        os.utime(folder / LIST)
