"""The guard of a gateway: rules by which nothing that is for a block behind another gateway leaves in the clear."""
