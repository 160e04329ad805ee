"""The way to a gateway: what ssh says is told, whatever it says."""

import pytest

from bedplate.errors import PartError
from vpn.ssh_way import SshWay

_BYTES = r"printf 'Zutritt verboten \374berall\n'"


def test_a_banner_of_any_bytes_is_told() -> None:
    """A site greets in what encoding it likes; the gateway is named as not reached, and the others are asked."""
    way = SshWay(("sh", "-c", f"{_BYTES} >&2; exit 255"))

    with pytest.raises(PartError, match=r"not reached: Zutritt verboten .berall"):
        way.run("true", "")


def test_an_answer_of_any_bytes_is_an_answer() -> None:
    """Whoever asked for JSON finds that it is none, and says so."""
    assert SshWay(("sh", "-c", _BYTES)).run("true", "").startswith("Zutritt verboten ")
