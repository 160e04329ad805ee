"""OpenVPN gateways for laptops."""
