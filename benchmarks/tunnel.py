"""What a tunnel of the product carries, beside the bare daemon with the least that it needs written by hand.

Both in the same run, turn by turn, so that a busy machine is busy for both; also the plain wire, for the ratio. The
target is 90 % of the bare daemon. Needs root, strongSwan and iperf3; charon itself encrypts.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

from tests.support.lab_pair import ATTIC, CELLAR, RACK, Pair, one_key, pair
from tests.support.netlab_probe import megabits
from vpn.sites.rendered import RenderedFile

LEAST_SHARE, SECONDS, ROUNDS = 0.9, 4, 5
_SETTINGS = """charon-systemd {{
  load = random nonce openssl pem kdf hmac gcm drbg vici kernel-libipsec kernel-netlink socket-default
  port = {port}
  port_nat_t = {natt}
  routing_table = 41000
  plugins {{
    vici {{
      socket = {socket}
    }}
    kernel-libipsec {{
      allow_peer_ts = yes
    }}
    kernel-netlink {{
      fwmark = 0x41
    }}
  }}
}}
"""
_CONNECTION = """connections {{
  {name} {{
    remote_addrs = {far}
    local {{
      auth = psk
      id = {own}
    }}
    remote {{
      auth = psk
      id = {peer}
    }}
    children {{
      {name} {{
        local_ts = 0.0.0.0/0
        remote_ts = 0.0.0.0/0
        esp_proposals = aes256gcm16
      }}
    }}
  }}
}}
secrets {{
  ike-1 {{
    secret = one
  }}
}}
"""


def bare(file: RenderedFile) -> str:
    """Return the least that does the same in the place of what is rendered."""
    near, far = (CELLAR, ATTIC) if "/etc/attic/" in str(file.path) else (ATTIC, CELLAR)
    told = dict(line.strip().split(" = ", 1) for line in file.text.splitlines() if " = " in line)
    if file.path.name == "strongswan.conf":
        return _SETTINGS.format(port=told["port"], natt=told["port_nat_t"], socket=told["socket"])
    if file.path.name == "swanctl.conf":
        return _CONNECTION.format(name=far.name, far=far.public, own=near.identity, peer=far.identity)
    return file.text


@contextmanager
def standing(made: Pair, *, guarded: bool) -> Iterator[Pair]:
    """Start a pair, with its guard or with no more of it than hands packets on, and wait until something passes."""
    made.start()
    made.cellar.dial()
    made.wait(60)
    if not guarded:
        for gateway in made.gateways:
            for chain in ("arriving", "through", "own"):
                gateway.host.run("nft", "flush", "chain", "inet", "bedplate_guard", chain)
    yield made


def main() -> int:
    """Print the figures; return 1 where the target is missed."""
    with ExitStack() as stack:
        ours = stack.enter_context(pair(one_key()))
        stack.enter_context(standing(ours, guarded=True))
        theirs = stack.enter_context(pair(one_key(), bare))
        stack.enter_context(standing(theirs, guarded=False))
        figures = {"wire": [], "bare": [], "product": []}  # type: dict[str, list[float]]
        for _ in range(ROUNDS):
            figures["wire"].append(megabits(ours.internet, ours.cellar.host, CELLAR.public, SECONDS))
            figures["bare"].append(megabits(theirs.desk, theirs.rack, RACK, SECONDS))
            figures["product"].append(megabits(ours.desk, ours.rack, RACK, SECONDS))
    for name, found in figures.items():
        print(f"{name:<10} {median(found):8.0f} Mbit/s  ({min(found):.0f} to {max(found):.0f})")
    share = median(one / other for one, other in zip(figures["product"], figures["bare"], strict=True))
    print(f"{share:.0%} of the bare daemon; {median(figures['product']) / median(figures['wire']):.1%} of the wire")
    return 0 if share >= LEAST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
