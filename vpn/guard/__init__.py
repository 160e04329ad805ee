"""The guard of a gateway: traffic between sites and regions is dropped unless it is in a tunnel."""
