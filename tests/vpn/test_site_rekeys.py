"""Keys of tunnels are renewed under load, without an interruption."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import sleep

import pytest

from tests.testlab.keys.authority import short_lived
from tests.testlab.network.gateways import RACK, Amend, Pair, one_key, pair
from tests.testlab.network.netlab import Answers, first_turn, pinging, steady_loss
from vpn.sites import gateway
from vpn.sites.files import RenderedFile

pytestmark = pytest.mark.nightly

# Shortened from hours for many renewals in a run.
IKE_SECONDS, CHILD_SECONDS, RUN_SECONDS = 14, 5, 40
MOST_LOST, LONGEST_SILENCE = 0.002, 0.2
LOAD_MEGABITS = 10
# Charon's messages for a packet without a key, and for a key that expired before its renewal.
KEYLESS, ENDED = "could not find an outbound IPsec SA", "closing expired CHILD_SA"


@dataclass(frozen=True)
class LoadRun:
    """A run under load: replies to pings, the lost share of the load, and both logs, the dialling end first."""

    answers: Answers
    lost: float
    logs: tuple[str, str]

    def count(self, words: str) -> int:
        """Return how often a text is in both logs."""
        return sum(log.count(words) for log in self.logs)


def _run(lives: Amend, seconds: int, meanwhile: Callable[[Pair], None]) -> LoadRun:
    with first_turn(), pair(one_key(), lives) as lab:
        lab.start()
        lab.wait()
        pings = pinging(lab.desk, RACK, every=0.02)
        pings.wait_for_answer(10)
        with ThreadPoolExecutor(1) as beside:
            done = beside.submit(meanwhile, lab)
            lost = steady_loss(lab.desk, lab.rack, RACK, seconds, LOAD_MEGABITS)
            done.result()
        return LoadRun(pings.stop(), lost, (lab.cellar.log, lab.attic.log))


def test_rekeys_under_load_lose_no_packets() -> None:
    """At most 0.2 % of pings and load are lost, without a noticeable interruption."""
    run = _run(short_lived(IKE_SECONDS, CHILD_SECONDS), RUN_SECONDS, _leave_alone)

    assert run.logs[0].count("outbound CHILD_SA attic") >= RUN_SECONDS / CHILD_SECONDS - 2
    assert run.logs[0].count("rekeyed between") >= 2
    assert (run.count(ENDED), run.count(KEYLESS)) == (0, 0)
    assert max(run.lost, run.answers.share_lost) <= MOST_LOST
    assert run.answers.longest <= LONGEST_SILENCE


def test_losses_and_expired_keys_are_detected() -> None:
    """A short cut shows in all measurements; keys that expire before renewal show in the log."""
    run = _run(_without_room, 2 * CHILD_SECONDS, _blink)

    assert run.count(ENDED) > 0
    assert min(run.lost, run.answers.share_lost) > MOST_LOST
    assert run.answers.longest > LONGEST_SILENCE


def _without_room(file: RenderedFile) -> str:
    life = f"rekey_time = {CHILD_SECONDS}s\n        life_time = {CHILD_SECONDS}s"
    return file.text.replace(f"rekey_time = {gateway.CHILD_REKEY}s", life)


def _leave_alone(lab: Pair) -> None:
    """Change nothing."""


def _blink(lab: Pair) -> None:
    sleep(2)
    lab.internet.cut("c0")
    sleep(2 * LONGEST_SILENCE)
    lab.internet.heal()
