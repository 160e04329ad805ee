"""Shipments that a site's gateway refuses: nothing of them is written or told."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.laid import SITE, gateway_place, lying_in, shipment
from vpn.keeper.lay import lay
from vpn.keeper.place import Place
from vpn.keeper.shipment import parse_shipment
from vpn.keeper.trouble import Refusal
from vpn.sites.carry import shipment_text
from vpn.sites.files import GUARD


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Give a gateway that has the role, and programs that write down what they are asked."""
    return gateway_place(tmp_path, monkeypatch)


def test_rules_that_would_not_load_change_nothing(place: Place) -> None:
    """The filter is asked first; what lay there before lies there still, and no key came to lie anywhere."""
    (place.root / "refused").touch()
    before = lying_in(place)

    with pytest.raises(Refusal, match="no packet filter"):
        lay(place, shipment(SITE))

    after = lying_in(place)
    after.pop("/calls")
    assert after == before


def test_a_gateway_without_the_role_is_refused(place: Place) -> None:
    """Before anything is written; the role is named."""
    (place.root / "etc/systemd/system/bedplate-guard.service").unlink()

    with pytest.raises(Refusal, match="apply the role guard first"):
        lay(place, shipment(SITE))

    assert not (place.root / "etc/bedplate").exists()


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda text: text[:-20], id="cut-short"),
        pytest.param(lambda _: "", id="nothing"),
        pytest.param(lambda _: '{"files": []}', id="no-files"),
        pytest.param(lambda text: text.replace(str(GUARD), "/etc/shadow"), id="elsewhere"),
        pytest.param(lambda text: text.replace("/etc/frr/frr.conf", "/etc/bedplate/ipsec/../../shadow"), id="upwards"),
        pytest.param(lambda text: text.replace('"mode": 384', '"mode": 2541'), id="setuid"),
    ],
)
def test_what_bedplate_never_sends_is_refused(spoil: Callable[[str], str], place: Place) -> None:
    """A line that was cut is one; nothing is written, and no word of it is told."""
    with pytest.raises(Refusal) as caught:
        lay(place, parse_shipment(spoil(shipment_text(SITE))))

    assert "key" not in str(caught.value)
    assert not (place.root / "etc/bedplate").exists()
