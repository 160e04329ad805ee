"""What the process that applies is told, and what it tells."""

import io
from types import MappingProxyType

import pytest

from bedplate.nodes.engine import working
from bedplate.nodes.event import Event, Kind, Step, event_of
from bedplate.nodes.order import Order, Target, read_order, write_order
from bedplate.nodes.outcome import Outcome, exit_status
from bedplate.plan.nodes import standing_nodes
from tests.support.declared import EXAMPLES, plan_of

NODES = standing_nodes(plan_of(EXAMPLES / "lab.yaml"))


def test_an_order_arrives_as_it_was_given() -> None:
    """Plans hold views that nobody may write to: they stay so on the other side."""
    order = Order(tuple(Target(node, ("ssh", node.name)) for node in NODES), "ada", check=True, only=frozenset({"x"}))
    pipe = io.BytesIO()

    write_order(pipe, order)
    pipe.seek(0)
    arrived = read_order(pipe)

    assert arrived == order
    assert isinstance(arrived.targets[0].node.hosts, MappingProxyType)


def test_an_event_arrives_as_it_was_told() -> None:
    """A line each."""
    event = Event("nas.cellar", Step.TROUBLE, words="it\nbroke", kind=Kind.CUT, seconds=1.5)

    assert event_of(event.line()) == event
    assert "\n" not in event.line()


def test_the_process_that_applies_is_another_one() -> None:
    """It loads gevent, which we never do, and tells us of a node that is not reached in our own words."""
    refused = ("sh", "-c", "echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255")

    with working(Order((Target(NODES[0], refused),), "ada", check=True)) as engine:
        (event,) = engine.events()

    assert (event.node, event.kind, event.words) == ("gate.cellar", Kind.UNREACHED, "it does not answer")


def _outcome(*events: Event) -> Outcome:
    outcome = Outcome("n")
    for event in events:
        outcome.take(event)
    return outcome


DONE = _outcome(Event("n", Step.DONE, unchanged=3))
CHANGED = _outcome(Event("n", Step.OPERATION, name="a"), Event("n", Step.DONE, changed=1))
HELD = _outcome(Event("n", Step.TROUBLE, kind=Kind.HELD))
DEFECT = _outcome(Event("n", Step.TROUBLE, kind=Kind.DEFECT))
CUT = _outcome(Event("n", Step.OPERATION, name="a"), Event("n", Step.TROUBLE, kind=Kind.CUT))


@pytest.mark.parametrize(
    ("outcomes", "check", "status"),
    [
        ([DONE, CHANGED], False, 0),
        ([DONE], True, 0),
        ([DONE, CHANGED], True, 3),
        ([HELD, HELD], False, 5),
        ([HELD, DONE], False, 6),
        ([CUT, DONE], False, 6),
        ([CUT, CHANGED], True, 6),
        ([CUT, DEFECT], False, 1),
    ],
    ids=["done", "as-planned", "drift", "held", "one-held", "cut", "drift-and-cut", "defect"],
)
def test_the_exit_status_says_what_became_of_all(outcomes: list[Outcome], check: bool, status: int) -> None:  # noqa: FBT001
    """What is missing weighs more than what differs."""
    assert exit_status(outcomes, check=check) == status
