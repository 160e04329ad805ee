"""Attempts of a person, of a pod, and of a run on the hub's front: the real nginx and check, and what they log."""

import json
import os
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bedplate.programs.hub.__main__ import Hub
from bedplate.programs.hub.rules import LONGEST_FILE
from bedplate.programs.hub.tokens import RefusedError, Token, read_token, sign
from tests.testlab.machines.hub import ADA, FILES, GRACE, HOST, KEY, OTHER, RUN, RunningHub, running_hub, token
from tests.testlab.run import ROOT, need_program

OF_RUN = f"run:{RUN}"
OUTPUTS = f"{FILES}/1/{RUN}/artifacts"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """Yield a running hub."""
    need_program("nginx")
    with running_hub(tmp_path_factory.mktemp("hub")) as running:
        yield running


def send(hub: RunningHub, *lines: str, body: bytes = b"", host: str = HOST) -> tuple[int, bytes]:
    """Send lines as they are; return the status of the first answer (0 without one) and all that came."""
    connection = hub.connect().sock
    head = [*lines[:1], *([f"Host: {host}"] if host else []), *lines[1:], "Connection: close", "", ""]
    answer = b""
    # nginx may refuse a request before it has read the whole of it.
    with connection, suppress(ConnectionError, ssl.SSLEOFError):
        connection.sendall("\r\n".join(head).encode("latin-1") + body)
        while part := connection.recv(65536):
            answer += part
    match = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    return int(match[1]) if match else 0, answer


def bearer(text: str, word: str = "Bearer") -> str:
    """Return the header of a token."""
    return f"Authorization: {word} {text}"


# --- tokens ---


def _with_uid(text: str, uid: str) -> str:
    return f"{uid}.{text.partition('.')[2]}"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: _with_uid(text, str(GRACE)),
        lambda text: _with_uid(text, "0"),
        lambda text: _with_uid(text, f"0{ADA}"),
        lambda text: _with_uid(text, f"+{ADA}"),
        lambda text: _with_uid(text, f"-{ADA}"),
        lambda text: _with_uid(text, "9" * 400),
        lambda text: _with_uid(text, f"{ADA}\u00a0"),
        lambda text: f"{text}=",
        lambda text: f"{text}==",
        lambda text: f"{text[:-1]}{chr(ord(text[-1]) + 1)}",
        lambda text: text.replace("person", "PERSON"),
        lambda text: text.replace("person", "person,admin"),
        lambda text: text.replace(".person", "..person"),
        lambda text: f"{text}.{text.rpartition('.')[2]}",
        lambda text: f"{text},{text}",
        lambda text: f"{text} {text}",
        lambda text: f"\t{text}",
        lambda text: f'"{text}"',
        lambda text: text.encode().hex(),
        lambda _: "." * 300,
        lambda text: f"{text}{'A' * 7000}",
    ],
)
def test_a_changed_token_is_refused(change: Callable[[str], str], hub: RunningHub) -> None:
    """Other digits, alphabets, paddings, signs and separators are other texts, which no key has signed."""
    text = change(token())

    status, _ = send(hub, "GET /bedplate/whoami HTTP/1.1", bearer(text))

    assert status in {400, 401}


@pytest.mark.parametrize(
    "scope",
    [
        f"{OF_RUN}\nperson",
        f"{OF_RUN}\0",
        "person ",
        "person\r\nX: y",
        "run:" + "\u0661" * 32,
        "run:" + "\uff11" * 32,
        "study:\u0430da",
    ],
)
def test_no_scope_has_other_characters(scope: str, tmp_path: Path) -> None:
    """Line ends, NUL, digits and letters of other alphabets: neither signed nor read."""
    with pytest.raises(RefusedError):
        read_token(sign(Token(ADA, int(time.time()) + 60, scope), KEY), (KEY,), time.time())
    (tmp_path / "people").write_text(f"{ADA} ada\n")
    with pytest.raises(RefusedError, match="a scope is"):
        Hub((KEY,), tmp_path, tmp_path / "people").mint(ADA, scope)


@pytest.mark.parametrize("word", ["bearer", "BEARER", "bEARER", "Basic", "Token", ""])
def test_a_token_has_one_form_of_header(word: str, hub: RunningHub) -> None:
    """The limit of requests counts by this header: forms that differ would have a limit each."""
    assert send(hub, "GET /bedplate/whoami HTTP/1.1", bearer(token(), word))[0] == 401


@pytest.mark.parametrize(
    "lines",
    [
        (bearer(token()), bearer(token(GRACE))),
        (bearer("x"), bearer(token())),
        ("Authorization:", f" Bearer {token()}"),
        (f"Proxy-Authorization: Bearer {token()}",),
        (f"Cookie: Authorization=Bearer {token()}",),
        (f"X-Authorization: Bearer {token()}",),
        (f"Authorization : Bearer {token()}",),
        ("X-name: ada", "X-scope: person", "X-Method: GET", "X-Target: /", f"X-Original-Authorization: {token()}"),
    ],
)
def test_one_header_has_the_token(lines: tuple[str, ...], hub: RunningHub) -> None:
    """Two of them, and a token elsewhere, are refused."""
    assert send(hub, "GET /bedplate/whoami HTTP/1.1", *lines)[0] in {400, 401}


def test_a_token_in_an_address_is_none(hub: RunningHub) -> None:
    """Addresses are kept by logs and browsers."""
    assert send(hub, f"GET /bedplate/whoami?access_token={token()}&token={token()} HTTP/1.1")[0] == 401
    assert send(hub, f"GET https://{token()}@{HOST}/bedplate/whoami HTTP/1.1")[0] in {400, 401, 421}


def test_a_study_is_ended_by_its_own_person(hub: RunningHub) -> None:
    """A name may start with those of two people: the end of one's study is not that of the other's."""
    people = hub.folder / "people"
    before = people.read_text()
    people.write_text(f"{before}20002 ada-b\n")
    mine, others = token(20002, "study:ada-b-1"), token(ADA, "study:ada-b-1")
    try:
        assert hub.ask("POST", "/bedplate/end", others).status == 200

        assert hub.ask("GET", "/bedplate/whoami", others).status == 401
        assert hub.ask("GET", "/bedplate/whoami", mine).status == 200
    finally:
        people.write_text(before)


# --- requests ---


@pytest.mark.parametrize(
    ("line", "host", "status"),
    [
        ("GET /bedplate/whoami HTTP/1.1", "elsewhere.example", 421),
        ("GET /bedplate/whoami HTTP/1.1", f"elsewhere.example:{HOST}", 421),
        ("GET /bedplate/whoami HTTP/1.1", f"{HOST}\r\nHost: elsewhere.example", 400),
        ("GET /bedplate/whoami HTTP/1.1", f"{HOST}.elsewhere.example", 421),
        ("GET /bedplate/whoami HTTP/1.1", "127.0.0.1", 421),
        ("GET /bedplate/whoami HTTP/1.1", "", 400),
        ("GET /bedplate/whoami HTTP/1.0", "", 421),
        ("GET https://elsewhere.example/bedplate/whoami HTTP/1.1", HOST, 421),
        (f"GET https://{HOST}/bedplate/whoami HTTP/1.1", "elsewhere.example", 200),
        ("GET /bedplate/whoami HTTP/1.1", f"{HOST.upper()}.:443", 200),
    ],
)
def test_the_name_of_the_hub_is_in_each_request(line: str, host: str, status: int, hub: RunningHub) -> None:
    """In the address, which counts if it is there, or in one header."""
    assert send(hub, line, bearer(token()), host=host)[0] == status


@pytest.mark.parametrize(
    "line",
    [
        "CONNECT hub.lab.internal:443 HTTP/1.1",
        "CONNECT 169.254.169.254:80 HTTP/1.1",
        "TRACE / HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "PRI * HTTP/2.0",
        "GET * HTTP/1.1",
        "GET / HTTP/9.9",
        "GET /bedplate/whoami",
        "get / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET / 200 HTTP/1.1",
        "MOVE /bedplate/whoami HTTP/1.1",
        "PROPFIND / HTTP/1.1",
        "MKCOL /api/2.0/mlflow-artifacts/artifacts/packs/grace HTTP/1.1",
        f"COPY {OUTPUTS}/a HTTP/1.1",
        "\x16\x03\x01\x00\xa5",
        pytest.param(f"GET /{'a' * 40_000} HTTP/1.1", id="long"),
    ],
)
def test_other_methods_and_protocols_are_refused(line: str, hub: RunningHub) -> None:
    """With a token, too."""
    status, answer = send(hub, line, bearer(token()), "Destination: /x", "Upgrade: h2c")

    assert status in {0, 400, 403, 405, 414, 421, 505}
    assert b"X-name" not in answer


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: 4", "Transfer-Encoding: chunked"),
        ("Content-Length: 4", "Content-Length: 40"),
        ("Content-Length: 4, 4",),
        ("Content-Length: +4",),
        ("Content-Length: -4",),
        ("Content-Length: 99999999999999999999",),
        ("Content-Length : 4",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: gzip, chunked",),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    ],
)
def test_a_body_has_one_length(lines: tuple[str, ...], hub: RunningHub) -> None:
    """A request inside a body, which only one of two programs would see, never gets an answer."""
    inner = f"GET /bedplate/whoami HTTP/1.1\r\nHost: {HOST}\r\n{bearer(token(GRACE))}\r\n\r\n".encode()

    status, answer = send(
        hub, "POST /api/2.0/mlflow/runs/search HTTP/1.1", bearer(token()), *lines, body=b"0\r\n\r\n" + inner
    )

    assert status in {400, 413, 501}
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"grace" not in answer


def test_requests_of_one_connection_are_checked_each(hub: RunningHub) -> None:
    """Of pipelined requests, one without a token gets nothing from the token of the one before."""
    first = f"GET /bedplate/whoami HTTP/1.1\r\nHost: {HOST}\r\n{bearer(token())}\r\n\r\n"
    with hub.connect().sock as connection:
        connection.sendall(
            f"{first}GET /bedplate/whoami HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: connection.recv(65536), b""))

    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200", b"401"]


@pytest.mark.parametrize(
    "header", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL"]
)
def test_no_header_is_another_method_or_address(header: str, hub: RunningHub) -> None:
    """The check has decided by those of the request, and MLflow gets these."""
    answer = hub.ask("GET", "/api/2.0/mlflow/runs/get?run_id=1", token(), **{header: "DELETE", "X_Target": "/"})

    assert answer.document["path"] == "/api/2.0/mlflow/runs/get?run_id=1"
    assert hub.ask("DELETE", "/api/2.0/mlflow/runs/get", token(), **{header: "GET"}).status == 403


@pytest.mark.parametrize(
    "target",
    [
        "/ver/api/2.0/mlflow/sion",
        "/bedplate/who/api/2.0/mlflow/ami",
        "/graph/ajax-api/2.0/mlflow/ql",
        "/get-/api/3.0/mlflow/artifact",
        "/api/2.0/mlflow/api/2.0/mlflow/runs/get",
        "/static-filesx/main.js",
        "/version/",
        "/version;x",
        "/version%20",
        "/Version",
        "/bedplate/whoami/",
        "/fleet.json/..",
        "/fleet.json%23",
        f"{FILES}",
        f"{FILES}..",
        f"{FILES}./tokens/runs",
        f"{FILES};/tokens/runs",
        f"{FILES}/",
        f"{FILES}/packs",
        f"{FILES}/packs/",
        f"{FILES}/1/{RUN}",
        f"{FILES}/1/{RUN}/artifacts/",
        f"{FILES}/\u0661/{RUN}/artifacts/x",
        f"{FILES}/1/{RUN}/artifacts/a%2500",
        f"{FILES}/1/{RUN}/artifacts/%c0%ae%c0%ae/x",
        f"{FILES}/1/{RUN}/artifacts/%e2%80%ae",
        f"{FILES}/1/{RUN}/artifacts/a%7f",
        f"{FILES}/1/{RUN}/ARTIFACTS/x",
        f"{FILES}/1/{RUN}/artifacts/x/../../../{OTHER}/artifacts/x",
        "/uploads/x",
        "/srv/hub/keys/tokens",
    ],
)
def test_an_address_that_is_nearly_another_is_refused(target: str, hub: RunningHub) -> None:
    """The rules read a whole address: no part in front, between or behind makes it a known one."""
    for method, text in (("GET", token(scope=OF_RUN)), ("PUT", token(scope=OF_RUN)), ("POST", token())):
        answer = send(hub, f"{method} {target.encode().decode('latin-1')} HTTP/1.1", bearer(text), "Content-Length: 0")

        assert answer[0] in {400, 403} or (method, target) == ("GET", FILES)


# --- files ---


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("n" * 255, 201),
        ("n" * 256, 403),
        ("\u00e9" * 127, 201),
        ("\u00e9" * 128, 403),
        ("-rf", 201),
        ("$(id)'`;|&*", 201),
        (".hidden", 201),
        ("...", 201),
    ],
)
def test_a_file_has_the_name_that_was_sent(name: str, status: int, hub: RunningHub) -> None:
    """Of up to 255 bytes: what shells and options read otherwise is a name like others."""
    path = "".join(
        char if char.isascii() and char not in "`|" else "".join(f"%{byte:02x}" for byte in char.encode())
        for char in name
    )

    assert hub.ask("PUT", f"{OUTPUTS}/names/{path}", token(scope=OF_RUN), b"x").status == status
    folder = hub.files / "1" / RUN / "artifacts/names"
    assert (name in {path.name for path in folder.iterdir()}) == (status == 201)


def test_the_path_of_a_file_fits_the_bucket(hub: RunningHub) -> None:
    """S3 has keys of 1,024 bytes: a longer one would fail each backup. The usage of the deepest path is counted."""
    run, room = token(scope=OF_RUN), LONGEST_FILE - len(f"1/{RUN}/artifacts/")
    deepest = "d/" * (room // 2 - 1) + "x" * (2 + room % 2)

    assert LONGEST_FILE + len(f"files/{'m' * 63}.{'s' * 32}/") <= 1024
    assert hub.ask("PUT", f"{OUTPUTS}/{deepest}", run, b"x").status == 201
    longer = hub.ask("PUT", f"{OUTPUTS}/{deepest}x", run, b"x")
    assert (longer.status, "has at most" in longer.document["message"]) == (414, True)
    assert hub.ask("GET", "/bedplate/usage", token()).status == 200


def test_a_file_where_a_folder_is_needed_is_a_problem_of_its_run(hub: RunningHub) -> None:
    """Nobody else's upload needs a folder of this run, and the hub goes on."""
    run = token(scope=OF_RUN)
    assert hub.ask("PUT", f"{OUTPUTS}/logs/1", run, b"x").status == 201

    assert hub.ask("PUT", f"{OUTPUTS}/logs/1/2/000000", run, b"x").status in {409, 500}
    for path in (f"{FILES}/1", f"{FILES}/packs", f"{FILES}/packs/grace", f"{FILES}/1/{OTHER}", f"{FILES}/1/{RUN}"):
        assert hub.ask("PUT", path, run, b"x").status == 403
    assert (
        hub.ask("PUT", f"{FILES}/1/{OTHER}/artifacts/logs/1/2/000000", token(GRACE, f"run:{OTHER}"), b"x").status == 201
    )


def test_a_link_cannot_be_uploaded(hub: RunningHub) -> None:
    """A file has the bytes of its body, whatever its name and type; nginx writes no links."""
    types = {"Content_Type": "inode/symlink", "Link": "</etc/passwd>"}
    assert hub.ask("PUT", f"{OUTPUTS}/link", token(scope=OF_RUN), b"/etc/passwd", **types).status == 201

    assert hub.ask("GET", f"{OUTPUTS}/link", token()).body == b"/etc/passwd"
    assert not [path for path in hub.files.rglob("*") if path.is_symlink()]


def test_a_chunked_upload_ends_at_the_limit_of_its_kind(hub: RunningHub) -> None:
    """Without a length in front, nginx counts what it gets."""
    body = b"".join((b"1000000\r\n", b"x" * (16 << 20), b"\r\n1\r\nx\r\n0\r\n\r\n"))
    head = "POST /api/2.0/mlflow/runs/log-batch HTTP/1.1"

    assert send(hub, head, bearer(token()), "Transfer-Encoding: chunked", body=body)[0] == 413


@pytest.mark.parametrize("name", ["page.html", "image.svg", "x.xhtml", "x.xml", "x.pdf", "x.js"])
def test_a_page_of_an_artefact_has_no_rights(name: str, hub: RunningHub) -> None:
    """A browser gives it an origin of its own, without scripts, and guesses no type."""
    hub.ask("PUT", f"{OUTPUTS}/{name}", token(scope=OF_RUN), b"<script>alert(1)</script>")

    page, shown = hub.ask("GET", f"{OUTPUTS}/{name}", token()), hub.ask("GET", f"/get-artifact?path={name}", token())

    assert (page.headers["Content-Security-Policy"], page.headers["X-Content-Type-Options"]) == ("sandbox", "nosniff")
    assert shown.headers["Content-Security-Policy"] == "sandbox"


def test_answers_show_nothing_of_the_request(hub: RunningHub) -> None:
    """An error is JSON, without a part of its address, as no page may be made of it."""
    for target in ("/<script>alert(1)</script>", "/%3cscript%3e", f"{OUTPUTS}/%3cscript%3e", "/bedplate/%3cscript%3e"):
        status, answer = send(hub, f"GET {target} HTTP/1.1", bearer(token()))

        assert status in {400, 403, 404}
        assert b"script" not in answer
        assert b"Content-Type: application/json" in answer


def test_disk_and_lengths_of_uploads_are_checked_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is refused that would fill the disk, and one on a disk without free files."""
    (tmp_path / "people").write_text(f"{ADA} ada\n")
    (tmp_path / "tokens").mkdir()
    small = Hub((KEY,), tmp_path, tmp_path / "people")
    disk = {
        "f_frsize": 4096,
        "f_blocks": 1_000_000,
        "f_bfree": 200_000,
        "f_bavail": 200_000,
        "f_files": 1000,
        "f_ffree": 900,
        "f_favail": 900,
    }

    def put(length: int, **facts: int) -> int:
        monkeypatch.setattr(os, "statvfs", lambda _: type("Disk", (), {**disk, **facts}))
        try:
            small.check(f"Bearer {token(scope=OF_RUN)}", "PUT", f"{OUTPUTS}/x", str(length))
        except RefusedError as error:
            return error.status
        return 0

    assert put(1000) == 0
    assert put(50_000 * 4096) == 0
    assert put(120_000 * 4096) == 507
    assert put(1000, f_ffree=50, f_favail=50) == 507
    assert put(1000, f_files=0, f_ffree=0, f_favail=0) == 0


# --- service for others ---


def test_usage_is_counted_once_for_many(hub: RunningHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks meanwhile waits for the result, and others are answered."""
    counts, glob = list[Path](), Path.glob
    slow = Hub((KEY,), hub.folder, hub.folder / "people")

    def counted(path: Path, pattern: str) -> Iterator[Path]:
        counts.append(path)
        time.sleep(0.2)
        return glob(path, pattern)

    monkeypatch.setattr(Path, "glob", counted)
    threads = [threading.Thread(target=slow.usage) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(counts) == 1


def test_a_flood_of_forged_tokens_delays_nobody_for_long(hub: RunningHub) -> None:
    """Each has a limit of its own, which uses memory of a fixed size only."""
    ends = [
        threading.Thread(target=lambda: [hub.ask("GET", "/", os.urandom(99).hex()) for _ in range(25)])
        for _ in range(8)
    ]
    for thread in ends:
        thread.start()
    began = time.monotonic()
    status = hub.ask("GET", "/bedplate/whoami", token()).status
    took = time.monotonic() - began
    for thread in ends:
        thread.join()

    assert (status, took < 5) == (200, True)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 5000, b"x" * (1 << 20), b"run:" + b"\xff" * 40 + b"\n", b"person\nperson\n" * 9]
)
def test_the_mint_survives_every_input(data: bytes, hub: RunningHub) -> None:
    """One line is read, and the next caller is answered."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(hub.folder / "mint"))
        try:
            caller.sendall(data)
            caller.shutdown(socket.SHUT_WR)
            assert caller.recv(100).startswith(b"error: ")
        except ConnectionError:
            # It reads no more than one line.
            pass
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(hub.folder / "mint"))
        caller.sendall(b"person\n")
        assert caller.recv(100).startswith(b"error: no person")


# --- logs ---


def test_no_request_writes_lines_of_others_into_the_log(hub: RunningHub) -> None:
    """Quotes, spaces, line ends and methods of a caller stay in their place, and `hub status` counts them right."""
    for line in (
        'GET /x" 500 HTTP/1.1',
        "GET /x%22%20500%20%0a2099-01-01T00:00:00 HTTP/1.1",
        "GET_500 /bedplate/whoami HTTP/1.1",
        "\x16\x03\x01 ada person GET 500",
        "GET /bedplate/whoami HTTP/1.1\r\nX: ada person 500",
    ):
        send(hub, line, "User-Agent: ada person GET / 500", "Referer: x\n2099")
    send(hub, "GET /x HTTP/1.1", bearer(token()))
    lines = (hub.folder / "access.log").read_text().splitlines()
    backup = (ROOT / "roles/hub/hub-backup").read_text()
    command = re.search(r"  awk .*?access\.log\n", backup, re.DOTALL)
    assert command

    script = command[0].replace("/var/log/nginx", str(hub.folder))
    counted = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout

    form = re.compile(r"\S+ 127\.0\.0\.1 (ada|grace|ada-b|-|) (\S*) [A-Z_-]+ \".*\" \d{3} \d+ \d+ [0-9.]+")
    assert [line for line in lines if not form.fullmatch(line)] == []
    facts = dict(line.split(" ") for line in counted.splitlines())
    assert {name for name in facts if name.startswith("client.")} <= {
        f"client.{name}@127.0.0.1" for name in ("ada", "grace", "ada-b", "-", "")
    }
    assert int(facts["requests"]) == len(lines)
    assert int(facts["requests.failed"]) == sum(line.rsplit(" ", 4)[1] >= "500" for line in lines)


def test_addresses_fill_no_disk_with_logs_and_hide_no_upload(hub: RunningHub) -> None:
    """A long address is cut off, and a name like that of logs in the middle of an address changes nothing."""
    long, hidden = f"/{'l' * 7000}", f"{OUTPUTS}/hidden/artifacts/logs/x"
    hub.ask("GET", long)
    hub.ask("PUT", hidden, token(scope=OF_RUN), b"x")
    hub.ask("PUT", f"{OUTPUTS}/logs/0/seen", token(scope=OF_RUN), b"x")
    lines = (hub.folder / "access.log").read_text().splitlines()

    assert max(map(len, lines)) < 500
    assert [line for line in lines if "llll" in line]
    assert [line for line in lines if hidden in line]
    assert not [line for line in lines if "logs/0/seen" in line]


def test_the_answer_of_a_run_without_a_record_says_so(hub: RunningHub) -> None:
    """A study gets no token of a run that MLflow does not have: whoever asks first owns those that it has."""
    answer = hub.ask(
        "POST", "/bedplate/token", token(scope="study:ada-s"), json.dumps({"scope": f"run:{'9' * 32}"}).encode()
    )

    assert answer.status == 403


def test_the_list_of_attempts_names_tests_that_exist() -> None:
    """Each row has one, but those that a person tried by hand."""
    rows = re.findall(r"^\| \d+ .*", (ROOT / "docs/hub-attempts.md").read_text(), re.MULTILINE)
    names = [match.groups() for row in rows if (match := re.search(r"`(test_\w+\.py)::(test_\w+)`", row))]
    texts = {file: "".join(path.read_text() for path in (ROOT / "tests").glob(f"*/{file}")) for file, _ in names}

    assert [row for row in rows if "::test_" not in row and "by hand" not in row] == []
    assert [name for file, name in names if f"def {name}(" not in texts[file]] == []
