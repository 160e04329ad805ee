"""What gateways are sent when keys change, and what is told of those that were not reached."""

import json
from dataclasses import dataclass, field
from time import monotonic, sleep

import pytest

from bedplate.errors import BedplateError, MachineError, PartError
from bedplate.plan.laptops import LaptopGateway
from tests.support.laptop_plans import lab_gateways
from vpn.laptops.carry import TAKE, Book, Way, carry
from vpn.laptops.server import Laptop

BOOK = Book("the list\n", (Laptop("ada.laptop", 0), Laptop("grace.desk", 3)), revoked={0x2B: "ada.laptop"})
SILENCE = MachineError("nobody answers on port 22")


@dataclass
class Told:
    """A way to a gateway that keeps what it was told, and answers or raises what it was given."""

    answer: str | BedplateError
    seconds: float = 0
    texts: list[tuple[str, str]] = field(default_factory=list)

    def run(self, command: str, told: str) -> str:
        """Keep what was told, and answer."""
        self.texts.append((command, told))
        sleep(self.seconds)
        if isinstance(self.answer, BedplateError):
            raise self.answer
        return self.answer


def _answer(**cut: int) -> str:
    return json.dumps({"number": 7, "cut": cut})


def _ways(home: Told, site: Told) -> "dict[str, Told]":
    return {"us-west-2": home, "cellar": site}


def _carried(ways: dict[str, Told], *cut: str) -> "tuple[dict[str, dict[str, int]], dict[str, BedplateError]]":
    def way(gateway: LaptopGateway) -> Way:
        return ways[gateway.place]

    done = carry(lab_gateways(), BOOK, way, cut=cut)
    return {place: dict(each) for place, each in done.cut.items()}, dict(done.failures)


def test_every_gateway_is_sent_the_whole_book() -> None:
    """The list, a file for each laptop with its address there, whose session is to end, and what was theirs before."""
    ways = _ways(Told(_answer(eve=1)), Told(_answer(eve=0)))

    done = _carried(ways, "eve")

    assert done == ({"us-west-2": {"eve": 1}, "cellar": {"eve": 0}}, {})
    ((command, text),) = ways["cellar"].texts
    assert command == TAKE
    assert json.loads(text) == {
        "crl": "the list\n",
        "laptops": {
            "udp": {
                "ada.laptop": "ifconfig-push 10.121.4.2 255.255.254.0\n",
                "grace.desk": "ifconfig-push 10.121.4.5 255.255.254.0\n",
            },
            "tcp": {
                "ada.laptop": "ifconfig-push 10.121.6.2 255.255.254.0\n",
                "grace.desk": "ifconfig-push 10.121.6.5 255.255.254.0\n",
            },
        },
        "cut": ["eve"],
        "revoked": {"2b": "ada.laptop"},
        "version": 0,
    }


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (SILENCE, "nobody answers on port 22"),
        ("bash: not found", "something else than was asked"),
        ("{}", "something else"),
        ("[]", "something else"),
    ],
    ids=["unreached", "no-json", "no-answer", "a-list"],
)
def test_a_gateway_that_fails_is_named_and_keeps_none_from_being_told(answer: str | BedplateError, told: str) -> None:
    """The others are in force at once; the status is 6, and the same command is right the next time."""
    ways = _ways(Told(answer), Told(_answer()))

    done = carry(lab_gateways(), BOOK, lambda gateway: ways[gateway.place])

    assert list(done.cut) == ["cellar"]
    assert told in done.failures["us-west-2"].what
    with pytest.raises(PartError, match=f"not every gateway was told: us-west-2: .*{told}"):
        done.check()


def test_a_laptop_without_room_keeps_nothing_from_the_gateways() -> None:
    """Whoever was revoked is out, and the laptop is named: the status is 6."""
    ways = _ways(Told(_answer(eve=1)), Told(_answer(eve=0)))
    book = Book("the list\n", (*BOOK.laptops, Laptop("late.desk", 509)))

    done = carry(lab_gateways(), book, lambda gateway: ways[gateway.place], cut=["eve"])

    assert set(done.cut) == {"us-west-2", "cellar"}
    assert "late.desk" not in ways["cellar"].texts[0][1]
    with pytest.raises(PartError, match=r"us-west-2 has no room for late\.desk; cellar has no room for late\.desk"):
        done.check()


def test_gateways_are_told_at_once() -> None:
    """One that is slow delays no other: whoever was cut off is out everywhere as soon as the slowest answers."""
    ways = _ways(Told(_answer(), seconds=0.5), Told(_answer(), seconds=0.5))

    start = monotonic()
    _carried(ways)

    assert monotonic() - start < 0.95
