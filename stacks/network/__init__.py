"""VPC networks: subnets, NAT gateways, endpoints, security groups, transit gateways and peerings."""
