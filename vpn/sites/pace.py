"""How patient a gateway is. What AWS is told is in stacks/tunnel_options.py; these are set below it.

Measured in tests/vpn: a peer that forgot is noticed within SILENCE + the retransmissions, 11.2 s; a healed line is
dialled again within the longest pause between two retransmissions, 2.2 s.
"""

from dataclasses import dataclass

# Seconds without a packet after which the peer is asked whether it is there.
SILENCE = 5
# A request is sent again after 1, 1.3, 1.7 and given up 2.2 s later. AWS answers within a second.
RETRANSMIT_FIRST, RETRANSMIT_BASE, RETRANSMITS = 1.0, 1.3, 3
# AWS gives an IKE_SA up after 28,800 s and a CHILD_SA after 3,600 s
# (https://docs.aws.amazon.com/vpn/latest/s2svpn/VPNTunnels.html). Ours end by themselves a tenth after these.
IKE_REKEY, CHILD_REKEY = 25_200, 3_000
REPLAY_WINDOW = 1024
# AWS proposes 10 s and 30 s for BGP; the shorter of the two ends' holds (RFC 4271).
BGP_KEEPALIVE, BGP_HOLD, BGP_CONNECT = 4, 12, 5


@dataclass(frozen=True, slots=True)
class Dialling:
    """When a gateway looks whether its tunnels stand and dials those that do not: seconds from a start, and between."""

    first: int
    every: int


# Who waits looks later, and less often, so that the two do not build one tunnel at once.
CALLER = Dialling(first=1, every=4)
WAITER = Dialling(first=2, every=15)
