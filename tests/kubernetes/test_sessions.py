"""Sessions in pods of a real kubelet: bp reaches them by exec, for pages and for runs in them."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.programs.bp.cluster import Api
from tests.kubernetes.test_bp_cluster import UID, api, running
from tests.testlab.fakes.laptop import FakeHub, Laptop
from tests.testlab.fakes.runs import wait_for
from tests.testlab.kubernetes.images import PYTHON_IMAGE
from tests.testlab.kubernetes.joined_node import CASES
from tests.testlab.kubernetes.real_node import HOST
from tests.unit.test_bp import Browser
from tests.unit.test_bp_run import _GROUP as _FACTS
from tests.unit.test_bp_run import FLEET, RUN_TOKEN, Record, laptop_at_work

__all__ = ["api", "running"]

_CASE = CASES["pool"]
_GROUP = _CASE.promised.labels["bedplate/group"]
# A page in the folder of the session, which is beside those of its runs.
_PAGE = """
import http.server, os, socketserver
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"page of " + str(os.getuid()).encode())
    def address_string(self):
        return "person"
print("starts", flush=True)
socketserver.UnixStreamServer(os.path.realpath("/bedplate/session") + "/page", Page).serve_forever()
"""


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """Yield the record of a hub that pods reach."""
    with FakeHub(tmp_path, address=HOST) as hub:
        record = Record(hub)
        hub.tokens.add(RUN_TOKEN)
        for path in ("/bedplate/end", "/bedplate/stop"):
            hub.answer(path, {})
        facts = {**_FACTS, "kubernetes": True, "image": PYTHON_IMAGE, "taints": _CASE.promised.taints}
        hub.answer("/fleet.json", {**FLEET, "machines": {}, "groups": {_GROUP: facts}})
        yield record


@pytest.fixture
def laptop(api: Api, record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """Return a laptop at work, whose runs go to that node."""
    laptop = laptop_at_work(record.hub, tmp_path)
    laptop.set(address=HOST, cluster={**vars(api.cluster), "gids": [UID]})
    (laptop.programs / "ssh-keygen").symlink_to("/usr/bin/ssh-keygen")
    monkeypatch.chdir(tmp_path / "work")
    return laptop


def tags_of(record: Record, number: int) -> dict[str, str]:
    """Return the tags of a run, by its number."""
    return {tag["key"].removeprefix("bedplate."): tag["value"] for tag in record.runs[number]["data"]["tags"]}


def test_a_session_in_a_pod_has_runs_and_a_page(laptop: Laptop, record: Record) -> None:
    """By exec, without a port. A run in it is the person, has its own record and output, and ends with the session."""
    Path("page.py").write_text(_PAGE)
    options = ("--group", _GROUP, "--cpus", "1", "--memory", "1", "--name", "notes")
    started = laptop.bp("session", "start", "-d", *options)
    assert started.returncode == 0, started.stderr
    name = tags_of(record, 0)["id"]
    wait_for(lambda: tags_of(record, 0)["state"] == "running", 60)

    done = laptop.bp("run", "--in", name, "--", "sh", "-c", "cat train.py; id -u; exit 7")
    page = laptop.start("run", "--in", name, "--", "python3", "page.py")
    assert page.stdout
    assert page.stdout.readline() == "starts\n"
    browser = Browser(laptop, "session", "open", name)
    browser.log_in()
    shown = browser.ask("/").body
    browser.process.send_signal(signal.SIGINT)
    browser.process.communicate(timeout=30)
    extended, stopped = laptop.bp("session", "extend", name), laptop.bp("stop", name)
    page.communicate(timeout=60)

    assert (done.returncode, done.stdout) == (7, f"print('loss')\n{UID}\n"), done.stderr
    assert shown == b"page of %d" % UID
    assert (extended.returncode, stopped.returncode) == (0, 0)
    wait_for(lambda: tags_of(record, 0)["state"] == "ended", 60)
    causes = [tags_of(record, number)["cause"] for number in range(3)]
    assert causes == ["stopped by ada", "the program ended with exit code 7", "stopped by the end of its session"]
    assert tags_of(record, 1)["machine"] == tags_of(record, 0)["machine"] == _CASE.name
