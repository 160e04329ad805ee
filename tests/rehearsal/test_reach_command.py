"""`bedplate reach`, driven as an operator drives it."""

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from bedplate.cli import run

MINIMAL = str(Path(__file__).parents[2] / "examples/minimal.yaml")
NETWORK = [
    {"urn": "vpc", "type": "aws:ec2/vpc:Vpc", "id": "vpc-1", "inputs": {"cidrBlock": "10.0.0.0/16"}},
    {"urn": "subnet", "type": "aws:ec2/subnet:Subnet", "id": "subnet-1", "inputs": {"cidrBlock": "10.0.1.0/24"}},
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give the file of what `bedplate graph --all` prints of the smallest fleet."""
    file = tmp_path_factory.mktemp("graph") / "graph.json"
    with file.open("w", encoding="utf-8") as out, redirect_stdout(out):
        assert run(["graph", MINIMAL, "--all"]) == 0
    return str(file)


def reach(*arguments: str) -> int:
    """Run the command on the smallest fleet."""
    source, target, *options = arguments
    return run(["reach", source, target, MINIMAL, *options])


def test_a_way_is_told_hop_by_hop_and_back(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Who asks whom for what, each table and door on the way, and the same for whoever asks from the other end."""
    assert reach("us-west-2a", "us-west-2b", "--graph", graph) == 0

    there, first, *_ = told = capsys.readouterr().out.splitlines()
    assert there == "us-west-2a/nodes 10.64.32.10 to us-west-2b/nodes 10.64.64.10 tcp/22"
    assert first.split()[:1] == ["solo-us-west-2a-nodes"]
    assert "reply" in told
    assert "us-west-2b/nodes 10.64.64.10 to us-west-2a/nodes 10.64.32.10 tcp/22" in told


def test_a_graph_is_walked_as_the_rehearsal_is(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What was printed once need not be rehearsed again."""
    assert reach("us-west-2a", "internet", "--port", "443", "--graph", graph) == 0
    walked = capsys.readouterr().out
    assert reach("us-west-2a", "internet", "--port", "443") == 0

    assert capsys.readouterr().out == walked


def test_a_way_that_ends_is_the_exit_status(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 3, with where it ended and why."""
    assert reach("internet", "us-west-2a", "--graph", graph) == 3

    assert "  dropped: the internet has no route to that address" in capsys.readouterr().out.splitlines()


def test_a_program_reads_both_ways(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What was asked, each hop, and whether it came about: the first way decides the exit status."""
    assert reach("us-west-2a", "9.9.9.9", "--protocol", "udp", "--port", "53", "--graph", graph, "--json") == 0

    told = json.loads(capsys.readouterr().out)
    assert told["from"] == {"name": "us-west-2a/nodes", "address": "10.64.32.10"}
    assert (told["to"]["address"], told["protocol"], told["port"]) == ("9.9.9.9", "udp", 53)
    assert (told["there"]["reached"], told["back"]["reached"]) == (True, False)
    assert {"at", "by"} == told["there"]["out"]["hops"][0].keys()
    assert told["back"]["out"]["end"] == "the internet has no route to that address"


@pytest.mark.parametrize(
    ("place", "title"),
    [
        ("region/us-west-2", "us-west-2a/nodes 10.64.32.10"),
        ("region/us-west-2/zone/us-west-2a/nodes", "us-west-2a/nodes 10.64.32.10"),
        ("10.64.32.10", "10.64.32.10"),
    ],
)
def test_a_place_has_several_names(place: str, title: str, graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A path of fleet.lock and an address mean what the name of the zone means."""
    assert reach(place, "us-west-2b", "--protocol", "icmp", "--graph", graph) == 0

    assert capsys.readouterr().out.startswith(f"{title} to us-west-2b/nodes 10.64.64.10 icmp\n")


def test_an_unknown_place_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, before anything is rehearsed."""
    assert reach("us-west-2a", "us-west-2z") == 2

    told = capsys.readouterr().err
    assert "us-west-2z is no place of the fleet solo" in told
    assert "write us-west-2" in told


def test_a_graph_comes_through_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """From whoever prints the form; between two addresses no fleet is asked."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(NETWORK).encode())))

    assert run(["reach", "10.0.1.4", "10.0.1.5", "no-fleet.yaml", "--graph", "-"]) == 3

    assert "unknown source address" in capsys.readouterr().out


@pytest.mark.parametrize(
    "resources", ["{", "[1]", json.dumps([NETWORK[0] | {"inputs": {"cidrBlock": "10.0.0.0/99"}}])], ids=len
)
def test_what_is_no_graph_is_refused(resources: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with where and what."""
    file = tmp_path / "graph.json"
    file.write_text(resources, encoding="utf-8")

    assert run(["reach", "10.0.1.4", "10.0.1.5", "--graph", str(file)]) == 2

    assert str(file) in capsys.readouterr().err
