"""The gateway agent, which `bedplate vpn` calls on a gateway."""
