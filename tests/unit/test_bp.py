"""`bp` as people have it: one file and its settings, under Python 3.9, with a stand-in for the hub and a fake ssh."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from email.message import Message
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import parse_qsl

import pytest

from tests.testlab.fakes.laptop import HOST, LATER_TOKEN, TOKEN, FakeHub, Laptop, oldest_python
from tests.testlab.machines.layers import python_root
from tests.testlab.run import need_program, need_root

API = "/api/2.0/mlflow/"
# The address of a dashboard, as Grafana reads it.
UID = json.loads(Path("roles/grafana/dashboards/run.json").read_text())["uid"]
RUN_ID = "0123456789abcdef0123456789abcdef"


def _run(name: str = "ada-1127-brave-otter", run_id: str = RUN_ID, **tags: str) -> dict[str, Any]:
    known = {"owner": "ada", "state": "running", "command": "python train.py", "machine": "titan-03", **tags}
    start = int(time.time() * 1000) - 3_721_000
    return {
        "info": {"run_id": run_id, "run_name": name, "status": "RUNNING", "start_time": start},
        "data": {"tags": [{"key": f"bedplate.{key}", "value": value} for key, value in known.items()]},
    }


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """Yield a hub with one run of ada."""
    with FakeHub(tmp_path) as hub:
        hub.answer(f"{API}experiments/get-by-name", {"experiment": {"experiment_id": "7"}})
        hub.answer(f"{API}runs/search", {"runs": [_run()]})
        hub.answer(f"{API}runs/get", {"run": _run()})
        hub.answer("/bedplate/whoami", {"name": "ada", "uid": 20001, "scope": "person", "until": 1, "now": 1.0})
        yield hub


@pytest.fixture(params=["here", pytest.param("debian11", marks=pytest.mark.nightly)])
def laptop(request: pytest.FixtureRequest, hub: FakeHub, tmp_path: Path) -> Iterator[Laptop]:
    """Yield ada's laptop: this machine with the oldest Python that it has, or Debian 11."""
    if request.param == "here":
        (tmp_path / "laptop").mkdir()
        yield Laptop(tmp_path / "laptop", hub, oldest_python())
        return
    need_root()
    need_program("mmdebstrap")
    root = python_root("bullseye")
    with TemporaryDirectory(dir=root / "tmp") as folder:
        yield Laptop(Path(folder), hub, "/usr/bin/python3", root)


def test_the_newest_runs_of_a_person_are_listed(laptop: Laptop, hub: FakeHub) -> None:
    """By the owner of the archive and the time of their start, with state, time, machine and command."""
    done = laptop.bp("runs")

    assert done.returncode == 0, done.stderr
    head, row = done.stdout.splitlines()
    assert head.split() == ["RUN", "OWNER", "STATE", "STARTED", "TIME", "MACHINE", "COMMAND"]
    assert row.split()[:3] == ["ada-1127-brave-otter", "ada", "running"]
    assert re.match(r"1:0\d:\d\d titan-03 python train.py$", " ".join(row.split()[5:]))
    assert hub.bodies == [
        {
            "experiment_ids": ["7"],
            "filter": f"tags.`bedplate.owner` = 'ada' AND {_LISTED}",
            "max_results": 20,
            "order_by": ["attributes.start_time DESC"],
        }
    ]


_PARENTS = "tags.`bedplate.parent` IS NULL AND tags.`bedplate.study` IS NULL"
_LISTED = f"{_PARENTS} AND tags.`bedplate.archived` IS NULL"


@pytest.mark.parametrize(
    ("words", "condition", "count"),
    [
        (["--all"], _LISTED, 20),
        (["--all", "--archived"], _PARENTS, 20),
        (["--owner", "grace", "-n", "3"], f"tags.`bedplate.owner` = 'grace' AND {_LISTED}", 3),
        (["--all", "--group", "gpu"], f"tags.`bedplate.group` = 'gpu' AND {_LISTED}", 20),
        (["--all", "--state", "failed"], f"attributes.status = 'FAILED' AND {_LISTED}", 20),
        (
            ["--all", "--state", "queued"],
            f"tags.`bedplate.state` = 'queued' AND attributes.status = 'RUNNING' AND {_LISTED}",
            20,
        ),
    ],
)
def test_runs_are_listed_by_what_is_asked_for(
    words: list[str], condition: str, count: int, laptop: Laptop, hub: FakeHub
) -> None:
    """Of everyone, of one person, of a group, or in a state, also archived ones; as many as asked for."""
    assert laptop.bp("runs", *words).returncode == 0

    assert [(body["filter"], body["max_results"]) for body in hub.bodies] == [(condition, count)]


def test_a_text_is_looked_for_in_name_command_and_cause(laptop: Laptop, hub: FakeHub) -> None:
    """Its wildcards are plain characters. A run is listed once, and the newest ones of all three are first."""
    old = _run("ada-1127-old-otter", "f" * 32)
    old["info"]["start_time"] -= 1000
    hub.answer(f"{API}runs/search", {"runs": [old, _run()]})

    done = laptop.bp("runs", "--text", "lr_0.1 -- 50%", "--all", "-n", "1")

    places = ("attributes.run_name", "tags.`bedplate.cause`", "tags.`bedplate.command`")
    assert sorted(body["filter"] for body in hub.bodies) == [
        f"{_LISTED} AND {place} ILIKE '%lr\\_0.1 -- 50\\%%'" for place in places
    ]
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["RUN", "ada-1127-brave-otter"]


def test_runs_are_one_document_for_programs(laptop: Laptop, hub: FakeHub) -> None:
    """Also values that JSON lacks, such as an infinite metric, are in it."""
    run = _run()
    run["data"]["metrics"] = [{"key": "loss", "value": float("nan")}, {"key": "acc", "value": 0.5}]
    hub.answer(f"{API}runs/search", {"runs": [run]})

    (document,) = json.loads(laptop.bp("runs", "--json").stdout)

    assert (document["run"], document["end_time"]) == (RUN_ID, None)
    assert document["metrics"] == {"loss": "NaN", "acc": 0.5}
    assert document["tags"]["bedplate.command"] == "python train.py"


def test_a_run_without_a_start_or_with_an_old_state_is_not_guessed(laptop: Laptop, hub: FakeHub) -> None:
    """MLflow has 0 for a start that nobody gave. A run that it has as ended does not run, whatever its tag says."""
    run = _run()
    run["info"] |= {"start_time": 0, "status": "KILLED", "end_time": 1_795_798_183_994}
    hub.answer(f"{API}runs/search", {"runs": [run]})

    _, row = laptop.bp("runs").stdout.splitlines()

    assert row.split()[2:5] == ["killed", "unknown", "unknown"]


def test_a_run_that_goes_on_has_no_end(laptop: Laptop, hub: FakeHub) -> None:
    """MLflow keeps the former end of a run that was counted as lost, and reports again."""
    run = _run(state="running")
    run["info"]["end_time"] = run["info"]["start_time"] + 90_000
    hub.answer(f"{API}runs/search", {"runs": [run]})

    (document,) = json.loads(laptop.bp("runs", "--json").stdout)

    assert (run["info"]["status"], document["end_time"]) == ("RUNNING", None)


def test_no_runs_are_a_table_without_rows(laptop: Laptop, hub: FakeHub) -> None:
    """MLflow leaves out an empty list."""
    hub.answer(f"{API}runs/search", {})

    done = laptop.bp("runs")

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1)


def test_texts_of_others_do_not_control_the_terminal(laptop: Laptop, hub: FakeHub) -> None:
    """Escape sequences and line ends in names, tags and answers are shown as question marks."""
    hub.answer(f"{API}runs/search", {"runs": [_run(name="a\x1b[2Jb", command="c\nd\u202ee")]})

    shown = [laptop.bp("runs").stdout, laptop.bp("show", "x").stdout]
    hub.answer(f"{API}runs/search", {"message": "\x1b[31mno"}, 403)
    shown.append(laptop.bp("runs").stderr)

    assert not any(set("\x1b\u202e") & {*text} for text in shown)
    assert "a?[2Jb" in shown[0]
    assert "c?d?e" in shown[0]


@pytest.mark.parametrize("word", ["ada-1127-brave-otter", RUN_ID])
def test_a_run_is_shown_by_name_and_by_id(word: str, laptop: Laptop, hub: FakeHub) -> None:
    """With parameters, last metrics, tags and cause; what it has not is shown as `-`."""
    run = _run(cause="out of memory on titan-03", state="ended")
    run["info"] |= {"status": "FAILED", "end_time": run["info"]["start_time"] + 90_000}
    run["data"]["params"] = [{"key": "lr", "value": "0.1"}]
    tags = {"note": "second", "mlflow.user": "ada", "bedplate.id": "ada-1127-brave-otter"}
    run["data"]["tags"] += [{"key": key, "value": value} for key, value in tags.items()]
    for path, document in (("search", {"runs": [run]}), ("get", {"run": run})):
        hub.answer(f"{API}runs/{path}", document)

    lines = [" ".join(line.split()) for line in laptop.bp("show", word).stdout.splitlines()]

    assert lines[0] == RUN_ID
    expected = (
        "state failed",
        "took 0:01:30",
        "cause out of memory on titan-03",
        "image -",
        "parameters",
        "lr 0.1",
    )
    assert {*expected, "last metrics: none", "note second"} <= {*lines}
    assert not any("mlflow" in line for line in lines)


def test_a_run_that_is_unknown_or_ambiguous_is_not_shown(laptop: Laptop, hub: FakeHub) -> None:
    """Status 2: no run has the name or id, or several have it, whose ids are listed."""
    hub.answer(f"{API}runs/search", {"runs": [_run(), _run(run_id="f" * 32)]})
    several = laptop.bp("show", "ada-1127-brave-otter")
    hub.answer(f"{API}runs/search", {})
    hub.answer(f"{API}runs/get", {"message": "no such run"}, 404)
    none = [laptop.bp("show", word) for word in ("otter", "e" * 32)]

    assert (several.returncode, RUN_ID in several.stderr, "f" * 32 in several.stderr) == (2, True, True)
    assert {(done.returncode, "error: no run is named" in done.stderr) for done in none} == {(2, True)}


@pytest.mark.parametrize(
    "words",
    [
        ["runs", "--owner", "x' OR tags.a = 'b"],
        ["runs", "--group", "x' OR tags.a = 'b"],
        ["runs", "--state", "lost"],
        *(["runs", "--text", text] for text in ("it's", 'a"b', "a`b", "a\\", "a\nb")),
        ["runs", "archive"],
        ["compare", "ada-1127-brave-otter"],
        ["archive", "x"],
        ["show", "a`b"],
        ["runs", "-n", "0"],
        ["runs", "-n", "5000"],
        ["runs", "--al"],
        ["show"],
        ["ui", "tensorboard"],
        ["loggs"],
        [],
    ],
)
def test_wrong_words_are_refused(words: list[str], laptop: Laptop, hub: FakeHub) -> None:
    """Status 2, without a search: also words that would end their place in a filter."""
    done = laptop.bp(*words)

    assert done.returncode == 2
    assert "error: " in done.stderr
    assert not hub.bodies


def test_a_wrong_count_of_runs_is_refused_in_a_line(laptop: Laptop) -> None:
    """The message has the range, not each of its numbers."""
    done = laptop.bp("runs", "-n", "0")

    assert done.stderr.splitlines()[-1] == "bp runs: error: argument -n: write a number from 1 to 1000"


def test_a_token_is_asked_for_once(laptop: Laptop, hub: FakeHub) -> None:
    """By ssh with the archive's host keys; its file is private. It is in a header, and no word of a process."""
    for _ in range(2):
        assert laptop.bp("runs").returncode == 0

    (login,) = laptop.logins
    assert login.endswith("hub.us-west-2.lab.internal bp-token")
    assert '/lab/known_hosts"' in login
    assert laptop.token_file.read_text() == TOKEN
    assert laptop.token_file.stat().st_mode & 0o777 == 0o600
    assert {headers["Authorization"] for _, headers, _ in hub.requests} == {f"Bearer {TOKEN}"}
    assert {headers["Host"] for _, headers, _ in hub.requests} == {HOST}


def _age(path: Path) -> None:
    os.utime(path, (time.time() - 3_400,) * 2)


def _date_ahead(path: Path) -> None:
    os.utime(path, (time.time() + 600,) * 2)


def _garble(path: Path) -> None:
    path.write_bytes(b"\xff\r\nX: y")
    path.chmod(0o600)


def _publish(path: Path) -> None:
    path.chmod(0o644)


def _replace(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _share(path: Path) -> None:
    path.parent.chmod(0o777)


def _link(path: Path) -> None:
    own = path.parent.rename(path.parent.with_name("of-others"))
    own.chmod(0o770)
    path.parent.symlink_to(own.name)


@pytest.mark.parametrize("change", [_age, _date_ahead, _garble, _publish, _replace, _share, _link])
def test_a_cached_token_that_is_of_no_use_is_asked_for_again(
    change: Callable[[Path], None], laptop: Laptop, hub: FakeHub
) -> None:
    """Old, from the future, damaged, readable by others, no file, or in a folder where others write."""
    laptop.bp("runs")
    change(laptop.token_file)

    assert laptop.bp("runs").returncode == 0

    assert len(laptop.logins) == 2


def test_a_token_that_the_hub_refuses_is_replaced(laptop: Laptop, hub: FakeHub) -> None:
    """Once: a new key of the hub ends tokens early. A person whom it refuses again gets its reason."""
    laptop.bp("runs")
    hub.tokens = {LATER_TOKEN}
    laptop.ssh_answers(f"echo {LATER_TOKEN}")

    assert laptop.bp("runs").returncode == 0

    hub.tokens = set()
    refused = laptop.bp("runs")
    assert (refused.returncode, "the token has expired (401)" in refused.stderr) == (4, True)
    assert len(laptop.logins) == 3


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo 'ada@hub: Permission denied (publickey).' >&2; exit 255", "accepts none of your SSH keys"),
        ("echo 'Host key verification failed.' >&2; exit 255", "no host key of the hub"),
        ("echo 'ssh: connect to host 10.0.0.9 port 22: Connection timed out' >&2; exit 255", "connect the VPN"),
        ("echo 'command-line: Bad configuration option: knownhostscommand' >&2; exit 255", "OpenSSH 8.5 or newer"),
        ("echo 'error: no person of the fleet' >&2; exit 1", "gives no token: error: no person of the fleet"),
        ("echo Welcome", "no token in its answer"),
    ],
)
def test_an_ssh_that_gives_no_token_says_what_to_do(script: str, sentence: str, laptop: Laptop, hub: FakeHub) -> None:
    """Status 4, and nothing is sent to the hub."""
    laptop.ssh_answers(script)

    done = laptop.bp("runs")

    assert (done.returncode, sentence in done.stderr) == (4, True), done.stderr
    assert not hub.requests


def test_a_laptop_without_ssh_or_cache_says_so(laptop: Laptop) -> None:
    """No ssh is status 4. Without a cache each command asks ssh."""
    laptop.cache.rmdir()
    laptop.cache.write_text("no folder")
    assert [laptop.bp("runs").returncode for _ in range(2)] == [0, 0]
    assert len(laptop.logins) == 2

    (laptop.programs / "ssh").unlink()
    done = laptop.bp("runs")
    assert (done.returncode, "cannot run ssh" in done.stderr) == (4, True)


def test_another_certificate_gets_no_token(laptop: Laptop, hub: FakeHub, tmp_path: Path) -> None:
    """Of another server with the same name, or the hub's under another name: status 4, and nothing is sent."""
    (tmp_path / "other").mkdir()
    with FakeHub(tmp_path / "other") as other:
        certificate = laptop.settings["certificate"]
        laptop.set(certificate=other.certificate.read_text())
        done = laptop.bp("runs")
    laptop.set(certificate=certificate, host="hub.other.internal")

    for answer in (done, laptop.bp("runs")):
        assert (answer.returncode, "another certificate" in answer.stderr) == (4, True), answer.stderr
    assert not hub.requests


def test_a_certificate_of_another_time_points_to_the_clock(laptop: Laptop, tmp_path: Path) -> None:
    """The certificate lasts ten years: only a wrong clock makes it invalid."""
    (tmp_path / "other").mkdir()
    with FakeHub(tmp_path / "other", days=-1) as hub:
        laptop.set(certificate=hub.certificate.read_text(), port=hub.server_address[1])
        done = laptop.bp("runs")

    assert (done.returncode, "set its clock" in done.stderr) == (4, True), done.stderr


def test_a_hub_that_restarts_is_asked_again(laptop: Laptop, hub: FakeHub) -> None:
    """A gateway error and too many requests are repeated."""
    hub.first = [(502, {}, b"<html>"), (429, {}, b"{}")]

    assert laptop.bp("runs").returncode == 0


@pytest.mark.parametrize("body", [b"<html>no", b"", b"[" * 100_000, b"[]", b'{"runs": 3}', b'{"runs": [{}]}', b"\xff"])
def test_an_answer_that_is_not_of_mlflow_is_an_error(body: bytes, laptop: Laptop, hub: FakeHub) -> None:
    """Status 4, and no traceback."""
    hub.answers[f"{API}runs/search"] = (200, {}, body)

    done = laptop.bp("runs")

    assert (done.returncode, done.stderr.startswith("error: the hub")) == (4, True), done.stderr


@pytest.mark.nightly
def test_a_hub_that_refuses_connections_is_named(laptop: Laptop) -> None:
    """Status 4, after repeats of at most 15 s."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        laptop.set(port=unused.getsockname()[1])
    start = time.monotonic()

    done = laptop.bp("runs")

    assert (done.returncode, "refused" in done.stderr) == (4, True), done.stderr
    assert time.monotonic() - start < 30


@pytest.mark.nightly
@pytest.mark.parametrize("is_silent", [True, False])
def test_a_slow_answer_has_an_end(is_silent: bool, laptop: Laptop, hub: FakeHub) -> None:  # noqa: FBT001  a parameter
    """A hub that sends nothing, or a byte a second, is given up: status 4."""
    hub.pause = 1
    start = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        if is_silent:
            laptop.set(port=silent.getsockname()[1])

        assert laptop.bp("runs").returncode == 4

    assert time.monotonic() - start < 40


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"fleet": "lab", "more": 1}', None, "\xff"])
def test_settings_that_are_missing_or_damaged_are_named(text: str | None, laptop: Laptop) -> None:
    """Status 4, with the file."""
    file = laptop.archive / "bp.json"
    file.unlink() if text is None else file.write_bytes(text.encode("latin-1"))

    done = laptop.bp("runs")

    assert (done.returncode, "bp.json" in done.stderr) == (4, True)


def test_a_certificate_that_is_none_is_named(laptop: Laptop) -> None:
    """Status 4."""
    laptop.set(certificate="none")

    assert "the certificate of the hub is damaged" in laptop.bp("runs").stderr


def test_a_link_to_bp_finds_its_settings(laptop: Laptop) -> None:
    """A link in a folder of PATH is enough to write `bp`."""
    (laptop.programs / "bp").symlink_to(laptop.archive / "bp")
    (laptop.archive / "bp").chmod(0o700)
    environment = {"PATH": f"{laptop.programs}:/usr/bin:/bin:{Path(sys.executable).parent}"}

    done = subprocess.run(
        ("bp", "runs"), env={**environment, "XDG_CACHE_HOME": str(laptop.cache)}, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_a_folder_of_a_colleague_runs_nothing(laptop: Laptop, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a module of the current folder is imported, nor its ssh started."""
    folder = laptop.archive.with_name("shared")
    folder.mkdir()
    for name in ("json.py", "ssl.py", "bp.py", "sitecustomize.py", "bp/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"open({str(folder / 'ran')!r}, 'w')")
    (folder / "ssh").write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
    (folder / "ssh").chmod(0o755)
    (folder / "bp.json").write_text("{}")
    monkeypatch.chdir(folder)

    assert laptop.bp("runs").returncode == 0

    assert not (folder / "ran").exists()


def test_ctrl_c_ends_a_command_without_a_traceback(laptop: Laptop) -> None:
    """Status 130, also while ssh waits."""
    laptop.ssh_answers('touch "$here/asked"; exec sleep 30')
    process = laptop.start("runs")
    while not (laptop.programs / "asked").exists():
        time.sleep(0.02)

    # As a terminal does: to ssh, too.
    os.killpg(process.pid, signal.SIGINT)

    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 130


def test_an_output_that_cannot_be_written_is_an_error(laptop: Laptop) -> None:
    """A closed pipe and a full disk: status 4, one sentence."""
    reading, writing = os.pipe()
    os.close(reading)
    for target in (writing, os.open("/dev/full", os.O_WRONLY)):
        with os.fdopen(target, "w"):
            process = laptop.start("runs", stdout=target)
            _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors.count("\n"), "cannot write to stdout" in errors) == (4, 1, True), errors


def _doctor(laptop: Laptop) -> Mapping[str, Mapping[str, Any]]:
    done = laptop.bp("doctor", "--json")
    results = {result["check"]: result for result in json.loads(done.stdout)}
    assert (done.returncode == 0) is all(result["ok"] for result in results.values())
    return results


def test_doctor_finds_nothing_on_a_laptop_in_order(laptop: Laptop) -> None:
    """Each check says what it found; status 0."""
    done = laptop.bp("doctor")

    assert done.returncode == 0, done.stdout
    names = [line.split()[:2] for line in done.stdout.splitlines()]
    assert names == [["ok", name] for name in ("version", "ssh", "vpn", "hub", "key", "token", "clock")]


@pytest.mark.parametrize(
    ("defect", "check", "expected"),
    [
        ("old ssh", "ssh", ("OpenSSH_8.4p1", "newer OpenSSH")),
        ("no route", "vpn", ("does not answer at 127.0.0.300", "connect the VPN")),
        ("certificate", "hub", ("another certificate", "new archive")),
        ("key", "key", ("none of your SSH keys", "~/.ssh/config")),
        ("token", "token", ("has expired", "bp doctor")),
        ("person", "token", ("that of grace", "new archive")),
        ("clock", "clock", ("ahead of the hub's", "set it by the network")),
    ],
)
def test_doctor_names_a_trouble_and_its_fix(
    defect: str, check: str, expected: tuple[str, str], laptop: Laptop, hub: FakeHub
) -> None:
    """What needs the failed check is not checked; everything else is."""
    match defect:
        case "old ssh":
            (laptop.programs / "version").write_text("OpenSSH_8.4p1 Debian-5\n")
        case "no route":
            laptop.set(address="127.0.0.300")
        case "certificate":
            laptop.set(host="hub.other.internal")
        case "key":
            laptop.ssh_answers("echo 'Permission denied (publickey).' >&2; exit 255")
        case "token":
            hub.tokens = set()
        case "person":
            hub.answer("/bedplate/whoami", {"name": "grace"})
        case _:
            hub.clock = -3600

    results = _doctor(laptop)

    assert [name for name, result in results.items() if result["ok"] is False] == [check]
    assert expected[0] in results[check]["text"]
    assert expected[1] in results[check]["fix"]


class Page(NamedTuple):
    """An answer to a browser."""

    status: int
    headers: Message
    body: bytes


class Browser:
    """A browser at the address that `bp ui` prints."""

    def __init__(self, laptop: Laptop, *words: str) -> None:
        self.process = laptop.start(*(words or ("ui",)))
        assert self.process.stdout
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.process.communicate()
        self.host, _, path = self.address.removeprefix("http://").partition("/")
        self.login, self.cookie = f"/{path}", ""

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Page:
        """Return the answer to a request, which has the cookie, if there is one."""
        connection = http.client.HTTPConnection(self.host, timeout=20)
        cookie = {"Cookie": f"other=1; {self.cookie}"} if self.cookie else {}
        connection.request(method, path, body, {**cookie, **headers})
        with closing(connection), connection.getresponse() as answer:
            return Page(answer.status, answer.headers, answer.read())

    def log_in(self) -> None:
        """Open the address, and keep the cookie."""
        answer = self.ask(self.login)
        assert answer.status == 200
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]

    @contextmanager
    def web_socket(self, path: str) -> Iterator[tuple[socket.socket, BinaryIO]]:
        """Yield an open WebSocket, and what comes from it."""
        host, port = self.host.split(":")
        head = f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\nCookie: {self.cookie}\r\n"
        with socket.create_connection((host, int(port)), 20) as client, client.makefile("rb") as answers:
            client.sendall(f"{head}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode())
            assert b" 101 " in answers.readline()
            while answers.readline() != b"\r\n":
                pass
            yield client, answers


@pytest.fixture
def browser(laptop: Laptop, hub: FakeHub) -> Iterator[Browser]:
    """Yield a browser at a running `bp ui`, which ends by Ctrl-C without a traceback."""
    hub.answers["/"] = (200, {"Content-Type": "text/html"}, b"<p>runs")
    browser = Browser(laptop)
    yield browser
    browser.process.send_signal(signal.SIGINT)
    output, errors = browser.process.communicate(timeout=20)
    assert (browser.process.returncode, output, errors.count("\n")) == (0, "", 1), errors


@pytest.mark.parametrize(("words", "page"), [((), "/grafana/"), (("run",), f"/grafana/d/{UID}")])
def test_the_pages_of_grafana_are_shown_with_the_token_of_the_person(
    words: tuple[str, ...], page: str, laptop: Laptop, hub: FakeHub
) -> None:
    """From its first page or a dashboard on; pages of MLflow, and requests of bp itself, are not among them."""
    hub.answer("/grafana/api/ds/query", {"results": {}})
    hub.answer("/grafana/api/health", {"database": "ok"})
    browser = Browser(laptop, "ui", "grafana", *words)
    answer = browser.ask(browser.login)
    browser.cookie = answer.headers["Set-Cookie"].partition(";")[0]
    found = browser.ask("/grafana/api/ds/query", "POST", b"{}", **{"X-WEBAUTH-USER": "grace"})
    others = [browser.ask(path).status for path in ("/", "/bedplate/token", "/fleet.json", "/prometheus/api/v1/query")]
    browser.process.send_signal(signal.SIGINT)
    browser.process.communicate(timeout=20)

    assert f'url={page}"' in answer.body.decode()
    assert (found.status, json.loads(found.body)) == (200, {"results": {}})
    assert hub.requests[-1][1]["Authorization"] == f"Bearer {TOKEN}"
    assert others == [404] * 4


def test_a_hub_without_grafana_is_named(laptop: Laptop, hub: FakeHub) -> None:
    """Before a browser shows an empty page."""
    hub.answer("/grafana/api/health", {"error_code": "404", "message": "no such file"}, 404)

    done = laptop.bp("ui", "grafana")

    assert (done.returncode, done.stdout) == (4, "")
    assert "the hub refuses: no such file (404)" in done.stderr


@pytest.mark.parametrize("words", [("grafana", "../bedplate/token"), ("grafana", "D"), ("mlflow", "run")])
def test_a_page_that_is_none_is_refused(words: tuple[str, ...], laptop: Laptop) -> None:
    """Before the proxy starts."""
    done = laptop.bp("ui", *words)

    assert done.returncode == 2
    assert f"{words[0]} has no page" in done.stderr


def test_a_comparison_opens_the_page_of_mlflow(laptop: Laptop) -> None:
    """The login leads to it, with the ids of the runs and of their experiment."""
    browser = Browser(laptop, "compare", "ada-1127-brave-otter", RUN_ID, "--page")
    address = re.search('url=([^"]+)"', browser.ask(browser.login).body.decode())
    browser.process.send_signal(signal.SIGINT)
    _, errors = browser.process.communicate(timeout=20)

    assert browser.process.returncode == 0, errors
    path, _, query = unescape(address[1] if address else "").partition("?")
    assert path == "/#/compare-runs"
    assert {name: json.loads(value) for name, value in parse_qsl(query)} == {"runs": [RUN_ID] * 2, "experiments": [""]}


def test_the_pages_are_shown_with_the_token(browser: Browser, hub: FakeHub) -> None:
    """Requests get the token and the hub's name, and neither the cookie nor the origin of the browser."""
    hub.answer("/ajax-api/2.0/mlflow/runs/search", {"runs": []})
    browser.log_in()

    page = browser.ask("/")
    found = browser.ask("/ajax-api/2.0/mlflow/runs/search?a=b", "POST", b"{}", Origin=f"http://{browser.host}")

    assert (page.status, page.body, page.headers["Content-Type"]) == (200, b"<p>runs", "text/html")
    assert (found.status, found.body) == (200, b'{"runs": []}')
    line, headers, body = hub.requests[-1]
    assert (line, body) == ("POST /ajax-api/2.0/mlflow/runs/search?a=b", b"{}")
    assert (headers["Host"], headers["Authorization"]) == (HOST, f"Bearer {TOKEN}")
    assert not {"Cookie", "Origin"} & headers.keys()


def test_the_secret_of_the_address_is_used_once(browser: Browser) -> None:
    """A second browser is refused, and a look at the address does not use it up."""
    assert browser.ask(browser.login, "HEAD").status == 403
    assert browser.ask("/login/wrong").status == 403

    first, second = browser.ask(browser.login), browser.ask(browser.login)

    assert (first.status, second.status) == (200, 403)
    assert "Set-Cookie" not in second.headers
    assert {"HttpOnly", "SameSite=Strict"} <= {*first.headers["Set-Cookie"].split("; ")}
    assert first.headers["Cache-Control"] == "no-store"


def test_a_browser_without_the_cookie_sees_nothing(browser: Browser, hub: FakeHub) -> None:
    """Such as that of another user of the laptop."""
    browser.log_in()
    name = browser.cookie.partition("=")[0]

    for browser.cookie in ("", f"{name}=", f"{name}=x", "\u00e9=1"):
        assert browser.ask("/").status == 403

    assert not hub.requests


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost:80"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Length": "-1"}, 400),
        ({"Content-Length": "x"}, 400),
        ({"Transfer-Encoding": "chunked"}, 400),
    ],
)
def test_a_request_of_another_page_is_refused(
    headers: dict[str, str], status: int, browser: Browser, hub: FakeHub
) -> None:
    """By Host (a name that leads to this laptop), Origin, or what the browser says; and without a length."""
    browser.log_in()

    assert browser.ask("/", "GET", None, **headers).status == status

    assert not hub.requests


@pytest.mark.parametrize(
    "path", ["/bedplate/token", "/fleet.json", "/api/2.0/mlflow/runs/search", "http://evil/", "/x"]
)
def test_other_paths_of_the_hub_are_no_pages(path: str, browser: Browser, hub: FakeHub) -> None:
    """A page cannot ask for tokens; methods that no page uses are refused, too."""
    browser.log_in()

    assert browser.ask(path).status in {404, 421}
    assert browser.ask("/", "DELETE").status == 501

    assert not hub.requests


@pytest.mark.parametrize(
    "lines",
    [
        ("GET /ajax-api/live HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade", "Origin: https://evil.example"),
        ("GET /ajax-api/live HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade", "Origin: null"),
        ("GET / HTTP/1.1", "Host: evil.example"),
        ("GET http://evil.example/ HTTP/1.1",),
        ("GET / HTTP/1.1", "Cookie: bp-1=x"),
        ("OPTIONS / HTTP/1.1", "Origin: https://evil.example", "Access-Control-Request-Method: POST"),
        ("PUT /ajax-api/x HTTP/1.1",),
        ("CONNECT evil.example:443 HTTP/1.1",),
        ("POST /ajax-api/x HTTP/1.1", "Content-Length: 0", "Transfer-Encoding: chunked"),
        ("POST /ajax-api/x HTTP/1.1", "Content-Length: \u00b2"),
        ("POST /ajax-api/x HTTP/1.1", "Content-Length: 0, 5"),
        ("GET /bedplate/whoami HTTP/1.1",),
        ("GET //bedplate/whoami HTTP/1.1",),
        ("GET /ajax-api\n/x HTTP/1.1",),
        ("GET /ajax-apis HTTP/1.1",),
        ("GET /versions HTTP/1.1",),
    ],
)
def test_what_no_page_of_mlflow_sends_goes_nowhere(lines: tuple[str, ...], browser: Browser, hub: FakeHub) -> None:
    """Also with the cookie, as a page of another address could cause it."""
    browser.log_in()
    host, port = browser.host.split(":")
    names = [line.partition(":")[0] for line in lines]
    own = [("Host", browser.host), ("Cookie", browser.cookie)]
    head = [*lines, *(f"{name}: {value}" for name, value in own if name not in names), "", ""]
    with socket.create_connection((host, int(port)), 20) as client:
        client.sendall("\r\n".join(head).encode("latin-1"))
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(65536), b""))

    # An address with a line end is no request of HTTP/1, and is answered without a status.
    assert re.match(rb"HTTP/1\.0 (400|403|404|421|501) |the name of this host", answer), answer[:200]
    assert not hub.requests


def test_a_page_chooses_neither_token_nor_host(browser: Browser, hub: FakeHub) -> None:
    """Its own headers of these names, also in another case, do not reach the hub."""
    browser.log_in()

    browser.ask("/", AUTHORIZATION="Bearer x", x_method="DELETE", REFERER="https://evil.example")

    ((_, headers, _),) = hub.requests[-1:]
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert (headers["Host"], "REFERER" in headers) == (HOST, False)


def test_one_of_many_browsers_at_the_same_time_gets_the_cookie(browser: Browser) -> None:
    """The secret of the address is used up by the first."""
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(browser.ask, [browser.login] * 16))

    assert sorted(answer.status for answer in answers) == [200, *[403] * 15]


def test_a_web_socket_passes(browser: Browser, hub: FakeHub) -> None:
    """Bytes of both sides, in any order and size."""
    browser.log_in()
    with browser.web_socket("/ajax-api/live") as (client, answers):
        for data in (b"one", b"two" * 100_000, b"three"):
            client.sendall(data)

            assert answers.read(len(data)) == data.upper()


def test_a_large_body_is_passed_on_as_it_comes(browser: Browser, hub: FakeHub) -> None:
    """16 MiB in both directions."""
    data = os.urandom(1 << 20) * 16
    hub.answers["/get-artifact"] = (200, {}, data)
    browser.log_in()

    assert browser.ask("/get-artifact?path=x", "POST", data).body == data

    assert hub.requests[-1][2] == data


def test_a_refused_token_is_replaced_behind_the_page(browser: Browser, laptop: Laptop, hub: FakeHub) -> None:
    """A page shows nothing of it. Of several requests at once one asks ssh."""
    browser.log_in()
    hub.tokens = {LATER_TOKEN}
    laptop.ssh_answers(f"sleep 0.2; echo {LATER_TOKEN}")

    with ThreadPoolExecutor(4) as pool:
        statuses = [answer.status for answer in pool.map(browser.ask, ["/"] * 4)]

    assert statuses == [200] * 4
    assert len(laptop.logins) == 2


def test_a_page_says_that_the_hub_is_away(browser: Browser, hub: FakeHub) -> None:
    """502, with the reason and what to do."""
    browser.log_in()
    hub.shutdown()
    hub.server_close()

    answer = browser.ask("/")

    assert (answer.status, answer.headers["Content-Type"]) == (502, "text/plain")
    assert b"refused" in answer.body
