"""Requests of programs to the hub, against an https server: repeats, kept connections, files and refusals."""

import os
import resource
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bedplate.programs.connection import (
    AWAY,
    CERTIFICATE,
    CLOCK,
    FILE,
    FILES,
    REFUSED,
    Connection,
    HubError,
)
from tests.testlab.fakes.laptop import HOST, LATER_TOKEN, TOKEN, Answer, FakeHub

Connect = Callable[..., Connection]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """Yield a hub that answers one call and one file."""
    with FakeHub(tmp_path) as hub:
        hub.answer("/bedplate/whoami", {"name": "ada"})
        hub.answers[f"{FILES}/packs/ada/x.pack"] = (200, {}, b"pack" * 100_000)
        hub.answers[f"{FILES}/new"] = (201, {}, b"")
        yield hub
        hub.shutdown()


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Yield a function that returns a hub as a run reaches it; a refused token is replaced by the later one."""
    connections = list[Connection]()

    def connect(hub: FakeHub, host: str = HOST) -> Connection:
        url, tokens = f"https://{host}:{hub.server_address[1]}", {"": TOKEN}
        certificate = hub.certificate.read_text()
        connections.append(Connection(url, certificate, lambda used: tokens.get(used, LATER_TOKEN), "127.0.0.1"))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()


def failure(connection: Connection, patience: float = 0.0) -> HubError:
    """Return the failure of a call."""
    with pytest.raises(HubError) as error:
        connection.call("/bedplate/whoami", patience=patience)
    return error.value


def test_a_connection_is_kept_for_the_next_request(connect: Connect, hub: FakeHub) -> None:
    """Calls, files and refusals use one connection; the name of the hub is that of its certificate."""
    connection = connect(hub)

    assert connection.call("/bedplate/whoami", {"a": 1}) == {"name": "ada"}
    assert failure(connect(hub, "hub.other.internal")).reason == CERTIFICATE
    with pytest.raises(HubError, match=r"no such thing \(404\)") as error:
        connection.call("/none")
    connection.put("new", b"0")
    assert connection.get("packs/ada/x.pack") == b"pack" * 100_000

    assert (error.value.reason, error.value.status) == (REFUSED, 404)
    assert hub.bodies[0] == {"a": 1}
    assert [line for line, _, _ in hub.requests][1:3] == ["GET /none", f"PUT {FILES}/new"]
    assert len(hub.sockets) == 2


def test_a_connection_that_the_hub_has_ended_is_not_used(connect: Connect, hub: FakeHub) -> None:
    """A request that is never repeated succeeds on a new one, also after a refusal that ends the connection."""
    hub.first = [(200, {"Connection": "close"}, b"{}"), (200, {}, b"{}")]
    connection = connect(hub)

    for _ in range(3):
        connection.call("/bedplate/whoami", patience=0)

    hub.end_connections()
    assert connection.call("/bedplate/whoami", patience=0) == {"name": "ada"}
    assert len(hub.sockets) == 3


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_request_is_repeated_while_that_may_help(connect: Connect, status: int, hub: FakeHub) -> None:
    """Without patience it is sent once. What the hub refuses is not repeated."""
    hub.first = [(status, {}, b"<html>")] * 2
    assert connect(hub).call("/bedplate/whoami") == {"name": "ada"}

    hub.first = [(status, {}, b"{}")]
    assert (failure(connect(hub)).status, hub.first) == (status, [])
    hub.first = [(507, {}, b'{"message": "full"}')]
    assert (failure(connect(hub), 9).status, len(hub.requests)) == (507, 5)


def test_a_hub_that_is_away_is_waited_for(connect: Connect, hub: FakeHub) -> None:
    """A request succeeds once the hub is back."""
    hub.is_away, connection = True, connect(hub)
    assert failure(connection).reason == AWAY

    threading.Timer(0.3, setattr, (hub, "is_away", False)).start()
    assert connection.call("/bedplate/whoami", patience=20) == {"name": "ada"}


def test_a_cut_answer_is_none(connect: Connect, hub: FakeHub, tmp_path: Path) -> None:
    """A file appears when it is complete, and leaves nothing else beside it."""
    path = f"{FILES}/packs/ada/x.pack"
    (tmp_path / "cache").mkdir()
    hub.first = [(200, {"Content-Length": "500000", "Connection": "close"}, b"half")]
    connect(hub).fetch("packs/ada/x.pack", tmp_path / "cache/x.pack")

    hub.answers[path] = (200, {"Content-Length": "500000", "Connection": "close"}, b"half")
    with pytest.raises(HubError):
        connect(hub).fetch("packs/ada/x.pack", tmp_path / "cache/y.pack", 0)

    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["x.pack"]
    assert (tmp_path / "cache/x.pack").read_bytes() == b"pack" * 100_000


def test_a_file_is_on_the_disk_before_it_has_its_name(
    connect: Connect, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power loss it is complete, or missing."""
    synced = list[tuple[int, bool]]()
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((os.fstat(file).st_size, (tmp_path / "x").exists())))

    connect(hub).fetch("packs/ada/x.pack", tmp_path / "x")

    assert synced == [(400_000, False)]


@pytest.mark.parametrize("is_away", [False, True])
def test_requests_can_be_ended(is_away: bool, connect: Connect, hub: FakeHub) -> None:  # noqa: FBT001  a parameter
    """Also one that waits for an answer, or for its next try: it fails at once, and nothing follows."""

    def answer() -> Answer:
        time.sleep(30)
        return 200, {}, b"{}"

    hub.answers["/slow"] = answer
    hub.is_away, connection, start = is_away, connect(hub), time.monotonic()
    threading.Timer(1, connection.abort).start()

    with pytest.raises(HubError):
        connection.call("/slow", patience=60)

    assert time.monotonic() - start < 5
    assert len(hub.requests) == (not is_away)


def test_files_are_sent_from_their_start_at_each_repeat(connect: Connect, hub: FakeHub, tmp_path: Path) -> None:
    """A file that cannot be read or written is named, and nothing is repeated."""
    (tmp_path / "big").write_bytes(os.urandom(1 << 20))
    hub.first = [(502, {}, b""), (429, {}, b"")]
    connect(hub).send("new", tmp_path / "big")

    assert [body for _, _, body in hub.requests] == [(tmp_path / "big").read_bytes()] * 3
    for action, name in ((connect(hub).send, "cannot read"), (connect(hub).fetch, "cannot write")):
        with pytest.raises(HubError, match=f"{name} .*/none/x: No such file") as error:
            action("packs/ada/x.pack", tmp_path / "none/x")
        assert error.value.reason == FILE


def test_a_full_disk_ends_a_copy_at_once(connect: Connect, hub: FakeHub, tmp_path: Path) -> None:
    """It is no failure of the hub. A limit of the size of files stands in for the disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(HubError, match=r"cannot write .*: File too large") as error:
            connect(hub).fetch("packs/ada/x.pack", tmp_path / "x", 60)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert (error.value.reason, len(hub.requests)) == (FILE, 1)
    assert not (tmp_path / "x").exists()


def test_the_clock_is_that_of_the_hub(connect: Connect, hub: FakeHub) -> None:
    """It goes on between answers."""
    hub.clock = -3600
    connection = connect(hub)
    connection.call("/bedplate/whoami")

    assert abs(connection.now - time.time() + 3600) < 3
    first = connection.now
    time.sleep(0.01)
    assert connection.now > first


def test_a_refused_token_is_replaced_once(connect: Connect, hub: FakeHub) -> None:
    """The hub's reason is in the failure."""
    hub.tokens = {LATER_TOKEN}
    assert connect(hub).call("/bedplate/whoami", patience=0) == {"name": "ada"}

    hub.tokens = set()
    assert (failure(connect(hub)).status, str(failure(connect(hub)))) == (
        *(401, "the hub refuses: the token has expired (401)"),
    )


def test_a_certificate_of_another_time_or_none_has_its_reason(connect: Connect, hub: FakeHub, tmp_path: Path) -> None:
    """Nothing is sent."""
    (tmp_path / "old").mkdir()
    with FakeHub(tmp_path / "old", days=-1) as old:
        assert failure(connect(old)).reason == CLOCK
        old.shutdown()
    with pytest.raises(HubError, match="damaged"):
        Connection("https://hub", "none", str)
    with pytest.raises(ValueError, match="ort"):
        Connection("https://hub:x", "", str)
    assert not hub.requests


def test_threads_share_connections(connect: Connect, hub: FakeHub) -> None:
    """Each answer belongs to its request."""
    for number in range(8):
        hub.answer(f"/{number}", number)
    connection = connect(hub)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: connection.call(f"/{number % 8}"), range(80)))

    assert answers == [number % 8 for number in range(80)]
    assert len(hub.sockets) <= 8


@pytest.mark.nightly
def test_a_slow_answer_has_an_end(connect: Connect, hub: FakeHub) -> None:
    """A call takes its patience for one try, and again for repeats."""
    hub.pause, start = 0.5, time.monotonic()

    assert failure(connect(hub), 2).reason == AWAY

    assert time.monotonic() - start < 8


def test_tls_has_a_minimum_version(connect: Connect, hub: FakeHub) -> None:
    """Version 1.2."""
    with connect(hub).connect() as secured:
        assert secured.version() in {"TLSv1.2", "TLSv1.3"}
        assert secured.context.minimum_version >= ssl.TLSVersion.TLSv1_2
