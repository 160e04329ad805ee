"""The guard of a gateway: nothing that is for a block behind another leaves in the clear, and who asks is told."""
