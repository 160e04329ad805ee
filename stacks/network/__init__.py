"""Networks of regions: VPCs, subnets, ways to the internet, security groups, transit gateways and peerings."""
