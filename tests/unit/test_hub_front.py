"""The hub's front: each request's way through the real nginx and the check to a stand-in for MLflow, and the mint."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bedplate.programs.hub import __main__ as program
from bedplate.programs.hub.__main__ import Hub
from bedplate.programs.hub.records import Lines
from bedplate.programs.hub.tokens import RefusedError, read_token
from roles.hardened.logins import HUB_TOKEN_PROGRAM
from tests.testlab.machines.hub import (
    ADA,
    FILES,
    FORMER,
    GRACE,
    HOST,
    KEY,
    OTHER,
    PACK,
    PEOPLE,
    RUN,
    RunningHub,
    role_text,
    running_hub,
    token,
)
from tests.testlab.run import need_program

LOG = f"{FILES}/1/{RUN}/artifacts/logs/0/0/000000"
OF_RUN = f"run:{RUN}"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """Yield a running hub."""
    need_program("nginx")
    with running_hub(tmp_path_factory.mktemp("hub")) as running:
        yield running


def test_a_request_reaches_the_record_without_its_token(hub: RunningHub) -> None:
    """MLflow gets the request as it was sent, and neither the token nor the origin of a browser."""
    answer = hub.ask("GET", "/api/2.0/mlflow/runs/get?run_id=1&x=%2e", token(), Origin="https://elsewhere.example")

    assert answer.status == 200
    assert answer.document["path"] == "/api/2.0/mlflow/runs/get?run_id=1&x=%2e"
    names = {name.lower() for name in answer.document["headers"]}
    assert names.isdisjoint({"authorization", "origin"})
    assert answer.document["headers"]["Host"] == "localhost"


@pytest.mark.parametrize(
    "make",
    [
        lambda: "",
        lambda: "x",
        lambda: token(key=b"x" * 64),
        lambda: token(seconds=-1),
        lambda: token(key=FORMER),
        lambda: token(29999),
    ],
    ids=["none", "no token", "another key", "expired", "former key", "stranger"],
)
def test_nobody_is_let_in_without_a_valid_token(hub: RunningHub, make: Callable[[], str]) -> None:
    """Without a token of a person of the fleet no address answers: no page, no file, no record."""
    text = make()
    for method, target in (("GET", "/"), ("GET", PACK), ("PUT", PACK), ("GET", "/fleet.json"), ("GET", "/health")):
        answer = hub.ask(method, target, text, b"x" if method == "PUT" else None)

        assert answer.status in {401, 403}
        assert answer.document["error_code"] == str(answer.status)
        assert answer.document["message"]
    assert not list(hub.files.rglob("*-0.pack"))


def test_a_person_writes_and_reads_a_pack(hub: RunningHub) -> None:
    """A pack is written once by its owner, read by all, and by no other run; a page of it would be sandboxed."""
    assert hub.ask("PUT", PACK, token(GRACE), b"other").status == 403
    assert hub.ask("PUT", PACK, token(scope=OF_RUN), b"other").status == 403
    assert hub.ask("PUT", PACK, token(), b"pack").status == 201
    again = hub.ask("PUT", PACK, token(), b"other")
    read = hub.ask("GET", PACK, token(GRACE))

    assert (again.status, again.document["message"]) == (409, "a pack is written once, and this one exists")
    assert (read.status, read.body) == (200, b"pack")
    assert read.headers["Content-Security-Policy"] == "sandbox"
    assert read.headers["X-Content-Type-Options"] == "nosniff"
    assert hub.ask("GET", PACK, token(scope=OF_RUN)).body == b"pack"
    assert hub.ask("GET", PACK, token(GRACE, OF_RUN)).status == 403
    assert hub.ask("DELETE", PACK, token()).status == 403


def test_a_run_writes_its_logs_only(hub: RunningHub) -> None:
    """The last part of a log is replaced; files of another run, large parts and unknown lengths are refused."""
    run = token(scope=OF_RUN)

    assert [hub.ask("PUT", LOG, run, body).status for body in (b"one", b"two")] == [201, 204]
    assert hub.ask("GET", LOG, token(GRACE)).body == b"two"
    assert hub.ask("PUT", LOG.replace(RUN, OTHER), run, b"x").status == 403
    assert hub.ask("PUT", LOG, run, b"x" * ((256 << 10) + 1)).status == 413
    chunked = hub.ask("PUT", LOG, run, b"1\r\nx\r\n0\r\n\r\n", Transfer_Encoding="chunked")
    assert (chunked.status, chunked.document["message"]) == (411, "the length of the file is required")
    assert hub.ask("GET", LOG, token(GRACE)).body == b"two"


def test_files_are_for_nginx_and_the_record_only(hub: RunningHub) -> None:
    """Whoever is in the group of the record reads what nginx has written; others do not."""
    hub.ask("PUT", LOG, token(scope=OF_RUN), b"x")
    file = hub.files / LOG.removeprefix(f"{FILES}/")

    assert oct(file.stat().st_mode & 0o777) == "0o640"
    assert all(folder.stat().st_mode & 0o007 == 0 for folder in file.parents if hub.files in folder.parents)


@pytest.mark.parametrize(
    "target",
    [
        f"{FILES}/packs/ada/../../../tokens/runs",
        f"{FILES}/packs/ada/%2e%2e/%2e%2e/%2e%2e/keys/tls.key",
        f"{FILES}/..%2f..%2fkeys%2ftls.key",
        f"{FILES}/1/{RUN}/artifacts/%2e%2e/x",
        "/get-artifact?path=../../keys/tls.key&run_uuid=1",
        "/check",
        "/reason",
        "/error",
        "//",
    ],
)
def test_no_address_leads_out_of_the_folder_of_files(hub: RunningHub, target: str) -> None:
    """Nor to the addresses between nginx and the check."""
    for method in ("GET", "PUT"):
        for text in (token(), token(scope=OF_RUN)):
            assert hub.ask(method, target, text, b"x").status in {400, 403, 404}


def test_an_address_cannot_add_headers_for_the_check(hub: RunningHub) -> None:
    """A line break in an address, also escaped, is refused; the next requests on the same connections are unharmed."""
    line = "%0d%0a"
    for _ in range(5):
        hub.ask("GET", f"/x{line}X-Method:%20GET{line}X-Target:%20/{line}{line}GET%20/check%20HTTP/1.1{line}", token())
        assert hub.ask("GET", "/fleet.json").status == 401
        assert hub.ask("DELETE", "/api/2.0/mlflow/runs/get", token(), X_Method="GET", X_Target="/").status == 403
        # Its body is not read by the program.
        assert hub.ask("POST", "/bedplate/whoami", token(), b"GET /check HTTP/1.1\r\n\r\n").status == 403
        assert hub.ask("POST", "/bedplate/end", token(GRACE, f"run:{'e' * 32}"), b"{}" * 2000).status in {200, 401}


def test_another_host_is_refused(hub: RunningHub) -> None:
    """A page of the internet whose name leads here gets nothing: neither by the header nor without one."""
    answer = hub.ask("GET", "/", token(), Host="elsewhere.example")

    assert (answer.status, answer.document["message"]) == (421, f"the name of this hub is {HOST}")
    assert hub.ask("GET", "/bedplate/whoami", token(), Host=HOST).status == 200


def test_a_token_is_in_no_log(hub: RunningHub) -> None:
    """A log has the person and the scope, and neither headers nor queries; of metrics, failures only."""
    secret = token(GRACE, seconds=1234)
    for target in ("/bedplate/whoami", f"/api/2.0/mlflow/runs/get?token={secret}"):
        hub.ask("GET", target, secret)
    hub.ask("PUT", PACK, secret, b"x", X_Token=secret)
    hub.ask("GET", "/", secret, Host="elsewhere.example", Cookie=secret, Referer=secret, User_Agent=secret)
    hub.ask("POST", "/api/2.0/mlflow/runs/log-batch", secret, b"x")
    hub.ask("GET", "/bedplate/stop?idle=5", token(scope=OF_RUN))

    assert secret not in hub.logs
    assert 'grace person GET "/api/2.0/mlflow/runs/get" 200' in hub.logs
    assert f'PUT "{PACK}" 403' in hub.logs
    assert "log-batch" not in hub.logs
    assert 'GET "/bedplate/stop" 200' not in hub.logs


def test_large_bodies_end_at_the_gate(hub: RunningHub) -> None:
    """A record of more than 16 MiB and a file of 5 GB are refused by their length, before a byte is read."""
    record = hub.ask("POST", "/api/2.0/mlflow/runs/log-batch", token(), Content_Length=str((16 << 20) + 1))
    file = hub.ask("PUT", f"{FILES}/1/{RUN}/artifacts/x", token(scope=OF_RUN), Content_Length=str(5_000_000_000))

    assert (record.status, file.status) == (413, 413)
    assert "at most 16 MiB" in record.document["message"]


def test_a_file_may_be_larger_than_a_record(hub: RunningHub) -> None:
    """A pack or an artefact of more than 16 MiB is written and read; one that is refused says why."""
    data, full = b"x" * (17 << 20), f"{FILES}/1/{OTHER}/artifacts/x"

    assert hub.ask("PUT", f"{FILES}/packs/ada/{'7' * 40}-0.pack", token(), data).status == 201
    assert hub.ask("PUT", f"{FILES}/1/{RUN}/artifacts/large", token(scope=OF_RUN), data).status == 201
    assert hub.ask("GET", f"{FILES}/1/{RUN}/artifacts/large", token()).body == data
    # Before its body, which would fill a full disk.
    refused = hub.ask("PUT", full, token(scope=OF_RUN), Content_Length=str(len(data)))
    assert (refused.status, refused.document["message"]) == (403, "this token is for the artefacts of another run")
    assert refused.headers["Content-Type"] == "application/json"


def test_a_cut_upload_leaves_nothing(hub: RunningHub) -> None:
    """A file has its name when it is complete; what was sent of it is deleted."""
    target = f"{FILES}/1/{RUN}/artifacts/cut"
    connection = hub.connect()
    connection.putrequest("PUT", target)
    connection.putheader("Authorization", f"Bearer {token(scope=OF_RUN)}")
    connection.putheader("Content-Length", str(1 << 20))
    connection.endheaders(b"x" * 500_000)
    _until(lambda: any((hub.folder / "uploads").iterdir()))
    connection.close()

    _until(lambda: not any((hub.folder / "uploads").iterdir()))
    assert hub.ask("GET", target, token()).status == 404


def test_slow_clients_hold_up_nobody(hub: RunningHub) -> None:
    """While 20 clients send a body byte by byte, and 20 send no header, others are answered at once."""
    slow = [hub.connect() for _ in range(40)]
    for connection in slow[:20]:
        connection.putrequest("POST", "/api/2.0/mlflow/runs/log-batch")
        connection.putheader("Authorization", f"Bearer {token(scope=OF_RUN)}")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b"x")

    began = time.monotonic()
    statuses = {hub.ask("GET", "/bedplate/whoami", token()).status for _ in range(5)}

    assert statuses == {200}
    assert time.monotonic() - began < 5
    for connection in slow:
        connection.close()


def test_a_token_has_a_limit_of_requests(hub: RunningHub) -> None:
    """Too many connections with one token are refused with the reason, and other tokens are not."""
    busy = token(scope=f"run:{'d' * 32}")
    slow = [hub.connect() for _ in range(64)]
    for connection in slow:
        connection.putrequest("POST", "/api/2.0/mlflow/runs/log-batch")
        connection.putheader("Authorization", f"Bearer {busy}")
        connection.putheader("Content-Length", "1000")
        connection.endheaders(b"x")
    _until(lambda: hub.ask("GET", "/bedplate/whoami", busy).status == 429)

    assert "too many requests with this token" in hub.ask("GET", "/bedplate/whoami", busy).document["message"]
    assert hub.ask("GET", "/bedplate/whoami", token()).status == 200
    for connection in slow:
        connection.close()


def test_a_caller_learns_who_it_is(hub: RunningHub) -> None:
    """`whoami` has the uid, name, scope and end of the token, and the hub's clock."""
    answer = hub.ask("GET", "/bedplate/whoami", token()).document

    assert (answer["uid"], answer["name"], answer["scope"]) == (ADA, "ada", "person")
    assert answer["until"] - answer["now"] == pytest.approx(3600, abs=5)
    assert answer["now"] == pytest.approx(time.time(), abs=5)


def test_a_study_gets_tokens_of_its_own_runs(hub: RunningHub) -> None:
    """The record says which runs are those of a study; a run that another person owns is never given out."""
    mine, other, owned = ("1" * 32, "2" * 32, "3" * 32)
    hub.tags.update({mine: "ada-sweep-1", other: "ada-sweeps-1", owned: "ada-sweep-2"})
    study = token(scope="study:ada-sweep")
    assert _mint(hub, GRACE, f"run:{owned}")

    def ask(scope: object) -> tuple[int, object]:
        answer = hub.ask("POST", "/bedplate/token", study, json.dumps({"scope": scope}).encode())
        return answer.status, answer.document

    status, document = ask(f"run:{mine}")
    assert status == 200
    assert isinstance(document, dict)
    assert hub.ask("PUT", LOG.replace(RUN, mine), document["token"], b"x").status == 201
    assert [ask(scope)[0] for scope in (f"run:{other}", f"run:{owned}", "person", "study:ada-sweep", None)] == [
        403,
        403,
        403,
        403,
        400,
    ]
    assert hub.ask("POST", "/bedplate/token", study, b"[").status == 400
    for scope in ("person", OF_RUN):
        assert hub.ask("POST", "/bedplate/token", token(scope=scope), b"{}").status == 403


def test_a_run_ends_its_own_token(hub: RunningHub) -> None:
    """After the end of a run its token is refused, and no new one is made."""
    run = "4" * 32
    text = _mint(hub, ADA, f"run:{run}")

    assert hub.ask("POST", "/bedplate/end", text).status == 200
    assert hub.ask("GET", "/bedplate/whoami", text).document["message"] == "the token has ended"
    with pytest.raises(RefusedError, match="has ended"):
        _mint(hub, ADA, f"run:{run}")
    assert hub.ask("GET", "/bedplate/whoami", token()).status == 200


def test_a_command_ends_the_token_of_a_run(hub: RunningHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge names the run only: whoever owns it, its token is refused, and no new one is made."""
    run = "d" * 31 + "0"
    text = _mint(hub, ADA, f"run:{run}")
    monkeypatch.setattr(program, "VOLUME", hub.folder)

    program.main(["end", f"run:{run}"])

    assert hub.ask("GET", "/bedplate/whoami", text).document["message"] == "the token has ended"
    with pytest.raises(RefusedError, match="has ended"):
        _mint(hub, ADA, f"run:{run}")


@pytest.mark.parametrize("words", [[], ["sweep"]])
def test_without_its_keys_the_program_names_its_units(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator who starts it by hand is told what has them."""
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)

    with pytest.raises(SystemExit, match=r"its keys are missing: start bedplate-hub\.service"):
        program.main(words)


def test_a_removed_person_is_refused_at_once(hub: RunningHub) -> None:
    """From the next request on, the tokens of a removed person and of her runs end; others go on."""
    texts = (token(GRACE), token(GRACE, OF_RUN))
    file = hub.folder / "tokens/removed"
    assert [hub.ask("GET", "/bedplate/whoami", text).status for text in texts] == [200, 200]

    try:
        Lines(file).claim(str(GRACE))

        assert [hub.ask("GET", "/bedplate/whoami", text).status for text in texts] == [403, 403]
        assert hub.ask("GET", "/bedplate/whoami", token()).status == 200
        with pytest.raises(RefusedError, match="no person of the fleet"):
            _mint(hub, GRACE, "person")
    finally:
        file.unlink()


def test_usage_is_counted_by_person(hub: RunningHub) -> None:
    """Packs count for their folder's person, artefacts for the owner of their run."""
    run = "5" * 32
    hub.ask("PUT", LOG.replace(RUN, run), _mint(hub, GRACE, f"run:{run}"), b"x" * 1000)

    answer = hub.ask("GET", "/bedplate/usage", token()).document

    assert answer["people"]["grace"] >= 1000
    assert 0 < answer["disk"] < 1
    with socket.socket(socket.AF_UNIX) as mint:
        mint.connect(str(hub.folder / "mint"))
        mint.sendall(b"usage\n")
        text = mint.makefile().read()
    expected = f"bytes.grace {answer['people']['grace']}" if os.getuid() == 0 else "error: no person of the fleet"
    assert expected in text.splitlines()


def test_without_the_check_nothing_is_open(hub: RunningHub) -> None:
    """If the check cannot read who was removed, it refuses everybody; nginx answers with an error."""
    file = hub.folder / "tokens/removed"
    file.mkdir()

    try:
        assert hub.ask("GET", PACK, token()).status == 500
        assert hub.ask("GET", "/api/2.0/mlflow/runs/get", token()).status == 500
    finally:
        file.rmdir()
    assert hub.ask("GET", "/bedplate/whoami", token()).status == 200


def _mint(hub: RunningHub, uid: int, scope: str) -> str:
    return Hub((KEY,), hub.folder, hub.folder / "people").mint(uid, scope)


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


# --- the mint, and the files of the hub ---


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with the people of a hub."""
    (tmp_path / "tokens").mkdir()
    (tmp_path / "people").write_text("".join(f"{uid} {name}\n" for uid, name in PEOPLE.items()))
    return tmp_path


def minting(folder: Path) -> Hub:
    """Return a hub that has just started."""
    return Hub((KEY,), folder, folder / "people")


@pytest.mark.parametrize(
    ("scope", "status"),
    [("", 400), ("root", 400), ("run:1", 400), (f"{OF_RUN}\n", 400), ("study:grace-1", 403), ("study:ada", 403)],
)
def test_the_mint_makes_known_scopes_only(files: Path, scope: str, status: int) -> None:
    """A study has a name that starts with its person's: nobody gets tokens of another's runs by it."""
    with pytest.raises(RefusedError) as error:
        minting(files).mint(ADA, scope)
    assert error.value.status == status
    assert read_token(minting(files).mint(ADA, "study:ada-1"), (KEY,), time.time()).uid == ADA


def test_the_first_who_asks_owns_a_run(files: Path) -> None:
    """The owner gets further tokens, also after a restart; others and strangers get none."""
    minting(files).mint(ADA, OF_RUN)

    assert minting(files).mint(ADA, OF_RUN)
    for uid in (GRACE, 0, 33):
        with pytest.raises(RefusedError):
            minting(files).mint(uid, OF_RUN)
    assert (files / "tokens/runs").read_text() == f"{RUN} {ADA}\n"
    assert oct((files / "tokens/runs").stat().st_mode & 0o777) == "0o600"


def test_a_cut_last_line_is_harmless(files: Path) -> None:
    """A line without its end does not count, and does not spoil the next one."""
    (files / "tokens/runs").write_text(f"{RUN} 2000")

    assert minting(files).mint(GRACE, OF_RUN)
    assert minting(files).mint(ADA, f"run:{OTHER}")
    with pytest.raises(RefusedError, match="another person"):
        minting(files).mint(ADA, OF_RUN)


def test_a_full_disk_makes_no_tokens_of_runs(files: Path) -> None:
    """The mint refuses with a reason, and the file keeps its lines whole; tokens of people need no disk."""
    hub = minting(files)
    hub.mint(ADA, OF_RUN)
    command = (
        "import resource, sys\nfrom pathlib import Path\nfrom bedplate.programs.hub.__main__ import Hub\n"
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))\n"
        f"hub = Hub((b'k' * 64,), Path({str(files)!r}), Path({str(files / 'people')!r}))\n"
        f"hub.mint({ADA}, 'person')\ntry:\n    hub.mint({ADA}, 'run:{OTHER}')\n"
        "except Exception as error:\n    print(error)\n"
    )

    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)

    assert "the hub cannot write to its disk: ask an administrator" in done.stdout
    assert (files / "tokens/runs").read_text() == f"{RUN} {ADA}\n"
    assert hub.mint(ADA, f"run:{OTHER}")


def test_other_programs_may_add_lines(files: Path) -> None:
    """The hub sees a changed, a replaced and a removed file at the next request."""
    hub, removed = minting(files), files / "tokens/removed"
    assert hub.person(ADA) == "ada"

    removed.write_text(f"{ADA}\n")
    with pytest.raises(RefusedError):
        hub.person(ADA)
    (files / "new").write_text("1\n")
    (files / "new").rename(removed)
    assert hub.person(ADA) == "ada"
    (files / "people").write_text(f"{GRACE} grace\n")
    with pytest.raises(RefusedError):
        hub.person(ADA)


def test_concurrent_claims_have_one_owner(files: Path) -> None:
    """Of many who ask for a run at the same time, one gets tokens; one program answers all of them."""
    hub, owners = minting(files), list[int]()

    def ask(uid: int) -> None:
        try:
            hub.mint(uid, OF_RUN)
        except RefusedError:
            return
        owners.append(uid)

    threads = [threading.Thread(target=ask, args=(uid,)) for uid in (ADA, GRACE) * 20]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(owners)) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_kernel_says_who_asks_for_a_token(hub: RunningHub) -> None:
    """`bp-token` gives the account's own token for the scope that it names, and an error to everybody else."""
    for folder in (hub.folder, *hub.folder.parents[:3]):
        folder.chmod(0o755)
    program = hub.folder / "bp-token"
    program.write_text(role_text(HUB_TOKEN_PROGRAM).replace("/run/bedplate-hub", str(hub.folder)))

    def ask(uid: int, *words: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        command = ("setpriv", f"--reuid={uid}", "--clear-groups", "/usr/bin/python3", str(program), *words)
        return subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", **environment},
        )

    person, run = ask(ADA), ask(ADA, SSH_ORIGINAL_COMMAND=f"bp-token run:{'6' * 32}")
    assert read_token(person.stdout.strip(), (KEY,), time.time()).scope == "person"
    assert read_token(run.stdout.strip(), (KEY,), time.time()).scope == f"run:{'6' * 32}"
    assert hub.ask("GET", "/bedplate/whoami", run.stdout.strip()).status == 200
    assert ask(GRACE, f"run:{'6' * 32}").stderr == "error: another person owns this run\n"
    later = ask(ADA, SSH_ORIGINAL_COMMAND="bp-token -", text=f"run:{'7' * 32}\nrun:{'8' * 32}\n")
    assert read_token(later.stdout.strip(), (KEY,), time.time()).scope == f"run:{'7' * 32}"
    assert "a scope is person" in ask(ADA, SSH_ORIGINAL_COMMAND="bp-token -").stderr
    assert "a scope is person" in ask(ADA, "-", text="x" * 100_000).stderr
    assert ask(29999).stderr == "error: no person of the fleet\n"
    assert "a scope is person" in ask(ADA, SSH_ORIGINAL_COMMAND="bp-token 'x; id' \xff").stderr


def test_agents_ask_whether_their_run_must_end(hub: RunningHub) -> None:
    """By the token of the run, about no other. An idle run ends by the word of its own agent only."""
    run = token(ADA, f"run:{'5' * 32}")
    assert hub.ask("GET", "/bedplate/stop", run).document == {}
    assert hub.ask("GET", "/bedplate/stop", token()).status == 403

    (hub.folder / "tokens/idle").write_text(f"{'5' * 32} 600 stopped: it is idle\n")
    assert hub.ask("GET", "/bedplate/stop?idle=599", run).document == {}
    assert hub.ask("GET", "/bedplate/stop?idle=600", run).document == {"cause": "stopped: it is idle"}
    assert hub.ask("GET", "/bedplate/stop?idle=x", run).document == {}

    (hub.folder / "tokens/stops").write_text(f"{'6' * 32} stopped: no\n{'5' * 32} stopped: the budget is used up\n")
    assert hub.ask("GET", "/bedplate/stop?idle=0", run).document == {"cause": "stopped: the budget is used up"}


def test_people_see_what_they_have_spent(hub: RunningHub) -> None:
    """Each person the own budget; without one there is nothing to see."""
    assert hub.ask("GET", "/bedplate/budget", token()).document == {}
    (hub.folder / "tokens/spent").write_text("grace 9.00 0 10 2027-01\nada 412.50 2 500 2027-01\n")

    facts = hub.ask("GET", "/bedplate/budget", token()).document
    assert facts == {"spent": 412.5, "unknown": 2, "budget": 500, "month": "2027-01"}
    assert hub.ask("GET", "/bedplate/budget", token(ADA, f"run:{'5' * 32}")).status == 403


def test_a_caller_of_the_mint_that_says_nothing_is_dropped(hub: RunningHub) -> None:
    """Others are answered meanwhile."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(hub.folder / "mint"))
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(hub.folder / "mint"))
            other.sendall(b"person\n")
            assert other.recv(100).startswith(b"error: no person")


def test_a_run_reads_the_wheels_that_an_administrator_has_put_there(hub: RunningHub) -> None:
    """The list is JSON; without the folder there are none."""
    run, wheels = token(scope=OF_RUN), f"{FILES}/wheels"
    before = hub.ask("GET", wheels, run)
    (hub.files / "wheels").mkdir(parents=True)
    name = "torch-2.14.1%2Bcu130-cp312-cp312-linux_x86_64.whl"
    (hub.files / "wheels" / name.replace("%2B", "+")).write_bytes(b"wheel")

    listed = hub.ask("GET", wheels, run).document

    assert before.status == 404
    assert [(file["name"], file["type"], file["size"]) for file in listed] == [(name.replace("%2B", "+"), "file", 5)]
    assert hub.ask("GET", f"{wheels}/{name}", run).body == b"wheel"
    assert hub.ask("GET", wheels).status == 401
    assert hub.ask("PUT", f"{wheels}/{name}", run, b"other").status == 403
