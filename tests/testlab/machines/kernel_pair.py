"""Tests of two gateways with kernel encryption; `python -m tests.testlab.machines.kernel_pair` prints JSON.

Runs on a machine whose kernel has ESP and XFRM interfaces. Needs only the standard library and Jinja2.
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

# Shortened from hours, so that each run has several rekeys of both kinds.
IKE_SECONDS, CHILD_SECONDS = 30, 8
# Faults, and the recovery time in seconds that docs/vpn-sites.md promises.
FAULTS: Mapping[str, float] = {"who-answers-restarts": 5, "who-dials-is-killed": 5, "cut-for-five-seconds": 3}
_DONE: Mapping[str, Fault] = {
    "who-answers-restarts": killed("attic", 0, signal.SIGTERM),
    "who-dials-is-killed": killed("cellar", 1),
    "cut-for-five-seconds": cut(5),
}
# Size of the IPv4 and ICMP headers.
_HEADERS = 28


def main() -> None:
    """Run all tests and print the results."""
    with pair(one_key(), short_lived(IKE_SECONDS, CHILD_SECONDS), in_kernel=True) as gateways:
        gateways.start()
        gateways.wait(60)
        results = {
            "wire": _wire(gateways),
            "faults": {name: _apply_fault(gateways, fault) for name, fault in _DONE.items()},
        }
        results |= {"rekeys": _rekeys(gateways), "leak": _leak(gateways)}
    sys.stdout.write(json.dumps(results))


def _wire(gateways: Pair) -> dict[str, object]:
    """Return the interface, the captured packets, and whether packets of and above the MTU pass."""
    (tunnel,) = gateways.cellar.gateway.tunnels
    with capture(gateways.internet, "c0") as wire:
        whole = gateways.desk.tries("ping", "-c", "1", "-W", "5", "-M", "do", "-s", str(MTU - _HEADERS), RACK)
        larger = gateways.desk.tries("ping", "-c", "1", "-W", "5", "-M", "do", "-s", str(MTU - _HEADERS + 1), RACK)
    return {
        "device": gateways.cellar.host.run("ip", "-d", "link", "show", tunnel.device),
        "number": tunnel.number,
        "policies": gateways.cellar.host.run("ip", "xfrm", "policy"),
        "whole": whole,
        "larger": larger,
        "esp": len(packets(wire, "esp")),
        "clear": len(packets(wire, CLEAR)),
        "other": packets(wire, "ip and not esp and not udp port 500"),
    }


def _apply_fault(gateways: Pair, fault: Fault) -> dict[str, object]:
    result = suffer(gateways, fault)
    return {**asdict(result), "answers": None, "longest": result.answers.longest}


def _rekeys(gateways: Pair) -> dict[str, object]:
    """Ping until several rekeys have happened; return their number and the lost packets."""
    before = gateways.cellar.log
    pings = pinging(gateways.desk, RACK)
    pings.wait_for_answer(10)
    until(
        lambda: gateways.cellar.log.count("rekeyed between") > before.count("rekeyed between"),
        90,
        "no IKE_SA was rekeyed",
    )
    answers = pings.stop()
    log = gateways.cellar.log.removeprefix(before)
    children, sas = len(re.findall(r"CHILD_SA attic\{\d+\} established", log)), log.count("rekeyed between")
    return {"children": children, "sas": sas, "longest": answers.longest, "lost": answers.share_lost}


def _leak(gateways: Pair) -> int:
    """Return the number of unencrypted packets after the guard and the unreachable routes are removed."""
    gateways.cellar.host.run("nft", "delete", "table", "inet", "bedplate_guard")
    gateways.cellar.host.run("ip", "route", "flush", "type", "unreachable")
    with capture(gateways.internet, "c0") as wire:
        gateways.cellar.kill()
        gateways.cellar.host.run("ip", "link", "delete", gateways.cellar.gateway.tunnels[0].device)
        gateways.desk.pings(RACK)
        sleep(1)
    return len(packets(wire, CLEAR))


if __name__ == "__main__":
    main()
