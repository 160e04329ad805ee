"""Who may what: pure functions of a token and a request. What no rule allows is refused."""

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

from .tokens import RefusedError, Token

FILES = "/api/2.0/mlflow-artifacts/artifacts"
# MLflow serves the same routes for programs and for its pages. Those without a slash in front are below both prefixes.
_RECORDS = re.compile(r"^/(?:ajax-)?api/[23]\.0/mlflow/")
_READ = frozenset(
    (
        *(FILES, "/bedplate/whoami", "/bedplate/usage", "/fleet.json", "/version", "server-info", "artifacts/list"),
        *("experiments/get", "experiments/get-by-name", "experiments/search", "runs/get", "metrics/get-history"),
        *("metrics/get-history-bulk", "metrics/get-history-bulk-interval"),
    )
)
_PAGES = frozenset(("/", "/get-artifact", "get-artifact", "model-versions/search", "registered-models/search"))
_RUNS = frozenset(
    (
        *("experiments/search", "experiments/search-datasets", "logged-models/search", "runs/search", "runs/create"),
        *("runs/update", "runs/set-tag", "runs/log-batch", "runs/log-metric", "runs/log-parameter", "runs/log-inputs"),
        *("runs/outputs", "runs/log-model"),
    )
)
# Of Prometheus: queries, and nothing that describes or changes it. GET may be POST, for long queries.
_METRICS = frozenset(f"/prometheus/api/v1/{name}" for name in ("query", "query_range", "series", "labels"))
# Of Grafana: its pages, and their queries. Its proxies would reach all of Prometheus.
_GRAFANA, _GRAFANA_QUERY = "/grafana", "/grafana/api/ds/query"
_CLOSED = re.compile(r"/grafana/api/(?:datasources/(?:proxy|uid/[^/]+/resources)|admin|live|plugins)(?:/|$)")
_ROUTES: Mapping[tuple[str, str], frozenset[str]] = {
    ("person", "GET"): _READ | _PAGES | _METRICS | {"/bedplate/budget"},
    # The schema of GraphQL in the locked MLflow has searches only, also among its mutations.
    ("person", "POST"): _RUNS | _METRICS | {"/graphql", _GRAFANA_QUERY},
    ("run", "GET"): _READ | {"/bedplate/stop"},
    ("run", "POST"): _RUNS | {"/bedplate/end"},
    ("study", "GET"): _READ,
    ("study", "POST"): _RUNS | {"/bedplate/end", "/bedplate/token"},
}
_PLAIN = re.compile(r"/(?:[A-Za-z0-9/._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*")
# Of / . % and \: a program behind the check may read them twice.
_ESCAPED = re.compile(r"%(?:2[ef5]|5c)", re.IGNORECASE)
_UPWARD = re.compile(r"(?:^|/)\.{1,2}(?:/|$)|[%\\]|^/")
_PACK = re.compile(r"packs/([a-z_][a-z0-9_-]*)/[0-9a-f]{40}-(?:0|[0-9a-f]{40})\.pack")
_WHEEL = re.compile(r"wheels(?:/[^/]+)?")
_OUTPUT = re.compile(r"[0-9]{1,19}/([0-9a-f]{32})/artifacts/(logs/)?.+")
LARGEST, LARGEST_LOG = 2 << 30, 256 << 10
"""Bytes of a file, and of a part of a log."""
FULL, FULL_FOR_LOGS = 0.90, 0.95
"""The shares of the disk from which files are refused; the record needs the rest."""
_LONGEST_NAME, LONGEST_FILE = 255, 900
"""Bytes of a name, and of the path of a file: a key of S3 has 1,024, with the folder of the hub."""


def check_request(token: Token, person: str, method: str, target: str) -> None:
    """Raise RefusedError if a token of this person is not enough for a request, whose target is as it was sent."""
    path = normalised_path(target)
    if path is None or not _is_plain_query(target):
        raise RefusedError(403, "the address has empty or escaped parts, or characters that the hub refuses")
    method = "GET" if method == "HEAD" else method
    if path.startswith(f"{FILES}/"):
        _check_file(token, person, method, path.removeprefix(f"{FILES}/"))
        return
    is_page = path.startswith(("/static-files/", f"{_GRAFANA}/")) or path == _GRAFANA
    is_page = is_page and token.kind == "person" and method == "GET" and not _CLOSED.match(path)
    if not is_page and _RECORDS.sub("", path, count=1) not in _ROUTES.get((token.kind, method), ()):
        raise RefusedError(403, f"the hub has no such request for the token of a {token.kind}")


def normalised_path(target: str) -> str | None:
    """Return the path of a request as nginx reads it; None where two programs could read different paths."""
    raw = target.partition("?")[0]
    raw = _GRAFANA if raw == f"{_GRAFANA}/" else raw
    if not _PLAIN.fullmatch(raw) or _ESCAPED.search(raw):
        return None
    path = unquote(raw, errors="replace")
    names = path[1:].split("/") if path != "/" else []
    is_safe = all(name not in {"", ".", ".."} and len(name.encode()) <= _LONGEST_NAME for name in names)
    return path if is_safe and path.isprintable() and "\ufffd" not in path else None


def _is_plain_query(target: str) -> bool:
    """Return whether no path in a query leads upwards: MLflow joins them to a folder."""
    values = parse_qsl(target.partition("?")[2], keep_blank_values=True)
    return not any("path" in name and (_UPWARD.search(value) or not value.isprintable()) for name, value in values)


def _check_file(token: Token, person: str, method: str, file: str) -> None:
    pack, output = _PACK.fullmatch(file), _OUTPUT.fullmatch(file)
    if method == "GET" and token.kind == "run" and _WHEEL.fullmatch(file):
        return
    if method not in {"GET", "PUT"} or token.kind == "study" or not (pack or output):
        raise RefusedError(403, "files are packs of people and artefacts of runs, and nobody deletes them")
    if pack and pack[1] != person and (method == "PUT" or token.kind == "run"):
        raise RefusedError(403, f"this token is for the packs of {person}")
    if method == "PUT" and (token.kind == "run") is not (output is not None):
        raise RefusedError(403, "people write packs, and runs write artefacts and logs")
    if method == "PUT" and output and output[1] != token.name:
        raise RefusedError(403, "this token is for the artefacts of another run")
    if method == "PUT" and len(file.encode()) > LONGEST_FILE:
        raise RefusedError(414, f"the path of a file has at most {LONGEST_FILE} bytes here")


def check_write(file: str, length: str, in_use: float, *, exists: bool) -> None:
    """Raise RefusedError if a file cannot be written, by its length and the share of the disk that is in use with it.

    Programs may send artefacts without a length: nginx stops them at LARGEST.
    """
    output = _OUTPUT.fullmatch(file)
    is_log = bool(output and output[2])
    largest = LARGEST_LOG if is_log else LARGEST
    if not length and (is_log or not output):
        raise RefusedError(411, "the length of the file is required")
    if int(length or 0) > largest:
        raise RefusedError(413, f"a file has at most {largest} bytes here")
    if exists and not output:
        raise RefusedError(409, "a pack is written once, and this one exists")
    if in_use >= (FULL_FOR_LOGS if is_log else FULL):
        raise RefusedError(507, f"with it the hub's disk is {in_use:.0%} full: ask an administrator. Records go on")


def file_of(target: str) -> str:
    """Return the path of a requested file below the folder of files."""
    return (normalised_path(target) or "").removeprefix(f"{FILES}/")
