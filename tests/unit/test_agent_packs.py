"""Packs of git that are read without git: trees of git itself, damage, names that lead out, and a full disk."""

import os
import resource
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from bedplate.programs.agent import packs
from bedplate.programs.agent.packs import CodeError, check_out
from tests.testlab.fakes.laptop import oldest_python
from tests.testlab.fakes.runs import ROOT, pack


def write(tmp_path: Path, data: bytes) -> Path:
    """Return the file of a pack."""
    (tmp_path / "a.pack").write_bytes(data)
    return tmp_path / "a.pack"


def git(folder: Path, *words: str, data: bytes = b"") -> bytes:
    """Return the output of git in a folder."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ("git", "-c", "user.name=ada", "-c", "user.email=ada@lab", *words)
    return subprocess.run(command, cwd=folder, env=environment, input=data, capture_output=True, check=True).stdout


def git_packs(folder: Path, base: str = "") -> tuple[str, Path]:
    """Return the tree of a folder, and a pack as bp makes it, with all that a base lacks."""
    git(folder, "add", "--all")
    tree = git(folder, "write-tree").decode().strip()
    wants = f"{tree}\n" + (f"^{base}\n" if base else "")
    options = ("--revs", "--window=0", "--no-reuse-delta", "-q", ".git/code")
    name = git(folder, "pack-objects", *options, data=wants.encode()).decode().strip()
    return tree, folder / f".git/code-{name}.pack"


def test_a_tree_of_git_is_checked_out(tmp_path: Path) -> None:
    """With programs, links, strange names and a large file; two packs have it together."""
    work = tmp_path / "work"
    (work / "deep/er").mkdir(parents=True)
    git(work, "init", "-q")
    (work / "deep/er/large").write_bytes(os.urandom(3 << 20) + bytes(1 << 20))
    (work / "run.sh").write_text("true\n")
    (work / "run.sh").chmod(0o755)
    (work / "empty").touch()
    (work / "data").symlink_to("/data/set")
    Path(os.fsdecode(os.fsencode(work) + b"/caf\xe9\n.py")).write_text("x")
    base, first = git_packs(work)
    (work / "deep/er/changed").write_text("new\n")
    tree, second = git_packs(work, base)

    check_out([first, second], tree, tmp_path / "out")

    compare = ("diff", "-r", "--no-dereference", "-x", ".git", "work", "out")
    assert subprocess.run(compare, cwd=tmp_path, check=False).returncode == 0
    assert os.access(tmp_path / "out/run.sh", os.X_OK)
    assert (tmp_path / "out/data").readlink() == Path("/data/set")
    with pytest.raises(CodeError, match="the packs lack the tree"):
        check_out([first], tree, tmp_path / "other")


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "a/b", "/etc/passwd", ".git", ".GIT", ".Git ", ".git.", "git~1", "GIT~1", ".git::$INDEX"),
        *(".g\u200cit", "\ufeff.git"),
    ],
)
def test_a_name_that_leads_out_or_to_git_is_refused(name: str, tmp_path: Path) -> None:
    """Nothing of the tree is left, wherever the name is."""
    trees: list[list[Any]] = [
        [("100644", name, b"x")],
        [("40000", "a", [("40000", name, [])])],
        [("120000", name, b"x")],
    ]
    for tree in trees:
        key, data = pack([("100644", "0", b"first"), *tree])

        with pytest.raises(CodeError, match="the code has a file with the name"):
            check_out([write(tmp_path, data)], key, tmp_path / "out")

        assert [path.name for path in tmp_path.iterdir()] == ["a.pack"]


def test_names_that_only_look_like_git_are_checked_out(tmp_path: Path) -> None:
    """The counterpart of what is refused."""
    names = (".gitignore", ".github", "git", "git~2", "..a", "...", "a.git")
    key, data = pack(dict.fromkeys(names, b"x"))

    check_out([write(tmp_path, data)], key, tmp_path / "out")

    assert {path.name for path in (tmp_path / "out").iterdir()} == {*names}


@pytest.mark.parametrize("second", [("100644", "a", b"y"), ("40000", "a", [("100644", "b", b"y")])])
def test_a_name_that_is_there_twice_is_refused(second: tuple[str, str, bytes], tmp_path: Path) -> None:
    """A link with the name of a folder would lead what is in the folder out of the tree."""
    (tmp_path / "target").mkdir()
    key, data = pack([("120000", "a", os.fsencode(tmp_path / "target")), second])

    with pytest.raises(CodeError, match="File exists"):
        check_out([write(tmp_path, data)], key, tmp_path / "out")

    assert not list((tmp_path / "target").iterdir())


def test_a_folder_that_exists_is_not_written_to(tmp_path: Path) -> None:
    """The code comes into a new folder."""
    key, data = pack({"a": b"x"})
    (tmp_path / "out").mkdir()

    with pytest.raises(CodeError, match="File exists"):
        check_out([write(tmp_path, data)], key, tmp_path / "out")


def test_other_content_than_its_hash_is_never_checked_out(tmp_path: Path) -> None:
    """Each byte of a pack decides: a changed pack is damaged, or lacks what the tree names."""
    key, data = pack({"a": b"content", "b": {"c": b"more"}})
    size = len(data) - 20

    # Format and version of a pack: what follows has its hashes.
    for at in range(8, size):
        changed = bytearray(data)
        changed[at] ^= 0x55
        with pytest.raises(CodeError):
            check_out([write(tmp_path, bytes(changed))], key, tmp_path / f"out{at}")


def test_a_cut_pack_or_a_delta_is_named(tmp_path: Path) -> None:
    """At each length."""
    key, data = pack({"a": b"content"})
    for size in range(len(data) - 20):
        with pytest.raises(CodeError, match=r"a\.pack is damaged, or has deltas|the packs lack the tree"):
            check_out([write(tmp_path, data[:size])], key, tmp_path / "out")

    delta = b"PACK\0\0\0\2\0\0\0\1" + bytes([6 << 4 | 1]) + zlib.compress(b"x")
    bomb = b"PACK\0\0\0\2\0\0\0\1" + bytes([3 << 4 | 1]) + zlib.compress(bytes(1 << 22))
    for text in (delta, bomb):
        with pytest.raises(CodeError, match=r"a\.pack is damaged, or has deltas"):
            check_out([write(tmp_path, text)], key, tmp_path / "out")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit of the size of files stands in for the disk."""
    key, data = pack({"a": b"x", "b": {"large": bytes(100_000)}})
    file, limits = write(tmp_path, data), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(CodeError, match=r"cannot write the code to .*: File too large"):
            check_out([file], key, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_a_large_tree_needs_little_memory(tmp_path: Path) -> None:
    """At most 60 MB for 6,400 files with 205 MB; 100,000 small files need no more."""
    large = {f"d{number}": {f"f{n}": os.urandom(16_000) + bytes(16_000) for n in range(64)} for number in range(100)}
    small = {f"d{number}": {f"f{n}": b"%d" % (number * 1000 + n) for n in range(1000)} for number in range(100)}
    script = (
        "import sys; from pathlib import Path; from bedplate.programs.agent.packs import check_out;"
        "check_out([Path(sys.argv[1])], sys.argv[2], Path(sys.argv[3]));"
        "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    for name, tree in (("large", large), ("small", small)):
        key, data = pack(tree)
        command = (oldest_python(), "-c", script, str(write(tmp_path, data)), key, str(tmp_path / name))
        start = time.monotonic()
        done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
        sys.stdout.write(f"{name}: {done.stdout.strip()} KiB, {time.monotonic() - start:.1f} s\n")

        assert int(done.stdout) < 60_000


@pytest.mark.nightly
def test_code_that_grows_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small pack may have folders in one another many times, or files and links that are mostly zeros."""
    monkeypatch.setattr(packs, "_MOST", 1 << 20)
    wide: Any = [("100644", f"{number}", b"x") for number in range(10)]
    for _ in range(5):
        wide = [("40000", f"{number}", wide) for number in range(10)]
    deep: Any = [("100644", "a", b"x")]
    for _ in range(900):
        deep = [("40000", "d", deep)]
    cases = {
        "entries": wide,
        "the same file": [("100644", f"{number}", bytes(1 << 17)) for number in range(9)],
        "a file": [("100644", "zeros", bytes(2 << 20))],
        "a depth": deep,
        "a link": [("120000", "zeros", b"/a" * 5_000)],
        "a large link": [("120000", "zeros", bytes(1 << 17))],
    }
    for name, code in cases.items():
        tree, data = pack(code)
        with pytest.raises(CodeError, match=r"larger than|cannot write"):
            check_out([write(tmp_path, data)], tree, tmp_path / "out")
        assert not (tmp_path / "out").exists(), name
