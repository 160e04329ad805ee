"""The guard of mounts, as it runs on a node: whose server it asks, and what it takes off."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.support.loaded import loaded

NOWHERE = "127.0.0.2"


@pytest.fixture
def guard(tmp_path: Path) -> ModuleType:
    """Give the guard, with a table of one mount and folders of its own; it may take off nothing."""
    module = loaded("storage/bedplate-storage-guard")
    table = tmp_path / "mounts"
    table.write_text(f"home /home {NOWHERE}\ndata /data {NOWHERE}\n")
    module.__dict__.update(TABLE=str(table), SILENT=str(tmp_path / "silent"), ASIDE=str(tmp_path / "lost"), taken=[])
    module.__dict__["really_take_off"] = module.take_off
    module.__dict__["take_off"] = lambda path, _, why: module.taken.append((path, why))
    module.__dict__["mounted"] = lambda: {"/home"}
    return module


@pytest.fixture
def server(guard: ModuleType) -> Iterator[None]:
    """Let somebody answer where the guard asks."""
    with socket.create_server((NOWHERE, 0)) as listening:
        guard.__dict__["PORT"] = listening.getsockname()[1]
        yield


@pytest.mark.usefixtures("server")
def test_a_server_that_answers_keeps_its_mounts(guard: ModuleType) -> None:
    """However often it is asked."""
    guard.__dict__["LIMIT"] = 0.0

    guard.watch()
    guard.release()

    assert guard.taken == []


def test_a_name_that_nobody_answers_is_no_silent_server(guard: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """While names are not answered, what is mounted works on."""

    def nameless(*_: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(guard.socket, "create_connection", nameless)
    guard.__dict__["LIMIT"] = 0.0

    guard.watch()

    assert guard.taken == []


def test_a_silent_server_is_waited_for_until_the_limit(guard: ModuleType) -> None:
    """Whoever restarts a server has minutes for it; after them nobody waits any more."""
    guard.watch()
    before = list(guard.taken)
    guard.__dict__["LIMIT"] = 0.0
    guard.watch()

    assert before == []
    assert guard.taken == [("/home", f"{NOWHERE} has not answered for 0 s")]


def test_a_server_that_came_back_is_forgiven(guard: ModuleType) -> None:
    """The wait begins anew with the next silence."""
    guard.watch()
    with socket.create_server((NOWHERE, 0)) as listening:
        guard.__dict__["PORT"] = listening.getsockname()[1]
        guard.watch()

    assert not (Path(guard.SILENT) / "home").exists()


def test_a_shutdown_waits_for_nobody(guard: ModuleType) -> None:
    """What is mounted of a silent server goes at once; what is not mounted is not touched."""
    guard.release()

    assert [path for path, _ in guard.taken] == ["/home"]


@pytest.fixture
def kernel(guard: ModuleType) -> list[tuple[str, int]]:
    """Give the guard its own `take_off`, and a kernel that notes what it is told about which path."""
    told: list[tuple[str, int]] = []
    mount = lambda _from, to, _kind, how, _data: told.append((to.decode(), how))  # noqa: E731
    umount = lambda path, how: told.append((path.decode(), how))  # noqa: E731
    guard.__dict__.update(LIBC=SimpleNamespace(mount=mount, umount2=umount), take_off=guard.really_take_off)
    return told


def aside(guard: ModuleType) -> str:
    """Return the one path at which a mount stands that was taken off."""
    ((_, path),) = guard.set_aside()
    return str(path)


def test_what_waits_for_the_next_use_is_never_taken_off(guard: ModuleType, kernel: list[tuple[str, int]]) -> None:
    """A mount goes in one blow, and its trigger stays: homes would else be made on the local disk."""
    guard.take_off("/home", "home", "silent")
    guard.take_off("/data", "data", "only its trigger is there")

    assert kernel == [(aside(guard), guard.MS_BIND), ("/home", guard.MNT_FORCE | guard.MNT_DETACH)]


def test_what_was_taken_off_is_told_an_error_until_the_server_is_back(
    guard: ModuleType, kernel: list[tuple[str, int]]
) -> None:
    """Once is not enough: a program with an open file tries again, and no path leads to what it waits for."""
    guard.take_off("/home", "home", "silent")
    kept = aside(guard)
    del kernel[:]

    guard.watch()
    guard.watch()
    with socket.create_server((NOWHERE, 0)) as listening:
        guard.__dict__["PORT"] = listening.getsockname()[1]
        guard.watch()
    guard.watch()

    assert kernel == [(kept, guard.MNT_FORCE)] * 2 + [(kept, guard.MNT_DETACH)]


def test_nothing_that_was_taken_off_holds_up_a_shutdown(guard: ModuleType, kernel: list[tuple[str, int]]) -> None:
    """What stands aside goes for good, by force."""
    guard.take_off("/home", "home", "silent")
    kept = aside(guard)
    guard.__dict__["mounted"] = set

    guard.release()

    assert kernel[-1] == (kept, guard.MNT_FORCE | guard.MNT_DETACH)
    assert guard.set_aside() == []


@pytest.mark.parametrize("store", ["home", "unknown"])
def test_a_mount_is_refused_while_its_server_is_silent(
    guard: ModuleType, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that nobody knows is too."""
    monkeypatch.setattr(sys, "argv", ["guard", "answers", store])

    with pytest.raises(SystemExit, match=f"the server of {store} does not answer"):
        guard.main()


@pytest.mark.usefixtures("server")
def test_a_mount_is_let_through_when_its_server_answers(guard: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """With status 0."""
    monkeypatch.setattr(sys, "argv", ["guard", "answers", "home"])

    with pytest.raises(SystemExit) as done:
        guard.main()

    assert done.value.code == 0
