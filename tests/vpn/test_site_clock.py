"""What a wrong clock does to tunnels: to those by a key nothing, to those by certificates what their dates say."""

from datetime import UTC, datetime

import pytest

from tests.testlab.keys.authority import open_office, papers_for
from tests.testlab.network.gateways import RACK, Pair, one_key, pair
from tests.testlab.network.netlab import until
from tests.testlab.run import skewed
from vpn.sites.aws import Proofs

pytestmark = pytest.mark.nightly


def _papers() -> Proofs:
    return papers_for(open_office(datetime.now(UTC)))


def _start(made: Pair, by: str) -> None:
    """Put the clock of who answers off, and start both."""
    made.attic.clock = skewed(by)
    made.start()


def test_tunnels_by_a_key_ask_for_no_time() -> None:
    """With one clock months off the tunnel comes up, and packets pass."""
    with pair(one_key()) as made:
        _start(made, "+100d")

        made.wait()


@pytest.mark.parametrize(("by", "reason"), [("+100d", "subject certificate invalid"), ("-365d", "certificate invalid")])
def test_certificates_do_not_pass_a_clock_that_is_months_off(by: str, reason: str) -> None:
    """By that clock they have ended, or have not begun: nothing passes, and the log says so."""
    with pair(_papers()) as made:
        _start(made, by)

        until(lambda: reason in made.attic.log, 20, f"no reason; {made.told}")
        assert not made.desk.pings(RACK)


def test_certificates_pass_a_clock_that_is_off_by_less_than_their_room() -> None:
    """Certificates and lists begin five minutes before they are made."""
    with pair(_papers()) as made:
        _start(made, "-4m")

        made.wait()
