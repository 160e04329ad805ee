"""A folder as a git tree and packs: what is in it, what is left out or refused, and that nothing of it is executed."""

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bedplate.programs.bp import snapshot as module
from bedplate.programs.bp.hub import MISSING, WRONG, BpError
from bedplate.programs.bp.snapshot import Snapshot, open_shadow

MEGABYTE = 1_000_000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of the person."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return the folder of bp for what it can make anew."""
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder without a repository, with two files."""
    folder = tmp_path / "work"
    (folder / "model").mkdir(parents=True)
    (folder / "train.py").write_text("print('loss')\n")
    (folder / "model/net.py").write_text("layers = 3\n")
    return folder


@pytest.fixture
def repository(folder: Path) -> Path:
    """Return the folder as a repository with one commit."""
    _git(folder, "init", "-q")
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "first")
    return folder


def _git(folder: Path, *words: str) -> str:
    author = ("-c", "user.name=ada", "-c", "user.email=ada@lab", "-c", "protocol.file.allow=always")
    done = subprocess.run(("git", *author, *words), cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _take(cache: Path, folder: Path, *include: str) -> Snapshot:
    with open_shadow(cache, folder) as shadow:
        return shadow.take(include)


def _ship(cache: Path, folder: Path, *include: str) -> tuple[Snapshot, list[bytes], list[str]]:
    with open_shadow(cache, folder) as shadow:
        snapshot = shadow.take(include)
        packs = shadow.packs(snapshot.tree)
        return snapshot, [pack.read_bytes() for pack in packs], [pack.name.removeprefix("pack-") for pack in packs]


def _sha1(content: bytes) -> bytes:
    return hashlib.sha1(content, usedforsecurity=False).digest()


def _objects(pack: bytes) -> Mapping[str, tuple[int, bytes]]:
    """Return type and content of each object by its id; the pack has version 2, no deltas, and a right sum."""
    assert pack[:8] == b"PACK\0\0\0\2"
    assert _sha1(pack[:-20]) == pack[-20:]
    objects, at = {}, 12
    for _ in range(int.from_bytes(pack[8:12], "big")):
        kind = pack[at] >> 4 & 7
        while pack[at] & 0x80:
            at += 1
        reader = zlib.decompressobj()
        content = reader.decompress(pack[at + 1 :])
        at = len(pack) - len(reader.unused_data)
        name = {2: b"tree", 3: b"blob"}[kind]
        objects[_sha1(b"%s %d\0%s" % (name, len(content), content)).hex()] = (kind, content)
    assert at == len(pack) - 20
    return objects


def _contents(tree: str, packs: list[bytes], prefix: bytes = b"") -> dict[bytes, bytes]:
    """Return the files of a tree, read from packs without git; a link has its target, a program a `*`."""
    objects = {key: value for pack in packs for key, value in _objects(pack).items()}
    files = {}
    rest = objects[tree][1]
    while rest:
        mode, _, rest = rest.partition(b" ")
        name, _, rest = rest.partition(b"\0")
        inner, rest = rest[:20].hex(), rest[20:]
        if mode == b"40000":
            files.update(_contents(inner, packs, prefix + name + b"/"))
        else:
            files[prefix + name + (b"*" if mode == b"100755" else b"")] = objects[inner][1]
    return files


def _refusal(cache: Path, folder: Path, *include: str) -> BpError:
    with pytest.raises(BpError) as error:
        _take(cache, folder, *include)
    assert error.value.fix
    return error.value


def test_a_folder_without_a_repository_is_sent(cache: Path, folder: Path) -> None:
    """With programs, links, empty files and names that are not in UTF-8 or have line ends."""
    strange = os.fsencode(folder) + b"/caf\xe9\n.py"
    Path(os.fsdecode(strange)).write_bytes(b"x")
    (folder / "run.sh").write_text("true\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "newest").symlink_to("model/net.py")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/train.pyc").write_bytes(b"made")

    snapshot, packs, names = _ship(cache, folder)

    assert _contents(snapshot.tree, packs) == {
        b"train.py": b"print('loss')\n",
        b"model/net.py": b"layers = 3\n",
        b"caf\xe9\n.py": b"x",
        b"run.sh*": b"true\n",
        b"newest": b"model/net.py",
    }
    assert names == [f"{snapshot.tree}-0.pack"]
    assert (snapshot.files, snapshot.left_out, snapshot.warnings) == (5, [], [])
    assert (snapshot.head, snapshot.remote) == ("", "")


def test_nobody_else_reads_the_cache(folder: Path, tmp_path: Path) -> None:
    """Other accounts of a laptop, whatever the umask of the person is."""
    former = os.umask(0)
    try:
        with module.open_shadow(tmp_path / "cache/lab", folder) as shadow:
            shadow.take()
    finally:
        os.umask(former)

    assert (tmp_path / "cache/lab").stat().st_mode & 0o777 == 0o700


def test_an_empty_folder_is_a_tree(cache: Path, tmp_path: Path) -> None:
    """A command may need no file."""
    (tmp_path / "empty").mkdir()

    snapshot, packs, _ = _ship(cache, tmp_path / "empty")

    assert _contents(snapshot.tree, packs) == {}


def test_a_repository_is_sent_as_it_is_on_disk(cache: Path, repository: Path) -> None:
    """Changed, deleted, new, and tracked although ignored; whatever is staged or not."""
    (repository / "kept.log").write_text("tracked\n")
    (repository / ".gitignore").write_text("*.log\ndata/\n")
    _git(repository, "add", "-f", "kept.log")
    _git(repository, "rm", "-q", "--cached", "model/net.py")
    (repository / "train.py").write_text("print('changed')\r\n")
    (repository / "new.py").write_text("")
    (repository / "other.log").write_text("ignored\n")
    (repository / "data").mkdir()
    (repository / "data/huge.bin").write_text("")
    (repository / "gone.py").write_text("")
    _git(repository, "add", "gone.py")
    (repository / "gone.py").unlink()

    snapshot, packs, _ = _ship(cache, repository)

    assert set(_contents(snapshot.tree, packs)) == {
        *(b".gitignore", b"kept.log", b"train.py", b"new.py", b"model/net.py")
    }
    assert _contents(snapshot.tree, packs)[b"train.py"] == b"print('changed')\r\n"
    assert snapshot.left_out == ["data/", "other.log"]
    assert snapshot.head == _git(repository, "rev-parse", "HEAD")


def test_a_file_that_becomes_ignored_is_no_longer_sent(cache: Path, folder: Path) -> None:
    """The next snapshot starts from the folder, not from the former snapshot."""
    (folder / "notes").write_text("")
    before = _take(cache, folder)
    (folder / ".gitignore").write_text("notes\n")
    (folder / "model/net.py").unlink()
    (folder / "model").rmdir()
    (folder / "model").write_text("a file now\n")

    after, packs, _ = _ship(cache, folder)

    assert before.files == 3
    assert set(_contents(after.tree, packs)) == {b".gitignore", b"train.py", b"model"}


def test_only_names_in_the_case_of_the_disk_are_sent(
    cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a laptop whose file system ignores case a file can be found by a name that it does not have."""
    original = module.Shadow._list  # noqa: SLF001  the point where git's names come in

    def both(shadow: module.Shadow, folder: Path) -> tuple[set[str], set[str]]:
        names, ignored = original(shadow, folder)
        return names | {"Train.py"}, ignored

    monkeypatch.setattr(module.Shadow, "_list", both)

    snapshot, packs, _ = _ship(cache, folder)

    assert set(_contents(snapshot.tree, packs)) == {b"train.py", b"model/net.py"}


def _ignore_in_repository(repository: Path, home: Path) -> None:
    (repository / ".git/info").mkdir(exist_ok=True)
    (repository / ".git/info/exclude").write_text("secret-notes\n")


def _ignore_at_home(repository: Path, home: Path) -> None:
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/ignore").write_text("secret-notes\n")


def _ignore_in_a_named_file(repository: Path, home: Path) -> None:
    (home / "ignored").write_text("secret-notes\n")
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/ignored\n")


@pytest.mark.parametrize("write", [_ignore_in_repository, _ignore_at_home, _ignore_in_a_named_file])
def test_everything_that_git_ignores_is_left_out(
    write: Callable[[Path, Path], None], cache: Path, repository: Path, home: Path
) -> None:
    """By the repository's own list, and by the person's."""
    (repository / "secret-notes").write_text("")
    write(repository, home)

    assert _take(cache, repository).left_out == ["secret-notes"]


def test_worktrees_and_parts_of_repositories_are_sent(cache: Path, repository: Path, tmp_path: Path) -> None:
    """A worktree has its own index; in a subfolder the lists of the whole repository count."""
    (repository / ".gitignore").write_text("*.log\n")
    _git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    (tmp_path / "tree/added.log").write_text("")
    _git(tmp_path / "tree", "add", "added.log")
    (repository / "model/x.log").write_text("")

    part, packs, _ = _ship(cache, repository / "model")

    assert (set(_contents(part.tree, packs)), part.left_out) == ({b"net.py"}, ["x.log"])
    tree = _take(cache, tmp_path / "tree")
    assert (tree.files, tree.head) == (3, _git(repository, "rev-parse", "HEAD"))


def test_a_folder_that_an_outer_repository_ignores_is_sent(cache: Path, folder: Path) -> None:
    """Such as one below a home with a repository of settings, which ignores everything else."""
    _git(folder.parent, "init", "-q")
    (folder.parent / ".gitignore").write_text("*\n")

    assert _take(cache, folder).files == 2


def test_nested_repositories_are_sent_with_their_changes(cache: Path, repository: Path, tmp_path: Path) -> None:
    """Submodules and clones, two deep, each by its own lists. A submodule that is not checked out is listed."""
    inner = tmp_path / "inner"
    inner.mkdir()
    _git(inner, "init", "-q")
    (inner / "lib.py").write_text("1\n")
    _git(inner, "add", ".")
    _git(inner, "commit", "-qm", "first")
    for name in ("sub", "missing"):
        _git(repository, "submodule", "add", "-q", str(inner), name)
    _git(repository, "submodule", "deinit", "-q", "-f", "missing")
    _git(repository / "sub", "clone", "-q", str(inner), "clone")
    (repository / "sub/lib.py").write_text("2\n")
    (repository / "sub/clone/.git/info/exclude").write_text("made\n")
    (repository / "sub/clone/made").write_text("")

    snapshot, packs, _ = _ship(cache, repository)

    files = _contents(snapshot.tree, packs)
    assert (files[b"sub/lib.py"], files[b"sub/clone/lib.py"]) == (b"2\n", b"1\n")
    assert snapshot.left_out == ["missing/ (empty)", "sub/clone/made"]


def test_what_git_cannot_hold_is_listed(cache: Path, folder: Path) -> None:
    """Empty folders, also as the target of a link, pipes and sockets."""
    (folder / "out/deep").mkdir(parents=True)
    (folder / "results").symlink_to("out")
    os.mkfifo(folder / "pipe")
    (folder / "model/only").mkdir()
    os.mkfifo(folder / "model/only/pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))

        snapshot = _take(cache, folder)

    expected = ["model/only/pipe (no file)", "out/deep/ (empty)", "pipe (no file)", "socket (no file)"]
    assert (snapshot.left_out, snapshot.files) == (expected, 3)


def test_links_out_of_the_folder_and_pointers_are_named(cache: Path, folder: Path) -> None:
    """They are sent, and will not be what they are here. Links inside are right."""
    (folder / "data").symlink_to("/data/images")
    (folder / "model/above").symlink_to("../../other")
    (folder / "model/inside").symlink_to("../train.py")
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"
    (folder / "weights").write_text(pointer)

    warnings = _take(cache, folder).warnings

    assert {warning.split()[0] for warning in warnings} == {"data", "model/above", "weights"}
    assert "git lfs pull" in "".join(warnings)


@pytest.mark.parametrize(
    "name",
    [
        *(".env", "conf/.env.local", "id_ed25519", "tls/server.key", "lab.ovpn", ".aws/config", "deep/.ssh/config"),
        *("credentials.json", "service-account-3.json", "KUBECONFIG-lab", "x.kubeconfig", "a\n/b.pem"),
    ],
)
def test_a_file_that_is_named_as_a_secret_is_refused(name: str, cache: Path, folder: Path) -> None:
    """Unless the person names it by --include, or git ignores it."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("")

    error = _refusal(cache, folder)

    assert (error.code, name in str(error)) == (WRONG, True)
    assert "`bp secret set`" in error.fix
    assert _take(cache, folder, name).files == 3
    if "/" not in name:
        (folder / ".gitignore").write_text(f"{name}\n")
        assert _take(cache, folder).left_out == [name]


@pytest.mark.parametrize("name", [".env.example", "key.py", "monkey", "env", "id_ed25519.pub", "x.pub.pem"])
def test_other_names_are_no_secrets(name: str, cache: Path, folder: Path) -> None:
    """Examples, public keys, and words that only resemble."""
    (folder / name).write_text("")

    assert _take(cache, folder).files == 3


def test_include_sends_what_is_ignored(cache: Path, folder: Path) -> None:
    """The next snapshot without it has it no more."""
    (folder / ".gitignore").write_text("data/\n")
    (folder / "data/small").mkdir(parents=True)
    for name in ("a", "small/b"):
        (folder / "data" / name).write_text(name)

    assert (_take(cache, folder, "data/a").files, _take(cache, folder, "data/small/b", "data/a").files) == (4, 5)
    assert _take(cache, folder).left_out == ["data/"]


@pytest.mark.parametrize("word", ["nothing", "model", "../work2", "/etc/hostname", ".git/config", "model/../../x"])
def test_include_names_files_of_the_folder(word: str, cache: Path, repository: Path) -> None:
    """Not others, and not the repository itself."""
    (repository.parent / "work2").write_text("")

    assert _refusal(cache, repository, word).code == WRONG


def _write_large(folder: Path) -> str:
    with (folder / "model/weights.bin").open("wb") as file:
        file.truncate(1_000 * MEGABYTE)
    return "larger than 50 MB: model/weights.bin"


def _write_checkpoints(folder: Path) -> str:
    (folder / "ckpt").mkdir()
    for number in range(11):
        with (folder / f"ckpt/{number}.pt").open("wb") as file:
            file.truncate(49 * MEGABYTE)
    return "ckpt has 539000000"


def _make_environment(folder: Path) -> str:
    (folder / "model/.venv").mkdir()
    (folder / "model/.venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    # Of a package, and no secret.
    (folder / "model/.venv/cacert.pem").write_text("certificates\n")
    return "an environment of Python: model/.venv"


def _write_many(folder: Path) -> str:
    (folder / "frames").mkdir()
    for number in range(300):
        (folder / f"frames/{number}").touch()
    return "frames has 300"


@pytest.mark.parametrize("write", [_write_large, _write_checkpoints, _make_environment, _write_many])
def test_what_is_too_large_is_refused_with_its_place(
    write: Callable[[Path], str], cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a folder of checkpoints, an environment, many files: the message names it, and .gitignore helps."""
    monkeypatch.setattr(module, "_COUNT_LIMIT", 200)
    expected = write(folder)

    error = _refusal(cache, folder)

    assert (error.code, expected in str(error), ".gitignore" in error.fix) == (WRONG, True, True), error
    part = expected.split()[0] if " has " in expected else "model"
    (folder / ".gitignore").write_text(f"{part}/\n")
    assert _take(cache, folder).left_out == [f"{part}/"]


@pytest.mark.nightly
def test_200_000_files_are_refused(cache: Path, folder: Path) -> None:
    """Within half a minute, and nothing is written."""
    (folder / "frames").mkdir()
    for number in range(200_000):
        os.close(os.open(folder / f"frames/{number}", os.O_CREAT | os.O_WRONLY))
    start = time.monotonic()

    error = _refusal(cache, folder)

    assert "200002 files, at most 100000; frames has 200000" in str(error)
    assert time.monotonic() - start < 30


def test_a_file_that_cannot_be_read_is_named(cache: Path, folder: Path) -> None:
    """Also a folder whose files nobody can list."""
    script = (
        "import sys; from pathlib import Path; from bedplate.programs.bp.snapshot import open_shadow\n"
        "with open_shadow(Path(sys.argv[1]), Path(sys.argv[2])) as shadow: shadow.take()"
    )
    (folder / "closed").mkdir()
    # Root reads everything, unless it has no capabilities.
    without = ("setpriv", "--bounding-set=-all") if os.geteuid() == 0 else ()
    errors = []
    for name, mode in (("train.py", 0o644), ("closed", 0o755)):
        (folder / name).chmod(0)
        command = (*without, sys.executable, "-c", script, str(cache), str(folder))
        errors.append(subprocess.run(command, capture_output=True, text=True, check=False).stderr)
        (folder / name).chmod(mode)

    for error, name in zip(errors, ("train.py", "closed"), strict=True):
        assert name in error.splitlines()[-1]
        assert "Permission denied" in error.splitlines()[-1]


def test_a_file_that_changes_while_it_is_read_is_read_again(
    cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that always changes is named. The snapshot is complete."""
    original = module.Shadow._update  # noqa: SLF001  the moment in which git reads

    def change(shadow: module.Shadow, option: str, names: list[str]) -> None:
        original(shadow, option, names)
        if option == "--add" and len(changes) < limit:
            changes.append(1)
            with (folder / "train.py").open("a") as file:
                file.write("more\n")

    monkeypatch.setattr(module.Shadow, "_update", change)
    for count, warnings in ((1, []), (9, ["train.py changes while it is read"])):
        limit, changes = count, list[int]()
        (folder / "train.py").write_text("first\n")
        snapshot, packs, _ = _ship(cache, folder)
        assert snapshot.warnings == warnings
    assert b"train.py" in _contents(snapshot.tree, packs)


# Each with the key of git's configuration that names a program, and how the program would be started.
_PROGRAMS = (
    *("core.fsmonitor", "core.sshCommand", "core.askPass", "core.editor", "core.pager", "core.gitProxy"),
    *("core.alternateRefsCommand", "credential.helper", "diff.external", "gpg.program", "pager.ls-files"),
    *(
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "diff.x.textconv",
        "merge.x.driver",
        "uploadpack.packObjectsHook",
    ),
    *("alias.ls-files", "alias.update-index", "alias.write-tree", "alias.rev-parse", "alias.config", "core.hooksPath"),
)
_HOOKS = ("post-index-change", "pre-auto-gc", "reference-transaction", "post-checkout", "fsmonitor-watchman")


@pytest.mark.parametrize("key", [*_PROGRAMS, *_HOOKS, "promisor", "GIT_EXTERNAL_DIFF"])
@pytest.mark.parametrize("place", ["own", "person"])
def test_no_program_of_a_configuration_of_git_is_executed(  # noqa: PLR0913, PLR0917  two cases and three folders
    key: str, place: str, cache: Path, repository: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the repository, which may come from anywhere, and of the person: each would leave a mark."""
    marker = repository.parent / "executed"
    program = repository.parent / "program"
    program.write_text(f"#!/bin/sh\necho {key} >>{marker}\ncat\n")
    program.chmod(0o755)
    (repository / ".gitattributes").write_text("* filter=x diff=x merge=x text\n")
    _git(repository, "add", ".")
    _git(repository, "commit", "-qm", "second")
    where = (repository / ".git/config") if place == "own" else home / ".gitconfig"
    if key in _HOOKS:
        shutil.copy(program, repository / ".git/hooks" / key)
        key = "core.hooksPath"
    if key == "core.hooksPath":
        for hook in _HOOKS:
            shutil.copy(program, repository / ".git/hooks" / hook)
        _git(repository, "config", "--file", str(where), key, str(repository / ".git/hooks"))
    elif key == "promisor":
        for name, value in (("promisor", "true"), ("url", f"ext::{program}"), ("partialclonefilter", "blob:none")):
            _git(repository, "config", "--file", str(where), f"remote.origin.{name}", value)
        shutil.rmtree(repository / ".git/objects")
        (repository / ".git/objects").mkdir()
    elif key.startswith("GIT_"):
        monkeypatch.setenv(key, str(program))
        monkeypatch.setenv("GIT_SSH_COMMAND", str(program))
        monkeypatch.setenv("GIT_DIR", str(repository / "elsewhere"))
    else:
        _git(
            repository, "config", "--file", str(where), key, f"!{program}" if key.startswith("alias") else str(program)
        )
    (repository / "train.py").write_text("changed\n")
    marker.unlink(missing_ok=True)

    _, packs, _ = _ship(cache, repository)

    assert packs
    assert not marker.exists(), marker.read_text()


def test_the_marks_of_programs_work(repository: Path) -> None:
    """Git itself executes `fsmonitor` and filters of that repository."""
    marker = repository.parent / "executed"
    program = repository.parent / "program"
    program.write_text(f"#!/bin/sh\necho >>{marker}\ncat\n")
    program.chmod(0o755)
    (repository / ".gitattributes").write_text("* filter=x\n")
    _git(repository, "config", "filter.x.clean", str(program))
    _git(repository, "add", ".")
    assert marker.exists()
    marker.unlink()
    _git(repository, "config", "core.fsmonitor", str(program))
    _git(repository, "status")
    assert marker.exists()


def test_the_repository_of_the_person_is_only_read(cache: Path, repository: Path) -> None:
    """No file of it changes, is new, or gets another time."""

    def state() -> Mapping[str, tuple[int, int, int]]:
        facts = {str(path): path.stat() for path in (repository / ".git").rglob("*")}
        return {path: (fact.st_size, fact.st_mtime_ns, fact.st_ino) for path, fact in facts.items()}

    before = state()
    (repository / "train.py").write_text("changed\n")
    _ship(cache, repository)

    assert state() == before


def test_a_person_may_clean_repository_and_cache(cache: Path, repository: Path) -> None:
    """`git gc --prune=now` between two snapshots, and lost objects of the cache: the packs are complete."""
    _ship(cache, repository)
    (repository / "train.py").write_text("changed\n")
    _git(repository, "reflog", "expire", "--expire=now", "--all")
    _git(repository, "gc", "-q", "--prune=now")

    second, packs, names = _ship(cache, repository)

    assert (len(names), _contents(second.tree, packs)[b"train.py"]) == (2, b"changed\n")
    for path in cache.glob("trees/*/objects/pack/*"):
        path.unlink()
    (repository / "train.py").write_text("third\n")
    third, packs, names = _ship(cache, repository)
    assert (len(names), _contents(third.tree, packs)[b"train.py"]) == (1, b"third\n")


@pytest.mark.parametrize(("kind", "files"), [("split", 4), ("sha256", 3)])
def test_files_that_an_unreadable_index_tracks_are_listed(kind: str, files: int, cache: Path, folder: Path) -> None:
    """What is tracked and ignored is left out then. An index in two files is read, and a damaged one is refused."""
    _git(folder, "init", "-q", f"--object-format={'sha256' if kind == 'sha256' else 'sha1'}")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "kept.log").write_text("")
    _git(folder, "add", "-f", ".")
    if kind == "split":
        _git(folder, "update-index", "--split-index")

    snapshot = _take(cache, folder)

    assert (snapshot.files, snapshot.left_out) == (files, ["kept.log"][: 4 - files])
    (folder / ".git/index").write_bytes(b"no index")
    assert "index" in str(_refusal(cache, folder))


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://ada:token@git.lab/models.git?x=1", "https://git.lab/models.git"),
        ("git@git.lab:team/models.git", "git.lab:team/models.git"),
        ("ssh://git@git.lab:22/models", "ssh://git.lab:22/models"),
        ("/srv/git/models@2", "/srv/git/models@2"),
    ],
)
def test_the_address_of_a_repository_has_no_user(address: str, expected: str, cache: Path, repository: Path) -> None:
    """The record is open to everyone, and some addresses have a token."""
    _git(repository, "remote", "add", "origin", address)

    assert _take(cache, repository).remote == expected


def test_a_run_has_two_packs_at_most(cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of all, one with all changes since; a new one of all once the changes are too large."""
    monkeypatch.setattr(module, "_CHANGES_LIMIT", 20_000)
    (folder / "large").write_bytes(os.urandom(60_000))
    first, _, (full,) = _ship(cache, folder)
    assert _ship(cache, folder)[2] == [full]

    for number in range(3):
        (folder / f"{number}.py").write_bytes(os.urandom(4_000))
        snapshot, packs, names = _ship(cache, folder)
        assert names == [full, f"{snapshot.tree}-{first.tree}.pack"]
        assert len(_contents(snapshot.tree, packs)) == 4 + number
        assert not set(_objects(packs[0])) & set(_objects(packs[1]))

    (folder / "3.py").write_bytes(os.urandom(9_000))
    snapshot, packs, names = _ship(cache, folder)
    assert (names, len(_contents(snapshot.tree, packs))) == ([f"{snapshot.tree}-0.pack"], 7)


def test_the_cache_holds_no_more_than_the_packs(cache: Path, folder: Path) -> None:
    """However often a large file changes."""
    for _ in range(5):
        (folder / "results.csv").write_bytes(os.urandom(MEGABYTE))
        _, packs, _ = _ship(cache, folder)

    held = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    assert held < sum(map(len, packs)) + 100_000
    assert all(path.stat().st_mode & 0o077 == 0 for path in cache.iterdir())


def test_two_runs_of_a_folder_wait_for_each_other(cache: Path, folder: Path) -> None:
    """Both have the same packs."""
    results: list[list[str]] = []
    with open_shadow(cache, folder):
        threads = [threading.Thread(target=lambda: results.append(_ship(cache, folder)[2])) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        assert not results
    for thread in threads:
        thread.join()
    assert results[0] == results[1] != []


_FULL = """case "$*" in
*" init "*) /bin/mkdir -p $GIT_DIR;;
*) echo 'fatal: No space left on device' >&2; exit 128
esac"""


@pytest.mark.parametrize(
    ("git", "sentence"),
    [
        (None, "No such file or directory: 'git'"),
        ('echo "error: unknown option \\`object-format=sha1\'" >&2; exit 129', "unknown option"),
        (_FULL, "No space left"),
    ],
)
def test_a_git_that_is_missing_or_fails_is_said(
    git: str | None, sentence: str, cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 4, in words."""
    programs = folder.parent / "bin"
    programs.mkdir()
    if git:
        (programs / "git").write_text(f"#!/bin/sh\n{git}\n")
        (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))

    error = _refusal(cache, folder)

    assert (error.code, sentence in str(error)) == (MISSING, True), error
    assert "git 2.30" in error.fix


def test_a_cache_that_cannot_be_written_is_said(cache: Path, folder: Path) -> None:
    """Status 4, with its name."""
    cache.write_text("no folder")

    assert str(cache) in _refusal(cache, folder).fix
