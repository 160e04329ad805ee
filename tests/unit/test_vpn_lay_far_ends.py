"""Far ends of a gateway's tunnels that nobody asked AWS for: they stay as they lie on the gateway."""

from pathlib import Path

import pytest

from tests.support.gateway_tools import calls_of
from tests.support.laid import DAEMON, FIRST, KERNEL, gateway_place, lying_in, shipment, without
from tests.support.site_side import LAB, cellar
from vpn.keeper.lay import lay
from vpn.keeper.place import Place
from vpn.keeper.trouble import Refusal
from vpn.sites.engine import Engine
from vpn.sites.files import files_of
from vpn.sites.kept import keeping_gateway

NAMES = frozenset(tunnel.name for tunnel in KERNEL.tunnels)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Give a gateway that has the role, and programs that write down what they are asked."""
    return gateway_place(tmp_path, monkeypatch)


@pytest.mark.parametrize("engine", [Engine.KERNEL, Engine.DAEMON])
def test_far_ends_that_nobody_was_asked_for_stay_as_they_are(engine: Engine, place: Place) -> None:
    """Their addresses and keys are those that lie here, in every file; nothing else of what was sent is another."""
    lay(place, shipment(cellar(engine)))
    calls_of(place.root)
    before = lying_in(place)

    done = lay(place, shipment(keeping_gateway(LAB, LAB.sites[0], (), engine, NAMES)))

    assert not any(done.values())
    calls_of(place.root)
    assert lying_in(place) == before


def test_they_stay_where_somebody_else_encrypts_from_now_on(place: Place) -> None:
    """Each is found, whichever charon had it."""
    lay(place, shipment(KERNEL))

    lay(place, shipment(keeping_gateway(LAB, LAB.sites[0], (), Engine.DAEMON, NAMES), may_change_engine=True))

    lying = lying_in(place)
    assert {str(file.path): (file.text, file.mode) for file in files_of(DAEMON)}.items() <= lying.items()


def test_a_far_end_that_is_not_here_is_refused(place: Place) -> None:
    """Nothing is written: words in its place would be dialled."""
    lay(place, shipment(without(KERNEL, FIRST)))
    before = lying_in(place)

    with pytest.raises(Refusal, match=f"no tunnel {FIRST} with a key here"):
        lay(place, shipment(keeping_gateway(LAB, LAB.sites[0], (), Engine.KERNEL, NAMES)))

    assert lying_in(place) == before
