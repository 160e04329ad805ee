"""Site-to-site VPN connections of AWS, and the peering of regions by their VPN gateways."""
