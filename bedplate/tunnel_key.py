"""How long a tunnel's key is at the least. Imports nothing: what runs on gateways alone holds to it too."""

# What EC2 takes at the least (EC2 API reference, VpnTunnelOptionsSpecification).
SHORTEST_KEY = 8
