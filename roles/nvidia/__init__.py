"""The role `nvidia`: the driver of the GPUs."""
