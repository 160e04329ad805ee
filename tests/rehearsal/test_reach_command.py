"""Tests of the command `bedplate reach`."""

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
    """Return the file with the output of `bedplate graph --all` for the smallest fleet."""
    file = tmp_path_factory.mktemp("graph") / "graph.json"
    with file.open("w", encoding="utf-8") as out, redirect_stdout(out):
        assert run(["graph", MINIMAL, "--all"]) == 0
    return str(file)


def reach(*arguments: str) -> int:
    """Run the command on the smallest fleet; return the exit status."""
    source, target, *options = arguments
    return run(["reach", source, target, MINIMAL, *options])


def test_the_path_is_printed_in_both_directions(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The output has each hop, route table and security group of the connection and of its answer."""
    assert reach("us-west-2a", "us-west-2b", "--graph", graph) == 0

    head, first, *_ = lines = capsys.readouterr().out.splitlines()
    assert head == "us-west-2a/nodes 10.64.32.10 to us-west-2b/nodes 10.64.64.10 tcp/22"
    assert first.split()[:1] == ["solo-us-west-2a-nodes"]
    assert "reply" in lines
    assert "us-west-2b/nodes 10.64.64.10 to us-west-2a/nodes 10.64.32.10 tcp/22" in lines


def test_a_graph_gives_the_result_of_a_rehearsal(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A saved graph saves a second rehearsal."""
    assert reach("us-west-2a", "internet", "--port", "443", "--graph", graph) == 0
    from_graph = capsys.readouterr().out
    assert reach("us-west-2a", "internet", "--port", "443") == 0

    assert capsys.readouterr().out == from_graph


def test_an_unreachable_target_exits_with_3(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The output names the place where the packet ends, and the reason."""
    assert reach("internet", "us-west-2a", "--graph", graph) == 3

    assert "  dropped: the internet has no route to that address" in capsys.readouterr().out.splitlines()


def test_the_json_output_has_both_directions(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has the endpoints, each hop and the result; the first direction decides the exit status."""
    assert reach("us-west-2a", "9.9.9.9", "--protocol", "udp", "--port", "53", "--graph", graph, "--json") == 0

    result = json.loads(capsys.readouterr().out)
    assert result["from"] == {"name": "us-west-2a/nodes", "address": "10.64.32.10"}
    assert (result["to"]["address"], result["protocol"], result["port"]) == ("9.9.9.9", "udp", 53)
    assert (result["there"]["reached"], result["back"]["reached"]) == (True, False)
    assert {"at", "by"} == result["there"]["out"]["hops"][0].keys()
    assert result["back"]["out"]["end"] == "the internet has no route to that address"


@pytest.mark.parametrize(
    ("place", "title"),
    [
        ("region/us-west-2", "us-west-2a/nodes 10.64.32.10"),
        ("region/us-west-2/zone/us-west-2a/nodes", "us-west-2a/nodes 10.64.32.10"),
        ("10.64.32.10", "10.64.32.10"),
    ],
)
def test_a_place_has_several_names(place: str, title: str, graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A path of fleet.lock and an address mean the same as the name of the zone."""
    assert reach(place, "us-west-2b", "--protocol", "icmp", "--graph", graph) == 0

    assert capsys.readouterr().out.startswith(f"{title} to us-west-2b/nodes 10.64.64.10 icmp\n")


def test_an_unknown_place_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 2, before a rehearsal starts, and the message names a similar place."""
    assert reach("us-west-2a", "us-west-2z") == 2

    message = capsys.readouterr().err
    assert "no endpoint named us-west-2z in the fleet solo" in message
    assert "write us-west-2" in message


def test_the_graph_can_be_read_from_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Between two addresses, the command needs no fleet file."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(NETWORK).encode())))

    assert run(["reach", "10.0.1.4", "10.0.1.5", "no-fleet.yaml", "--graph", "-"]) == 3

    assert "unknown source address" in capsys.readouterr().out


@pytest.mark.parametrize(
    "resources", ["{", "[1]", json.dumps([NETWORK[0] | {"inputs": {"cidrBlock": "10.0.0.0/99"}}])], ids=len
)
def test_an_invalid_graph_is_refused(resources: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 2, and the message names the file."""
    file = tmp_path / "graph.json"
    file.write_text(resources, encoding="utf-8")

    assert run(["reach", "10.0.1.4", "10.0.1.5", "--graph", str(file)]) == 2

    assert str(file) in capsys.readouterr().err
