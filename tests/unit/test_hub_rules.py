"""Tokens of the hub, and who may do what with one: forged and expired ones, scopes, routes, addresses, files."""

import random

import pytest

from bedplate.programs.hub.rules import FILES, LARGEST, LARGEST_LOG, check_request, check_write, file_of
from bedplate.programs.hub.tokens import HOUR, LONGEST, RefusedError, Token, read_token, sign
from tests.testlab.run import ROOT

NOW = 1_800_000_000
KEY, FORMER = b"k" * 64, b"f" * 64
RUN, OTHER, TREE = "a" * 32, "b" * 32, "1" * 40
PERSON = Token(20000, NOW + HOUR, "person")
OF_RUN, OF_STUDY = Token(20000, NOW + HOUR, f"run:{RUN}"), Token(20000, NOW + HOUR, "study:ada-1")
TOKENS = {token.kind: token for token in (PERSON, OF_RUN, OF_STUDY)}


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_signed_token_is_read_as_it_was_made(token: Token) -> None:
    """The text holds user id, end and scope."""
    assert read_token(sign(token, KEY), (KEY, FORMER), NOW) == token


def test_every_changed_character_ends_a_token() -> None:
    """A truncated text, and a text with one other character, are not tokens."""
    text = sign(OF_RUN, KEY)
    rest = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:\n =%"
    pick = random.Random(1)  # noqa: S311  the same characters each time
    changed = [
        text[:place] + pick.choice(rest.replace(sign_, "")) + text[place + 1 :] for place, sign_ in enumerate(text)
    ]

    for other in (
        *changed,
        *(text[:length] for length in range(len(text))),
        f"{text}\n",
        f" {text}",
        f"{text}A",
        f"0{text}",
    ):
        with pytest.raises(RefusedError) as error:
            read_token(other, (KEY,), NOW)
        assert error.value.status == 401


@pytest.mark.parametrize(
    "token",
    [
        Token(0, NOW + HOUR, "person"),
        Token(-1, NOW + HOUR, "person"),
        Token(20000, NOW + HOUR, "admin"),
        Token(20000, NOW + HOUR, "run:"),
        Token(20000, NOW + HOUR, f"run:{RUN}.person"),
        Token(20000, NOW + HOUR, f"run:{RUN.upper()}"),
        Token(20000, NOW + HOUR, "study:../x"),
        Token(20000, NOW + HOUR, "person:ada"),
    ],
)
def test_a_signature_does_not_make_another_form_a_token(token: Token) -> None:
    """Only the three scopes exist, with the names that they may have."""
    with pytest.raises(RefusedError):
        read_token(sign(token, KEY), (KEY,), NOW)


@pytest.mark.parametrize(
    ("token", "now", "reason"),
    [
        (PERSON, NOW + HOUR, "the token has expired"),
        (PERSON, NOW + LONGEST, "the token has expired"),
        (OF_RUN, NOW - LONGEST - HOUR, "valid for longer"),
        (Token(20000, NOW + LONGEST, f"run:{RUN}"), NOW - HOUR - 1, "valid for longer"),
    ],
)
def test_a_token_is_valid_by_the_clock_of_the_hub(token: Token, now: int, reason: str) -> None:
    """A token ends at its time; one that was made while the clock was ahead is not valid for longer than others."""
    with pytest.raises(RefusedError, match=reason):
        read_token(sign(token, KEY), (KEY,), now)


def test_a_step_of_the_clock_ends_no_new_token() -> None:
    """A token of 60 days is valid if the clock goes back by a minute after it was made."""
    token = Token(20000, NOW + LONGEST, f"run:{RUN}")

    assert read_token(sign(token, KEY), (KEY,), NOW - 60) == token


def test_the_former_key_is_for_runs_and_studies_only() -> None:
    """A rotation ends the tokens of people, which they get again at once, and no run."""
    for token in (OF_RUN, OF_STUDY):
        assert read_token(sign(token, FORMER), (KEY, FORMER), NOW) == token
    for text, keys in ((sign(PERSON, FORMER), (KEY, FORMER)), (sign(OF_RUN, FORMER), (KEY,))):
        with pytest.raises(RefusedError, match="not signed"):
            read_token(text, keys, NOW)


def allowed(token: Token, method: str, target: str, person: str = "ada") -> bool:
    """Return whether a token is enough for a request."""
    try:
        check_request(token, person, method, target)
    except RefusedError:
        return False
    return True


def test_every_route_of_mlflow_has_its_scopes() -> None:
    """Registry, webhooks, gateway, jobs, deletes, users and every route that is not listed are refused."""
    for line in (ROOT / "tests/data/hub/routes.txt").read_text().splitlines():
        if not line.startswith("#"):
            method, path, *kinds = line.split()
            assert [kind for kind, token in TOKENS.items() if allowed(token, method, path)] == kinds, line


def test_unknown_requests_are_refused() -> None:
    """What no list names is refused, also with a known address and another method."""
    words = ("register", "webhooks", "gateway", "users/create", "runs/delete", "experiments/create", "upload-artifact")
    targets = [f"/api/2.0/mlflow/{word}" for word in words] + [
        "/api/4.0/mlflow/runs/get",
        "/bedplate/other",
        "/check",
        "/reason",
    ]
    methods = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get", "")

    assert not any(
        allowed(token, method, target) for token in TOKENS.values() for method in methods for target in targets
    )
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert not any(allowed(token, method, "/api/2.0/mlflow/runs/get") for token in TOKENS.values())
    assert allowed(PERSON, "HEAD", "/api/2.0/mlflow/runs/get")


def test_a_scope_has_its_own_requests_of_the_hub() -> None:
    """Only a study asks for tokens of its runs, and only runs and studies end; everybody may ask who they are."""
    for kind, token in TOKENS.items():
        assert allowed(token, "GET", "/bedplate/whoami")
        assert allowed(token, "GET", "/fleet.json")
        assert allowed(token, "POST", "/bedplate/token") == (kind == "study")
        assert allowed(token, "POST", "/bedplate/end") == (kind != "person")


PACK = f"{FILES}/packs/ada/{TREE}-0.pack"
LOG = f"{FILES}/1/{RUN}/artifacts/logs/0/0/000000"


@pytest.mark.parametrize(
    ("target", "person_may", "run_may"),
    [
        (PACK, "GET PUT", "GET"),
        (f"{FILES}/packs/ada/{TREE}-{'2' * 40}.pack", "GET PUT", "GET"),
        (f"{FILES}/packs/grace/{TREE}-0.pack", "GET", ""),
        (f"{FILES}/packs/ada/{TREE}.pack", "", ""),
        (f"{FILES}/packs/ada/x/{TREE}-0.pack", "", ""),
        (f"{FILES}/packs/{TREE}-0.pack", "", ""),
        (LOG, "GET", "GET PUT"),
        (f"{FILES}/1/{RUN}/artifacts/model/weights.bin", "GET", "GET PUT"),
        (f"{FILES}/1/{RUN}/artifacts/a%20b%C3%A9.png", "GET", "GET PUT"),
        (f"{FILES}/1/{OTHER}/artifacts/logs/0/0/000000", "GET", "GET"),
        (f"{FILES}/wheels", "", "GET"),
        (f"{FILES}/wheels/alpha-1.0-py3-none-any.whl", "", "GET"),
        (f"{FILES}/wheels/more/alpha-1.0-py3-none-any.whl", "", ""),
        (f"{FILES}/1/{RUN}/artifacts", "", ""),
        (f"{FILES}/1/{RUN}/other/x", "", ""),
        (f"{FILES}/1/models/m-{RUN}/artifacts/x", "", ""),
        (f"/ajax-api/2.0/mlflow-artifacts/artifacts/1/{RUN}/artifacts/x", "", ""),
    ],
)
def test_a_file_is_written_by_its_owner_only(target: str, person_may: str, run_may: str) -> None:
    """People read all, and write their own packs. A run reads its person's packs, and writes below its own folder."""
    for token, may in ((PERSON, person_may), (OF_RUN, run_may), (OF_STUDY, "")):
        assert [
            method for method in ("GET", "PUT", "DELETE", "POST", "MOVE") if allowed(token, method, target)
        ] == may.split()


@pytest.mark.parametrize(
    "target",
    [
        f"{FILES}/packs/grace/../ada/{TREE}-0.pack",
        f"{FILES}/packs/grace/%2e%2e/ada/{TREE}-0.pack",
        f"{FILES}/packs/grace/.%2E/ada/{TREE}-0.pack",
        f"{FILES}/packs/ada%2f{TREE}-0.pack",
        f"{FILES}/packs/ada%5c{TREE}-0.pack",
        f"{FILES}/packs/ada\\{TREE}-0.pack",
        f"{FILES}//packs/ada/{TREE}-0.pack",
        f"{FILES}/packs/ada/{TREE}-0.pack/",
        f"{FILES}/./packs/ada/{TREE}-0.pack",
        f"{FILES}/packs/ada/{TREE}-0%252epack",
        f"{FILES}/packs/ada/{TREE}-0%2",
        f"{FILES}/1/{RUN}/artifacts/a%0d%0aX-Method:%20GET",
        f"{FILES}/1/{RUN}/artifacts/a%00",
        f"{FILES}/1/{RUN}/artifacts/a%ff",
        f"{FILES}/1/{RUN}/artifacts/a\x85b",
        f"{FILES}/1/{RUN}/artifacts/a b",
        f"{FILES}/1/{RUN}/artifacts/a#b",
        f"{FILES}/1/{RUN}/artifacts/{'a' * 256}",
        f"https://hub.lab.internal{PACK}",
        "/api/2.0/mlflow/runs/get/..%2fdelete",
        "/api/2.0/mlflow/../mlflow/runs/get",
        "/API/2.0/mlflow/runs/get",
        "*",
        "",
        "/get-artifact?path=../../etc/passwd&run_uuid=1",
        "/get-artifact?run_uuid=1&path=%2e%2e%2f%2e%2e%2fetc",
        "/get-artifact?path=/etc/passwd",
        "/get-artifact?path=%252e%252e/etc",
        "/get-artifact?path=a%5c..%5cb",
        f"{FILES}?path=1/../../keys",
        f"{FILES}?path=..",
    ],
)
def test_addresses_that_programs_may_read_differently_are_refused(target: str) -> None:
    """No escaped slash, dot, percent sign or backslash, no empty part or dots, and no control character is let in."""
    for token in TOKENS.values():
        assert not any(allowed(token, method, target) for method in ("GET", "PUT", "POST"))


def test_queries_of_searches_may_hold_any_text() -> None:
    """Only paths are checked: a filter may have percent signs and dots."""
    assert allowed(PERSON, "GET", "/ajax-api/2.0/mlflow/experiments/search?filter=name%20LIKE%20%27%25..%25%27")
    assert allowed(PERSON, "GET", f"{FILES}?path=1%2F{RUN}%2Fartifacts")


@pytest.mark.parametrize(
    ("target", "length", "in_use", "status"),
    [
        (PACK, str(LARGEST), 0.5, 0),
        (PACK, str(LARGEST + 1), 0.5, 413),
        (PACK, "", 0.5, 411),
        (PACK, "10", 0.9, 507),
        (LOG, str(LARGEST_LOG), 0.949, 0),
        (LOG, str(LARGEST_LOG + 1), 0.5, 413),
        (LOG, "", 0.5, 411),
        (LOG, "10", 0.95, 507),
        (f"{FILES}/1/{RUN}/artifacts/weights", "", 0.5, 0),
        (f"{FILES}/1/{RUN}/artifacts/weights", "0", 0.9, 507),
    ],
)
def test_a_file_fits_its_kind_and_the_disk(target: str, length: str, in_use: float, status: int) -> None:
    """Packs and artefacts are refused from 90 % of the disk, logs from 95 %: the rest is for the record."""
    if status == 0:
        check_write(file_of(target), length, in_use, exists=False)
        return
    with pytest.raises(RefusedError) as error:
        check_write(file_of(target), length, in_use, exists=False)
    assert error.value.status == status


def test_a_pack_is_written_once() -> None:
    """Its name is its content; the last part of a log is replaced while it grows."""
    with pytest.raises(RefusedError) as error:
        check_write(file_of(PACK), "10", 0.1, exists=True)

    assert error.value.status == 409
    check_write(file_of(LOG), "10", 0.1, exists=True)


_QUERIES = [f"/prometheus/api/v1/{name}" for name in ("query", "query_range", "series", "labels")]
_OF_OPERATORS = (
    *("/prometheus/", "/prometheus/metrics", "/prometheus/federate", "/prometheus/-/reload", "/prometheus/config"),
    *(f"/prometheus/api/v1/{name}" for name in ("admin/tsdb/snapshot", "status/config", "targets", "write", "read")),
    *("/prometheus/api/v1/query/", "/prometheus/api/v1/../admin", "/prometheus/api/v1/query%2f..%2fx"),
    *(f"/grafana/api/{name}" for name in ("admin/users", "datasources/proxy/1/x", "live/ws", "plugins/x/resources")),
    *("/grafana/api/datasources/proxy/uid/prometheus/api/v1/admin", "/grafana/api/datasources/uid/x/resources/y"),
    *("/grafana/../bedplate/end", "/grafanas", "/grafana//api/admin", "/grafana/api/admin"),
)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("target", [*_QUERIES, *_OF_OPERATORS])
def test_people_query_metrics_and_nothing_else(target: str, method: str) -> None:
    """Long queries are in a body. Runs and studies read no metrics: a program needs those of its own node only."""
    for token in TOKENS.values():
        if token is PERSON and target in _QUERIES:
            check_request(token, "ada", method, f"{target}?query=up")
            continue
        with pytest.raises(RefusedError):
            check_request(token, "ada", method, target)


def test_people_see_pages_of_grafana_and_change_nothing() -> None:
    """They read pages and files, with the slash that Grafana adds, and POST is for queries of panels."""
    for target in ("/grafana", "/grafana/", "/grafana/?orgId=1", "/grafana/d/run/x", "/grafana/public/build/app.js"):
        check_request(PERSON, "ada", "GET", target)
        for refused, method in ((OF_RUN, "GET"), (OF_STUDY, "GET"), (PERSON, "POST"), (PERSON, "DELETE")):
            with pytest.raises(RefusedError):
                check_request(refused, "ada", method, target)
    check_request(PERSON, "ada", "POST", "/grafana/api/ds/query?ds_type=prometheus")
