"""JSON of others: what the reader refuses, and that nothing reads such JSON in another way."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.bundle import UNREADABLE, read_node_status, read_ring_state, read_use_report
from bedplate.errors import PartialError
from bedplate.foreign import LARGEST, WORD, parse_json
from tests.testlab.fakes.hostile import CONTROLS, HOSTILE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_status_is_unreadable(text: bytes) -> None:
    """Whatever a user writes in the name of a machine is one unreadable status, and no exception."""
    assert read_node_status(text) is UNREADABLE


@pytest.mark.parametrize("text", [*HOSTILE.values(), b'{"time": 1, "idle_since": -1e300}'], ids=[*HOSTILE, "too early"])
def test_a_hostile_report_of_use_is_no_report(text: bytes) -> None:
    """The use of this machine is then unknown; a valid report is read."""
    assert read_use_report(text) is None
    assert read_use_report(b'{"version": 1, "time": 2, "idle_since": null, "use": "logged in: ada"}')


def test_a_sentence_of_a_machine_is_one_line() -> None:
    """Line ends and characters that control a terminal are replaced."""
    assert read_node_status(CONTROLS).sentence == "done??[2J?"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_ring_is_one_error(name: str) -> None:
    """The parameter of a ring is read like a status."""
    with pytest.raises(PartialError, match="invalid value of the parameter"):
        read_ring_state(HOSTILE[name].decode(errors="replace"), None, 1)


def test_valid_json_is_read() -> None:
    """Limits are above what machines write; a caller states a larger one."""
    document = {"list": [1, -2.5, True, None, "\u00e9\n"], "deep": [[[{}]]], "time": (1 << 53)}
    text = '{"list": [1, -2.5, true, null, "\u00e9\\n"], "deep": [[[{}]]], "time": 9007199254740992}'
    assert parse_json(text) == parse_json(text.encode()) == document
    assert parse_json(f"[{' ' * LARGEST}]", 2 * LARGEST) == []
    assert parse_json("18446744073709551615", largest_int=WORD) == WORD - 1


OWN = "the program's own file, or the output of a program that it has started"
REMOTE = "bounded here, because the program on the machine has the standard library only"
CLOUD = "the answer of AWS or of the API server, over TLS"
PERMITTED = {
    "bedplate/foreign.py": "the reader",
    "bedplate/lock/format.py": "messages need the line; `read_source` limits the size, and every value is checked",
    "bedplate/plan/capacity.py": OWN,
    "bedplate/programs/gate/__main__.py": OWN,
    "bedplate/programs/gate/diagnosis.py": OWN,
    "bedplate/programs/gate/machine.py": OWN,
    "bedplate/programs/metrics/gpus.py": "kubelet's record, which only root writes",
    "bedplate/programs/metrics/system.py": OWN,
    "bedplate/machine/calls.py": OWN,
    "bedplate/nodes/apply.py": "the pipe of the parent process",
    "bedplate/operate/reach.py": OWN,
    "bedplate/deploy/engine.py": OWN,
    "bedplate/deploy/state.py": OWN,
    "bedplate/rehearsal/kinds/iam.py": OWN,
    "bedplate/rehearsal/provider.py": OWN,
    "bedplate/rehearsal/schema.py": OWN,
    "bedplate/account/facts.py": CLOUD,
    "bedplate/operate/smoke.py": OWN,
    "bedplate/kubernetes/client.py": CLOUD,
    "bedplate/programs/worker/machine.py": OWN,
    "bedplate/programs/worker/leaving.py": CLOUD,
    "bedplate/programs/worker/join.py": REMOTE,
    "bedplate/programs/worker/gate.py": OWN,
    "bedplate/programs/worker/__main__.py": OWN,
    "bedplate/programs/idle.py": OWN,
    "bedplate/programs/apply_agent.py": REMOTE,
    "roles/kubernetes/ecr-credentials": CLOUD,
    "bedplate/programs/hub/limits.py": OWN,
    "bedplate/programs/bp/hub.py": REMOTE,
    "bedplate/programs/bp/cluster.py": REMOTE,
    "bedplate/programs/bp/gpus.py": REMOTE,
    "bedplate/programs/bp/machine.py": REMOTE,
    "bedplate/programs/bp/secret.py": REMOTE,
    "bedplate/programs/study.py": REMOTE,
    "bedplate/programs/board/__main__.py": OWN,
    "bedplate/programs/search/driver.py": REMOTE,
    "bedplate/programs/search/__main__.py": OWN,
    "bedplate/programs/bp/search.py": OWN,
    "bedplate/programs/hub/sweep.py": OWN,
    "bedplate/programs/hub/messages.py": OWN,
    "bedplate/programs/hub/alerts.py": REMOTE,
    "bedplate/programs/bp/terminal.py": REMOTE,
    "bedplate/programs/connection.py": REMOTE,
    "bedplate/programs/agent/__main__.py": OWN,
    "bedplate/programs/agent/links.py": OWN,
    "bedplate/programs/agent/notebook.py": REMOTE,
    "bedplate/programs/agent/restarts.py": OWN,
    "bedplate/programs/agent/ends.py": OWN,
    "bedplate/programs/hub/__main__.py": REMOTE,
    "bedplate/programs/gateway/paths.py": REMOTE,
    "bedplate/programs/gateway/sessions.py": OWN,
    "bedplate/programs/gateway/access_list.py": REMOTE,
    "bedplate/programs/gateway/config_bundle.py": OWN,
    "bedplate/programs/gateway/status.py": OWN,
}
_PARSERS = {"load", "loads", "JSONDecoder", "raw_decode", "validate_json", "model_validate_json", "from_json"}


def _parsers(text: str) -> Iterator[str]:
    """Yield the parsers of JSON that a module calls or imports; in a template, their names."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        yield from re.findall(r"json\.loads?\b", text)
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _PARSERS:
            if node.attr not in {"load", "loads"} or ast.unparse(node.value) == "json":
                yield node.attr
        elif isinstance(node, ast.ImportFrom) and node.module in {"json", "orjson", "pydantic_core"}:
            yield from (name.name for name in node.names if name.name in _PARSERS)


def _programs() -> Iterator[tuple[str, str]]:
    """Yield the programs in Python, with and without an extension."""
    for package in ("bedplate", "images", "roles", "stacks", "vpn"):
        for file in (ROOT / package).rglob("*"):
            if file.suffix == ".py" or (not file.suffix and file.is_file()):
                text = file.read_text(encoding="utf-8")
                if file.suffix or re.match(r"#!.*python", text):
                    yield str(file.relative_to(ROOT)), text


def test_json_of_others_has_one_reader() -> None:
    """A module parses JSON by itself only for a reason in the list; the list has no other modules."""
    assert list(_parsers("import json\njson.loads(x)")) == ["loads"]
    assert list(_parsers("from json import load")) == ["load"]
    assert {name for name, text in _programs() if any(_parsers(text))} == set(PERMITTED)
