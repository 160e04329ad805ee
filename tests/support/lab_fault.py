"""What goes wrong between two gateways, and what is measured meanwhile: silence, clear packets, and SAs afterwards."""

import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from time import monotonic, sleep, time

from tests.support.lab_pair import ATTIC, CELLAR, DESK, RACK, Pair
from tests.support.netlab import LabTrouble
from tests.support.netlab_probe import Answers, capture, packets, pinging
from tests.support.netlab_program import SLOWNESS, until

# A packet of either side's own addresses: on the internet there must be none.
CLEAR = " or ".join(f"net {block}" for peer in (CELLAR, ATTIC) for block in peer.blocks)
_BEFORE_SECONDS, _STEADY_SECONDS, _HORIZON = 1.5, 3, 60

Fault = Callable[[Pair], None]


@dataclass(frozen=True, slots=True)
class Told:
    """What a fault did: seconds from its end to the next answer, all answers, and packets in the clear."""

    after: float
    answers: Answers
    clear: int
    passed: int


def suffer(pair: Pair, fault: Fault) -> Told:
    """Let a fault happen to a pair that stands, and measure both ways at once."""
    with ExitStack() as stack:
        wires = [stack.enter_context(capture(pair.internet, device)) for device in ("c0", "a0")]
        out, back = pinging(pair.desk, RACK), pinging(pair.rack, DESK)
        out.wait_for_answer(10)
        sleep(_BEFORE_SECONDS)
        fault(pair)
        end = time()
        until(lambda: out.answers.first_after(end) is not None, _HORIZON, f"never came back; {pair.told}")
        after = (out.answers.first_after(end) or end) - end
        settle(pair)
        back.stop()
        answers = out.stop()
    return Told(after, answers, sum(len(packets(wire, CLEAR)) for wire in wires), sum(map(len, map(packets, wires))))


def settle(pair: Pair, seconds: float = 30) -> None:
    """Wait until each gateway has had one IKE_SA, no more and no fewer, for a while."""
    end, since = monotonic() + seconds * SLOWNESS, monotonic()
    while monotonic() - since < _STEADY_SECONDS:
        counts = [one.sas for one in pair.gateways]
        if counts != [1, 1]:
            since = monotonic()
        assert monotonic() < end, f"{counts} IKE_SAs after {seconds} s"
        sleep(0.2 * SLOWNESS)


def killed(which: str, away: float, how: signal.Signals = signal.SIGKILL) -> Fault:
    """Return the fault of a gateway that ends and is started again some seconds later, as its unit would."""

    def fault(pair: Pair) -> None:
        gateway = getattr(pair, which)
        gateway.kill(how)
        sleep(away)
        gateway.start()

    return fault


def cut(seconds: float) -> Fault:
    """Return the fault of a line that loses everything for some seconds."""

    def fault(pair: Pair) -> None:
        pair.internet.cut("c0")
        sleep(seconds)
        pair.internet.heal()

    return fault


def forgotten(pair: Pair) -> None:
    """Let who answers forget its SA without a word to the other."""
    pair.internet.cut("a0")
    for tunnel in pair.attic.gateway.tunnels:
        # What it would say is not heard, and so it reports a failure: it has forgotten all the same.
        with suppress(LabTrouble):
            pair.attic.swanctl("--terminate", "--ike", tunnel.name, "--force", "--timeout", "1")
    assert pair.attic.sas == 0
    pair.internet.heal()


def unready(pair: Pair) -> None:
    """Let both be started anew, and who answers be dialled before it knows any connection."""
    pair.attic.kill()
    pair.cellar.kill()
    pair.attic.start(loads=False)
    pair.cellar.start()
    until(lambda: "NO_PROPOSAL_CHOSEN" in pair.cellar.log, 10, "was not refused")
    pair.attic.load()
