"""VPN connections between AWS and the gateways of sites, and between regions."""
