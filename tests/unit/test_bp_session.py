"""Sessions as people have them: bp, a fake ssh with the agent behind it, and the program of a session."""

import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp

import pytest

from bedplate.nodes.invitation import bp_program
from bedplate.programs.bp.jobset import agent_of
from bedplate.programs.hub import limits
from tests.testlab.chromium import chromium
from tests.testlab.fakes.laptop import FakeHub, Laptop
from tests.testlab.fakes.runs import AgentRun, RunHub, wait_for
from tests.testlab.run import need_root
from tests.unit.test_agent_start import ID, Machine
from tests.unit.test_bp import Browser
from tests.unit.test_bp_run import API, FLEET, RUN_TOKEN, SSH, Record, api, created, hub, laptop, record

__all__ = ["api", "hub", "laptop", "record"]

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
# A page that answers with what it was asked, and a WebSocket that answers in capitals.
_PAGE = """
import http.server, json, os, socketserver, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Upgrade"):
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\n\\r\\n")
            while data := self.connection.recv(4096):
                self.wfile.write(data.upper())
            return
        answer = json.dumps([self.command, self.path, dict(self.headers), body.decode()]).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "_xsrf=1; Path=/")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET
    def address_string(self):
        return "person"
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64
print("page starts", flush=True)
Server(os.environ["BEDPLATE_PAGE"], Page).serve_forever()
"""
_XSRF = "document.cookie.match(/_xsrf=([^;]*)/)[1]"
_RESTART = f"fetch('/api/kernels/' + k[0].id + '/restart', {{method: 'POST', headers: {{'X-XSRFToken': {_XSRF}}}}})"
_CELL = """import os, sys; open("kept.txt", "w").write("x")
open("token.txt", "w").write(os.environ["MLFLOW_TRACKING_TOKEN"])
print(os.getpid(), sys.executable, "is", "printed")"""


@pytest.fixture
def machine(laptop: Laptop, hub: FakeHub, tmp_path: Path) -> Machine:
    """Return a machine that the laptop reaches by ssh, whose shell prints a line first."""
    return machine_of(laptop, hub, tmp_path)


def machine_of(laptop: Laptop, hub: FakeHub, tmp_path: Path, python: str = "") -> Machine:
    """Return a machine that the laptop reaches by ssh."""
    machine = Machine(tmp_path, python)
    machine.environment["PATH"] += f":{Path(sys.executable).parent}"
    hub.tokens.add(RUN_TOKEN)
    for path in ("/bedplate/end", "/bedplate/stop"):
        hub.answer(path, {})
    words = shlex.join((*(f"{name}={value}" for name, value in machine.environment.items()), *machine.command))
    agent = f'*bedplate-agent*) echo hello; eval exec env {shlex.quote(words)} "${{*##*bedplate-agent }}";;'
    laptop.ssh_answers(SSH.replace("*bedplate-agent*)", f"{agent}\n*never*)"))
    return machine


class Board:
    """A session with a page on that machine; its record is that of the laptop's hub."""

    def __init__(self, machine: Machine, hub: RunHub, record: Record, **given: object) -> None:
        code, command = {"page.py": _PAGE.encode()}, ["python3", "page.py"]
        run = AgentRun(hub, machine.base / ID, code, command, session="board", **{"idle": 3600, **given})
        self.machine, self.hub = machine, hub
        machine.agent("start", given=run.given)
        record.add(ID, session="board", machine="titan-03.cellar")

    def stop(self) -> None:
        """Stop it, and wait for its end."""
        self.machine.agent("stop", ID)
        wait_for((self.machine.folder / "recorded").exists)


@pytest.fixture
def board(machine: Machine, record: Record, tmp_path: Path) -> Iterator[Board]:
    """Yield a session with a page."""
    (tmp_path / "agents").mkdir()
    with RunHub(tmp_path / "agents") as hub:
        board = Board(machine, hub, record)
        yield board
        board.stop()


@pytest.fixture
def browser(laptop: Laptop, board: Board) -> Iterator[Browser]:
    """Yield a browser at the page, which ends by Ctrl-C."""
    del board
    browser = Browser(laptop, "session", "open", ID)
    yield browser
    browser.process.send_signal(signal.SIGINT)
    output, errors = browser.process.communicate(timeout=20)
    assert (browser.process.returncode, output, errors.count("\n")) == (0, "", 2), errors


def test_the_page_of_a_session_is_shown(browser: Browser) -> None:
    """With all methods and its own cookies; it gets neither a cookie of bp nor a token, and the host of the browser."""
    assert browser.ask("/").status == 403
    browser.log_in()

    answers = [browser.ask("/api?x=1", method, b"body", Origin=f"http://{browser.host}") for method in _METHODS]

    for method, answer in zip(_METHODS, answers, strict=True):
        assert answer.status == 200
        line, path, headers, body = json.loads(answer.body)
        assert (line, path, body) == (method, "/api?x=1", "body")
        assert (headers["Host"], headers["Cookie"], headers["Origin"]) == (
            browser.host,
            "other=1",
            f"http://{browser.host}",
        )
        assert "Authorization" not in headers
        assert answer.headers["Set-Cookie"] == "_xsrf=1; Path=/"


@pytest.mark.nightly
def test_a_web_socket_and_a_large_body_pass(browser: Browser) -> None:
    """Bytes of both sides at the same time as other requests, over one connection of ssh."""
    browser.log_in()
    with browser.web_socket("/live") as (client, answers):
        for data in (b"one", b"two" * 100_000):
            client.sendall(data)
            body = "x" * (8 << 20)

            answer = browser.ask("/", "PUT", body.encode())

            assert json.loads(answer.body)[3] == body
            assert answers.read(len(data)) == data.upper()


@pytest.mark.nightly
def test_many_requests_at_once_are_answered(browser: Browser, laptop: Laptop) -> None:
    """Each by its own answer, in any order; all by one connection of ssh."""
    browser.log_in()

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(browser.ask, [f"/{number}" for number in range(200)]))

    assert [json.loads(answer.body)[1] for answer in answers] == [f"/{number}" for number in range(200)]
    assert sum("agent connect" in line for line in laptop.logins) == 1


@pytest.mark.nightly
def test_a_lost_connection_is_made_again(browser: Browser, laptop: Laptop, board: Board) -> None:
    """The next request of the page opens another one; a session that has ended is named."""
    browser.log_in()
    (ssh,) = Path(f"/proc/{browser.process.pid}/task/{browser.process.pid}/children").read_text().split()
    os.kill(int(ssh), signal.SIGKILL)
    wait_for(lambda: browser.ask("/").status == 200)

    assert sum("agent connect" in line for line in laptop.logins) == 2
    board.stop()
    answers = [browser.ask("/") for _ in range(2)]

    assert [answer.status for answer in answers] == [502, 502]
    assert b"has no page now" in answers[1].body


def test_a_run_in_a_session_has_all_of_it(laptop: Laptop, board: Board, record: Record) -> None:
    """It has its own record, code and log, and the session's variables; no unit is started for it."""
    units = (board.machine.base / "words").read_text()
    Path("train.py").write_text("print('better')\n")

    done = laptop.bp(
        "run", "--in", ID, "--param", "lr=1", "--", "sh", "-c", "cat train.py; cat $BEDPLATE_PARAMS; exit 7"
    )

    assert (done.returncode, done.stdout) == (7, "print('better')\n" + '{"lr": "1"}'), done.stderr
    assert f"in the session {ID}, which pays" in done.stderr
    assert (record.tags["in"], record.tags["price"], record.tags["state"]) == (ID, "0", "ended")
    assert record.tags["machine"] == "titan-03.cellar"
    assert (board.machine.base / "words").read_text() == units
    # Each takes a login of its own, which a person waits for.
    assert not [line for line in laptop.logins if line.endswith("bedplate-agent secrets")]


@pytest.mark.nightly
def test_ssh_reaches_a_session_by_its_name(laptop: Laptop, machine: Machine, tmp_path: Path) -> None:
    """By settings of bp, in the folder and with the variables of the run, also to copy files; by no other key."""
    (laptop.programs / "ssh-keygen").symlink_to(shutil.which("ssh-keygen") or "")
    done = laptop.bp("session", "start", "-d", "--env", "SHADE=deep 'blue'", "--name", "shell")
    (entry,) = (laptop.archive / "sessions").iterdir()
    environment = {"PATH": str(laptop.programs), "XDG_CACHE_HOME": str(laptop.cache), "HOME": str(laptop.archive)}
    # The account of this machine is not ada.
    options = ("-F", str(entry), "-o", "User=root")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)

    shown = run("/usr/bin/ssh", *options, entry.name, 'echo "$SHADE"; ls; touch "$BEDPLATE_OUTPUT"; exit 7')
    copied = run("/usr/bin/scp", *options, str(tmp_path / "work/train.py"), f"{entry.name}:copy.py")
    run("/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other"))
    wrong = tmp_path / "entry"
    wrong.write_text(re.sub('IdentityFile ".*"', f"IdentityFile {tmp_path}/other", entry.read_text()))
    refused = run("/usr/bin/ssh", "-F", str(wrong), "-o", "User=root", entry.name, "true")

    assert f"ssh {entry.name}, if" in done.stderr
    assert f"ssh-remote+{entry.name}" in done.stderr
    assert (shown.returncode, shown.stdout, shown.stderr) == (7, "deep 'blue'\ntrain.py\n", "")
    assert copied.returncode == 0, copied.stderr
    (copy,) = machine.base.glob("cache/*/*/work/copy.py")
    assert copy.read_text() == "print('loss')\n"
    assert (refused.returncode, "Permission denied" in refused.stderr) == (255, True)
    assert laptop.bp("stop", entry.name).returncode == 0

    wait_for(lambda: "has ended: stopped by" in run("/usr/bin/ssh", *options, entry.name, "true").stderr)


@pytest.mark.nightly
def test_an_account_without_a_name_has_ssh(tmp_path: Path) -> None:
    """As people have none in pods: with a terminal, and the variables of the run."""
    need_root()
    base = Path(mkdtemp(dir="/tmp"))
    base.chmod(0o777)
    (tmp_path / "bp").write_bytes(bp_program())
    (base / "agent").write_bytes(agent_of(tmp_path / "bp"))
    subprocess.run(
        ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", str(tmp_path / "key")), check=True
    )
    told = {"AGENT": "none", "IDLE": "3600", "KEY": (tmp_path / "key.pub").read_text().strip(), "SESSION": "ssh"}
    told |= {
        "STOP": str(base / "stop"),
        "OUTPUT": str(base),
        "PARAMS": str(base / "params"),
        "WORK": str(base / "work"),
    }
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(base), "SHADE": "blue"}
    variables |= {f"BEDPLATE_{name}": value for name, value in told.items()}
    words = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "env", "-i"]
    words += [*(f"{name}={value}" for name, value in variables.items()), "python3", str(base / "agent")]
    proxy = f"ProxyCommand={shlex.join((*words, 'connect', 'x', 'ssh'))}"
    options = (
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
        "IdentitiesOnly=yes",
        proxy,
    )

    with subprocess.Popen((*words, "session", "sleep", "infinity"), cwd=base) as session:
        ssh = ("ssh", "-F", "none", "-tt", "-i", str(tmp_path / "key"), *(f"-o{option}" for option in options), "ada@x")
        done = subprocess.run(
            (*ssh, "id -u; tty; echo $SHADE"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        session.terminate()
    shutil.rmtree(base)

    user, terminal, shade = done.stdout.split()[:3]
    assert (done.returncode, user, shade) == (0, "54321", "blue"), done
    assert terminal.startswith("/dev/pts/")
    assert session.returncode == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["run", "--in", ID, "--gpus", "1", "--on", "titan-03", "--", "true"],
            "a run in a session has no --on, --gpus",
        ),
        (["run", "--in", "ada-1127-plain", "--", "true"], "ada-1127-plain is no session"),
        (["run", "--in", "bob-1127-notes", "--", "true"], "bob-1127-notes is a run of bob"),
        (["session", "open", "ada-1127-ended"], "the session ada-1127-ended has ended: stopped by ada"),
        (["session", "open", "ada-1127-shell"], "ada-1127-shell has no page: it was started for ssh"),
        (["session", "connect", "ada-1127-board"], "ada-1127-board was not started for ssh"),
        (["session", "start", "--ssh", "--jupyter"], "not allowed with argument --ssh"),
        (["session", "start", "--nodes", "2"], "unrecognized arguments: --nodes"),
        (["again", ID], f"{ID} was a session"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], reason: str, laptop: Laptop, record: Record) -> None:
    """Before anything starts, in a sentence."""
    record.add(ID, session="ssh", machine="titan-03.cellar", command="bp session start --ssh")
    record.add("ada-1127-plain", machine="titan-03.cellar")
    ended = {"state": "ended", "cause": "stopped by ada"}
    record.add("ada-1127-ended", session="ssh", machine="titan-03.cellar", **ended)
    record.add("ada-1127-shell", session="ssh", machine="titan-03.cellar")
    record.add("ada-1127-board", session="board", machine="titan-03.cellar")
    record.add("bob-1127-notes", session="ssh", machine="titan-03.cellar", owner="bob")
    (laptop.programs / "ssh-keygen").symlink_to(shutil.which("ssh-keygen") or "")

    done = laptop.bp(*words)

    assert done.returncode in {2, 242}, done.stderr
    assert reason in done.stderr
    assert len(record.runs) == 6
    assert not any("agent" in line for line in laptop.logins)


def test_a_key_stays_while_its_session_waits(laptop: Laptop, record: Record) -> None:
    """Waiting for GPUs takes no time of the session, and another start removes only what has ended."""
    (laptop.programs / "ssh-keygen").symlink_to(shutil.which("ssh-keygen") or "")
    folder = laptop.cache / "bedplate/lab/sessions"
    for _ in range(2):
        assert "no group" in laptop.bp("session", "start", "--group", "nowhere", "--for", "2h").stderr
        os.utime(next(folder.glob("*.pub")), (0, 0))

    keys = [path for path in folder.iterdir() if not path.suffix]

    assert (len(keys), len([*folder.iterdir()]), record.runs) == (2, 3, [])
    assert all(path.stat().st_mtime > time.time() + 60 * 86_400 for path in keys)


def test_a_run_in_itself_or_in_the_session_of_another_has_no_end(laptop: Laptop, record: Record) -> None:
    """Colleagues can change tags: that is one look, and no way to their sessions."""
    record.add(ID, machine="titan-03.cellar", **{"in": ID})
    record.add("ada-1127-guest", machine="titan-03.cellar", **{"in": "bob-1127-notes"})
    record.add("bob-1127-notes", session="ssh", machine="titan-03.cellar", owner="bob")

    own, other = (laptop.bp("stop", name) for name in (ID, "ada-1127-guest"))

    assert sum("get" in line or "search" in line for line, *_ in record.hub.requests) < 10
    assert "Traceback" not in own.stderr
    assert "bob-1127-notes is a run of bob" in other.stderr


@pytest.mark.nightly
def test_a_session_is_reached_without_the_hub(laptop: Laptop, hub: FakeHub, record: Record) -> None:
    """From the laptop that has started it: the hub is no part of its way."""
    (laptop.programs / "ssh-keygen").symlink_to(shutil.which("ssh-keygen") or "")
    laptop.ssh_answers(SSH)
    laptop.bp("session", "start", "-d", "--name", "shell", "--on", "titan-03")
    hub.shutdown()
    hub.server_close()
    before = len(laptop.logins)

    done = laptop.bp("session", "extend", record.tags["id"])

    assert any("agent connect" in line for line in laptop.logins[before:]), done.stderr


def test_sessions_are_listed(laptop: Laptop, record: Record) -> None:
    """Those of the person that go on, with their kinds; also for programs."""
    record.add(ID, session="jupyter", machine="titan-03.cellar", command="bp session start --jupyter")
    record.add("ada-1127-plain", machine="titan-03.cellar")
    record[f"{API}runs/search"] = lambda: (200, {}, json.dumps({"runs": record.runs}).encode())

    head, row = laptop.bp("session", "list").stdout.splitlines()
    (run,) = json.loads(laptop.bp("session", "list", "--json").stdout)

    assert head.split()[:3] == ["KIND", "RUN", "OWNER"]
    assert row.split()[:4] == ["jupyter", ID, "ada", "running"]
    assert run["name"] == ID


def test_a_pod_gets_what_its_session_needs(laptop: Laptop, api: FakeHub, record: Record) -> None:
    """Kind, idle time, and the packages of JupyterLab, which only sessions of notebooks get."""
    record.hub.answer("/fleet.json", {**FLEET, "for": "4h", "idle": {"after": 7_200, "then": "report"}})

    done = laptop.bp("session", "start", "--jupyter", "-d", "--group", "batch")

    assert done.returncode == 0, done.stderr
    (container,) = created(api)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    variables = {item["name"]: item.get("value") for item in container["env"]}
    assert (
        variables.items() >= {"BEDPLATE_SESSION": "jupyter", "BEDPLATE_IDLE": "7200", "BEDPLATE_FOR": "14400"}.items()
    )
    (secret,) = (json.loads(body) for line, _, body in api.requests if line.endswith("/secrets"))
    assert b"jupyterlab==" in b64decode(secret["data"]["requirements.txt"])
    assert (record.tags["session"], record.tags["command"]) == ("jupyter", "bp session start --jupyter")


class Idle:
    """A board that looks at signs of work each 0.2 s, and may be idle for some seconds."""

    def __init__(self, machine: Machine, hub: RunHub, record: Record, seconds: int) -> None:
        pace = "from bedplate.programs.agent import session; session._LOOK = 0.2; session._LEAST = 2\n"
        machine.command[2] = machine.command[2].replace("base = Path", f"{pace}base = Path")
        machine.prepare()
        self.board, self.folder = Board(machine, hub, record, idle=seconds), machine.folder
        wait_for((self.folder / "session/page").exists)

    @property
    def log(self) -> str:
        """What the session has printed."""
        return "".join(path.read_text() for path in self.folder.glob("logs/0/0/0*"))


@pytest.fixture
def idle(request: pytest.FixtureRequest, machine: Machine, record: Record, tmp_path: Path) -> Iterator[Idle]:
    """Yield a session that will be idle."""
    (tmp_path / "agents").mkdir()
    with RunHub(tmp_path / "agents") as hub:
        idle = Idle(machine, hub, record, request.param)
        yield idle
        idle.board.stop()


@pytest.mark.parametrize("idle", [3], indirect=True)
def test_an_idle_session_warns_and_ends(idle: Idle) -> None:
    """Its log and the record say before what was seen; the cause is its limit."""
    wait_for((idle.folder / "recorded").exists)

    (warning,) = re.findall("the session is (.*)", idle.log)
    assert re.match(r"idle for 0 min: no key, request or run, .*It ends in 0 min, unless", warning)
    # The hub tells its person by these words.
    assert limits._MINUTES.match(warning)  # noqa: SLF001  the two programs share no module
    assert idle.board.hub.tags["cause"] == "stopped by its limit: a session that is idle for 0 min"
    assert idle.board.hub.statuses[-1] == "KILLED"


@pytest.mark.nightly
@pytest.mark.parametrize("idle", [300], indirect=True)
def test_a_sign_of_work_puts_off_the_end(idle: Idle, laptop: Laptop) -> None:
    """A request that a person causes, a run, and `bp session extend`; what a page asks by itself does not."""
    active = idle.folder / "session/active"
    browser = Browser(laptop, "session", "open", ID)
    browser.log_in()

    def is_sign(act: Callable[[], object]) -> bool:
        before = active.stat().st_mtime_ns
        act()
        return active.stat().st_mtime_ns > before

    assert is_sign(lambda: browser.ask("/", "PUT", b"x" * 100))
    assert not is_sign(lambda: browser.ask("/api/kernels?1"))
    assert is_sign(lambda: laptop.bp("session", "extend", ID))
    assert is_sign(lambda: laptop.bp("run", "--in", ID, "--", "sleep", "1"))
    browser.process.send_signal(signal.SIGINT)
    browser.process.communicate(timeout=20)


@pytest.mark.nightly
def test_jupyterlab_works_in_a_browser(laptop: Laptop, hub: FakeHub, record: Record, tmp_path: Path) -> None:
    """A kernel has the Python of the run, and no port. It starts again; a file with the run's token stays there."""
    machine_of(laptop, hub, tmp_path, sys.executable)
    certificates = [f"--env={name}={os.environ[name]}" for name in ("SSL_CERT_FILE",) if name in os.environ]
    process = laptop.start("session", "start", "--jupyter", *certificates)
    assert process.stdout
    address = next(line.strip() for line in process.stdout if line.startswith("http://"))
    name = record.tags["id"]

    with chromium(tmp_path / "profile") as page:
        page.open(address)
        page.wait_for("Python of ")
        page.evaluate("document.querySelector('.jp-LauncherCard[data-category=Notebook]').click()")
        page.wait_for("| Idle")
        page.evaluate("document.querySelector('.jp-Notebook .cm-content').focus()")
        page.write(_CELL)
        page.wait_for("is printed")
        (line,) = re.findall(r"(\d+) (\S+) is printed", page.evaluate("document.body.innerText"))
        page.evaluate(f"fetch('/api/kernels').then(r => r.json()).then(k => {_RESTART})")
        page.wait_for("| Idle")
        page.write("print(os is None)")
        page.wait_for("NameError")
    ports = subprocess.run(("ss", "-lntp"), capture_output=True, text=True, check=True).stdout
    stopped = laptop.bp("stop", name)
    process.communicate(timeout=60)

    number, python = line
    assert "python" in Path(python).name
    assert "environments" not in python
    assert f"pid={number}," not in ports
    assert stopped.returncode == 0
    assert record.tags["cause"] == f"stopped by {pwd.getpwuid(os.getuid()).pw_name}"
    files = {path.rpartition("artifacts/")[2]: data for path, data in record.packs.items() if "artifacts" in path}
    assert files["output/kept.txt"] == b"x"
    assert {*files} >= {"output/Untitled.ipynb", "output/kept.txt"}
    assert "output/token.txt" not in files
    assert not any(RUN_TOKEN.encode() in data for data in files.values())
