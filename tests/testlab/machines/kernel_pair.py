"""Two gateways whose kernels encrypt, and what is told of them: `python -m tests.testlab.machines.kernel_pair`, as JSON.

Runs on a machine whose kernel has ESP and XFRM interfaces, and needs the standard library and Jinja2 alone there.
"""

import json
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict
from time import sleep

from tests.testlab.keys.authority import short_lived
from tests.testlab.network.gateways import CLEAR, RACK, Fault, Pair, cut, killed, one_key, pair, suffer
from tests.testlab.network.netlab import capture, packets, pinging, until
from vpn.sites.gateway import MTU

# Shortened from hours, so that every run sees several of each.
IKE_SECONDS, CHILD_SECONDS = 30, 8
# Faults, and the seconds from the end of each to the next answer that docs/vpn-sites.md promises.
FAULTS: Mapping[str, float] = {"who-answers-restarts": 5, "who-dials-is-killed": 5, "cut-for-five-seconds": 3}
_DONE: Mapping[str, Fault] = {
    "who-answers-restarts": killed("attic", 0, signal.SIGTERM),
    "who-dials-is-killed": killed("cellar", 1),
    "cut-for-five-seconds": cut(5),
}
# Of IPv4 and of ICMP.
_HEADERS = 28


def main() -> None:
    """Tell all of it."""
    with pair(one_key(), short_lived(IKE_SECONDS, CHILD_SECONDS), in_kernel=True) as made:
        made.start()
        made.wait(60)
        told = {"wire": _wire(made), "faults": {name: _suffered(made, fault) for name, fault in _DONE.items()}}
        told |= {"rekeys": _rekeys(made), "leak": _leak(made)}
    sys.stdout.write(json.dumps(told))


def _wire(made: Pair) -> dict[str, object]:
    """Tell what passes between them, by what device, and how large a packet may be."""
    (tunnel,) = made.cellar.gateway.tunnels
    with capture(made.internet, "c0") as wire:
        whole = made.desk.tries("ping", "-c", "1", "-W", "5", "-M", "do", "-s", str(MTU - _HEADERS), RACK)
        larger = made.desk.tries("ping", "-c", "1", "-W", "5", "-M", "do", "-s", str(MTU - _HEADERS + 1), RACK)
    return {
        "device": made.cellar.host.run("ip", "-d", "link", "show", tunnel.device),
        "number": tunnel.number,
        "policies": made.cellar.host.run("ip", "xfrm", "policy"),
        "whole": whole,
        "larger": larger,
        "esp": len(packets(wire, "esp")),
        "clear": len(packets(wire, CLEAR)),
        "other": packets(wire, "ip and not esp and not udp port 500"),
    }


def _suffered(made: Pair, fault: Fault) -> dict[str, object]:
    told = suffer(made, fault)
    return {**asdict(told), "answers": None, "longest": told.answers.longest}


def _rekeys(made: Pair) -> dict[str, object]:
    """Ping until keys have been renewed several times; tell how often, and what was lost."""
    before = made.cellar.log
    pings = pinging(made.desk, RACK)
    pings.wait_for_answer(10)
    until(
        lambda: made.cellar.log.count("rekeyed between") > before.count("rekeyed between"), 90, "no IKE_SA is renewed"
    )
    answers = pings.stop()
    log = made.cellar.log.removeprefix(before)
    children, sas = len(re.findall(r"CHILD_SA attic\{\d+\} established", log)), log.count("rekeyed between")
    return {"children": children, "sas": sas, "longest": answers.longest, "lost": answers.share_lost}


def _leak(made: Pair) -> int:
    """Tell how many packets are in the clear where guard and last routes are gone."""
    made.cellar.host.run("nft", "delete", "table", "inet", "bedplate_guard")
    made.cellar.host.run("ip", "route", "flush", "type", "unreachable")
    with capture(made.internet, "c0") as wire:
        made.cellar.kill()
        made.cellar.host.run("ip", "link", "delete", made.cellar.gateway.tunnels[0].device)
        made.desk.pings(RACK)
        sleep(1)
    return len(packets(wire, CLEAR))


if __name__ == "__main__":
    main()
