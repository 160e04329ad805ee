"""Facts about IPsec tunnels. Imports nothing: tests run it on gateways that have nothing else of this package."""

# The largest packet in a tunnel of the fleet's gateways: an Ethernet frame of 1,500 bytes minus all headers, which are
# AES-GCM, UDP for gateways behind NAT, and 8 bytes of PPPoE.
TUNNEL_MTU = 1400
# The shortest pre-shared key that EC2 accepts. Source: EC2 API reference, VpnTunnelOptionsSpecification.
SHORTEST_KEY = 8
