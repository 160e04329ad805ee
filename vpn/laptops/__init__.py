"""OpenVPN for laptops: configuration of gateways and profiles of laptops."""
