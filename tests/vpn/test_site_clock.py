"""Tunnels with a wrong clock: shared keys do not depend on time, certificates do."""

from datetime import UTC, datetime

import pytest

from tests.testlab.keys.authority import certificates_for, open_authority
from tests.testlab.network.gateways import RACK, Pair, one_key, pair
from tests.testlab.network.netlab import until
from tests.testlab.run import clock_offset
from vpn.sites.gateway import Proofs

pytestmark = pytest.mark.nightly


def _certificates() -> Proofs:
    return certificates_for(open_authority(datetime.now(UTC)))


def _start(lab: Pair, by: str) -> None:
    """Start both gateways, the one that waits with a wrong clock."""
    lab.attic.clock = clock_offset(by)
    lab.start()


def test_shared_keys_do_not_depend_on_the_clock() -> None:
    """With one clock months off the tunnel is established."""
    with pair(one_key()) as lab:
        _start(lab, "+100d")

        lab.wait()


@pytest.mark.parametrize(("by", "reason"), [("+100d", "subject certificate invalid"), ("-365d", "certificate invalid")])
def test_certificates_are_rejected_if_a_clock_is_months_off(by: str, reason: str) -> None:
    """They have expired or are not yet valid; the log has the reason."""
    with pair(_certificates()) as lab:
        _start(lab, by)

        until(lambda: reason in lab.attic.log, 20, f"no reason; {lab.log_tails}")
        assert not lab.desk.pings(RACK)


def test_certificates_are_accepted_if_a_clock_is_minutes_off() -> None:
    """Certificates and revocation lists start five minutes before they are signed."""
    with pair(_certificates()) as lab:
        _start(lab, "-4m")

        lab.wait()
