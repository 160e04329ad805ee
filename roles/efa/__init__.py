"""The role `efa`: the software of the Elastic Fabric Adapter."""
